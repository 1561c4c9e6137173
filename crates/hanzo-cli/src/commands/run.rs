//! `hanzo run`: one reply, or a chat.

mod chat;
mod conversation;
mod input;
mod once;
mod settings;
mod show;

use std::io::{IsTerminal, Read};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::ValueEnum;
use hanzo_fusion::KvType;

use crate::failure::usage;
use crate::model::{self, Source};
use crate::session::{LoadSettings, Session};
use crate::{device, interrupt, log, out};

/// Longest prompt read from a file or standard input, in bytes.
const MAX_PROMPT: u64 = 64 << 20;

/// Chat with a model, or get one reply
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "hanzo run [MODEL] [PROMPT] [OPTIONS]",
    after_help = "Examples:
  hanzo run                                   chat with the small model that is built in
  hanzo run \"Once upon a time\"                one reply of it
  hanzo run model.gguf                        chat with a model of your own
  hanzo run model.gguf \"Why is the sky blue?\" --temp 0
  hanzo run model.gguf < question.txt         the prompt from standard input
  hanzo run model.gguf --raw \"def fib(n):\" --max-tokens 64 --stop \"\\n\\n\"
  hanzo run model.gguf \"Name three colours\" --json | jq -r .text
  hanzo run model.gguf --lora style.gguf --lora peft-folder=0.5

The first word is a model if it exists as a file, ends in .gguf, or is the name of one on this machine (see `hanzo list`)
or of one that `hanzo pull` would fetch;
otherwise it is the prompt for the built-in model. -m and -p leave no doubt.

The reply goes to standard output, everything else to standard error. Exit codes: 0 done, 1 failed, 2 wrong usage,
130 interrupted."
)]
pub(crate) struct Args {
    /// A model, a prompt, or a model and a prompt
    #[arg(value_name = "MODEL] [PROMPT")]
    words: Vec<String>,
    /// The model: a GGUF file, or the name of one on this machine (`hanzo list`)
    #[arg(short, long, value_name = "MODEL")]
    model: Option<String>,
    /// The prompt
    #[arg(short, long, value_name = "TEXT")]
    prompt: Option<String>,
    /// A file to append to the prompt; - for standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// System message
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    system: Option<String>,
    /// Continue the prompt as plain text, without the model's chat format
    #[arg(long, conflicts_with_all = ["chat", "system"])]
    raw: bool,
    /// Insist on the model's chat format: an error where there is none
    #[arg(long)]
    chat: bool,
    /// A chat template (Jinja) in place of the model's
    #[arg(long, value_name = "FILE.jinja")]
    chat_template: Option<PathBuf>,
    /// Chat even if standard input is not a terminal: one message a line
    #[arg(long, conflicts_with_all = ["json", "prompt", "file"])]
    interactive: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: settings::ReplyFlags,
    /// Longest conversation in tokens; the model's own limit, but at most 8192, by default
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(2..=1 << 24), help_heading = "Loading")]
    ctx: Option<u32>,
    /// Element type of cached keys and values; int8 takes half the memory of f16, at a small error
    #[arg(long, value_enum, default_value_t = Kv::F16, help_heading = "Loading")]
    kv: Kv,
    /// Memory for cached keys and values, such as 512M or 2G; as much as --ctx needs by default
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = crate::size::parse, help_heading = "Loading")]
    kv_memory: Option<u64>,
    /// A LoRA adapter (GGUF file, or PEFT folder) and its scale, 1 by default; may be given several times
    #[arg(long, value_name = "PATH[=SCALE]", value_parser = crate::lora::parse, help_heading = "Loading")]
    lora: Vec<crate::lora::LoraFlag>,
    /// Threads; one a core by default
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = "Loading")]
    threads: Option<u16>,
    /// Keep packed weights on disk, in a folder of the cache or in DIR (after `=`; `./default` for one of that name): the next load of the same
    /// file reads them in place of packing
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true, default_missing_value = device::USUAL, value_parser = device::pack_cache_parser(), help_heading = "Loading")]
    pack_cache: Option<device::PackCache>,
    /// Say more: settings, memory, the libraries' messages
    #[arg(short, long, help_heading = "Output")]
    verbose: bool,
    /// No announcements and no speed line
    #[arg(short, long, conflicts_with = "verbose", help_heading = "Output")]
    quiet: bool,
    /// No speed line
    #[arg(long, help_heading = "Output")]
    no_speed: bool,
}

/// Element type of the cache, as a flag.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Kv {
    // Plain comments: documented values would stretch `--help`.
    // Half precision.
    F16,
    // Eight bits with a scale a token and head: half the memory, a small error.
    Int8,
    // Single precision.
    F32,
}

impl Kv {
    /// What the user calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Int8 => "int8",
            Self::F32 => "f32",
        }
    }
}

impl From<Kv> for KvType {
    fn from(kv: Kv) -> Self {
        match kv {
            Kv::F16 => Self::F16,
            Kv::Int8 => Self::Int8,
            Kv::F32 => Self::F32,
        }
    }
}

/// What is said beside the reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub(super) quiet: bool,
    pub(super) speed: bool,
    pub(super) json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let level = if args.verbose { tracing::Level::DEBUG } else { tracing::Level::WARN };
    log::init(level, log::Format::Text);
    let settings = args.settings.settings()?;
    let (source, prompt) = model_and_prompt(args)?;
    let prompt = with_input(args, prompt)?;
    if args.json && prompt.is_none() {
        return Err(usage("--json prints one reply: give a prompt"));
    }
    let template = args.chat_template.as_ref().map(|path| super::template::read(path)).transpose()?;
    let load = LoadSettings {
        threads: args.threads.map(usize::from),
        pack_cache: args.pack_cache.clone(),
        context: args.ctx.map(|n| n as usize),
        kv: args.kv.into(),
        kv_memory: args.kv_memory,
        template,
        lora: args.lora.clone(),
    };
    let manner =
        Manner { quiet: args.quiet, speed: !args.quiet && !args.no_speed && !args.json, json: args.json };

    interrupt::init();
    let mut session = Session::load(source, &load)?;
    session.chatting = prompt.is_none();
    if args.chat && !session.can_chat() {
        return Err(usage(format!(
            "{} has no chat template: leave out --chat to continue plain text, or give one with --chat-template",
            session.source.name()
        )));
    }
    announce(args, &session, prompt.is_none());
    let as_chat = session.can_chat() && !args.raw;
    match prompt {
        Some(prompt) => once::run(&session, &settings, manner, args.system.as_deref(), &prompt, as_chat),
        None => chat::run(session, settings, manner, args.system.clone(), as_chat),
    }
}

/// Which model and which prompt the words mean.
fn model_and_prompt(args: &Args) -> Result<(Source, Option<String>)> {
    let named = args.model.as_deref();
    let (model, prompt) = match (args.words.as_slice(), named, &args.prompt) {
        ([], model, prompt) => (model.map(model::require).transpose()?, prompt.clone()),
        ([word], Some(model), None) => (Some(model::require(model)?), Some(word.clone())),
        ([word], None, Some(prompt)) => (Some(model::require(word)?), Some(prompt.clone())),
        ([word], None, None) => match model::find(word)? {
            Some(source) => (Some(source), None),
            // One that cannot be a prompt is no prompt for another model.
            None if model::looks_like_model(word) => {
                anyhow::bail!("{}; if this is the prompt, say so with -p", model::missing(word));
            }
            None => (None, Some(word.clone())),
        },
        ([model, prompt], None, None) => match model::require(model) {
            Ok(source) => (Some(source), Some(prompt.clone())),
            Err(error) => {
                return Err(error.context("the first of two words is the model; quote a prompt of several"));
            }
        },
        ([_], Some(_), Some(_)) => return Err(usage("the prompt is there twice: as a word and with -p")),
        ([_, _], ..) => {
            return Err(usage("the model or the prompt is there twice: as a word and with -m or -p"));
        }
        (words, ..) => {
            let text = words.join(" ");
            return Err(usage(format!(
                "too many words: put the prompt in quotes, such as hanzo run \"{text}\""
            )));
        }
    };
    Ok((model.unwrap_or(Source::BuiltIn), prompt))
}

/// The prompt with the file behind it; from standard input if there is none and nobody types there.
fn with_input(args: &Args, prompt: Option<String>) -> Result<Option<String>> {
    let prompt = match (&args.file, prompt) {
        (Some(path), prompt) => {
            let text = read_prompt(path)?;
            Some(prompt.map_or(text.clone(), |p| format!("{p}\n\n{text}")))
        }
        (None, Some(prompt)) => Some(prompt),
        (None, None) if args.interactive || std::io::stdin().is_terminal() => None,
        (None, None) => Some(read_prompt(&PathBuf::from("-"))?),
    };
    match prompt {
        Some(prompt) if prompt.trim().is_empty() => Err(usage(
            "the prompt is empty; give one, or run in a terminal to chat (--interactive without one)",
        )),
        prompt => Ok(prompt),
    }
}

/// The text of a file or of standard input, without the line break at its end.
fn read_prompt(path: &std::path::Path) -> Result<String> {
    let stdin = path.as_os_str() == "-";
    let name = if stdin { "standard input".to_owned() } else { path.display().to_string() };
    let context = || format!("cannot read the prompt from {name}");
    let source: Box<dyn Read> = if stdin {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(std::fs::File::open(path).with_context(context)?)
    };
    let mut bytes = Vec::new();
    source.take(MAX_PROMPT + 1).read_to_end(&mut bytes).with_context(context)?;
    if bytes.len() as u64 > MAX_PROMPT {
        anyhow::bail!("{name} has more than {MAX_PROMPT} bytes, which no context holds");
    }
    let mut text = String::from_utf8(bytes).with_context(|| format!("{name} is not UTF-8"))?;
    while text.ends_with(['\n', '\r']) {
        text.pop();
    }
    Ok(text)
}

/// Says what runs, and what is unusual about it.
fn announce(args: &Args, session: &Session, chatting: bool) {
    let info = session.engine().info();
    if info.max_context > info.trained_context {
        out::warning(format_args!(
            "a context of {} is beyond the {} that the model was made for; long texts may turn to nonsense",
            info.max_context, info.trained_context
        ));
    }
    if args.quiet {
        return;
    }
    if session.source == Source::BuiltIn {
        out::aside(format_args!(
            "hanzo-tiny: a small demo model that is built in; it tells simple stories and knows little else.\n\
             For a real one: hanzo run MODEL.gguf, or hanzo pull qwen3:0.6b"
        ));
    } else if chatting || args.verbose {
        out::aside(format_args!("{}: {} {}", session.source.name(), info.architecture, session.file_type));
    }
    for adapter in session.engine().adapters() {
        out::aside(format_args!(
            "Adapter {}: rank {}, {} matrices, {}",
            out::for_terminal(&adapter.name),
            adapter.rank,
            adapter.n_updates,
            out::bytes(adapter.bytes)
        ));
    }
    if !session.can_chat() && !args.raw {
        out::aside(format_args!("The model has no chat template: it continues your text."));
    }
    if args.verbose {
        let memory = &info.memory;
        out::aside(format_args!(
            "{}; loaded in {:.2} s; {} of weights, {} of KV cache ({}), {} of scratch; context {} of {}",
            info.device,
            session.load_time.as_secs_f64(),
            out::bytes(memory.weights),
            out::bytes(memory.kv),
            format!("{:?}", args.kv).to_lowercase(),
            out::bytes(memory.arena),
            info.max_context,
            info.trained_context
        ));
    }
}
