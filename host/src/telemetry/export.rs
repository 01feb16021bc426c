//! The export of spans to a collector: OTLP over HTTP with protobuf.
//!
//! A request never waits for it. Spans queue up to a limit, beyond which they are lost and counted. A batch that the
//! collector does not take is lost too, and is not sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status, TracesData};
use prost::Message as _;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::endpoint::{CollectorEndpoint, resource, scope, text};
use super::{Facts, Side};
use crate::config::TelemetryConfig;
use crate::receivers::{Receiver, ReceiverKind, Receivers};
use crate::secret::SecretStore;
use crate::sync::Mutex;

/// The largest number of spans that may wait for the collector: a second of a busy broker, and a megabyte.
const QUEUE: usize = 2048;

/// The most spans in one request to the collector.
const BATCH: usize = 512;

/// The time that the first span of a batch waits for others.
const LINGER: Duration = Duration::from_secs(1);

/// The longest time that sending the last spans may take when the broker stops.
const FINISH_TIMEOUT: Duration = Duration::from_secs(3);

/// A queue of spans, and the task that sends them to a collector.
pub(super) struct Exporter {
    queue: mpsc::Sender<Facts>,
    counts: Arc<Counts>,
    running: Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

#[derive(Default)]
struct Counts {
    taken: AtomicU64,
    lost: AtomicU64,
}

impl Exporter {
    pub(super) fn start(config: &TelemetryConfig, secrets: &SecretStore, reported: &Receivers) -> Result<Self, String> {
        let endpoint = CollectorEndpoint::new(config, "/v1/traces", "[telemetry]", secrets)?;
        let reported = reported.add(ReceiverKind::Spans, &endpoint.shown());
        let (queue, spans) = mpsc::channel(QUEUE);
        let (stop, stopped) = oneshot::channel();
        let counts = Arc::<Counts>::default();
        let collector = Collector { endpoint, counts: Arc::clone(&counts), reported };
        let task = tokio::spawn(collector.feed(spans, stopped));
        Ok(Self { queue, counts, running: Mutex::new(Some((stop, task))) })
    }

    pub(super) fn take(&self, span: Facts) {
        if self.queue.try_send(span).is_err() {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) async fn finish(&self) {
        let running = self.running.lock().take();
        let Some((stop, mut task)) = running else { return };
        // The task may have ended already.
        let _ = stop.send(());
        if tokio::time::timeout(FINISH_TIMEOUT, &mut task).await.is_err() {
            task.abort();
            tracing::warn!("the last spans were not taken by the collector in time, and are lost");
        }
    }

    pub(super) fn counts(&self) -> [u64; 2] {
        [&self.counts.taken, &self.counts.lost].map(|count| count.load(Ordering::Relaxed))
    }
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exporter").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

struct Collector {
    endpoint: CollectorEndpoint,
    counts: Arc<Counts>,
    reported: Receiver,
}

impl Collector {
    async fn feed(self, mut spans: mpsc::Receiver<Facts>, mut stopped: oneshot::Receiver<()>) {
        let mut last = false;
        while !last {
            let mut batch = Vec::new();
            last = gather(&mut spans, &mut stopped, &mut batch).await;
            while !batch.is_empty() {
                let rest = batch.split_off(batch.len().min(BATCH));
                self.send(std::mem::replace(&mut batch, rest)).await;
            }
        }
    }

    async fn send(&self, batch: Vec<Facts>) {
        let count = batch.len() as u64;
        match self.endpoint.post(encode(batch)).await {
            Ok(()) => {
                self.counts.taken.fetch_add(count, Ordering::Relaxed);
                if self.reported.succeeded() > 0 {
                    tracing::warn!(url = self.reported.name(), "the collector takes spans again");
                }
            }
            Err(error) => {
                self.counts.lost.fetch_add(count, Ordering::Relaxed);
                if self.reported.failed(&error) {
                    tracing::warn!(url = self.reported.name(), error, "spans are lost; calls go on without them");
                }
            }
        }
    }
}

/// Waits for a span, then briefly for others, and adds them to the batch. Returns true if there will be no more.
async fn gather(
    spans: &mut mpsc::Receiver<Facts>,
    stopped: &mut oneshot::Receiver<()>,
    batch: &mut Vec<Facts>,
) -> bool {
    let more = async {
        if spans.recv_many(batch, BATCH).await == 0 {
            return true;
        }
        let linger = tokio::time::sleep(LINGER);
        tokio::pin!(linger);
        while batch.len() < BATCH {
            tokio::select! {
                () = &mut linger => break,
                count = spans.recv_many(batch, BATCH) => if count == 0 { return true },
            }
        }
        false
    };
    let ended = tokio::select! {
        ended = more => ended,
        _ = stopped => true,
    };
    while ended && let Ok(left) = spans.try_recv() {
        batch.push(left);
    }
    ended
}

/// Encodes an `ExportTraceServiceRequest`, which has the same form as `TracesData`.
fn encode(batch: Vec<Facts>) -> Vec<u8> {
    let span = |facts: Facts| {
        let failed = facts.error.is_some();
        let all = facts.attributes.into_iter().chain(facts.error.map(|error| ("error.type", error)));
        Span {
            trace_id: facts.place.trace.into(),
            span_id: facts.place.span.into(),
            parent_span_id: facts.parent.map(Vec::from).unwrap_or_default(),
            flags: u32::from(facts.place.sampled),
            name: facts.name,
            kind: match facts.side {
                Side::Server => SpanKind::Server,
                Side::Client => SpanKind::Client,
            }
            .into(),
            start_time_unix_nano: facts.began,
            end_time_unix_nano: facts.ended,
            attributes: all.map(|(key, value)| text(key, value)).collect(),
            status: failed.then(|| Status { code: SpanStatus::Error.into(), ..Status::default() }),
            ..Span::default()
        }
    };
    let scope_spans =
        ScopeSpans { scope: Some(scope()), spans: batch.into_iter().map(span).collect(), ..ScopeSpans::default() };
    let spans =
        ResourceSpans { resource: Some(resource()), scope_spans: vec![scope_spans], ..ResourceSpans::default() };
    TracesData { resource_spans: vec![spans] }.encode_to_vec()
}
