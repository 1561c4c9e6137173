//! `hanzo template`: what a chat template makes of a conversation.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use hanzo_text::chat::ChatMessage;
use hanzo_text::template::{ChatTemplate, DateTime, RenderRequest};
use serde_json::{Map, Value};

use crate::{json, model, out};

/// Longest template or conversation read, in bytes.
const MAX_INPUT: u64 = 64 << 20;

/// Render a chat template
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hanzo template model.gguf --messages chat.json
  hanzo template chat.jinja --messages chat.json --tools tools.json --bos-token '<s>' --var enable_thinking=false

FILE.json holds a list of messages as the OpenAI API has them, or an object with `messages` (and `tools`).")]
pub(crate) struct Args {
    /// A model (a GGUF file, or the name of one on this machine), or a file with a template (.jinja)
    #[arg(value_name = "MODEL|FILE.jinja")]
    source: String,
    /// The conversation, as JSON; - for standard input
    #[arg(long, value_name = "FILE.json")]
    messages: PathBuf,
    /// Tools, as JSON
    #[arg(long, value_name = "FILE.json")]
    tools: Option<PathBuf>,
    /// Do not begin the assistant's reply
    #[arg(long)]
    no_generation_prompt: bool,
    /// A further variable; VALUE is JSON, or else text
    #[arg(long = "var", value_name = "KEY=VALUE")]
    vars: Vec<String>,
    /// Text of the BOS token; the model's by default
    #[arg(long, value_name = "TEXT")]
    bos_token: Option<String>,
    /// Text of the EOS token; the model's by default
    #[arg(long, value_name = "TEXT")]
    eos_token: Option<String>,
    /// The present, for templates that print dates (RFC 3339)
    #[arg(long, value_name = "TIME")]
    now: Option<String>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let (source, bos, eos) = if args.source.ends_with(".jinja") {
        (read(Path::new(&args.source))?, String::new(), String::new())
    } else {
        let file = model::open(Some(&args.source))?;
        let source = file.metadata().get_str("tokenizer.chat_template")?.map(str::to_owned);
        let source = source
            .with_context(|| format!("{} has no chat template; give one as a .jinja file", args.source))?;
        let tokenizer = model::tokenizer_of(&file)?;
        let text = |id| hanzo_server::model::token_text(&tokenizer, id);
        (source, text(tokenizer.bos()), text(tokenizer.eos()))
    };
    let bos = args.bos_token.as_ref().unwrap_or(&bos);
    let eos = args.eos_token.as_ref().unwrap_or(&eos);
    let template = ChatTemplate::compile(&source, bos, eos)?;

    let (messages, mut tools) = conversation(&args.messages)?;
    if let Some(path) = &args.tools {
        tools = Some(parse(path)?);
    }
    let tools = match tools {
        Some(Value::Array(list)) => Some(list),
        Some(Value::Null) | None => None,
        Some(_) => bail!("tools must be a list"),
    };
    let request = RenderRequest {
        messages: &messages,
        tools: tools.as_deref(),
        add_generation_prompt: !args.no_generation_prompt,
        kwargs: Some(&variables(&args.vars)?),
        now: args.now.as_deref().map(DateTime::parse).transpose()?,
    };
    out::print(&template.render(&request)?)
}

/// The messages of a file, and what stands beside them as `tools`.
///
/// # Errors
/// When it cannot be read or is no conversation, with the message and the place in it.
pub(crate) fn conversation(path: &Path) -> Result<(Vec<ChatMessage>, Option<Value>)> {
    let name = path.display();
    let (messages, tools) = match parse(path)? {
        Value::Array(list) => (list, None),
        Value::Object(mut object) => match object.remove("messages") {
            Some(Value::Array(list)) => (list, object.remove("tools")),
            _ => bail!("{name}: `messages` must be a list"),
        },
        _ => bail!("{name}: a list of messages is expected"),
    };
    let mut parsed = Vec::with_capacity(messages.len());
    for (i, message) in messages.into_iter().enumerate() {
        parsed.push(ChatMessage::from_json(message).with_context(|| format!("{name}: message {i}"))?);
    }
    Ok((parsed, tools))
}

fn variables(vars: &[String]) -> Result<Map<String, Value>> {
    let mut map = Map::new();
    for var in vars {
        let Some((key, value)) = var.split_once('=') else { bail!("--var {var}: KEY=VALUE is expected") };
        let value = json::parse(value).unwrap_or_else(|_| Value::from(value));
        map.insert(key.to_owned(), value);
    }
    Ok(map)
}

fn parse(path: &Path) -> Result<Value> {
    json::parse(&read(path)?).with_context(|| format!("{} cannot be read as JSON", path.display()))
}

/// The text of a file; `-` is standard input.
///
/// # Errors
/// When it cannot be read, is too long, or is not UTF-8.
pub(crate) fn read(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    let context = || format!("cannot read {}", path.display());
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(std::fs::File::open(path).with_context(context)?)
    };
    source.take(MAX_INPUT + 1).read_to_end(&mut bytes).with_context(context)?;
    if bytes.len() as u64 > MAX_INPUT {
        bail!("{} is larger than {MAX_INPUT} bytes", path.display());
    }
    String::from_utf8(bytes).with_context(|| format!("{} is not UTF-8", path.display()))
}
