//! How sources are, for programs and people.

use crate::name::SourceName;

/// How one source is, as far as is known. Times are milliseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SourceHealth {
    /// As configured.
    pub name: SourceName,
    /// Whether a connection stands. A component is always connected.
    pub connected: bool,
    /// When it last answered a ping; None if it was not asked. Only remote sources are asked without being told to.
    pub last_ping: Option<u64>,
    /// Connections that broke or could not be made, and pings without an answer, since the broker started.
    pub error_count: u64,
    /// The tools that it listed last, before any filter; none if it was not discovered, or cannot be reached now.
    pub tools_available: usize,
}

/// How all sources are.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct State {
    /// Every configured source, in name order.
    pub sources: Vec<SourceHealth>,
    /// The sum of `tools_available`.
    pub total_tools: usize,
    /// When a source was last discovered well, in milliseconds since the Unix epoch.
    pub last_discovery: Option<u64>,
}

impl State {
    /// Of these sources, each with when it was discovered last.
    pub(crate) fn of(known: impl Iterator<Item = (SourceHealth, Option<u64>)>) -> Self {
        let (sources, discovered): (Vec<_>, Vec<_>) = known.unzip();
        Self {
            total_tools: sources.iter().map(|source| source.tools_available).sum(),
            last_discovery: discovered.into_iter().flatten().max(),
            sources,
        }
    }
}
