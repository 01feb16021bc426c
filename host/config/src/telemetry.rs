//! Validates `[telemetry]`.

use std::collections::BTreeMap;

use super::build::ProblemCollector;
use super::raw::RawTelemetry;
use super::{ConfigValue, callers, source};

/// The export of spans: `[telemetry]`.
#[derive(Debug, Clone)]
pub struct TelemetryConfig {
    /// The address of the collector: `/v1/traces` below it receives spans (OTLP 1.x over HTTP, protobuf).
    pub otlp: url::Url,
    /// Headers that are sent with every request to the collector.
    pub headers: BTreeMap<String, ConfigValue>,
}

/// Validates where spans are sent; every problem is added to `faults`.
pub(super) fn telemetry(raw: &RawTelemetry, faults: &mut ProblemCollector) -> Option<TelemetryConfig> {
    let otlp = faults.keep(callers::web(&raw.otlp, "http://127.0.0.1:4318"));
    let headers = source::headers(&raw.headers, faults);
    Some(TelemetryConfig { otlp: otlp?, headers })
}
