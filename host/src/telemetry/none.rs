//! The exporter of a program without the feature `telemetry`: it exports nothing, and configuring it is an error.

use std::time::Duration;

use super::{Facts, ReadMetrics};
use crate::config::TelemetryConfig;
use crate::receivers::Receivers;
use crate::secret::SecretStore;

#[derive(Debug)]
pub(super) enum Exporter {}

impl Exporter {
    pub(super) fn start(_: &TelemetryConfig, _: &SecretStore, _: &Receivers) -> Result<Self, String> {
        Err("this program was built without the feature `telemetry`; remove `[telemetry]`".to_owned())
    }

    pub(super) fn take(&self, _: Facts) {
        match *self {}
    }

    pub(super) async fn finish(&self) {
        match *self {}
    }

    pub(super) fn counts(&self) -> [u64; 2] {
        match *self {}
    }
}

/// The exporter of log records, which cannot be constructed either.
pub(super) enum LogExporter {}

impl LogExporter {
    pub(super) fn new(_: &TelemetryConfig, _: &SecretStore) -> Result<Self, String> {
        Err("this program was built without the feature `telemetry`; remove `otlp`".to_owned())
    }

    pub(super) async fn deliver(&self, _: &[String]) -> Result<(), String> {
        match *self {}
    }

    pub(super) fn shown(&self) -> String {
        match *self {}
    }
}

/// The exporter of metrics, which cannot be constructed either.
pub(super) enum MetricsExporter {}

#[derive(Debug)]
pub(super) enum MetricsSender {}

impl MetricsExporter {
    pub(super) fn new(_: &TelemetryConfig, _: Duration, _: &SecretStore, _: &Receivers) -> Result<Self, String> {
        Err("this program was built without the feature `telemetry`; remove `[telemetry]`".to_owned())
    }

    pub(super) fn start(self, _: ReadMetrics) -> MetricsSender {
        match self {}
    }
}

impl MetricsSender {
    pub(super) async fn finish(self) {
        match self {}
    }
}
