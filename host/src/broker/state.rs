//! How the broker's sources are, for programs and people.

use futures_util::future::join_all;

use super::{Broker, State};

impl Broker {
    /// How all sources are, as far as is known. Asks nobody and connects to nothing.
    #[must_use]
    pub fn state(&self) -> State {
        self.inner.state()
    }

    /// Asks every source that is connected, in parallel, whether it lives: over stdio too, at most 10 s for each. A source that
    /// does not answer is degraded. Cancellation safe.
    pub async fn ping(&self) -> State {
        join_all(self.inner.upstreams.values().map(|upstream| upstream.source.ping())).await;
        self.inner.state()
    }

    /// Why calls are refused at the moment, in words that name no file; `None` while they are made. They are refused for as
    /// long as the ledger cannot record them. Asks nobody.
    #[must_use]
    pub fn refuses_calls(&self) -> Option<&'static str> {
        self.inner.ledger.trouble().map(|trouble| trouble.error.in_general())
    }
}
