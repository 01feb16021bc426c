//! The export of metrics to a collector: OTLP over HTTP with protobuf. Counts are cumulative, so that a request that
//! fails loses nothing.

use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, MetricsData, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum,
};
use prost::Message as _;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval_at, timeout};

use super::endpoint::{CollectorEndpoint, resource, scope, text};
use super::{ReadMetrics, now};
use crate::config::TelemetryConfig;
use crate::metrics::{DurationCounts, MetricFamily, MetricSeries, OwnedLabels};
use crate::receivers::{Receiver, ReceiverKind, Receivers};
use crate::secret::SecretStore;

/// The longest time that sending the last metrics may take when the broker stops.
const FINISH_TIMEOUT: Duration = Duration::from_secs(3);

/// A collector of metrics, to which nothing is sent yet.
pub(super) struct MetricsExporter {
    endpoint: CollectorEndpoint,
    interval: Duration,
    reported: Receiver,
}

/// The task that sends metrics.
#[derive(Debug)]
pub(super) struct MetricsSender {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

struct Collector {
    endpoint: CollectorEndpoint,
    read: ReadMetrics,
    /// The time from which counts count, in nanoseconds since the Unix epoch.
    began: u64,
    reported: Receiver,
}

impl MetricsExporter {
    pub(super) fn new(
        config: &TelemetryConfig,
        interval: Duration,
        secrets: &SecretStore,
        reported: &Receivers,
    ) -> Result<Self, String> {
        let endpoint = CollectorEndpoint::new(config, "/v1/metrics", "[telemetry]", secrets)?;
        let reported = reported.add(ReceiverKind::Metrics, &endpoint.shown());
        Ok(Self { endpoint, interval, reported })
    }

    pub(super) fn start(self, read: ReadMetrics) -> MetricsSender {
        let (stop, stopped) = oneshot::channel();
        let Self { endpoint, interval, reported } = self;
        let collector = Collector { endpoint, read, began: now(), reported };
        MetricsSender { stop: Some(stop), task: tokio::spawn(collector.run(interval, stopped)) }
    }
}

impl MetricsSender {
    pub(super) async fn finish(mut self) {
        drop(self.stop.take());
        if timeout(FINISH_TIMEOUT, &mut self.task).await.is_err() {
            tracing::warn!("the last metrics were not taken by the collector in time, and are lost");
        }
    }
}

impl Drop for MetricsSender {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Collector {
    async fn run(self, every: Duration, mut stopped: oneshot::Receiver<()>) {
        let mut ticks = interval_at(tokio::time::Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_last = tokio::select! {
                _ = ticks.tick() => false,
                _ = &mut stopped => true,
            };
            let Some(families) = (self.read)() else { return };
            self.send(families).await;
            if is_last {
                return;
            }
        }
    }

    async fn send(&self, families: Vec<MetricFamily>) {
        let url = self.reported.name();
        match self.endpoint.post(encode(families, self.began, now())).await {
            Ok(()) => {
                if self.reported.succeeded() > 0 {
                    tracing::warn!(url, "the collector takes metrics again");
                }
            }
            Err(error) => {
                if self.reported.failed(&error) {
                    tracing::warn!(url, error, "the collector does not take metrics; the next have these counts too");
                }
            }
        }
    }
}

/// Encodes an `ExportMetricsServiceRequest`, which has the same form as `MetricsData`.
fn encode(families: Vec<MetricFamily>, began: u64, now: u64) -> Vec<u8> {
    let metrics = families.into_iter().map(|family| metric(family, began, now)).collect();
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope()), metrics, ..ScopeMetrics::default() }];
    let metrics = ResourceMetrics { resource: Some(resource()), scope_metrics, ..ResourceMetrics::default() };
    MetricsData { resource_metrics: vec![metrics] }.encode_to_vec()
}

fn metric(family: MetricFamily, began: u64, now: u64) -> Metric {
    let numbers = |series: Vec<(OwnedLabels, u64)>| {
        let point = |(labels, value): (OwnedLabels, u64)| NumberDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: began,
            time_unix_nano: now,
            value: Some(Value::AsInt(i64::try_from(value).unwrap_or(i64::MAX))),
            ..NumberDataPoint::default()
        };
        series.into_iter().map(point).collect()
    };
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    let (unit, data) = match family.series {
        MetricSeries::Counters(series) => {
            ("1", Data::Sum(Sum { data_points: numbers(series), aggregation_temporality, is_monotonic: true }))
        }
        MetricSeries::Gauges(series) => ("1", Data::Gauge(Gauge { data_points: numbers(series) })),
        MetricSeries::Durations(series) => {
            let data_points =
                series.into_iter().map(|(labels, counts)| duration(labels, &counts, began, now)).collect();
            ("s", Data::Histogram(Histogram { data_points, aggregation_temporality }))
        }
    };
    // OpenTelemetry writes the names of its conventions with dots.
    let name = family.name.replace('_', ".");
    Metric { name, description: family.help, unit: unit.to_owned(), data: Some(data), ..Metric::default() }
}

fn duration(labels: OwnedLabels, counts: &DurationCounts, began: u64, now: u64) -> HistogramDataPoint {
    let bounds = counts.buckets.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite());
    HistogramDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: began,
        time_unix_nano: now,
        count: counts.buckets.iter().map(|(_, count)| count).sum(),
        sum: Some(counts.seconds),
        bucket_counts: counts.buckets.iter().map(|(_, count)| *count).collect(),
        explicit_bounds: bounds.collect(),
        ..HistogramDataPoint::default()
    }
}

fn attributes(labels: OwnedLabels) -> Vec<KeyValue> {
    labels.into_iter().map(|(name, value)| text(name, value)).collect()
}
