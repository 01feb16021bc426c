//! Validates `[telemetry]`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::build::ProblemCollector;
use super::raw::RawTelemetry;
use super::{ConfigValue, callers, source, value};

/// The limits of the interval at which metrics are sent.
const INTERVAL_LEAST: Duration = Duration::from_secs(1);
const INTERVAL_MOST: Duration = Duration::from_secs(60 * 60);

/// The export of spans and metrics: `[telemetry]`.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct TelemetryConfig {
    /// The address of the collector: `/v1/traces` below it receives spans (OTLP 1.x over HTTP, protobuf).
    #[serde(serialize_with = "super::digest::text")]
    pub otlp: url::Url,
    /// Headers that are sent with every request to the collector.
    pub headers: BTreeMap<String, ConfigValue>,
    /// The interval at which metrics are sent to `/v1/metrics`, from a second to an hour; `None` sends none.
    pub metrics_interval: Option<Duration>,
}

/// Validates where spans and metrics are sent; every problem is added to `problems`.
pub(super) fn telemetry(raw: &RawTelemetry, problems: &mut ProblemCollector) -> Option<TelemetryConfig> {
    let otlp = problems.keep(callers::web(&raw.otlp, "http://127.0.0.1:4318"));
    let headers = source::headers(&raw.headers, problems);
    let interval = raw.metrics_interval.as_ref();
    let metrics_interval =
        interval.and_then(|at| problems.keep(value::duration_within(at, INTERVAL_LEAST, INTERVAL_MOST)));
    Some(TelemetryConfig { otlp: otlp?, headers, metrics_interval })
}
