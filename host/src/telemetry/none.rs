//! The exporter of a program without the feature `telemetry`: it exports nothing, and configuring it is an error.

use std::fmt;

use super::Facts;
use crate::config::TelemetryConfig;
use crate::secret::SecretStore;

#[derive(Debug)]
pub(super) enum Exporter {}

impl Exporter {
    pub(super) fn start(_: &TelemetryConfig, _: &SecretStore) -> Result<Self, String> {
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

/// A collector of log records, of which there is none.
pub(crate) enum LogCollector {}

impl LogCollector {
    pub(crate) fn new(_: &TelemetryConfig, _: &SecretStore) -> Result<Self, String> {
        Err("this program was built without the feature `telemetry`; remove `otlp`".to_owned())
    }

    pub(crate) async fn deliver(&self, _: &[String]) -> Result<(), String> {
        match *self {}
    }
}

impl fmt::Display for LogCollector {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}
