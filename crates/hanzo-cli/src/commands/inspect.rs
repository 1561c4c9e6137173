//! `hanzo inspect`: what is in a model file, and what is wrong with it.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use hanzo_fusion::Progress as _;
use hanzo_gguf::{GgufFile, Problem, Severity, TensorInfo, Value, ValueType};
use hanzo_quant::{FiniteCheck, QuantType};
use serde_json::{Map, Value as Json, json};

use crate::failure::{Negative, usage};
use crate::model::{self, Source};
use crate::progress::Bar;
use crate::{describe, lora, out};

/// Elements of an array that are shown.
const SHOWN: usize = 8;
/// Blocks that a scan reads at a time.
const SCAN_BLOCKS: usize = 1 << 14;
/// Characters of a text that are shown.
const SHOWN_CHARS: usize = 120;

/// Show what is in a model file, and what is wrong with it
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hanzo inspect model.gguf                                metadata, types, sizes, problems
  hanzo inspect model.gguf --tensors                      every tensor as well
  hanzo inspect model.gguf --key tokenizer.chat_template  one value, in full
  hanzo inspect model.gguf --json | jq .types
  hanzo inspect model.gguf --scan                         look for NaN and infinity in the weights
  hanzo inspect adapter.gguf                              a LoRA adapter, or the folder of one in PEFT form

Long arrays and texts are shortened, but not with --key. Exit code 1 if the file has errors; warnings do not count.")]
pub(crate) struct Args {
    /// A GGUF file, the folder of a PEFT adapter, or the name of a model on this machine; the built-in model if left out
    model: Option<String>,
    /// List all tensors
    #[arg(long)]
    tensors: bool,
    /// Print the value of one key, in full
    #[arg(long, value_name = "KEY", conflicts_with_all = ["tensors", "scan"])]
    key: Option<String>,
    /// Read all weights and look for NaN and infinity, in quantized ones among their scales
    #[arg(long)]
    scan: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A file and what was found.
struct Inspected {
    name: String,
    file: GgufFile,
    problems: Vec<Problem>,
    /// Whether this program can run it, or why not; `None` for a file without weights.
    runs: Option<Result<(), String>>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let source = args.model.as_deref().map_or(Ok(Source::BuiltIn), model::require)?;
    if let Some(key) = &args.key {
        return print_key(&source.open()?, key, args.json);
    }
    if let Source::File(path) = &source
        && let Some(adapter) = lora::open(path)?
    {
        if args.scan {
            return Err(usage("--scan looks into models; an adapter is checked whole when it is loaded"));
        }
        return if args.json {
            out::json(&lora::as_json(&adapter, args.tensors))
        } else {
            out::print(&lora::as_text(&adapter, args.tensors))
        };
    }
    let mut inspected = inspect(&source)?;
    if args.scan {
        inspected.problems.extend(scan(&inspected.file)?);
    }
    if args.json {
        out::json(&as_json(&inspected, args.tensors))?;
    } else {
        out::print(&as_text(&inspected, args.tensors))?;
    }
    let broken = inspected.problems.iter().any(|p| p.severity == Severity::Error);
    if broken { Err(anyhow::Error::new(Negative)) } else { Ok(()) }
}

fn inspect(source: &Source) -> Result<Inspected> {
    let name = source.name();
    let (file, problems) = match source {
        Source::BuiltIn => {
            let file = source.open()?;
            let problems = hanzo_gguf::check_contents(&file);
            (file, problems)
        }
        Source::File(path) => {
            let report = hanzo_gguf::check(path);
            match report.file {
                Some(file) => (file, report.problems),
                // Nothing of it could be read, and this is why.
                None => {
                    let why: Vec<String> = report.problems.iter().map(|p| p.message.clone()).collect();
                    anyhow::bail!("{}", why.join("; "));
                }
            }
        }
    };
    let sound = problems.iter().all(|p| p.severity != Severity::Error);
    let loads = || hanzo_models::load(&file).map(drop).map_err(|e| e.to_string());
    let runs = if file.tensors().is_empty() {
        None
    } else if sound {
        Some(loads())
    } else {
        Some(Err("the file has errors".to_owned()))
    };
    Ok(Inspected { name, file, problems, runs })
}

/// Looks for NaN and infinity in all weights: in plain values, and in the scales of quantized ones.
fn scan(file: &GgufFile) -> Result<Vec<Problem>> {
    let bar = Bar::bytes("scanning");
    let (mut done, total) = (0, file.tensor_bytes_total());
    let mut progress = |n| {
        done += n;
        bar.update(done, total);
    };
    let mut problems = hanzo_gguf::scan_values(file, &mut progress).context("the weights cannot be read")?;
    let mut buffer = Vec::new();
    for tensor in file.tensors() {
        let Some(ty) = QuantType::from_id(tensor.ty().id()).filter(|ty| !ty.is_float()) else { continue };
        let check = FiniteCheck::of(ty.format());
        let (mut at, mut faulty) = (0, 0);
        while at < tensor.n_bytes() {
            let len = (tensor.n_bytes() - at).min((SCAN_BLOCKS * ty.block_bytes()) as u64);
            buffer.resize(usize::try_from(len)?, 0);
            file.read_tensor_at(tensor, at, &mut buffer).context("the weights cannot be read")?;
            faulty += check.count(&buffer);
            at += len;
            progress(len);
        }
        if faulty > 0 {
            let (name, n) = (tensor.name(), tensor.n_elements() / ty.block_elems() as u64);
            let message =
                format!("tensor `{name}`: of {n} blocks {faulty} have a scale that is NaN or infinite");
            problems.push(Problem { severity: Severity::Error, message });
        }
    }
    Ok(problems)
}

/// One value in full: text as it is, an array's elements one a line.
fn print_key(file: &GgufFile, key: &str, as_json: bool) -> Result<()> {
    let value = file.metadata().get(key).with_context(|| {
        let near: Vec<&str> =
            file.metadata().iter().map(|item| item.key).filter(|known| known.contains(key)).take(5).collect();
        let hint = if near.is_empty() { String::new() } else { format!("; there is: {}", near.join(", ")) };
        format!("there is no key `{key}`{hint}")
    })?;
    if as_json {
        return out::json(&json_value(&value, usize::MAX));
    }
    let plain = |value: &Value<'_>| match value {
        Value::String(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:#}"),
    };
    let text = match &value {
        Value::Array(array) => array.iter().map(|v| plain(&v)).collect::<Vec<_>>().join("\n"),
        other => plain(other),
    };
    if out::to_terminal() { out::println(&out::for_terminal(&text)) } else { out::println(&text) }
}

fn as_text(inspected: &Inspected, with_tensors: bool) -> String {
    let file = &inspected.file;
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = head(&mut text, inspected)
        .and_then(|()| metadata(&mut text, file))
        .and_then(|()| types(&mut text, file))
        .and_then(|()| if with_tensors { tensors(&mut text, file.tensors()) } else { Ok(()) })
        .and_then(|()| problems(&mut text, &inspected.problems));
    text
}

fn head(text: &mut String, inspected: &Inspected) -> std::fmt::Result {
    let file = &inspected.file;
    let (shards, bytes) =
        file.parts().fold((0, 0u64), |(n, b), part| (n + 1, b.saturating_add(part.file_len())));
    let split = if shards > 1 { format!(" in {shards} files") } else { String::new() };
    writeln!(text, "{}", out::bold(&inspected.name))?;
    writeln!(
        text,
        "  GGUF v{}, {}{split}, alignment {}",
        file.version(),
        out::bytes(bytes),
        file.alignment()
    )?;
    let string = |key| file.metadata().get(key).and_then(|v| v.as_str());
    if let Some(architecture) = string("general.architecture") {
        let name = string("general.name").map_or(String::new(), |n| format!(" {:?}", shorten(n)));
        let architecture = out::for_terminal(architecture);
        writeln!(text, "  {architecture}{name}, {}", describe::file_type(file))?;
    }
    if let Some(bits) = describe::bits_per_weight(file) {
        let n = describe::parameters(file);
        writeln!(
            text,
            "  {} weights in {} tensors, {bits:.2} bits a weight",
            out::count(n),
            file.tensors().len()
        )?;
    }
    match &inspected.runs {
        Some(Ok(())) => writeln!(text, "  can be run here"),
        Some(Err(why)) => writeln!(text, "  cannot be run here: {}", out::for_terminal(why)),
        None => writeln!(text, "  no weights: a vocabulary only"),
    }
}

fn metadata(text: &mut String, file: &GgufFile) -> std::fmt::Result {
    writeln!(text, "\n{}", out::bold(&format!("Metadata ({} keys)", file.metadata().len())))?;
    let width = file.metadata().iter().map(|item| item.key.chars().count()).max().unwrap_or(0).min(48);
    for item in file.metadata().iter() {
        let kind = match item.value {
            Value::Array(array) => format!("{}[{}]", array.element(), array.len()),
            value => value.ty().to_string(),
        };
        writeln!(text, "  {:width$}  {kind:<14}  {}", out::for_terminal(item.key), short_value(&item.value))?;
    }
    Ok(())
}

fn types(text: &mut String, file: &GgufFile) -> std::fmt::Result {
    if file.tensors().is_empty() {
        return Ok(());
    }
    writeln!(text, "\n{}", out::bold("Types"))?;
    for (ty, total) in describe::totals(file) {
        writeln!(
            text,
            "  {:<8} {:>5} tensors  {:>8} weights  {:>9}  {:>6.3} bits a weight",
            ty.name(),
            total.tensors,
            out::count(total.elements),
            out::bytes(total.bytes),
            total.bytes as f64 * 8.0 / total.elements.max(1) as f64
        )?;
    }
    Ok(())
}

fn tensors(text: &mut String, tensors: &[TensorInfo]) -> std::fmt::Result {
    writeln!(text, "\n{}", out::bold(&format!("Tensors ({})", tensors.len())))?;
    let width = tensors.iter().map(|t| t.name().chars().count()).max().unwrap_or(0).min(64);
    for tensor in tensors {
        let dims: Vec<String> = tensor.dims().iter().map(u64::to_string).collect();
        writeln!(
            text,
            "  {:width$}  {:<8} {:>20}  {:>9}  at {}{}",
            out::for_terminal(tensor.name()),
            tensor.ty().name(),
            dims.join(" × "),
            out::bytes(tensor.n_bytes()),
            tensor.offset(),
            if tensor.shard() > 0 { format!(" of file {}", tensor.shard() + 1) } else { String::new() }
        )?;
    }
    Ok(())
}

fn problems(text: &mut String, problems: &[Problem]) -> std::fmt::Result {
    if problems.is_empty() {
        return writeln!(text, "\nNo problems found");
    }
    writeln!(text, "\n{}", out::bold(&format!("Problems ({})", problems.len())))?;
    for problem in problems {
        writeln!(text, "  {}", out::for_terminal(&problem.to_string()))?;
    }
    Ok(())
}

/// A value on one line.
fn short_value(value: &Value<'_>) -> String {
    match value {
        Value::String(bytes) => format!("{:?}", shorten(&String::from_utf8_lossy(bytes))),
        Value::Array(array) => {
            let shown: Vec<String> = array.iter().take(SHOWN).map(|v| short_value(&v)).collect();
            let more = if array.len() > SHOWN { ", …" } else { "" };
            shorten(&format!("[{}{more}]", shown.join(", ")))
        }
        other => other.to_string(),
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or(text)),
    }
}

fn as_json(inspected: &Inspected, with_tensors: bool) -> Json {
    let file = &inspected.file;
    let metadata: Map<String, Json> =
        file.metadata().iter().map(|item| (item.key.to_owned(), json_value(&item.value, SHOWN))).collect();
    let types: Map<String, Json> = describe::totals(file)
        .into_iter()
        .map(|(ty, t)| {
            (ty.name().to_owned(), json!({"tensors": t.tensors, "weights": t.elements, "bytes": t.bytes}))
        })
        .collect();
    let problems: Vec<Json> = inspected
        .problems
        .iter()
        .map(|p| {
            let severity = if p.severity == Severity::Error { "error" } else { "warning" };
            json!({"severity": severity, "message": p.message})
        })
        .collect();
    let mut json = json!({
        "name": inspected.name,
        "version": file.version(),
        "alignment": file.alignment(),
        "bytes": file.parts().map(|p| p.file_len()).fold(0, u64::saturating_add),
        "files": file.parts().count(),
        "architecture": file.metadata().get("general.architecture").and_then(|v| v.as_str()),
        "type": describe::file_type(file),
        "weights": describe::parameters(file),
        "bits_per_weight": describe::bits_per_weight(file),
        "runs": inspected.runs.as_ref().map(Result::is_ok),
        "runs_not_because": inspected.runs.as_ref().and_then(|r| r.as_ref().err()),
        "metadata": metadata,
        "types": types,
        "n_tensors": file.tensors().len(),
        "problems": problems,
    });
    if let (true, Some(object)) = (with_tensors, json.as_object_mut()) {
        let list: Vec<Json> = file
            .tensors()
            .iter()
            .map(|t| {
                json!({"name": t.name(), "type": t.ty().name(), "dims": t.dims(), "bytes": t.n_bytes(),
                       "offset": t.offset(), "file": t.shard()})
            })
            .collect();
        object.insert("tensors".to_owned(), list.into());
    }
    json
}

/// A value as JSON. Arrays of more than `limit` elements become an object that tells their length and first elements;
/// bytes that are not UTF-8 become U+FFFD, and floats that JSON cannot hold null.
fn json_value(value: &Value<'_>, limit: usize) -> Json {
    match value {
        Value::String(bytes) => String::from_utf8_lossy(bytes).into(),
        Value::Bool(v) => (*v).into(),
        Value::F32(v) => shortest(*v),
        Value::F64(v) => (*v).into(),
        Value::Array(array) if array.len() > limit => {
            let first: Vec<Json> = array.iter().take(limit).map(|v| json_value(&v, limit)).collect();
            json!({"array": array.element().to_string(), "length": array.len(), "first": first})
        }
        Value::Array(array) => array.iter().map(|v| json_value(&v, limit)).collect::<Vec<_>>().into(),
        other if other.ty() == ValueType::U64 => {
            other.as_integer().and_then(|n| u64::try_from(n).ok()).into()
        }
        other => other.as_integer().and_then(|n| i64::try_from(n).ok()).into(),
    }
}

/// A single with as few digits as it needs: 1e-6, not 9.99999997475e-7.
fn shortest(v: f32) -> Json {
    v.to_string().parse::<f64>().ok().filter(|v| v.is_finite()).into()
}
