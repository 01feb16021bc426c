//! `[telemetry]`, from what is written to what holds.

use super::build::Faults;
use super::raw::RawTelemetry;
use super::{TelemetryConfig, callers, source};

/// Where spans go; everything that is wrong goes to `faults`.
pub(super) fn telemetry(raw: &RawTelemetry, faults: &mut Faults) -> Option<TelemetryConfig> {
    let otlp = faults.keep(callers::web(&raw.otlp, "http://127.0.0.1:4318"));
    let headers = source::headers(&raw.headers, faults);
    Some(TelemetryConfig { otlp: otlp?, headers })
}
