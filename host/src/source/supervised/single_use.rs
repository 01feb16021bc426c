//! Connections that are each for one use, such as a call of a source with `lifecycle = "per-call"`.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::Connector;
use super::connection::Connection;
use super::eras::ProbePolicy;
use super::session_slots::share_of;
use super::state::SupervisorState;
use crate::call::Cause;
use crate::limits::CLOSE_DEADLINE;
use crate::source::{Discovery, SourceClient, SourceError};
use crate::sync::Mutex;

/// The places for single-use connections; each principal has its share.
pub(super) struct SingleUsePlaces {
    most: usize,
    all: Arc<Semaphore>,
    /// The shares of the principals that hold a place or wait for one.
    shares: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// One of these places.
pub(super) struct SingleUsePlace {
    #[expect(dead_code, reason = "held, to be dropped")]
    permits: [Option<OwnedSemaphorePermit>; 2],
}

impl SingleUsePlaces {
    pub(super) fn new(most: usize) -> Self {
        Self { most, all: Arc::new(Semaphore::new(most)), shares: Mutex::default() }
    }

    /// Waits for a place. A request that waits for its principal's share keeps no other principal waiting.
    pub(super) async fn take(&self, principal: &str) -> SingleUsePlace {
        let share = self.share(principal);
        // The semaphores are never closed.
        let own = share.acquire_owned().await.ok();
        SingleUsePlace { permits: [own, Arc::clone(&self.all).acquire_owned().await.ok()] }
    }

    fn share(&self, principal: &str) -> Arc<Semaphore> {
        let mut shares = self.shares.lock();
        if let Some(share) = shares.get(principal).and_then(Weak::upgrade) {
            return share;
        }
        let share = Arc::new(Semaphore::new(share_of(self.most)));
        shares.retain(|_, share| share.strong_count() > 0);
        shares.insert(principal.to_owned(), Arc::downgrade(&share));
        share
    }
}

/// A connection for one use, and its place. However that use ends, queued control messages are sent before the
/// connection is closed.
pub(super) struct SingleUseConnection<D> {
    state: Arc<SupervisorState<D>>,
    pub(super) connection: Arc<Connection>,
    place: Option<SingleUsePlace>,
}

impl<D> Drop for SingleUseConnection<D> {
    fn drop(&mut self) {
        let (connection, place) = (Arc::clone(&self.connection), self.place.take());
        self.state.close_later(async move {
            // A source that takes no messages is closed without them.
            let _ = timeout(CLOSE_DEADLINE, connection.mcp.flushed()).await;
            connection.mcp.close().await;
            drop(place);
        });
    }
}

impl<D: Connector> SupervisorState<D> {
    /// Makes a connection for one use. Waits for a place until `deadline`: the connection of an earlier use keeps its
    /// own until it is closed.
    pub(super) async fn single(
        self: &Arc<Self>,
        client: &Arc<dyn SourceClient>,
        deadline: Instant,
    ) -> Result<(SingleUseConnection<D>, Discovery), SourceError> {
        let most = self.supervision.max_connections;
        let full = |_| Cause::own(format!("{most} calls have a connection to this source already (`max-connections`)"));
        let place = timeout_at(deadline, self.single.take(client.principal())).await;
        let place = Some(place.map_err(full).map_err(SourceError::Start)?);
        let era_choice = self.eras.choice_for(&**client);
        let connected = self.connect(client, era_choice, &self.shared.subscribers, ProbePolicy::UnlessMissing).await;
        let (mcp, discovery) = connected.inspect_err(|_| self.counters.failed())?;
        self.learn(era_choice, &mcp);
        let connection = Arc::new(Connection::new(mcp, &discovery.tools));
        Ok((SingleUseConnection { state: Arc::clone(self), connection, place }, discovery))
    }
}
