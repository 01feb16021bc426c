//! `[telemetry]`, from what is written to what holds.

use std::collections::BTreeMap;

use super::build::Faults;
use super::raw::RawTelemetry;
use super::{Value, callers, source};

/// `[telemetry]`
#[derive(Debug, Clone)]
pub struct TelemetryConfig {
    /// The collector: `/v1/traces` below it takes spans (OTLP 1.x over HTTP, protobuf).
    pub otlp: url::Url,
    /// Sent with every request to it.
    pub headers: BTreeMap<String, Value>,
}

/// Where spans go; everything that is wrong goes to `faults`.
pub(super) fn telemetry(raw: &RawTelemetry, faults: &mut Faults) -> Option<TelemetryConfig> {
    let otlp = faults.keep(callers::web(&raw.otlp, "http://127.0.0.1:4318"));
    let headers = source::headers(&raw.headers, faults);
    Some(TelemetryConfig { otlp: otlp?, headers })
}
