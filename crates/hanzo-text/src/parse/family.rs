//! How each model family writes reasoning and tool calls: one table a family. The engine that reads them is in
//! [`matcher`](super::matcher) and [`mod`](super).

use std::fmt;
use std::str::FromStr;

/// A model family's way to write replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Family {
    /// Anything else: what several families share.
    Generic,
    /// Qwen, Hermes and many others: `<tool_call>` with JSON or with `<function=…>` inside.
    Hermes,
    /// Llama 3: a bare JSON object, `<|python_tag|>`, `<function=…>{…}</function>`.
    Llama3,
    /// Mistral: `[TOOL_CALLS]`.
    Mistral,
    /// DeepSeek V3, R1, V3.1, V3.2.
    DeepSeek,
    /// GPT-OSS: channels.
    Harmony,
    /// Gemma.
    Gemma,
    /// Granite.
    Granite,
    /// Phi-4.
    Phi,
    /// GLM.
    Glm,
    /// Kimi K2.
    Kimi,
    /// Command R7B and A.
    Command,
    /// LFM2: Python calls.
    Lfm2,
    /// Seed-OSS.
    Seed,
    /// MiniMax and others with `<tool_calls>`.
    MiniMax,
}

/// One step of a call's syntax.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// This text.
    Lit(&'static str),
    /// This text comes next; it is not passed.
    Peek(&'static str),
    /// White space, or none.
    Space,
    /// This text, or the end of the reply.
    End(&'static str),
    /// The tool's name.
    Name,
    /// A word that does not matter (an identifier).
    Word,
    /// Up to 128 bytes that do not matter, up to and with this text.
    Skip(&'static str),
    /// JSON that says name and arguments, or an array of such.
    Call,
    /// One or more of [`Step::Call`].
    Calls,
    /// JSON with the arguments of the tool that was named.
    Args,
    /// `f(x=1)` or a list of such.
    Python,
    /// Arguments each between tags.
    Pairs(&'static Pairs),
    /// `{key:value}` with strings between two `quote`s, up to (and without) `close`.
    Braces { quote: &'static str, close: &'static str },
}

/// How arguments between tags are written: `open KEY key_end … value_open VALUE value_close`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pairs {
    pub(super) open: &'static str,
    pub(super) key_end: &'static str,
    /// Comes at most 64 bytes after the key.
    pub(super) value_open: &'static str,
    pub(super) value_close: &'static str,
}

/// A call's syntax, from its first text.
pub(super) type Rule = &'static [Step];

/// The table of a family.
#[derive(Debug)]
pub(super) struct Syntax {
    /// What opens and closes reasoning.
    pub(super) reasoning: &'static [(&'static str, &'static str)],
    /// Reasoning may begin in the middle of text, not only before it or after calls.
    pub(super) reasoning_anywhere: bool,
    /// Special tokens that structure the reply and say nothing, wherever they stand.
    pub(super) noise: &'static [&'static str],
    /// What may stand around the whole content.
    pub(super) wrapper: Option<(&'static str, &'static str)>,
    /// Calls that are marked as such.
    pub(super) rules: &'static [Rule],
    /// Calls that are only told from text by where they stand (first) and whom they call (a tool that exists).
    pub(super) bare: &'static [Rule],
    /// Dropped right after a call.
    pub(super) trailers: &'static [&'static str],
}

use Step::{Args, Braces, Call, Calls, End, Lit, Name, Peek, Python, Skip, Space, Word};

const THINK: (&str, &str) = ("<think>", "</think>");

static PARAMETER: Pairs =
    Pairs { open: "<parameter=", key_end: ">", value_open: "", value_close: "</parameter>" };
static ARG_KEY: Pairs = Pairs {
    open: "<arg_key>",
    key_end: "</arg_key>",
    value_open: "<arg_value>",
    value_close: "</arg_value>",
};
static INVOKE: Pairs =
    Pairs { open: "<parameter name=\"", key_end: "\"", value_open: ">", value_close: "</parameter>" };
static PARAM: Pairs =
    Pairs { open: "<param name=\"", key_end: "\"", value_open: ">", value_close: "</param>" };
static DSML: Pairs = Pairs {
    open: "<｜DSML｜parameter name=\"",
    key_end: "\"",
    value_open: ">",
    value_close: "</｜DSML｜parameter>",
};

const TOOL_CALL_JSON: Rule = &[Lit("<tool_call>"), Space, Call, Space, End("</tool_call>")];
const TOOL_CALL_TAGS: Rule = &[
    Lit("<tool_call>"),
    Space,
    Lit("<function="),
    Name,
    Lit(">"),
    Step::Pairs(&PARAMETER),
    Space,
    Lit("</function>"),
    Space,
    End("</tool_call>"),
];
const FUNCTION_TAGS: Rule =
    &[Lit("<function="), Name, Lit(">"), Step::Pairs(&PARAMETER), Space, Lit("</function>")];
const FUNCTION_JSON: Rule = &[Lit("<function="), Name, Lit(">"), Space, Args, Space, End("</function>")];
const FUNCTION_PARAM: Rule =
    &[Lit("<function name=\""), Name, Lit("\">"), Step::Pairs(&PARAM), Space, Lit("</function>")];
const BARE_JSON: Rule = &[Peek("{"), Call];
const BARE_LIST: Rule = &[Peek("["), Call];
const BARE_PYTHON: Rule = &[Peek("["), Python];
const PIPED_JSON: Rule = &[Lit("<|tool_call|>"), Space, Call, Space, End("<|/tool_call|>")];

static GENERIC: Syntax = Syntax {
    reasoning: &[THINK],
    reasoning_anywhere: false,
    noise: &[],
    wrapper: None,
    rules: &[TOOL_CALL_JSON, TOOL_CALL_TAGS, FUNCTION_TAGS, FUNCTION_JSON, FUNCTION_PARAM, PIPED_JSON],
    bare: &[BARE_JSON, BARE_LIST, BARE_PYTHON],
    trailers: &["</tool_call>"],
};

static HERMES: Syntax = Syntax {
    rules: &[TOOL_CALL_JSON, TOOL_CALL_TAGS, FUNCTION_TAGS, FUNCTION_JSON, FUNCTION_PARAM],
    // Small ones (Qwen2.5-Coder) forget the tags.
    bare: &[BARE_JSON],
    ..GENERIC
};

static LLAMA3: Syntax = Syntax {
    rules: &[
        &[Lit("<|python_tag|>"), Space, Call],
        &[Lit("<|python_tag|>"), Space, Python],
        FUNCTION_JSON,
        TOOL_CALL_JSON,
    ],
    bare: &[BARE_JSON, BARE_LIST, BARE_PYTHON],
    trailers: &[";", "<|eom_id|>", "<|eot_id|>"],
    ..GENERIC
};

static MISTRAL: Syntax = Syntax {
    reasoning: &[("[THINK]", "[/THINK]"), THINK],
    rules: &[
        &[Lit("[TOOL_CALLS]"), Space, Call],
        &[Lit("[TOOL_CALLS]"), Space, Name, Lit("[ARGS]"), Space, Args],
        &[Lit("[TOOL_CALLS]"), Space, Name, Lit("[CALL_ID]"), Word, Lit("[ARGS]"), Space, Args],
        &[Lit("[TOOL_CALLS]"), Space, Name, Space, Args],
    ],
    bare: &[],
    trailers: &[],
    ..GENERIC
};

static DEEPSEEK: Syntax = Syntax {
    rules: &[
        &[
            Lit("<｜tool▁calls▁begin｜>"),
            Space,
            Lit("<｜tool▁call▁begin｜>"),
            Name,
            Lit("<｜tool▁sep｜>"),
            Space,
            Args,
            Space,
            End("<｜tool▁call▁end｜>"),
        ],
        &[
            Lit("<｜tool▁call▁begin｜>"),
            Name,
            Lit("<｜tool▁sep｜>"),
            Space,
            Args,
            Space,
            End("<｜tool▁call▁end｜>"),
        ],
        &[
            Lit("<｜tool▁calls▁begin｜>"),
            Space,
            Lit("<｜tool▁call▁begin｜>function<｜tool▁sep｜>"),
            Name,
            Space,
            Lit("```json"),
            Space,
            Args,
            Space,
            Lit("```"),
            Space,
            End("<｜tool▁call▁end｜>"),
        ],
        &[
            Lit("<｜tool▁call▁begin｜>function<｜tool▁sep｜>"),
            Name,
            Space,
            Lit("```json"),
            Space,
            Args,
            Space,
            Lit("```"),
            Space,
            End("<｜tool▁call▁end｜>"),
        ],
        &[
            Lit("<｜DSML｜tool_calls>"),
            Space,
            Lit("<｜DSML｜invoke name=\""),
            Name,
            Lit("\">"),
            Step::Pairs(&DSML),
            Space,
            Lit("</｜DSML｜invoke>"),
        ],
        &[
            Lit("<｜DSML｜function_calls>"),
            Space,
            Lit("<｜DSML｜invoke name=\""),
            Name,
            Lit("\">"),
            Step::Pairs(&DSML),
            Space,
            Lit("</｜DSML｜invoke>"),
        ],
        &[
            Lit("<｜DSML｜invoke name=\""),
            Name,
            Lit("\">"),
            Step::Pairs(&DSML),
            Space,
            Lit("</｜DSML｜invoke>"),
        ],
    ],
    bare: &[],
    trailers: &[
        "<｜tool▁calls▁end｜>",
        "</｜DSML｜tool_calls>",
        "</｜DSML｜function_calls>",
        "<｜end▁of▁sentence｜>",
    ],
    ..GENERIC
};

static HARMONY: Syntax = Syntax {
    reasoning: &[("<|channel|>analysis<|message|>", "<|end|>")],
    reasoning_anywhere: true,
    noise: &[
        "<|start|>assistant",
        "<|channel|>final<|message|>",
        "<|channel|>final <|constrain|>json<|message|>",
        "<|channel|>commentary<|message|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
    ],
    wrapper: None,
    rules: &[
        &[
            Lit("<|channel|>commentary to=functions."),
            Name,
            Skip("<|message|>"),
            Space,
            Args,
            Space,
            End("<|call|>"),
        ],
        &[
            Lit("<|channel|>analysis to=functions."),
            Name,
            Skip("<|message|>"),
            Space,
            Args,
            Space,
            End("<|call|>"),
        ],
        &[
            Lit("<|start|>assistant to=functions."),
            Name,
            Skip("<|message|>"),
            Space,
            Args,
            Space,
            End("<|call|>"),
        ],
    ],
    bare: &[
        &[Lit(" to=functions."), Name, Skip("<|message|>"), Space, Args, Space, End("<|call|>")],
        &[Lit("to=functions."), Name, Skip("<|message|>"), Space, Args, Space, End("<|call|>")],
    ],
    trailers: &["<|call|>", "<|end|>"],
};

static GEMMA: Syntax = Syntax {
    reasoning: &[("<|channel>thought\n", "<channel|>")],
    rules: &[
        &[
            Lit("<|tool_call>call:"),
            Name,
            Braces { quote: "<|\"|>", close: "<tool_call|>" },
            Lit("<tool_call|>"),
        ],
        &[
            Lit("<start_function_call>call:"),
            Name,
            Braces { quote: "<escape>", close: "<end_function_call>" },
            Lit("<end_function_call>"),
        ],
        &[Lit("```tool_code"), Space, Python, Space, End("```")],
        &[Lit("```tool_call"), Space, Call, Space, End("```")],
        TOOL_CALL_JSON,
    ],
    bare: &[BARE_JSON, BARE_PYTHON],
    trailers: &["<|tool_response>", "<start_function_response>"],
    ..GENERIC
};

static GRANITE: Syntax = Syntax {
    reasoning: &[THINK, ("Here is my thought process:", "Here is my response:")],
    wrapper: Some(("<response>", "</response>")),
    rules: &[&[Lit("<|tool_call|>"), Space, Call], TOOL_CALL_JSON],
    bare: &[BARE_JSON, BARE_LIST],
    trailers: &[],
    ..GENERIC
};

static PHI: Syntax = Syntax {
    rules: &[PIPED_JSON, &[Lit("functools"), Space, Call], TOOL_CALL_JSON],
    bare: &[BARE_JSON, BARE_LIST],
    trailers: &[],
    ..GENERIC
};

static GLM: Syntax = Syntax {
    rules: &[
        &[Lit("<tool_call>"), Space, Name, Step::Pairs(&ARG_KEY), Space, End("</tool_call>")],
        TOOL_CALL_JSON,
        TOOL_CALL_TAGS,
    ],
    bare: &[],
    ..GENERIC
};

static KIMI: Syntax = Syntax {
    rules: &[
        &[
            Lit("<|tool_calls_section_begin|>"),
            Space,
            Lit("<|tool_call_begin|>"),
            Space,
            Name,
            Space,
            Lit("<|tool_call_argument_begin|>"),
            Space,
            Args,
            Space,
            End("<|tool_call_end|>"),
        ],
        &[
            Lit("<|tool_call_begin|>"),
            Space,
            Name,
            Space,
            Lit("<|tool_call_argument_begin|>"),
            Space,
            Args,
            Space,
            End("<|tool_call_end|>"),
        ],
    ],
    bare: &[],
    trailers: &["<|tool_calls_section_end|>"],
    ..GENERIC
};

static COMMAND: Syntax = Syntax {
    reasoning: &[("<|START_THINKING|>", "<|END_THINKING|>")],
    noise: &["<|START_RESPONSE|>", "<|END_RESPONSE|>"],
    rules: &[&[Lit("<|START_ACTION|>"), Space, Call, Space, End("<|END_ACTION|>")]],
    bare: &[],
    trailers: &[],
    ..GENERIC
};

static LFM2: Syntax = Syntax {
    rules: &[
        &[Lit("<|tool_call_start|>"), Space, Python, Space, End("<|tool_call_end|>")],
        &[Lit("<|tool_call_start|>"), Space, Call, Space, End("<|tool_call_end|>")],
    ],
    bare: &[],
    trailers: &[],
    ..GENERIC
};

static SEED: Syntax = Syntax {
    reasoning: &[("<seed:think>", "</seed:think>")],
    rules: &[&[
        Lit("<seed:tool_call>"),
        Space,
        Lit("<function="),
        Name,
        Lit(">"),
        Step::Pairs(&PARAMETER),
        Space,
        Lit("</function>"),
        Space,
        End("</seed:tool_call>"),
    ]],
    bare: &[],
    trailers: &[],
    ..GENERIC
};

static MINIMAX: Syntax = Syntax {
    rules: &[
        &[Lit("<tool_calls>"), Space, Calls, Space, End("</tool_calls>")],
        &[
            Lit("<minimax:tool_call>"),
            Space,
            Lit("<invoke name=\""),
            Name,
            Lit("\">"),
            Step::Pairs(&INVOKE),
            Space,
            Lit("</invoke>"),
        ],
        &[Lit("<invoke name=\""), Name, Lit("\">"), Step::Pairs(&INVOKE), Space, Lit("</invoke>")],
    ],
    bare: &[],
    trailers: &["</minimax:tool_call>"],
    ..GENERIC
};

/// What a template's source must contain for a family to be taken, first match first.
const SIGNS: &[(&[&str], Family)] = &[
    (&["<|channel|>", "<|message|>"], Family::Harmony),
    (&["[TOOL_CALLS]"], Family::Mistral),
    (&["[INST]"], Family::Mistral),
    (&["<｜tool▁call"], Family::DeepSeek),
    (&["｜DSML｜"], Family::DeepSeek),
    (&["<｜Assistant｜>"], Family::DeepSeek),
    (&["<|tool_call>", "<tool_call|>"], Family::Gemma),
    (&["<start_of_turn>"], Family::Gemma),
    (&["<|tool_call_begin|>"], Family::Kimi),
    (&["<|START_ACTION|>"], Family::Command),
    (&["<|tool_call_start|>"], Family::Lfm2),
    (&["<|tool_list_start|>"], Family::Lfm2),
    (&["<seed:tool_call>"], Family::Seed),
    (&["<arg_key>"], Family::Glm),
    (&["<tool_calls>"], Family::MiniMax),
    (&["<minimax:tool_call>"], Family::MiniMax),
    (&["<|start_of_role|>"], Family::Granite),
    (&["functools["], Family::Phi),
    (&["<|/tool_call|>"], Family::Phi),
    (&["<tool_call>"], Family::Hermes),
    (&["<function="], Family::Hermes),
    (&["<function name="], Family::Hermes),
    (&["<|start_header_id|>"], Family::Llama3),
    (&["<|assistant|>", "<|end|>"], Family::Phi),
];

/// Names by which a family can be chosen.
const NAMES: &[(&str, Family)] = &[
    ("generic", Family::Generic),
    ("hermes", Family::Hermes),
    ("qwen", Family::Hermes),
    ("llama3", Family::Llama3),
    ("mistral", Family::Mistral),
    ("deepseek", Family::DeepSeek),
    ("harmony", Family::Harmony),
    ("gpt-oss", Family::Harmony),
    ("gemma", Family::Gemma),
    ("granite", Family::Granite),
    ("phi", Family::Phi),
    ("glm", Family::Glm),
    ("kimi", Family::Kimi),
    ("command", Family::Command),
    ("lfm2", Family::Lfm2),
    ("seed", Family::Seed),
    ("minimax", Family::MiniMax),
];

impl Family {
    /// The family whose marks are in a chat template's source; [`Family::Generic`] if none are.
    pub fn detect(template: &str) -> Self {
        let found = SIGNS.iter().find(|(signs, _)| signs.iter().all(|sign| template.contains(sign)));
        found.map_or(Family::Generic, |(_, family)| *family)
    }

    /// All names that [`from_str`](FromStr::from_str) takes.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name)
    }

    /// What opens and closes reasoning; the first of them where a family has several.
    pub fn reasoning_marks(self) -> Option<(&'static str, &'static str)> {
        self.syntax().reasoning.first().copied()
    }

    /// Whether a prompt ends inside reasoning, because the template opened it.
    pub fn ends_in_reasoning(self, prompt: &str) -> bool {
        self.reasoning_marks().is_some_and(|(open, _)| prompt.trim_end().ends_with(open.trim_end()))
    }

    pub(super) fn syntax(self) -> &'static Syntax {
        match self {
            Family::Generic => &GENERIC,
            Family::Hermes => &HERMES,
            Family::Llama3 => &LLAMA3,
            Family::Mistral => &MISTRAL,
            Family::DeepSeek => &DEEPSEEK,
            Family::Harmony => &HARMONY,
            Family::Gemma => &GEMMA,
            Family::Granite => &GRANITE,
            Family::Phi => &PHI,
            Family::Glm => &GLM,
            Family::Kimi => &KIMI,
            Family::Command => &COMMAND,
            Family::Lfm2 => &LFM2,
            Family::Seed => &SEED,
            Family::MiniMax => &MINIMAX,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, family)| family == self).map_or("generic", |(name, _)| name);
        f.write_str(name)
    }
}

/// A name that no family has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no output format `{name}`; there are {}", Family::names().collect::<Vec<_>>().join(", "))]
pub struct UnknownFamily {
    /// The name.
    pub name: String,
}

impl FromStr for Family {
    type Err = UnknownFamily;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, family)| *family).ok_or_else(|| UnknownFamily { name: name.to_owned() })
    }
}
