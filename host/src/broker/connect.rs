//! Connects to all sources at once, for programs that want to know the outcome before they begin.

use std::collections::BTreeMap;

use super::Broker;
use crate::name::SourceName;
use crate::source::SourceError;

/// The error of a broker none of whose sources could be connected. It holds the error of each.
///
/// # Example
/// ```
/// # async fn connect(broker: &portcullis::Broker) {
/// if let Err(portcullis::error::ConnectAllError(failed)) = broker.connect_all().await {
///     failed.iter().for_each(|(source, why)| eprintln!("{source}: {why}"));
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no source could be connected: {}", causes(.0))]
pub struct ConnectAllError(pub BTreeMap<SourceName, SourceError>);

fn causes(all: &BTreeMap<SourceName, SourceError>) -> String {
    all.iter().map(|(name, why)| format!("`{name}`: {why}")).collect::<Vec<_>>().join("; ")
}

impl Broker {
    /// Connects to all sources in parallel, so that the first session finds them connected. Returns the sources that
    /// could not be connected, each with its error; a session tries them again. Without this call, sources are
    /// connected when a session first needs them. Cancellation safe.
    ///
    /// # Errors
    /// [`ConnectAllError`] if no source could be connected.
    pub async fn connect_all(&self) -> Result<BTreeMap<SourceName, SourceError>, ConnectAllError> {
        let met = self.discover().await;
        let all = met.len();
        let failed: BTreeMap<_, _> = met.into_iter().filter_map(|(name, met)| Some((name, met.err()?))).collect();
        if failed.len() == all { Err(ConnectAllError(failed)) } else { Ok(failed) }
    }
}
