//! The state of sources, for programs and people.

use crate::name::SourceName;

/// The state of one source, as far as it is known. Times are milliseconds since the Unix epoch.
///
/// # Example
/// ```
/// # fn show(state: &portcullis::BrokerState) {
/// let away = state.sources.iter().filter(|source: &&portcullis::SourceHealth| !source.connected);
/// away.for_each(|source| eprintln!("{} has failed {} times", source.name, source.error_count));
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct SourceHealth {
    /// The configured name.
    pub name: SourceName,
    /// True if a connection is open. A component is always connected.
    pub connected: bool,
    /// The time at which the source last answered a ping; `None` if it was not asked. Only remote sources are pinged
    /// unprompted.
    pub last_ping: Option<u64>,
    /// Connections that broke or could not be made, and pings without an answer, since the broker started.
    pub error_count: u64,
    /// The number of tools that the source listed last, before any filter; 0 if it was not discovered, or cannot be
    /// reached now.
    pub tools_available: usize,
    /// The number of definitions that the source listed last and that no session sees because of what the scanner found
    /// in them: tools, prompts, resources and templates, and the source's instructions.
    pub quarantined: usize,
}

/// The state of all sources.
///
/// # Example
/// ```
/// # fn show(broker: &portcullis::Broker) {
/// let state: portcullis::BrokerState = broker.state();
/// println!("{} tools of {} sources", state.total_tools, state.sources.len());
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct BrokerState {
    /// Every configured source, in name order.
    pub sources: Vec<SourceHealth>,
    /// The sum of `tools_available`.
    pub total_tools: usize,
    /// The sum of `quarantined`.
    pub total_quarantined: usize,
    /// The time at which a source was last discovered successfully, in milliseconds since the Unix epoch.
    pub last_discovery: Option<u64>,
}

impl BrokerState {
    /// Sums up these sources, each given with the time of its last discovery.
    pub(crate) fn of(known: impl Iterator<Item = (SourceHealth, Option<u64>)>) -> Self {
        let (sources, discovered): (Vec<_>, Vec<_>) = known.unzip();
        Self {
            total_tools: sources.iter().map(|source| source.tools_available).sum(),
            total_quarantined: sources.iter().map(|source| source.quarantined).sum(),
            last_discovery: discovered.into_iter().flatten().max(),
            sources,
        }
    }
}
