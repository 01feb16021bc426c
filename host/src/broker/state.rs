//! The state of the broker's sources, for programs and people.

use futures_util::future::join_all;

use super::{Broker, BrokerState};

impl Broker {
    /// Returns the state of all sources, as far as it is known. Sends no request and connects to nothing.
    #[must_use]
    pub fn state(&self) -> BrokerState {
        let context = self.inner.context();
        context.state(&context.lock.current_blocking().unwrap_or_default())
    }

    /// Pings every connected source in parallel, over stdio too, for at most 10 s each. A source that does not answer
    /// is degraded. Cancellation safe.
    ///
    /// # Example
    /// ```
    /// # async fn look(broker: &portcullis::Broker) {
    /// for source in broker.ping().await.sources.iter().filter(|source| !source.connected) {
    ///     eprintln!("{} is not connected, after {} errors", source.name, source.error_count);
    /// }
    /// # }
    /// ```
    pub async fn ping(&self) -> BrokerState {
        let context = self.inner.context();
        join_all(context.upstreams.values().map(|upstream| upstream.source.ping())).await;
        let lock = context.lockfile_or_empty().await;
        context.state(&lock)
    }

    /// Returns why calls are refused at the moment, in words that name no file. `None` while they are not refused.
    /// Calls are refused for as long as the ledger cannot record them, and once the broker shuts down.
    #[must_use]
    pub fn refuses_calls(&self) -> Option<&'static str> {
        if self.has_shut_down() {
            return Some("the broker has shut down");
        }
        self.inner.core.ledger.trouble().map(|trouble| trouble.error.in_general())
    }
}
