//! Counts and times of requests, and `/metrics`: the names and labels that vLLM's dashboards and routers know.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hanzo_engine::{AdapterInfo, Metrics};
use hanzo_fusion::BLOCK_TOKENS;

use crate::ids;
use crate::model::LoadedModel;

/// Upper bounds of buckets, in seconds, as vLLM has them.
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
const BETWEEN_TOKENS: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
const WHOLE: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
];

/// How often something took how long.
#[derive(Debug)]
pub(crate) struct Histogram {
    bounds: &'static [f64],
    /// Of each bucket, not cumulated; the last has no bound.
    counts: Vec<AtomicU64>,
    sum_nanos: AtomicU64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum_nanos: AtomicU64::new(0) }
    }

    pub(crate) fn observe(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.sum_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    fn write(&self, out: &mut String, name: &str, labels: &str) {
        let mut total = 0;
        let bounds = self.bounds.iter().map(|bound| format!("{bound:?}")).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(&self.counts) {
            total += count.load(Ordering::Relaxed);
            line(out, &format!("{name}_bucket"), &format!("{labels},le=\"{bound}\""), total as f64);
        }
        line(out, &format!("{name}_sum"), labels, self.sum_nanos.load(Ordering::Relaxed) as f64 / 1e9);
        line(out, &format!("{name}_count"), labels, total as f64);
    }
}

/// How a request ended, as the label `finished_reason` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Stop,
    Length,
    Abort,
    Error,
}

impl Outcome {
    const ALL: [(Self, &'static str); 4] =
        [(Self::Stop, "stop"), (Self::Length, "length"), (Self::Abort, "abort"), (Self::Error, "error")];
}

/// Counts of what was asked of a model. They outlive it: when it is loaded again, they go on.
#[derive(Debug)]
pub(crate) struct ModelMetrics {
    pub(crate) first_token: Histogram,
    pub(crate) between_tokens: Histogram,
    pub(crate) whole: Histogram,
    pub(crate) queue: Histogram,
    pub(crate) prompt_tokens: AtomicU64,
    outcomes: [AtomicU64; Outcome::ALL.len()],
    /// Counters of its engines that are gone.
    gone: Mutex<Metrics>,
}

impl Default for ModelMetrics {
    fn default() -> Self {
        Self {
            first_token: Histogram::new(FIRST_TOKEN),
            between_tokens: Histogram::new(BETWEEN_TOKENS),
            whole: Histogram::new(WHOLE),
            queue: Histogram::new(WHOLE),
            prompt_tokens: AtomicU64::new(0),
            outcomes: Default::default(),
            gone: Mutex::default(),
        }
    }
}

impl ModelMetrics {
    /// Keeps the counters of an engine that goes.
    pub(crate) fn keep(&self, engine: &Metrics) {
        // Sums that a panic could leave half done do no harm.
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        add(&mut gone, &Metrics { waiting: 0, running: 0, kv_blocks: 0, kv_free: 0, ..*engine });
    }

    pub(crate) fn ended(&self, outcome: Outcome) {
        for ((known, _), count) in Outcome::ALL.iter().zip(&self.outcomes) {
            if *known == outcome {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Adds up what two engines of a model say.
fn add(total: &mut Metrics, more: &Metrics) {
    total.waiting += more.waiting;
    total.running += more.running;
    total.kv_blocks += more.kv_blocks;
    total.kv_free += more.kv_free;
    total.prefix_queries += more.prefix_queries;
    total.prefix_hits += more.prefix_hits;
    total.preemptions += more.preemptions;
    total.steps += more.steps;
    total.failed_steps += more.failed_steps;
    total.restarts += more.restarts;
    total.prompt_tokens += more.prompt_tokens;
    total.generated_tokens += more.generated_tokens;
    total.drafted_tokens += more.drafted_tokens;
    total.accepted_tokens += more.accepted_tokens;
}

/// What is told of a model, whether or not it is in memory now.
#[derive(Debug)]
pub(crate) struct Account {
    name: String,
    metrics: Arc<ModelMetrics>,
    /// In memory, the one that new requests get first, then those that were unloaded and still run.
    models: Vec<Arc<LoadedModel>>,
    /// Of all its engines, gone or not.
    engines: Metrics,
}

impl Account {
    pub(crate) fn new(name: String, metrics: Arc<ModelMetrics>, models: Vec<Arc<LoadedModel>>) -> Self {
        let mut engines = *metrics.gone.lock().unwrap_or_else(PoisonError::into_inner);
        models.iter().for_each(|model| add(&mut engines, &model.engine.metrics()));
        Self { name, metrics, models, engines }
    }
}

fn line(out: &mut String, name: &str, labels: &str, value: f64) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{name}{{{labels}}} {value}");
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// A label's value: backslashes, quotes and line ends escaped.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A metric with one value a model.
type Scalar = (&'static str, &'static str, &'static str, fn(&Account) -> f64);

const SCALARS: &[Scalar] = &[
    ("vllm:num_requests_running", "gauge", "Requests that run.", |m| m.engines.running as f64),
    ("vllm:num_requests_waiting", "gauge", "Requests that wait.", |m| m.engines.waiting as f64),
    ("vllm:kv_cache_usage_perc", "gauge", "KV blocks in use, 1 is all.", |m| {
        let metrics = m.engines;
        metrics.kv_blocks.saturating_sub(metrics.kv_free) as f64 / metrics.kv_blocks.max(1) as f64
    }),
    ("vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache.", |m| {
        m.engines.prefix_queries as f64
    }),
    ("vllm:prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.", |m| {
        m.engines.prefix_hits as f64
    }),
    ("vllm:num_preemptions_total", "counter", "Sequences whose KV blocks were taken away.", |m| {
        m.engines.preemptions as f64
    }),
    ("vllm:prompt_tokens_total", "counter", "Tokens of prompts, cached ones included.", |m| {
        m.metrics.prompt_tokens.load(Ordering::Relaxed) as f64
    }),
    ("vllm:generation_tokens_total", "counter", "Tokens of replies.", |m| m.engines.generated_tokens as f64),
    ("vllm:spec_decode_num_draft_tokens_total", "counter", "Tokens guessed ahead.", |m| {
        m.engines.drafted_tokens as f64
    }),
    ("vllm:spec_decode_num_accepted_tokens_total", "counter", "Tokens guessed ahead and right.", |m| {
        m.engines.accepted_tokens as f64
    }),
    ("hanzo:engine_steps_total", "counter", "Steps of the engine.", |m| m.engines.steps as f64),
    ("hanzo:engine_failed_steps_total", "counter", "Steps that failed.", |m| m.engines.failed_steps as f64),
    ("hanzo:engine_restarts_total", "counter", "Times that the engine's thread was started anew.", |m| {
        m.engines.restarts as f64
    }),
];

/// A histogram of each model.
type Times = (&'static str, &'static str, fn(&ModelMetrics) -> &Histogram);

const TIMES: &[Times] = &[
    ("vllm:time_to_first_token_seconds", "From a request's arrival to its first token.", |m| &m.first_token),
    ("vllm:inter_token_latency_seconds", "From one token of a reply to the next.", |m| &m.between_tokens),
    ("vllm:e2e_request_latency_seconds", "From a request's arrival to its end.", |m| &m.whole),
    ("vllm:request_queue_time_seconds", "From a request's arrival to its first step.", |m| &m.queue),
];

/// Which adapters requests run and wait with, in vLLM's form: names as labels, the time as value.
fn adapters(out: &mut String, models: &[(&Account, String)]) {
    let name = "vllm:lora_requests_info";
    head(
        out,
        name,
        "gauge",
        "Adapters of requests that run and that wait, as labels; the value is the time.",
    );
    for (model, labels) in models.iter().filter_map(|(m, labels)| Some((m.models.first()?, labels))) {
        let adapters = model.engine.adapters();
        let names = |wanted: fn(&AdapterInfo) -> usize| {
            let names: Vec<&str> =
                adapters.iter().filter(|a| wanted(a) > 0).map(|a| a.name.as_str()).collect();
            label(&names.join(","))
        };
        let (running, waiting) = (names(|a| a.running), names(|a| a.waiting));
        let most = model.engine.adapter_limits().count;
        let labels = format!(
            "{labels},max_lora=\"{most}\",running_lora_adapters=\"{running}\",waiting_lora_adapters=\"{waiting}\""
        );
        line(out, name, &labels, ids::now() as f64);
    }
}

/// All metrics of all models, in Prometheus' text format.
pub(crate) fn text(accounts: &[Account]) -> String {
    let mut out = String::with_capacity(8 << 10);
    let labelled: Vec<(&Account, String)> =
        accounts.iter().map(|m| (m, format!("model_name=\"{}\"", label(&m.name)))).collect();
    for (name, kind, help, value) in SCALARS {
        head(&mut out, name, kind, help);
        for (model, labels) in &labelled {
            line(&mut out, name, labels, value(model));
        }
    }
    let name = "vllm:request_success_total";
    head(&mut out, name, "counter", "Requests that ended, by reason.");
    for (model, labels) in &labelled {
        for ((_, reason), count) in Outcome::ALL.iter().zip(&model.metrics.outcomes) {
            let count = count.load(Ordering::Relaxed) as f64;
            line(&mut out, name, &format!("{labels},finished_reason=\"{reason}\""), count);
        }
    }
    for (name, help, histogram) in TIMES {
        head(&mut out, name, "histogram", help);
        for (model, labels) in &labelled {
            histogram(&model.metrics).write(&mut out, name, labels);
        }
    }
    adapters(&mut out, &labelled);
    let name = "vllm:cache_config_info";
    head(&mut out, name, "gauge", "The KV cache's sizes, as labels.");
    for (model, labels) in labelled.iter().filter(|(m, _)| !m.models.is_empty()) {
        let blocks = model.engines.kv_blocks;
        // The name that dashboards ask for, whatever the device is.
        let labels = format!("{labels},block_size=\"{BLOCK_TOKENS}\",num_gpu_blocks=\"{blocks}\"");
        line(&mut out, name, &labels, 1.0);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulated_and_their_bounds_belong_to_them() {
        let histogram = Histogram::new(&[0.5, 1.0]);
        for ms in [100, 500, 700, 5000] {
            histogram.observe(Duration::from_millis(ms));
        }
        let mut out = String::new();
        histogram.write(&mut out, "x", "m=\"a\"");
        let expected = "x_bucket{m=\"a\",le=\"0.5\"} 2\nx_bucket{m=\"a\",le=\"1.0\"} 3\n\
            x_bucket{m=\"a\",le=\"+Inf\"} 4\nx_sum{m=\"a\"} 6.3\nx_count{m=\"a\"} 4\n";
        assert_eq!(out, expected);
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(label("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
