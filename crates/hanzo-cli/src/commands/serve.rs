//! `hanzo serve`: the APIs that clients already speak, over HTTP.

mod catalog;
mod pull;
mod settings;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use hanzo_cpu::exec::CpuDevice;
use hanzo_hub::Store;
use hanzo_server::registry::Catalog;
use hanzo_server::{App, Config, Limits, LoadSettings, LoadedModel, Registry, Server, TlsFiles, limits};
use hanzo_text::parse::Family;
use tokio::net::TcpListener;
use tokio::signal;

use self::catalog::{Models, Shared};
use self::pull::FromHub;
use self::settings::{ModelSettings, Seconds, SettingsFile};
use super::run::Kv;
use crate::failure::usage;
use crate::log::Format;
use crate::model::{self, Source};
use crate::progress::Bar;
use crate::{device, log, lora, out, size};

/// Serve models over HTTP, as OpenAI's clients expect
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hanzo serve                                    the small model that is built in
  hanzo serve model.gguf                         a model of your own
  hanzo serve model.gguf --lora style=style.gguf    requests for the model `style` use the adapter
  hanzo serve model.gguf --host 0.0.0.0 --api-key-file keys.txt --tls-cert cert.pem --tls-key key.pem
  hanzo serve --on-demand                        every model of `hanzo list`, loaded when a request names it
  hanzo serve --models-dir models --models-memory 24GiB --models-keep-alive 10m

  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Once upon a time\"}]}'

Ctrl-C (or SIGTERM) takes no new requests and lets running replies end; a second one leaves at once.
docs/api.md has all endpoints.")]
pub(crate) struct Args {
    /// The model: a GGUF file, or the name of one on this machine; the built-in one if none is given
    #[arg(value_name = "MODEL", env = "HANZO_MODEL")]
    model: Option<String>,
    /// What requests call the model; its file's name without the ending by default
    #[arg(long, value_name = "NAME", env = "HANZO_MODEL_NAME")]
    name: Option<String>,
    /// What requests may call it too; may be given several times
    #[arg(long, value_name = "NAME", env = "HANZO_ALIAS", value_delimiter = ',')]
    alias: Vec<String>,
    /// Serve the models of `hanzo list` too: each is loaded when a request names it
    #[arg(long, env = "HANZO_ON_DEMAND", conflicts_with = "models_dir", help_heading = "Models")]
    on_demand: bool,
    /// Serve the models of a folder too, when a request names them: FILE.gguf, ORG/REPO/FILE.gguf
    #[arg(long, value_name = "DIR", env = "HANZO_MODELS_DIR", help_heading = "Models")]
    models_dir: Option<PathBuf>,
    /// Memory that all models may take together (24GiB): the least recently used one that is idle makes room. What is free at
    /// the start by default
    #[arg(long, value_name = "SIZE", env = "HANZO_MODELS_MEMORY", value_parser = size::parse, help_heading = "Models")]
    models_memory: Option<u64>,
    /// Idle time after which a model is unloaded that was loaded on demand (90s, 10m, 2h); by default it stays until its memory is
    /// needed
    #[arg(long, value_name = "TIME", env = "HANZO_MODELS_KEEP_ALIVE", help_heading = "Models")]
    models_keep_alive: Option<Seconds>,
    /// Let clients fetch models of the Hugging Face Hub (POST /api/pull), into --models-dir, or where `hanzo pull` puts them
    #[arg(long, env = "HANZO_ALLOW_PULL", help_heading = "Models")]
    allow_pull: bool,
    /// TOML file with settings of single models (docs/models.md)
    #[arg(long, value_name = "FILE.toml", env = "HANZO_MODELS_CONFIG", help_heading = "Models")]
    models_config: Option<PathBuf>,
    /// Address to listen on; 0.0.0.0 for all of IPv4, :: for all
    #[arg(
        long,
        value_name = "ADDR",
        env = "HANZO_HOST",
        default_value = "127.0.0.1",
        help_heading = "Network"
    )]
    host: IpAddr,
    /// Port to listen on; 0 for any that is free
    #[arg(
        short,
        long,
        value_name = "N",
        env = "HANZO_PORT",
        default_value_t = 8080,
        help_heading = "Network"
    )]
    port: u16,
    /// A key that requests must show. A file keeps it from other users, who can see command lines
    #[arg(
        long,
        value_name = "KEY",
        env = "HANZO_API_KEY",
        hide_env_values = true,
        value_delimiter = ',',
        help_heading = "Network"
    )]
    api_key: Vec<String>,
    /// File of keys, one a line; empty lines and lines with # are skipped
    #[arg(long, value_name = "FILE", env = "HANZO_API_KEY_FILE", help_heading = "Network")]
    api_key_file: Option<PathBuf>,
    /// Web pages of this origin may ask (https://example.org, or * for all); may be given several times; none by default
    #[arg(
        long,
        value_name = "ORIGIN",
        env = "HANZO_CORS_ORIGIN",
        value_delimiter = ',',
        help_heading = "Network"
    )]
    cors_origin: Vec<String>,
    /// Name or address that requests may name as their host, beside localhost and 127.0.0.1 (box.lan, *.example.org, or * for all); may
    /// be given several times. By default others are refused where the server listens on this machine only and has no API keys,
    /// which keeps out web pages whose names are made to lead here; with it, wherever it listens
    #[arg(
        long,
        value_name = "NAME",
        env = "HANZO_ALLOWED_HOSTS",
        value_delimiter = ',',
        help_heading = "Network"
    )]
    allowed_hosts: Vec<String>,
    /// PEM file of the certificate chain: serves HTTPS
    #[arg(long, value_name = "FILE", env = "HANZO_TLS_CERT", requires = "tls_key", help_heading = "Network")]
    tls_cert: Option<PathBuf>,
    /// PEM file of its private key
    #[arg(long, value_name = "FILE", env = "HANZO_TLS_KEY", requires = "tls_cert", help_heading = "Network")]
    tls_key: Option<PathBuf>,
    /// Longest conversation in tokens; the model's own limit, but at most 8192, by default
    #[arg(long, value_name = "N", env = "HANZO_CTX", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(2..=1 << 24), help_heading = "Model")]
    ctx: Option<u32>,
    /// Tokens that the KV cache holds, over all requests; half of the free memory by default, and no more than can be used
    #[arg(long, value_name = "N", env = "HANZO_KV_TOKENS", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(16..), help_heading = "Model")]
    kv_tokens: Option<u32>,
    /// Element type of cached keys and values
    #[arg(long, value_enum, value_name = "TYPE", env = "HANZO_KV_TYPE", default_value_t = Kv::F16, help_heading = "Model")]
    kv_type: Kv,
    /// Tokens of a reply that may be guessed ahead in a step from what was said before; 0 for none. Replies are the same with any number
    #[arg(long, value_name = "N", env = "HANZO_DRAFT_MAX", default_value_t = 16, allow_negative_numbers = true, value_parser = clap::value_parser!(u8).range(0..=16), help_heading = "Model")]
    draft_max: u8,
    /// How many times as long a step may take for a part of a new prompt while replies are being written; 0 for no bound: prompts are read sooner, replies stutter
    #[arg(long, value_name = "X", env = "HANZO_MAX_SLOWDOWN", default_value_t = 2.5, allow_negative_numbers = true, value_parser = slowdown, help_heading = "Model")]
    max_slowdown: f64,
    /// Threads that compute; one a core by default
    #[arg(short, long, value_name = "N", env = "HANZO_THREADS", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = "Model")]
    threads: Option<u16>,
    /// Keep packed weights on disk, in a folder of the cache or in DIR (`default` as the variable's value: in the cache): the next load of
    /// the same file reads them in place of packing
    #[arg(long, value_name = "DIR", env = "HANZO_PACK_CACHE", num_args = 0..=1, require_equals = true, default_missing_value = device::USUAL, value_parser = device::pack_cache_parser(), help_heading = "Model")]
    pack_cache: Option<device::PackCache>,
    /// A chat template (Jinja) in place of the model's
    #[arg(long, value_name = "FILE.jinja", env = "HANZO_CHAT_TEMPLATE", help_heading = "Model")]
    chat_template: Option<PathBuf>,
    /// A LoRA adapter (GGUF file, or PEFT folder) and the name that requests give for the model to use it; may be given several times
    #[arg(long, value_name = "NAME=PATH", env = "HANZO_LORA", value_delimiter = ',', value_parser = lora::parse_named, help_heading = "Model")]
    lora: Vec<lora::NamedLora>,
    /// Folder from which clients may load LoRA adapters while the server runs; without one they may not
    #[arg(long, value_name = "FOLDER", env = "HANZO_LORA_DIR", help_heading = "Model")]
    lora_dir: Option<PathBuf>,
    /// How replies are read, in place of what the template tells: hermes, llama3, mistral, …
    #[arg(long, value_name = "NAME", env = "HANZO_OUTPUT_FORMAT", help_heading = "Model")]
    output_format: Option<Family>,
    /// Requests that run at once
    #[arg(long, value_name = "N", env = "HANZO_PARALLEL", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096), help_heading = "Limits")]
    parallel: u32,
    /// Requests that may wait; one more is told to come back (429)
    #[arg(long, value_name = "N", env = "HANZO_QUEUE", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1 << 20), help_heading = "Limits")]
    queue: u32,
    /// Connections at once
    #[arg(long, value_name = "N", env = "HANZO_MAX_CONNECTIONS", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(1..=1 << 20), help_heading = "Limits")]
    max_connections: u32,
    /// Greatest body of a request, in MiB
    #[arg(long, value_name = "MIB", env = "HANZO_MAX_BODY", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096), help_heading = "Limits")]
    max_body: u32,
    /// Seconds until a reply is given up; none by default
    #[arg(long, value_name = "S", env = "HANZO_REPLY_TIMEOUT", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Limits")]
    reply_timeout: Option<u32>,
    /// Seconds that running replies get when the server is told to stop
    #[arg(
        long,
        value_name = "S",
        env = "HANZO_DRAIN_TIMEOUT",
        default_value_t = 30,
        help_heading = "Limits"
    )]
    drain_timeout: u32,
    /// OpenTelemetry collector that is told of requests by OTLP over HTTP, such as http://127.0.0.1:4318
    #[cfg(feature = "otel")]
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT", help_heading = "Log")]
    otlp_endpoint: Option<String>,
    /// How the log is written to standard error
    #[arg(long, value_enum, value_name = "FORMAT", env = "HANZO_LOG_FORMAT", default_value_t = Format::Text, help_heading = "Log")]
    log_format: Format,
    /// Write prompts and replies to the log; otherwise no text of a request ever goes there
    #[arg(long, env = "HANZO_LOG_PROMPTS", help_heading = "Log")]
    log_prompts: bool,
    /// Say more
    #[arg(short, long, help_heading = "Log")]
    verbose: bool,
    /// Warnings and errors only
    #[arg(short, long, conflicts_with = "verbose", help_heading = "Log")]
    quiet: bool,
}

/// Threads that serve connections: they only move bytes, the cores are for computing. With two, each message of a stream wakes the other
/// too, which looks for work and finds none; a machine with cores to spare may have that.
fn connection_threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cores >= 8 { 2 } else { 1 }
}

/// Threads for templates, tokens and grammars.
const TEXT_THREADS: usize = 8;

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let level = match (args.verbose, args.quiet) {
        (true, _) => tracing::Level::DEBUG,
        (_, true) => tracing::Level::WARN,
        _ => tracing::Level::INFO,
    };
    log::init(level, args.log_format);
    limits::raise_open_files();
    args.check_models()?;
    let config = config(args)?;
    if !args.host.is_loopback() && config.api_keys.is_empty() {
        tracing::warn!("everybody who reaches {} may ask: there are no API keys (--api-key-file)", args.host);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(connection_threads())
        .max_blocking_threads(TEXT_THREADS)
        .enable_all()
        .build()
        .context("cannot start the threads that serve connections")?;
    let address = SocketAddr::new(args.host, args.port);
    // Before the model is loaded: a port that is taken shall not cost the time.
    let listener = runtime.block_on(TcpListener::bind(address)).with_context(|| {
        format!("cannot listen on {address}: is another server running? --port chooses another port")
    })?;
    let https = config.tls.is_some();
    let with_key = !config.api_keys.is_empty();
    let device = Arc::new(device::cpu(args.threads.map(usize::from), args.pack_cache.as_ref())?);
    let settings = load_settings(args)?;
    let registry = Arc::new(registry(args, &device, &settings)?);
    let server = Server::new(App::new(config, Arc::clone(&registry)))?;
    if args.model.is_some() || !args.serves_several() {
        registry.add(load(args, &device, &settings)?);
    }
    let all = runtime.block_on(registry.all()).map_err(|error| anyhow::anyhow!(error.message))?;
    let name = match all.as_slice() {
        [] if args.allow_pull => "hanzo (no model yet)".to_owned(),
        [] => return Err(usage("there is no model to serve: `hanzo pull` fetches one, or name a file")),
        [only] => out::for_terminal(&only.name).into_owned(),
        several => format!("hanzo ({} models)", several.len()),
    };
    runtime.spawn(Arc::clone(&registry).tend());
    #[cfg(feature = "otel")]
    let traces = args.otlp_endpoint.as_deref().map(hanzo_server::otel::Traces::start).transpose();
    #[cfg(feature = "otel")]
    let traces = traces.map_err(|why| usage(format!("--otlp-endpoint: {why}")))?;
    let served = runtime.block_on(async {
        let address = listener.local_addr().context("the listener has no address")?;
        announce(address, https, with_key, &name, args.quiet);
        let cut = server.serve(listener, stop()).await.context("the listener failed")?;
        match cut {
            0 => tracing::info!("stopped"),
            n => tracing::warn!("stopped; {n} connections were cut off"),
        }
        Ok(())
    });
    #[cfg(feature = "otel")]
    if let Some(Err(why)) = traces.map(hanzo_server::otel::Traces::stop) {
        tracing::warn!("the last traces were not sent: {why}");
    }
    served
}

impl Args {
    /// Whether there are models that are loaded on demand.
    fn serves_several(&self) -> bool {
        self.on_demand || self.models_dir.is_some()
    }

    /// Refuses what would otherwise be ignored.
    fn check_models(&self) -> Result<()> {
        let several = self.serves_several();
        for (given, flag) in [
            (self.models_memory.is_some(), "--models-memory"),
            (self.models_keep_alive.is_some(), "--models-keep-alive"),
            (self.models_config.is_some(), "--models-config"),
            (self.allow_pull, "--allow-pull"),
        ] {
            if given && !several {
                return Err(usage(format!(
                    "{flag} is for models that are loaded on demand: --on-demand or --models-dir DIR"
                )));
            }
        }
        if several && self.model.is_none() && (self.name.is_some() || !self.alias.is_empty()) {
            return Err(usage(
                "--name and --alias are for MODEL, which is not given; --models-config names others",
            ));
        }
        Ok(())
    }
}

/// No model yet, and where those are that are loaded on demand.
fn registry(args: &Args, device: &Arc<CpuDevice>, settings: &LoadSettings) -> Result<Registry> {
    let store = match &args.models_dir {
        Some(dir) => Some(catalog::folder(dir)?),
        None => args.on_demand.then(Store::from_env),
    };
    let Some(store) = store else { return Ok(Registry::default()) };
    let file = args.models_config.as_deref().map(SettingsFile::read).transpose()?.unwrap_or_default();
    let shared = Shared {
        device: Arc::clone(device),
        settings: settings.clone(),
        keep_alive: args.models_keep_alive.and_then(ModelSettings::keep),
        file: Arc::new(file),
    };
    let catalog: Arc<dyn Catalog> = Arc::new(Models { store, shared });
    let registry = Registry::new(args.models_memory.or_else(hanzo_engine::available_memory), Some(catalog));
    if !args.allow_pull {
        return Ok(registry);
    }
    Ok(registry.with_puller(Arc::new(FromHub::into(args.models_dir.clone())?)))
}

fn slowdown(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x == 0.0 || (1.0..=1e6).contains(&x) => Ok(x),
        _ => Err("a number from 1 on, or 0".to_owned()),
    }
}

fn load_settings(args: &Args) -> Result<LoadSettings> {
    Ok(LoadSettings {
        context: args.ctx.map(|n| n as usize),
        kv_tokens: args.kv_tokens.map(|n| n as usize),
        kv_type: args.kv_type.into(),
        template: args.chat_template.as_ref().map(|path| super::template::read(path)).transpose()?,
        family: args.output_format,
        max_sequences: args.parallel as usize,
        max_waiting: args.queue as usize,
        max_drafts: args.draft_max.into(),
        max_slowdown: (args.max_slowdown > 0.0).then_some(args.max_slowdown),
        ..LoadSettings::default()
    })
}

fn load(args: &Args, device: &CpuDevice, settings: &LoadSettings) -> Result<LoadedModel> {
    let source = args.model.as_deref().map_or(Ok(Source::BuiltIn), model::require)?;
    let name = args.name.clone().unwrap_or_else(|| short_name(&source));
    let file = source.open()?;
    let bar = Bar::bytes("loading");
    let mut model = LoadedModel::load(name, &file, device, settings, &bar)
        .map_err(|e| crate::session::cannot_load(&source.name(), e))?;
    model.aliases.clone_from(&args.alias);
    for adapter in &args.lora {
        if adapter.name == model.name || model.aliases.contains(&adapter.name) {
            return Err(usage(format!("`{}` is the model's name; give the adapter another", adapter.name)));
        }
        model.engine.load_adapter(&adapter.name, &adapter.path)?;
    }
    for adapter in model.engine.adapters().iter().filter(|a| !a.unknown_keys.is_empty()) {
        tracing::warn!(
            "{}: not known and left out of account: {}",
            out::for_terminal(&adapter.name),
            out::for_terminal(&adapter.unknown_keys.join(", "))
        );
    }
    for warning in model.tokenizer.warnings() {
        tracing::warn!("{}", out::for_terminal(warning));
    }
    Ok(model)
}

/// `models/Qwen3-0.6B-Q8_0.gguf` is `Qwen3-0.6B-Q8_0`.
fn short_name(source: &Source) -> String {
    match source {
        Source::BuiltIn => model::BUILT_IN.to_owned(),
        Source::File(path) => {
            path.file_stem().map_or_else(|| source.name(), |s| s.to_string_lossy().into_owned())
        }
    }
}

fn config(args: &Args) -> Result<Config> {
    let mut api_keys: Vec<String> =
        args.api_key.iter().map(|k| k.trim().to_owned()).filter(|k| !k.is_empty()).collect();
    if let Some(path) = &args.api_key_file {
        api_keys.extend(read_keys(path)?);
    }
    let defaults = Limits::default();
    Ok(Config {
        api_keys,
        cors_origins: args.cors_origin.clone(),
        allowed_hosts: args.allowed_hosts.clone(),
        tls: args.tls_cert.clone().zip(args.tls_key.clone()).map(|(cert, key)| TlsFiles { cert, key }),
        log_prompts: args.log_prompts,
        lora_dir: args.lora_dir.clone(),
        limits: Limits {
            connections: args.max_connections as usize,
            body_bytes: (args.max_body as usize) << 20,
            reply_time: args.reply_timeout.map(|s| Duration::from_secs(s.into())),
            drain_time: Duration::from_secs(args.drain_timeout.into()),
            ..defaults
        },
    })
}

/// Keys of a file. One without any is a mistake, and must not open the server to everybody.
fn read_keys(path: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the API keys of {}", path.display()))?;
    let keys: Vec<String> = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
        .map(str::to_owned)
        .collect();
    if keys.is_empty() {
        return Err(usage(format!("{} has no API keys", path.display())));
    }
    Ok(keys)
}

/// Says where the server is, and how to try it.
fn announce(address: SocketAddr, https: bool, with_key: bool, name: &str, quiet: bool) {
    let scheme = if https { "https" } else { "http" };
    // Nobody can connect to "all addresses".
    let shown = match address.ip() {
        ip if ip.is_unspecified() => format!("127.0.0.1:{}", address.port()),
        _ => address.to_string(),
    };
    tracing::info!("{name} is ready on {scheme}://{shown}");
    if quiet || !out::errors_to_terminal() {
        return;
    }
    out::note(format_args!("\n  {scheme}://{shown}/ in a browser, or:"));
    let key = if with_key { " -H 'Authorization: Bearer KEY'" } else { "" };
    out::note(format_args!(
        "\n  curl {scheme}://{shown}/v1/chat/completions{key} -H 'Content-Type: application/json' \\\n    \
         -d '{{\"messages\": [{{\"role\": \"user\", \"content\": \"Once upon a time\"}}]}}'\n"
    ));
}

/// Waits for the first Ctrl-C or SIGTERM; a second one leaves at once.
async fn stop() {
    let mut signals = Signals::new();
    signals.next().await;
    tracing::info!("stopping: running replies may end; once more to leave at once");
    tokio::spawn(async move {
        signals.next().await;
        std::process::exit(130);
    });
}

/// What tells a server to stop. Made once, so that no signal is lost between two.
#[cfg(unix)]
struct Signals(Vec<signal::unix::Signal>);

#[cfg(unix)]
impl Signals {
    fn new() -> Self {
        use signal::unix::{SignalKind, signal};
        let made = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
        Self(made.into_iter().flatten().collect())
    }

    async fn next(&mut self) {
        std::future::poll_fn(|cx| {
            let told = self.0.iter_mut().any(|signal| signal.poll_recv(cx).is_ready());
            if told { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> Self {
        Self
    }

    async fn next(&mut self) {
        let _ = signal::ctrl_c().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short() {
        assert_eq!(short_name(&Source::File("a/Qwen3-0.6B-Q8_0.gguf".into())), "Qwen3-0.6B-Q8_0");
        assert_eq!(short_name(&Source::BuiltIn), "hanzo-tiny");
    }

    #[test]
    fn a_file_without_keys_is_a_mistake() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        std::fs::write(&path, "# none\n\n").unwrap();
        assert!(read_keys(&path).is_err());
        std::fs::write(&path, "# two\n a \nb\n").unwrap();
        assert_eq!(read_keys(&path).unwrap(), ["a", "b"]);
    }
}
