//! Traces: a span for each request of an agent, and a child span for each call of a source. Names follow
//! OpenTelemetry's conventions for MCP. Spans contain nothing of any payload, and no URI.
//!
//! A collector may also get the end of each call as a log record, through the feed of sinks, and the broker's metrics
//! at an interval.
//!
//! Without a configured collector there are no spans, and a request costs one check of an `Option`. An agent states
//! with `traceparent` (W3C Trace Context) to which trace its request belongs, and whether that trace is sampled.

#[cfg(feature = "telemetry")]
mod endpoint;
#[cfg(feature = "telemetry")]
mod export;
#[cfg(not(feature = "telemetry"))]
#[path = "telemetry/none.rs"]
mod export;
#[cfg(feature = "telemetry")]
mod logs;
#[cfg(feature = "telemetry")]
mod metrics;
mod trace;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::agent::{Agent, TransportKind};
use crate::call::{Call, Caller, Outcome, Params};
use crate::config::TelemetryConfig;
use crate::item::ItemKind;
use crate::metrics::MetricFamily;
use crate::protocol::{Answer, Json, Method};
use crate::receivers::Receivers;
use crate::secret::SecretStore;
use export::Exporter;
#[cfg(not(feature = "telemetry"))]
use export::{LogExporter, MetricsExporter, MetricsSender};
#[cfg(feature = "telemetry")]
use logs::LogExporter;
#[cfg(feature = "telemetry")]
use metrics::{MetricsExporter, MetricsSender};
use trace::SpanContext;

/// The `_meta` key for the place in a trace.
const TRACEPARENT: &str = "traceparent";

/// The most characters of a method or a name that a span repeats: an agent can send any text as either.
const MAX_NAME: usize = 128;

/// A collector that gets the end of each call as a log record.
pub(crate) struct LogCollector(LogExporter);

/// Reads the metrics; `None` once the broker is gone.
type ReadMetrics = Box<dyn Fn() -> Option<Vec<MetricFamily>> + Send + Sync>;

/// A collector of metrics, to which nothing is sent yet.
pub(crate) struct MetricsCollector(MetricsExporter);

/// A task that sends metrics to a collector. Dropping it ends the task.
#[derive(Debug)]
pub(crate) struct MetricsTask(MetricsSender);

/// The maker of spans, which hands them to the exporter.
#[derive(Debug, Clone)]
pub(crate) struct Telemetry(Arc<Exporter>);

/// A span that is open. It ends when it is dropped: as cancelled, unless its outcome was set before.
#[derive(Debug)]
pub(crate) struct Span {
    exporter: Arc<Exporter>,
    facts: Option<Facts>,
}

/// The exported data of a span.
#[derive(Debug)]
#[cfg_attr(not(feature = "telemetry"), expect(dead_code, reason = "without the feature nothing reads a span"))]
struct Facts {
    place: SpanContext,
    parent: Option<[u8; 8]>,
    side: Side,
    name: String,
    attributes: Vec<(&'static str, String)>,
    /// The value of `error.type`, if the span failed.
    error: Option<String>,
    /// The times at which the span began and ended, in nanoseconds since the Unix epoch.
    began: u64,
    ended: u64,
}

/// The revision and the transport in which the broker speaks with a source.
#[derive(Debug)]
pub(crate) struct UpstreamPeer {
    /// The negotiated revision of the protocol.
    pub(crate) revision: Option<String>,
    pub(crate) transport: Option<TransportKind>,
}

/// The role of the broker in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// The server: an agent makes the request.
    Server,
    /// The client: the broker makes the request to a source.
    Client,
}

impl LogCollector {
    /// Prepares a collector. It connects to nothing yet.
    ///
    /// # Errors
    /// A text, if the secret of a header is missing, the address may not be reached, or the program was built without
    /// the feature.
    pub(crate) fn new(config: &TelemetryConfig, secrets: &SecretStore) -> Result<Self, String> {
        LogExporter::new(config, secrets).map(Self)
    }

    /// Sends the ends of calls among these records of the ledger.
    ///
    /// # Errors
    /// A text, if the collector did not take them.
    pub(crate) async fn deliver(&self, records: &[String]) -> Result<(), String> {
        self.0.deliver(records).await
    }

    /// Returns the address of the collector, safe to show.
    pub(crate) fn shown(&self) -> String {
        self.0.shown()
    }
}

impl MetricsCollector {
    /// Prepares the collector, if the configuration names an interval. It is one of the `receivers` then.
    ///
    /// # Errors
    /// As for [`LogCollector::new`].
    pub(crate) fn new(
        config: &TelemetryConfig,
        secrets: &SecretStore,
        receivers: &Receivers,
    ) -> Result<Option<Self>, String> {
        let Some(interval) = config.metrics_interval else { return Ok(None) };
        MetricsExporter::new(config, interval, secrets, receivers).map(Self).map(Some)
    }

    /// Starts to send metrics, which `read` returns, at each interval. The task ends when there are no more metrics.
    pub(crate) fn start(self, read: impl Fn() -> Option<Vec<MetricFamily>> + Send + Sync + 'static) -> MetricsTask {
        MetricsTask(self.0.start(Box::new(read)))
    }
}

impl MetricsTask {
    /// Sends the metrics a last time, for three seconds at most.
    pub(crate) async fn finish(self) {
        self.0.finish().await;
    }
}

impl Telemetry {
    /// Starts the exporter, which becomes one of the `receivers`. It connects to nothing before there are spans to send.
    ///
    /// # Errors
    /// A text, if the secret of a header is missing, the address may not be reached, or the program was built without
    /// the feature.
    pub(crate) fn start(
        config: &TelemetryConfig,
        secrets: &SecretStore,
        receivers: &Receivers,
    ) -> Result<Self, String> {
        Ok(Self(Arc::new(Exporter::start(config, secrets, receivers)?)))
    }

    /// Begins the span of an agent's request. Returns it with the request's parameters, in which this span becomes the
    /// parent of the calls that follow. `None` if the agent's own trace is not sampled.
    pub(crate) fn serving(
        &self,
        method: &Method,
        params: &Params,
        (caller, agent): (&Caller, &Agent),
        id: Option<Json>,
    ) -> Option<(Span, Json)> {
        let name = || params.name().and_then(|name| name.read::<String>().ok());
        let (kind, name) = match method {
            Method::ToolsCall => (ItemKind::Tool, name()),
            Method::PromptsGet => (ItemKind::Prompt, name()),
            _ => (ItemKind::Source, None),
        };
        // A number is written as its digits, a string without its quotes.
        let id = id.map(|id| id.read::<String>().unwrap_or_else(|_| id.as_str().to_owned()));
        let more = [
            ("mcp.session.id", Some(caller.session.as_str().to_owned())),
            ("mcp.protocol.version", agent.revision.map(str::to_owned)),
            ("network.transport", agent.transport.map(|transport| transport.as_str().to_owned())),
            ("jsonrpc.request.id", id),
            ("portcullis.profile", Some(caller.profile.as_str().to_owned())),
        ];
        let span = self.begin(Side::Server, params, method, (kind, name.as_deref()), more)?;
        let params = span.traced(params.as_json());
        Some((span, params))
    }

    /// Begins the span of a call that is about to reach its source.
    pub(crate) fn calling(&self, call: &Call, peer: UpstreamPeer) -> Option<Span> {
        let more = [
            ("mcp.protocol.version", peer.revision),
            ("network.transport", peer.transport.map(|transport| transport.as_str().to_owned())),
            ("portcullis.source", Some(call.source().to_string())),
            ("portcullis.call.id", Some(call.id.to_string())),
        ];
        self.begin(Side::Client, &call.params, &call.method, (call.item.kind, Some(&call.item.name)), more)
    }

    fn begin(
        &self,
        side: Side,
        params: &Params,
        method: &Method,
        (kind, name): (ItemKind, Option<&str>),
        more: impl IntoIterator<Item = (&'static str, Option<String>)>,
    ) -> Option<Span> {
        let parent = params.meta().and_then(|meta| SpanContext::parse(&meta.get_str(TRACEPARENT)?));
        if parent.is_some_and(|parent| !parent.sampled) {
            return None;
        }
        let short = |text: &str| text.chars().take(MAX_NAME).collect::<String>();
        let method = short(method.as_str());
        let key = match kind {
            ItemKind::Tool => Some("gen_ai.tool.name"),
            ItemKind::Prompt => Some("gen_ai.prompt.name"),
            ItemKind::Resource | ItemKind::Template | ItemKind::Source => None,
        };
        let named = key.zip(name.map(short));
        let span_name = named.as_ref().map_or_else(|| method.clone(), |(_, name)| format!("{method} {name}"));
        let mut attributes = vec![("mcp.method.name", method)];
        attributes.extend((kind == ItemKind::Tool).then(|| ("gen_ai.operation.name", "execute_tool".to_owned())));
        attributes.extend(named);
        attributes.extend(more.into_iter().filter_map(|(key, value)| Some((key, value?))));
        let facts = Facts {
            place: SpanContext::after(parent)?,
            parent: parent.map(|parent| parent.span),
            side,
            name: span_name,
            attributes,
            error: Some("cancelled".to_owned()),
            began: now(),
            ended: 0,
        };
        Some(Span { exporter: Arc::clone(&self.0), facts: Some(facts) })
    }

    /// Sends the spans that are left, within a time limit.
    pub(crate) async fn finish(&self) {
        self.0.finish().await;
    }

    /// Returns how many spans the collector took, and how many were lost: the queue was full, or the collector took
    /// none.
    pub(crate) fn counts(&self) -> [u64; 2] {
        self.0.counts()
    }
}

/// Returns the code of an error as a span has it. A source may write any value in its place, of any length.
fn error_type(error: &Json) -> String {
    let code = error.get("code").and_then(|code| code.read::<i64>().ok());
    code.map_or_else(|| "error".to_owned(), |code| code.to_string())
}

impl Span {
    /// Returns the parameters with this span as their parent.
    pub(crate) fn traced(&self, params: &Json) -> Json {
        let Some(facts) = &self.facts else { return params.clone() };
        let meta = params.get("_meta").unwrap_or_else(Json::empty_object);
        let meta = meta.with(TRACEPARENT, &Json::of(&facts.place.to_string()));
        meta.and_then(|meta| params.with("_meta", &meta)).unwrap_or_else(|| params.clone())
    }

    /// Ends the span with the outcome that an answer shows.
    pub(crate) fn answered(mut self, answer: &Answer) {
        self.came_to(match answer {
            Answer::Error(error) => Some(error_type(error)),
            Answer::Result(result) => {
                let failed = result.get("isError").is_some_and(|is| is.is_true());
                failed.then(|| "tool_error".to_owned())
            }
        });
    }

    /// Ends the span with the outcome of a call at its source.
    pub(crate) fn ended(self, outcome: &Outcome) {
        match outcome {
            Outcome::Answered(answer) => self.answered(answer),
            Outcome::Unknown(_) => self.failed("unknown"),
            Outcome::NotSent(_) => self.failed("not-sent"),
        }
    }

    fn failed(mut self, error: &str) {
        self.came_to(Some(error.to_owned()));
    }

    fn came_to(&mut self, error: Option<String>) {
        if let Some(facts) = &mut self.facts {
            facts.error = error;
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(mut facts) = self.facts.take() {
            facts.ended = now();
            self.exporter.take(facts);
        }
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, feature = "telemetry"))]
mod tests;
