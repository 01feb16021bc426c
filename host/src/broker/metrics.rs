//! The broker's counters, for a monitoring system. Names follow OpenTelemetry's conventions for MCP where those have
//! one, in Prometheus' spelling.

use std::fmt;
use std::sync::Arc;

use super::{Broker, BuildError, Inner, PreparedConfig};
use crate::context::{Context, Upstream};
use crate::metrics::{LabelledSeries, Labels, MetricsEncoder, families, text};
use crate::receivers::Receivers;
use crate::source::SourceStatus;
use crate::telemetry::{MetricsCollector, MetricsTask};

impl Broker {
    /// Returns all metrics in OpenMetrics' text format 1.0, which Prometheus reads. Durations are in seconds. The text
    /// holds names of sources, exposed names of their tools, and names and addresses of what the broker sends to
    /// (sinks, witnesses, webhooks, collectors), and nothing of any payload. Sends no request to any
    /// source.
    #[must_use]
    pub fn metrics(&self) -> String {
        let inner = Arc::clone(&self.inner);
        text(move |families| inner.describe(families))
    }
}

/// Prepares the collector that gets the metrics, if the configuration names one and an interval.
pub(super) fn collector(
    prepared: &PreparedConfig,
    receivers: &Receivers,
) -> Result<Option<MetricsCollector>, BuildError> {
    let Some(config) = &prepared.config.telemetry else { return Ok(None) };
    MetricsCollector::new(config, &prepared.secrets, receivers).map_err(BuildError::Telemetry)
}

/// Sends the metrics a last time.
pub(super) async fn finish(task: Option<MetricsTask>) {
    if let Some(task) = task {
        task.finish().await;
    }
}

impl Inner {
    /// Starts to send the metrics to a collector.
    pub(super) fn export_metrics(self: &Arc<Self>, collector: MetricsCollector) -> MetricsTask {
        let inner = Arc::downgrade(self);
        collector.start(move || inner.upgrade().map(|inner| families(|families| inner.describe(families))))
    }

    fn describe(&self, families: &mut MetricsEncoder<'_>) -> fmt::Result {
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        families.gauge("portcullis_build_info", "The broker that runs", [(version, 1)])?;
        let context = &*self.context();
        describe_calls(context, families)?;
        describe_sources(context, families)?;
        // The same plugin may be configured twice, with different settings.
        let places: Vec<_> = (1..=context.gate.decisions().count()).map(|place| place.to_string()).collect();
        let decisions = context.gate.decisions().zip(&places).flat_map(|((role, identity, decisions), place)| {
            let labels = move |verdict| {
                vec![("role", role), ("plugin", identity.name.as_str()), ("place", place), ("verdict", verdict)]
            };
            decisions.all().map(move |(decided, histogram)| (labels(decided.as_str()), histogram))
        });
        families.durations("portcullis_plugin_decision_duration", "Decisions of plugins", decisions)?;
        let appended = [(Labels::new(), context.ledger.appended())];
        families.durations(
            "portcullis_ledger_append_duration",
            "Records that somebody waited for, until durable",
            appended,
        )?;
        families.gauge(
            "portcullis_open_approvals",
            "Questions that wait for a person",
            [(Labels::new(), self.core.inbox.len())],
        )?;
        families.gauge(
            "portcullis_sessions",
            "Open sessions of agents",
            [(Labels::new(), self.live_sessions().len())],
        )?;
        if let Some(telemetry) = &context.telemetry {
            let [taken, lost] = telemetry.counts();
            families.counter("portcullis_spans_taken", "Spans that the collector took", [(Labels::new(), taken)])?;
            families.counter("portcullis_spans_lost", "Spans that it did not take in time", [(Labels::new(), lost)])?;
        }
        describe_receivers(&self.core.receivers, families)?;
        let lasted = [(Labels::new(), &*context.session_durations)];
        families.durations("mcp_server_session_duration", "Sessions of agents that have ended", lasted)
    }
}

fn describe_calls(context: &Context, families: &mut MetricsEncoder<'_>) -> fmt::Result {
    let series: Vec<_> = context
        .upstreams
        .iter()
        .flat_map(|(name, upstream)| upstream.metrics.series().into_iter().map(move |one| (name.as_str(), one)))
        .collect();
    families.durations(
        "mcp_client_operation_duration",
        "Requests to sources, from the intent on disk to the answer, by what came of them",
        series.iter().flat_map(|(source, counted)| {
            counted.series.endings().map(move |(ending, histogram)| {
                let mut labels = of_call(source, counted);
                labels.push(("outcome", ending.as_str()));
                (labels, histogram)
            })
        }),
    )?;
    families.counter(
        "portcullis_calls_denied",
        "Calls that were refused before their source could see them",
        series.iter().map(|(source, counted)| (of_call(source, counted), counted.series.denials())),
    )
}

fn describe_sources(context: &Context, families: &mut MetricsEncoder<'_>) -> fmt::Result {
    let known: Vec<_> = context.upstreams.values().map(|upstream| (upstream, upstream.source.health())).collect();
    let states = known.iter().flat_map(|(upstream, health)| {
        let is = |status| usize::from(health.status == status);
        SourceStatus::ALL
            .map(|status| (vec![("source", upstream.config.name.as_str()), ("state", status.as_str())], is(status)))
    });
    families.gauge("portcullis_source_state", "1 for the state that the source is in", states)?;
    let tools = known.iter().map(|(upstream, health)| (of_source(upstream), upstream.available_tools(health.status).0));
    families.gauge("portcullis_source_tools", "Tools that the source listed last", tools)?;
    let errors = known.iter().map(|(upstream, health)| (of_source(upstream), health.error_count));
    families.counter("portcullis_source_errors", "Connections that broke or could not be made, and lost pings", errors)
}

fn describe_receivers(receivers: &Receivers, families: &mut MetricsEncoder<'_>) -> fmt::Result {
    let states = receivers.states();
    let labelled =
        || states.iter().map(|state| (state, vec![("kind", state.kind.as_str()), ("receiver", &*state.name)]));
    let failing = labelled().map(|(state, labels)| (labels, usize::from(state.failing)));
    let help = "1 if the last delivery to a sink, a witness, a receiver of questions or a collector failed";
    families.gauge("portcullis_receiver_failing", help, failing)?;
    let failures = labelled().map(|(state, labels)| (labels, state.failures));
    families.counter("portcullis_receiver_failures", "Deliveries to it that failed, each attempt counted", failures)
}

fn of_call<'a>(source: &'a str, counted: &'a LabelledSeries) -> Labels<'a> {
    let tool = counted.tool.as_deref().map(|tool| ("tool", tool));
    [("source", source), ("method", &*counted.method)].into_iter().chain(tool).collect()
}

fn of_source(upstream: &Upstream) -> Labels<'_> {
    vec![("source", upstream.config.name.as_str())]
}
