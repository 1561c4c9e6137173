//! What each value of `tokenizer.ggml.pre` stands for.

use super::super::classes::{LETTER, MARK, NUMBER};
use super::Step;
use super::deepseek::{llm_east_asian, llm_letter, llm_punct, v3_chinese_or_kana};
use super::runs::{
    Digits, Lead, Run, afmoe_east_asian, any_punct, bloom_word, default_punct, falcon_punct, youtu_bopomofo,
    youtu_hangul, youtu_punct,
};
use super::words::{Cased, Tail, Word};

/// A pre-tokenizer with the tokenizer settings that its models share and files leave out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Preset {
    /// The splitting rules.
    pub(crate) steps: Vec<Step>,
    /// A piece that is a token as a whole is taken as such, without merging.
    pub(crate) whole_pieces_first: bool,
    /// BOS is added unless the file says otherwise.
    pub(crate) add_bos: bool,
    /// Tokens are spelled as SentencePiece does (U+2581 for a space, `<0xHH>` for a byte), not in the byte-level alphabet.
    pub(crate) sentencepiece_spelling: bool,
    /// Every line begins with a space, and each space begins a word.
    pub(crate) metaspace: bool,
}

impl Preset {
    fn of(steps: impl Into<Vec<Step>>) -> Self {
        Self { steps: steps.into(), ..Self::default() }
    }

    fn word(word: Word) -> Self {
        Self::of([Step::Word(word)])
    }

    fn whole_pieces_first(self) -> Self {
        Self { whole_pieces_first: true, ..self }
    }

    fn add_bos(self) -> Self {
        Self { add_bos: true, ..self }
    }
}

const fn run(lead: Lead, set: super::runs::Set) -> Step {
    Step::Run(Run { lead, set, max: u32::MAX })
}

/// The preset of that name, `None` if there is none.
pub(crate) fn preset(name: &str) -> Option<Preset> {
    const LLAMA3: Word = Word::LLAMA3;
    const QWEN2: Word = Word { max_digits: 1, ..Word::LLAMA3 };
    let digits = |max| Step::Run(Run::numbers(max));
    let east_asian = || Step::Run(Run::of(v3_chinese_or_kana));
    let sentencepiece = || Preset { sentencepiece_spelling: true, ..Preset::of([Step::Lines]) };
    Some(match name {
        "default" => {
            Preset::of([Step::Run(Run::of(default_punct)), Step::Gpt2, digits(u32::MAX), Step::ThreeDigits])
        }
        "gpt-2" | "phi-2" | "jina-es" | "jina-de" | "jina-v2-es" | "jina-v2-de" | "jina-v1-en"
        | "jina-v2-code" | "roberta-bpe" | "gigachat" | "a.x-4.0" | "mellum" | "modern-bert" | "exaone4"
        | "jais" | "trillion" | "granite-docling" | "gpt-neox" | "mpt" | "olmo" => Preset::of([Step::Gpt2]),
        "starcoder" | "refact" | "smollm" | "codeshell" | "exaone" | "minerva-7b" | "mellum2" | "granite"
        | "command-r" => Preset::of([digits(1), Step::Gpt2]),
        "falcon" => Preset::of([Step::Run(Run::of(falcon_punct)), Step::Gpt2, Step::ThreeDigits]),
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0" | "lfm2"
        | "jina-v5-nano" => Preset::word(LLAMA3).whole_pieces_first().add_bos(),
        "dbrx" | "smaug-bpe" | "chatglm-bpe" => Preset::word(LLAMA3),
        "glm4" | "glm5" => Preset::word(LLAMA3).whole_pieces_first(),
        "jais-2" => Preset::word(Word { spaces_in_powers_of_two: true, ..LLAMA3 }),
        "minicpm5" => {
            let word = Word { max_digits: u32::MAX, ..LLAMA3 };
            Preset::of([digits(3), Step::Word(word)]).whole_pieces_first()
        }
        "qwen2" | "deepseek-r1-qwen" | "kormo" | "f2llmv2" | "megrez" => Preset::word(QWEN2),
        "stablelm2" | "hunyuan" | "solar-open" | "grok-2" | "bailingmoe" | "bailingmoe2" | "llada-moe" => {
            Preset::word(QWEN2)
        }
        "qwen35" => Preset::word(Word { letters: LETTER | MARK, ..QWEN2 }),
        "ufakzeka" => Preset::word(Word { contractions: false, ..QWEN2 }),
        "seed-coder" => Preset::word(Word { tail: Tail::None, ..QWEN2 }),
        "laguna" => Preset::of([Step::Lines, Step::Word(QWEN2)]),
        "exaone-moe" => Preset::word(Word { phrases: true, tail: Tail::OneLineEndOrSlash, ..QWEN2 }),
        "gpt-4o" | "llama4" | "kanana2" | "talkie" => {
            Preset::of([Step::Cased(Cased::O200K)]).whole_pieces_first()
        }
        "minimax-m2" => Preset::of([Step::Cased(Cased::O200K)]),
        "granite-embed-multi-97m" => Preset::of([Step::Cased(Cased::O200K)]).whole_pieces_first(),
        "tiny_aya" | "cohere2moe" => {
            Preset::of([Step::Digits(Digits::UnlessInWord), Step::Cased(Cased::O200K)])
        }
        "tekken" => {
            let cased = Cased { contractions: false, max_digits: 1, ..Cased::O200K };
            Preset::of([Step::Cased(cased)]).whole_pieces_first().add_bos()
        }
        "kimi-k2" => {
            let cased = Cased { han_apart: true, tail: Tail::LineEnds, ..Cased::O200K };
            Preset::of([Step::Cased(cased)])
        }
        "youtu" => {
            let apart = [youtu_hangul, youtu_punct, youtu_bopomofo, v3_chinese_or_kana];
            let cased = Step::Cased(Cased { max_digits: 1, ..Cased::O200K });
            let steps = apart.into_iter().map(|set| Step::Run(Run::of(set))).chain([cased]);
            Preset::of(steps.collect::<Vec<_>>()).whole_pieces_first()
        }
        "deepseek-llm" => Preset::of([
            Step::Run(Run { lead: Lead::None, set: |cp, _| cp == 0x0A || cp == 0x0D, max: 1 }),
            run(Lead::WhiteSpace, llm_letter),
            run(Lead::WhiteSpace, llm_punct),
            Step::TrailingSpace,
            Step::Run(Run::of(llm_east_asian)),
            digits(u32::MAX),
        ]),
        "deepseek-coder" => Preset::of([
            Step::Run(Run { lead: Lead::None, set: |cp, _| cp == 0x0A || cp == 0x0D, max: 1 }),
            run(Lead::WhiteSpace, |_, class| class & LETTER != 0),
            run(Lead::WhiteSpace, |_, class| class & super::super::classes::PUNCT != 0),
            Step::Run(Run::of(llm_east_asian)),
            digits(1),
        ]),
        "deepseek-v3" | "hunyuan-dense" | "joyai-llm" | "hy_v4" => {
            Preset::of([digits(3), east_asian(), Step::DeepSeek3 { line_ends_join: true }])
        }
        "spark2_5" => {
            Preset::of([digits(3), east_asian(), Step::DeepSeek3 { line_ends_join: false }, digits(1)])
        }
        "afmoe" => Preset::of([
            Step::Digits(Digits::Numbers),
            Step::Run(Run::of(afmoe_east_asian)),
            Step::DeepSeek3 { line_ends_join: true },
        ]),
        "superbpe" => {
            Preset::of([Step::Run(Run::of(|_, class| class & NUMBER != 0)), Step::Digits(Digits::Cuts)])
        }
        "poro-chat" | "bloom" | "gpt3-finnish" => Preset::of([run(Lead::Space, bloom_word)]),
        "viking" => Preset::of([run(Lead::Space, bloom_word), digits(1)]),
        "chameleon" => Preset::of([
            Step::Chameleon,
            digits(1),
            Step::Run(Run { lead: Lead::None, set: any_punct, max: 1 }),
            Step::Gpt2,
        ])
        .add_bos(),
        "gemma4" | "granite-embed-multi-311m" => sentencepiece().add_bos(),
        "sarvam-moe" => sentencepiece(),
        "mmbert" => Preset { metaspace: true, ..sentencepiece() },
        _ => return None,
    })
}
