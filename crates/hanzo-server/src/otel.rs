//! Traces for OpenTelemetry (feature `otel`): a span a reply, with its wait, its prompt and its tokens below it, sent by OTLP over HTTP.
//!
//! A reply's times are known when it ends, so its spans are made then, with the times that the engine took; nothing is traced on
//! the way. Texts are never in them. Where a request has a `traceparent` header, its span belongs to that trace. The variables of
//! OpenTelemetry (`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_PROTOCOL`, `OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER`, …) count.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Span, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue, global};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;

use crate::context::RequestId;
use crate::generate::{End, EndReason};

/// For the collector to answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Most bytes of its answer.
const ANSWER_BYTES: u64 = 1 << 20;

/// Sends traces until it is stopped.
#[derive(Debug)]
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Sends traces to the collector at this address (`http://127.0.0.1:4318`; `/v1/traces` is put behind it) from now on.
    ///
    /// # Errors
    /// An address that is none, or variables that make no sense.
    pub fn start(endpoint: &str) -> Result<Self, String> {
        let agent =
            ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(ANSWER_TIME));
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Client(agent.build().into()))
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .build()
            .map_err(|error| format!("{endpoint}: {error}"))?;
        let mut resource = Resource::builder();
        if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name("hanzo");
        }
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let resource = resource.with_attribute(version).build();
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
        global::set_tracer_provider(provider.clone());
        Ok(Self(provider))
    }

    /// Sends what is not sent yet.
    ///
    /// # Errors
    /// Why some traces were lost.
    pub fn stop(self) -> Result<(), String> {
        self.0.shutdown().map_err(|error| error.to_string())
    }
}

/// HTTP for the exporter, which calls it on a thread of its own.
struct Client(ureq::Agent);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

impl Client {
    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let answer = self.0.run(Request::from_parts(parts, body.to_vec()))?;
        let (parts, mut body) = answer.into_parts();
        let body = body.with_config().limit(ANSWER_BYTES).read_to_vec()?;
        Ok(Response::from_parts(parts, Bytes::from(body)))
    }
}

impl HttpClient for Client {
    fn send_bytes<'client, 'sent>(
        &'client self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'sent>>
    where
        'client: 'sent,
        Self: 'sent,
    {
        Box::pin(async move { self.send(request) })
    }
}

/// The trace that a request belongs to, if it says so.
fn parent(id: &RequestId) -> Context {
    let header = id.traceparent.as_ref().map(|text| ("traceparent".to_owned(), text.to_string()));
    let headers: HashMap<String, String> = header.into_iter().collect();
    TraceContextPropagator::new().extract_with_context(&Context::new(), &headers)
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// The span of a request for `model` that began so long ago and ends now.
fn span(id: &RequestId, model: &str, took: Duration, more: Vec<KeyValue>) -> (SpanBuilder, SystemTime) {
    let now = SystemTime::now();
    let mut attributes = vec![
        KeyValue::new("gen_ai.request.model", model.to_owned()),
        KeyValue::new("hanzo.request.id", id.text.to_string()),
    ];
    attributes.extend(more);
    let builder = SpanBuilder::from_name(format!("generate {model}"))
        .with_kind(SpanKind::Server)
        .with_start_time(now.checked_sub(took).unwrap_or(now))
        .with_attributes(attributes);
    (builder, now)
}

/// Traces a reply that has ended.
pub(crate) fn replied(id: &RequestId, model: &str, choice: usize, took: Duration, end: &End) {
    let reason = match end.reason {
        EndReason::Stop => "stop",
        EndReason::Length => "length",
        EndReason::Calls => "tool_calls",
    };
    let finish = &end.finish;
    let attributes = vec![
        KeyValue::new("hanzo.choice", count(choice)),
        KeyValue::new("gen_ai.usage.input_tokens", count(finish.prompt_tokens)),
        KeyValue::new("gen_ai.usage.cached_tokens", count(finish.cached_tokens)),
        KeyValue::new("gen_ai.usage.output_tokens", count(finish.generated_tokens)),
        KeyValue::new("gen_ai.response.finish_reason", reason),
    ];
    let tracer = global::tracer("hanzo");
    let (builder, now) = span(id, model, took, attributes);
    let context = parent(id);
    let context = context.with_span(tracer.build_with_context(builder, &context));
    // From the end backwards: the parts follow each other, and before them the request was read.
    let mut until = now;
    for (name, time) in
        [("decode", finish.generation_time), ("prefill", finish.prompt_time), ("queue", finish.queue_time)]
    {
        let from = until.checked_sub(time).unwrap_or(until);
        let part = SpanBuilder::from_name(name).with_start_time(from);
        tracer.build_with_context(part, &context).end_with_timestamp(until);
        until = from;
    }
    context.span().end_with_timestamp(now);
}

/// Traces a request that failed, or whose client went away.
pub(crate) fn failed(id: &RequestId, model: &str, took: Duration, why: impl Into<Cow<'static, str>>) {
    let (builder, now) = span(id, model, took, Vec::new());
    let mut span = global::tracer("hanzo").build_with_context(builder, &parent(id));
    span.set_status(Status::Error { description: why.into() });
    span.end_with_timestamp(now);
}
