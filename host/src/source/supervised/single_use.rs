//! Connections that are each for one use, such as a call of a source with `lifecycle = "per-call"`.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};

use super::Connector;
use super::connection::Connection;
use super::state::SupervisorState;
use crate::call::Cause;
use crate::limits::CLOSE_DEADLINE;
use crate::source::{Discovery, SourceClient, SourceError};

/// A connection for one use, and its place. However that use ends, queued control messages are sent before the
/// connection is closed.
pub(super) struct SingleUseConnection<D> {
    state: Arc<SupervisorState<D>>,
    pub(super) connection: Arc<Connection>,
    place: Option<OwnedSemaphorePermit>,
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
        let place = timeout_at(deadline, Arc::clone(&self.single).acquire_owned()).await;
        // The semaphore is never closed.
        let place = place.map_err(full).map_err(SourceError::Start)?.ok();
        let era_choice = self.eras.choice_for(&**client);
        let connected = self.connect(client, era_choice, &self.shared.subscribers, false).await;
        let (mcp, discovery) = connected.inspect_err(|_| self.counters.failed())?;
        self.learn(era_choice, mcp.is_modern(), mcp.keeps_state());
        let connection = Arc::new(Connection::new(mcp, &discovery.tools));
        Ok((SingleUseConnection { state: Arc::clone(self), connection, place }, discovery))
    }
}
