//! Metrics as values, for exporters that write them in another format than text.

use super::{Labels, MetricsEncoder, text::Encoder};

/// The labels of a series, with their values.
pub type OwnedLabels = Vec<(&'static str, String)>;

/// A metric: its name without a suffix, its description, and its series.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricFamily {
    /// The name, in Prometheus' spelling.
    pub name: String,
    /// The description for people.
    pub help: String,
    /// Its series.
    pub series: MetricSeries,
}

/// The series of a metric, by its type.
#[derive(Debug, Clone, PartialEq)]
pub enum MetricSeries {
    /// Counts that only grow.
    Counters(Vec<(OwnedLabels, u64)>),
    /// Current values.
    Gauges(Vec<(OwnedLabels, u64)>),
    /// Histograms of durations in seconds.
    Durations(Vec<(OwnedLabels, DurationCounts)>),
}

/// The content of a histogram at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct DurationCounts {
    /// The sum of all durations, in seconds.
    pub seconds: f64,
    /// Each upper bound, in seconds, with the number of durations between it and the one before. The last bound is
    /// infinite.
    pub buckets: Vec<(f64, u64)>,
}

/// Returns all metrics that `describe` adds.
pub fn families(describe: impl FnOnce(&mut MetricsEncoder<'_>) -> std::fmt::Result) -> Vec<MetricFamily> {
    let mut families = Vec::new();
    // Collecting values cannot fail.
    let _ = describe(&mut MetricsEncoder(Encoder::Families(&mut families)));
    families
}

/// Returns labels that own their values.
pub(super) fn owned(labels: Labels<'_>) -> OwnedLabels {
    labels.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
}
