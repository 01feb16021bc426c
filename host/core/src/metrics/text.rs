//! The text format of metrics that Prometheus reads (OpenMetrics 1.0).

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::Histogram;
use super::families::{DurationCounts, MetricFamily, MetricSeries, owned};

/// The labels that tell the series of one metric apart.
pub type Labels<'a> = Vec<(&'static str, &'a str)>;

/// An encoder, which takes one metric after the other.
pub struct MetricsEncoder<'a>(pub(super) Encoder<'a>);

/// The form in which metrics are encoded.
pub(super) enum Encoder<'a> {
    Text(DescriptorEncoder<'a>),
    Families(&'a mut Vec<MetricFamily>),
}

impl MetricsEncoder<'_> {
    /// Adds a counter, which only grows. Its name gets `_total`.
    pub fn counter<'l>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<'l>, u64)>,
    ) -> fmt::Result {
        let encoder = match &mut self.0 {
            Encoder::Text(encoder) => encoder,
            Encoder::Families(families) => {
                let series = values.into_iter().map(|(labels, value)| (owned(labels), value)).collect();
                families.push(family(name, help, MetricSeries::Counters(series)));
                return Ok(());
            }
        };
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        each(&mut metric, values, |metric, value| metric.encode_counter::<NoLabelSet, _, f64>(&value, None))
    }

    /// Adds a gauge, which shows a current value.
    pub fn gauge<'l>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<'l>, usize)>,
    ) -> fmt::Result {
        let encoder = match &mut self.0 {
            Encoder::Text(encoder) => encoder,
            Encoder::Families(families) => {
                let series = values.into_iter().map(|(labels, value)| (owned(labels), value as u64)).collect();
                families.push(family(name, help, MetricSeries::Gauges(series)));
                return Ok(());
            }
        };
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        let most = |value| i64::try_from(value).unwrap_or(i64::MAX);
        each(&mut metric, values, |metric, value| metric.encode_gauge(&most(value)))
    }

    /// Adds a histogram of durations. Its name gets `_seconds`.
    pub fn durations<'l>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<'l>, &'l Histogram)>,
    ) -> fmt::Result {
        let encoder = match &mut self.0 {
            Encoder::Text(encoder) => encoder,
            Encoder::Families(families) => {
                let counts = |found: &Histogram| DurationCounts { seconds: found.seconds(), buckets: found.buckets() };
                let series = values.into_iter().map(|(labels, found)| (owned(labels), counts(found))).collect();
                families.push(family(name, help, MetricSeries::Durations(series)));
                return Ok(());
            }
        };
        let mut metric = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        each(&mut metric, values, |metric, histogram| {
            let buckets = histogram.buckets();
            let count = buckets.iter().map(|(_, count)| count).sum();
            metric.encode_histogram::<NoLabelSet>(histogram.seconds(), count, &buckets, None)
        })
    }
}

fn family(name: &str, help: &str, series: MetricSeries) -> MetricFamily {
    MetricFamily { name: name.to_owned(), help: help.to_owned(), series }
}

fn each<'l, T>(
    metric: &mut MetricEncoder<'_>,
    values: impl IntoIterator<Item = (Labels<'l>, T)>,
    encode: impl Fn(&mut MetricEncoder<'_>, T) -> fmt::Result,
) -> fmt::Result {
    values.into_iter().try_for_each(|(labels, value)| match labels.is_empty() {
        true => encode(metric, value),
        false => encode(&mut metric.encode_family(&labels)?, value),
    })
}

/// Returns the text of all metrics that `describe` adds.
pub fn text(describe: impl Fn(&mut MetricsEncoder<'_>) -> fmt::Result + Send + Sync + 'static) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(describe)));
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

struct Scrape<F>(F);

impl<F: Fn(&mut MetricsEncoder<'_>) -> fmt::Result + Send + Sync + 'static> Collector for Scrape<F> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        (self.0)(&mut MetricsEncoder(Encoder::Text(encoder)))
    }
}

impl<F> fmt::Debug for Scrape<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}
