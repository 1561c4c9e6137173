//! `hanzo eval`: multiple-choice questions, answered by which choice the model finds likeliest.
//!
//! This file runs the questions and says what came out; `question` reads them.

mod question;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use hanzo_engine::Distribution;
use hanzo_fusion::Progress as _;
use hanzo_text::tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::run::Kv;
use crate::failure::Interrupted;
use crate::interrupt::{self, During};
use crate::measure::scorer::{Scorer, Settings};
use crate::measure::{stats, text};
use crate::progress::Bar;
use crate::{model, out};
use question::Question;

/// Measure how many multiple-choice questions a model gets right
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hanzo eval model.gguf questions.jsonl
  hanzo eval model.gguf questions.jsonl --limit 200 --json
  hanzo eval model.gguf questions.jsonl --details answers.jsonl

A line a question:
  {\"prompt\": \"Question: What is 2 + 2?\\nAnswer:\", \"choices\": [\"4\", \"5\"], \"answer\": 0}

`acc` counts the questions whose right choice has the greatest log-likelihood, `acc_norm` those where it has the
greatest log-likelihood per character. Both come with their standard errors.")]
pub(crate) struct Args {
    /// A GGUF file, or a name of the cache
    model: String,
    /// The questions, as JSON lines; - for standard input
    questions: PathBuf,
    /// Stop after N questions
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// What stands between a prompt and a choice
    #[arg(
        long,
        value_name = "TEXT",
        default_value = " ",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    delimiter: String,
    /// Write a JSON line with the log-likelihoods of each question
    #[arg(long, value_name = "FILE")]
    details: Option<PathBuf>,
    /// Element type of cached keys and values
    #[arg(long, value_enum, default_value_t = Kv::F16)]
    kv: Kv,
    /// Threads; all cores by default
    #[arg(long, short, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A question in tokens.
struct Encoded {
    question: Question,
    choices: Vec<Choice>,
}

/// The prompt with one choice behind it.
struct Choice {
    ids: Vec<u32>,
    /// Tokens of the prompt alone; at least one.
    prompt: usize,
}

/// How a question went.
struct Outcome {
    /// Log-likelihood of each choice.
    log_likelihoods: Vec<f64>,
    /// The likeliest choice, the first among equals.
    chosen: usize,
    /// The likeliest by character.
    chosen_norm: usize,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let source = model::require(&args.model)?;
    let file = source.open()?;
    let context = hanzo_models::load(&file).with_context(|| source.name())?.context_length;
    let tokenizer = model::tokenizer_of(&file).with_context(|| source.name())?;
    let name = if args.questions.as_os_str() == "-" {
        "standard input".to_owned()
    } else {
        args.questions.display().to_string()
    };
    let mut questions = question::parse(&text::read(&args.questions)?).context(name.clone())?;
    questions.truncate(args.limit.map_or(usize::MAX, |n| n as usize));
    let unknown: BTreeSet<&str> = questions.iter().flat_map(|q| &q.unknown).map(String::as_str).collect();
    if !unknown.is_empty() {
        let names: Vec<&str> = unknown.into_iter().collect();
        out::warning(format_args!("{name}: not used: {}", out::for_terminal(&names.join(", "))));
    }
    let encoded = questions
        .into_iter()
        .map(|question| {
            let line = question.line;
            encode(&tokenizer, &args.delimiter, question, context)
                .with_context(|| format!("{name}, line {line}"))
        })
        .collect::<Result<Vec<_>>>()?;
    let longest = encoded.iter().flat_map(|q| &q.choices).map(|c| c.ids.len()).max().unwrap_or(1);
    let mut details = match &args.details {
        Some(path) => {
            model::refuse_overwriting(&file, path)?;
            let create = || format!("cannot create {}", path.display());
            Some(std::io::BufWriter::new(std::fs::File::create(path).with_context(create)?))
        }
        None => None,
    };
    let settings = Settings { context: longest, kv: args.kv.into(), threads: args.threads.map(usize::from) };
    let mut scorer = Scorer::load(&file, settings, None).with_context(|| source.name())?;

    interrupt::init();
    let (_during, stop) = During::work();
    let bar = Bar::pieces("answering");
    let started = Instant::now();
    let mut tally = Tally::default();
    let total = encoded.len();
    for question in &encoded {
        if stop.is_wanted() {
            break;
        }
        bar.update(tally.n, total as u64);
        let line = question.question.line;
        let outcome = answer(&mut scorer, question).with_context(|| format!("{name}, line {line}"))?;
        tally.count(&question.question, &outcome);
        bar.say(format!("acc {:.4}", tally.right as f64 / tally.n as f64));
        if let (Some(details), Some(path)) = (&mut details, &args.details) {
            writeln!(details, "{}", detail(&question.question, &outcome))
                .and_then(|()| details.flush())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    drop(bar);
    let complete = tally.n == total as u64;
    if tally.n > 0 {
        let elapsed = started.elapsed().as_secs_f64();
        if args.json {
            let mut value = tally.json();
            if let Some(object) = value.as_object_mut() {
                object.insert("model".to_owned(), source.name().into());
                object.insert("device".to_owned(), scorer.device().into());
                object.insert("kv".to_owned(), args.kv.name().into());
                object.insert("complete".to_owned(), complete.into());
                object.insert("elapsed_s".to_owned(), elapsed.into());
            }
            out::json(&value)?;
        } else {
            out::print(&tally.text())?;
            if !complete {
                out::note(format_args!("interrupted: {} of {total} questions", tally.n));
            }
        }
    }
    if complete { Ok(()) } else { Err(Interrupted.into()) }
}

/// The tokens of each choice behind its prompt. Both are tokenized as one text; a choice begins where the tokens are no longer those of
/// the prompt alone. Spaces at the end of a prompt belong to the choice, where tokenizers want them.
fn encode(tokenizer: &Tokenizer, delimiter: &str, question: Question, context: usize) -> Result<Encoded> {
    let prompt = question.prompt.trim_end();
    let between = question.prompt.get(prompt.len()..).unwrap_or_default();
    let alone = text::encode(tokenizer, prompt, false)?;
    let mut choices = Vec::with_capacity(question.choices.len());
    for choice in &question.choices {
        let between = if between.is_empty() { delimiter } else { between };
        let ids = text::encode(tokenizer, &format!("{prompt}{between}{choice}"), false)?;
        let common = common_prefix(&alone, &ids);
        ensure!(common > 0, "there is no token before the choice; give a prompt");
        ensure!(common < ids.len(), "the choice {choice:?} adds no token to its prompt");
        ensure!(
            ids.len() <= context,
            "prompt and choice have {} tokens, and the model's context {context}",
            ids.len()
        );
        choices.push(Choice { ids, prompt: common });
    }
    Ok(Encoded { question, choices })
}

fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Runs a question: what all choices begin with once, then each choice's rest.
fn answer(scorer: &mut Scorer, encoded: &Encoded) -> Result<Outcome> {
    let first = encoded.choices.first().context("a question without choices")?;
    // A choice's own run must give the row behind the last token of the prompt.
    let shared = encoded
        .choices
        .iter()
        .map(|c| common_prefix(&first.ids, &c.ids).min(c.prompt - 1))
        .min()
        .unwrap_or(0);
    scorer.run(0, first.ids.get(..shared).unwrap_or_default(), 0..0, &mut |_, _| Ok(()))?;
    let mut log_likelihoods = Vec::with_capacity(encoded.choices.len());
    for choice in &encoded.choices {
        let last = choice.ids.len() - 1;
        let inputs = choice.ids.get(shared..last).context("tokens of the choice")?;
        let mut sum = 0.0;
        scorer.run(shared, inputs, choice.prompt - 1..last, &mut |position, logits| {
            let next = choice.ids.get(position + 1).copied().context("the choice's next token")?;
            let distribution = Distribution::new(logits);
            ensure!(distribution.is_finite(), "the logits are not finite; the model is damaged");
            ensure!((next as usize) < logits.len(), "token {next} is beyond the logits");
            sum += distribution.logprob(next);
            Ok(())
        })?;
        log_likelihoods.push(sum);
    }
    let by_character = log_likelihoods
        .iter()
        .zip(&encoded.question.choices)
        .map(|(sum, choice)| sum / choice.chars().count().max(1) as f64);
    let chosen_norm = greatest(by_character);
    Ok(Outcome { chosen: greatest(log_likelihoods.iter().copied()), chosen_norm, log_likelihoods })
}

/// Index of the greatest value, the first among equals.
fn greatest(values: impl Iterator<Item = f64>) -> usize {
    let mut best = (0, f64::NEG_INFINITY);
    for (i, x) in values.enumerate() {
        if x > best.1 {
            best = (i, x);
        }
    }
    best.0
}

fn detail(question: &Question, outcome: &Outcome) -> Value {
    json!({
        "line": question.line,
        "id": question.id,
        "answer": question.answer,
        "chosen": outcome.chosen,
        "chosen_norm": outcome.chosen_norm,
        "log_likelihoods": outcome.log_likelihoods,
    })
}

/// Questions so far.
#[derive(Debug, Default)]
struct Tally {
    n: u64,
    right: u64,
    right_norm: u64,
    /// Right ones that guessing would give.
    chance: f64,
}

impl Tally {
    fn count(&mut self, question: &Question, outcome: &Outcome) {
        self.n += 1;
        self.right += u64::from(outcome.chosen == question.answer);
        self.right_norm += u64::from(outcome.chosen_norm == question.answer);
        self.chance += 1.0 / question.choices.len() as f64;
    }

    fn text(&self) -> String {
        let line = |name: &str, right: u64| {
            let (p, error) = stats::share(right, self.n);
            format!("{name:<9} {p:.4} ± {error:.4}   {right} of {}\n", self.n)
        };
        let chance = self.chance / self.n as f64;
        line("acc", self.right) + &line("acc_norm", self.right_norm) + &format!("guessing  {chance:.4}\n")
    }

    fn json(&self) -> Value {
        let (acc, acc_error) = stats::share(self.right, self.n);
        let (norm, norm_error) = stats::share(self.right_norm, self.n);
        json!({
            "questions": self.n,
            "acc": acc,
            "acc_stderr": acc_error,
            "acc_norm": norm,
            "acc_norm_stderr": norm_error,
            "chance": self.chance / self.n as f64,
        })
    }
}
