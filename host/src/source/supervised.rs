//! The supervision of sources with a connection: a connection is made when it is first needed, watched, and made again
//! when it has broken.
//!
//! [`machine`] decides when a connection may be tried, a [`slot`] is a place where one is kept, and [`drive`] is the
//! task that makes and watches it. A source has one shared connection slot, and one for each session that cannot share.
//! [`eras`] decides in which era of the protocol a connection is made; a source that speaks both may have a second
//! shared slot, which legacy agents use.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, join_all};
use tokio::time::timeout_at;

use super::mcp_connection::{CallDeadline, HandshakeDeadlines, McpConnection, McpConnectionConfig};
use super::{
    CallEventSender, ConcurrencyLimit, ConnectionHealth, DRAIN_DEADLINE, Discovery, ListedDefinitions, Source,
    SourceClient, SourceError, SourceStatus,
};
use crate::call::{Outcome, SessionId};
use crate::config::{ConnectionReuse, SourceConfig};
use crate::gate::Permit;
use crate::item::ItemKind;
use crate::ledger::EventCallback;
use crate::name::SourceName;
use crate::protocol::{Era, Notification};
use connection::Connection;
use drive::{AfterEnd, FirstStep, drive};
use single_use::SingleUseConnection;
use slot::{ConnectionSlot, SlotAnswer, WaitPolicy};
use state::SupervisorState;

mod connection;
mod drive;
mod eras;
mod health_tracker;
mod machine;
mod recent_discoveries;
mod session_settings;
mod session_slots;
mod single_use;
mod slot;
mod state;

/// The way to make a connection to one source.
#[async_trait]
pub(crate) trait Connector: Send + Sync + std::fmt::Debug + 'static {
    /// Makes a connection. Cancellation safe: an incomplete connection is torn down.
    async fn connect(
        &self,
        deadlines: HandshakeDeadlines,
        config: McpConnectionConfig,
    ) -> Result<(McpConnection, Discovery), SourceError>;

    /// Reports whether connections carry what identifies an account.
    fn has_account(&self) -> bool {
        false
    }

    /// Waits, when the source is closed, for work that must not be cut off.
    async fn finish_pending_work(&self) {}
}

/// The settings for supervising a source.
pub(crate) struct SupervisionConfig {
    pub(crate) name: SourceName,
    /// The time limit of each call.
    pub(crate) timeout: Duration,
    pub(crate) concurrency: ConcurrencyLimit,
    pub(crate) lifecycle: ConnectionReuse,
    /// The largest number of connections that belong to one session, or to one call where each call has its own.
    pub(crate) max_connections: usize,
    /// The time for which an unused connection is kept.
    pub(crate) idle: Duration,
    /// True if the source stays connected even without a session.
    pub(crate) eager: bool,
    /// The only era in which the source is spoken to, if one is configured.
    pub(crate) era: Option<Era>,
    /// True if the source is reached over a network, where idle connections may be dropped.
    pub(crate) remote: bool,
    /// The members of an agent's `_meta` that the source may see.
    pub(crate) context: Arc<[String]>,
    /// Records the source's events in the ledger.
    pub(crate) record: EventCallback,
}

impl SupervisionConfig {
    pub(crate) fn of(config: &SourceConfig, record: EventCallback) -> Self {
        Self {
            name: config.name.clone(),
            timeout: config.timeout,
            concurrency: ConcurrencyLimit::new(&config.name, config.concurrency),
            lifecycle: config.lifecycle,
            max_connections: config.max_connections,
            idle: config.idle,
            eager: config.eager,
            era: config.era,
            remote: matches!(config.endpoint, crate::config::Endpoint::Url { .. }),
            context: config.context.as_slice().into(),
            record,
        }
    }
}

/// A source with a shared connection for each era that its agents speak, and one for each session that cannot share.
/// Connects to nothing before the first discovery or call. Dropping it closes all connections.
pub(crate) struct SupervisedSource<D> {
    state: Arc<SupervisorState<D>>,
}

impl<D: Connector> SupervisedSource<D> {
    /// Makes a connection for one use that is not a call.
    async fn single(&self, client: &Arc<dyn SourceClient>) -> Result<(SingleUseConnection<D>, Discovery), SourceError> {
        self.state.single(client, CallDeadline::of(self.state.timeout).until).await
    }

    pub(super) fn of(supervision: SupervisionConfig, connector: D) -> Self {
        Self { state: Arc::new(SupervisorState::new(supervision, connector)) }
    }

    /// Returns what makes the connections.
    #[cfg(feature = "oauth")]
    pub(super) fn connector(&self) -> &D {
        &self.state.connector
    }

    /// Returns the parts that tests change, before anything is connected.
    #[cfg(test)]
    pub(super) fn tune(&mut self) -> &mut SupervisorState<D> {
        match Arc::get_mut(&mut self.state) {
            Some(state) => state,
            None => unreachable!("it is connected already"),
        }
    }
}

#[async_trait]
impl<D: Connector> Source for SupervisedSource<D> {
    fn has_account(&self) -> bool {
        self.state.connector.has_account()
    }

    async fn discover(&self, client: &Arc<dyn SourceClient>) -> Result<Discovery, SourceError> {
        if self.state.supervision.lifecycle == ConnectionReuse::PerCall {
            return Ok(self.single(client).await?.1);
        }
        if let Some(discovery) = self.state.recent_discovery_for(client) {
            return Ok(discovery);
        }
        self.over(client, |connection, said| match said {
            Some(discovery) => Box::pin(std::future::ready(Ok(discovery))),
            None => Box::pin(connection.discover()),
        })
        .await
    }

    async fn list(&self, client: &Arc<dyn SourceClient>, kind: ItemKind) -> Result<ListedDefinitions, SourceError> {
        if self.state.supervision.lifecycle == ConnectionReuse::PerCall {
            let (single, _) = self.single(client).await?;
            return single.connection.mcp.list(kind).await;
        }
        self.over(client, move |connection, _| Box::pin(connection.list(kind))).await
    }

    async fn call(&self, permit: Permit, client: &Arc<dyn SourceClient>, events: CallEventSender) -> Outcome {
        let state = &self.state;
        let time = CallDeadline::of(state.timeout);
        let turn = state.supervision.concurrency.acquire(permit.method(), time.until);
        let _guard = match permit.before_sending(turn).await {
            Ok(turn) => turn,
            Err(busy) => return Outcome::NotSent(busy),
        };
        if state.supervision.lifecycle == ConnectionReuse::PerCall {
            let single = timeout_at(time.until, state.single(client, time.until));
            let single = match permit.before_sending(single).await {
                Ok(Ok((single, _))) => single,
                Ok(Err(error)) => return Outcome::NotSent(error.into_cause()),
                Err(_) => return Outcome::NotSent(time.is_over()),
            };
            return state.send_call(&single.connection, &permit, client, events, time).await;
        }
        let others = permit.call().attempt.is_some_and(|attempt| attempt.others);
        let wait_policy = if others { WaitPolicy::NotIfDown } else { WaitPolicy::AllAttempts };
        let mut first = true;
        loop {
            let connected = timeout_at(time.until, self.connect(client, wait_policy));
            let connection = match permit.before_sending(connected).await {
                Ok(Ok((connection, _))) => connection,
                Ok(Err(error)) => return Outcome::NotSent(error.into_cause()),
                Err(_) => return Outcome::NotSent(time.is_over()),
            };
            let outcome = state.send_call(&connection, &permit, client, events.clone(), time).await;
            if connection.mcp.has_owner() {
                state.remember_settings(client, &connection, &permit, &outcome);
            }
            // The connection had ended unnoticed, and the source certainly did not act on this call, so sending it
            // again is no replay.
            let ended = matches!(outcome, Outcome::NotSent(_)) && !connection.mcp.is_open();
            if !(ended && std::mem::take(&mut first)) {
                return outcome;
            }
        }
    }

    async fn notify(&self, permit: Permit, client: &Arc<dyn SourceClient>) -> Result<(), SourceError> {
        let state = &self.state;
        // Without a connection it was surely not sent.
        let failed = |error: SourceError| SourceError::Start(error.into_cause());
        let (method, params) = (permit.method(), permit.source_params());
        if state.supervision.lifecycle == ConnectionReuse::PerCall {
            let (single, _) = self.single(client).await.map_err(failed)?;
            return single.connection.mcp.notify(method, params, client, state.timeout).await;
        }
        let mut first = true;
        loop {
            let (connection, _) = self.connect(client, WaitPolicy::NextAttempt).await.map_err(failed)?;
            let told = connection.mcp.notify(method, params, client, state.timeout).await;
            // As for a call: a message that was certainly not sent may be sent again.
            let unsent = matches!(&told, Err(error) if !matches!(error, SourceError::Timeout { .. }));
            if !(unsent && !connection.mcp.is_open() && std::mem::take(&mut first)) {
                return told;
            }
        }
    }

    fn queue_notification(&self, session: &SessionId, notification: Notification) {
        let slot = self.state.own().get(session).cloned();
        // A connection that is still being made needs no notification: the source will ask later and get the current
        // state.
        if let Some(connection) = slot.and_then(|slot| slot.open()) {
            connection.mcp.queue_notification(notification);
        }
    }

    fn end_session(&self, session: &SessionId) {
        self.state.shared_slots().for_each(|slot| slot.subscribers.leave(session));
        let slot = self.state.own().remove(session);
        let Some(slot) = slot else { return };
        self.state.close_later(async move { slot.stop(DRAIN_DEADLINE).await });
    }

    fn only_era(&self) -> Option<Era> {
        self.state.eras.only_era()
    }

    fn health(&self) -> ConnectionHealth {
        let state = &self.state;
        let own = state.own().placed();
        let slots = || own.iter().chain(state.shared_slots());
        ConnectionHealth {
            status: SourceStatus::of_all(slots().map(|slot| slot.status())),
            connected: slots().any(|slot| slot.open().is_some()),
            last_ping: u64::try_from(state.counters.last_ping.load(Ordering::Relaxed)).ok().filter(|at| *at > 0),
            error_count: state.counters.errors.load(Ordering::Relaxed),
            error: slots().find_map(|slot| slot.error()),
        }
    }

    async fn ping(&self) {
        let own = self.state.own().placed();
        let open = own.iter().chain(self.state.shared_slots()).filter_map(|slot| Some((slot, slot.open()?)));
        let pings = open.map(async |(slot, connection)| match drive::ping(&self.state, &connection).await {
            None => slot.noticed(machine::ConnectionEvent::Answered, &"it answers again".into()),
            Some(why) => slot.noticed(machine::ConnectionEvent::Silent, &why),
        });
        join_all(pings).await;
    }

    async fn restart(&self, cause: &str, timeout: Duration) -> Result<SourceStatus, SourceError> {
        let state = &self.state;
        state.forget();
        for slot in state.own().placed() {
            // Other sessions' connections are made when they are needed.
            let then = if slot.must_stay() { AfterEnd::Connect } else { AfterEnd::Stop };
            state.end(&slot, machine::ConnectionEvent::Restarted, cause, DRAIN_DEADLINE, then);
        }
        let shared: Vec<_> = state.shared_slots().cloned().collect();
        let mut restarted = 0;
        for slot in shared.iter().filter(|slot| slot.status() != SourceStatus::Idle || state.wants(slot)) {
            state.end(slot, machine::ConnectionEvent::Restarted, cause, DRAIN_DEADLINE, AfterEnd::Connect);
            restarted += 1;
        }
        if restarted == 0 {
            return Ok(SourceStatus::Idle);
        }
        let no_client: Arc<dyn SourceClient> = Arc::new(super::NoClient);
        match tokio::time::timeout(timeout, self.connect(&no_client, WaitPolicy::NextAttempt)).await {
            Ok(connected) => connected.map(|_| SourceStatus::Ready),
            Err(_) => Ok(state.main_slot().status()),
        }
    }

    async fn close(&self) {
        let state = &self.state;
        let own = state.own().drain();
        state.closes.send_replace(true);
        join_all(own.iter().chain(state.shared_slots()).map(|slot| slot.stop(DRAIN_DEADLINE))).await;
        let closing = std::mem::take(&mut *state.closing());
        join_all(closing).await;
        state.connector.finish_pending_work().await;
    }
}

impl<D: Connector> SupervisedSource<D> {
    /// Runs `work` over a connection. `work` must be safe to repeat. If the connection turns out to have ended, the
    /// work is repeated once over a new one: a source that has forgotten a session says so only when it gets a request.
    async fn over<T>(
        &self,
        client: &Arc<dyn SourceClient>,
        work: impl for<'a> Fn(&'a Connection, Option<Discovery>) -> BoxFuture<'a, Result<T, SourceError>>,
    ) -> Result<T, SourceError> {
        // Without a session, the caller wants to know the result of the next attempt.
        let wait_policy = if client.session().is_some() { WaitPolicy::OnlyIfDue } else { WaitPolicy::NextAttempt };
        let (connection, said) = self.connect(client, wait_policy).await?;
        match work(&connection, said).await {
            Err(_) if !connection.mcp.is_open() => {
                let (connection, said) = self.connect(client, wait_policy).await?;
                work(&connection, said).await
            }
            done => done,
        }
    }

    /// Returns the open connection for a client, or a new one with the source's description of itself.
    async fn connect(
        &self,
        client: &Arc<dyn SourceClient>,
        wait_policy: WaitPolicy,
    ) -> Result<(Arc<Connection>, Option<Discovery>), SourceError> {
        let state = &self.state;
        let mut waited: Option<(Arc<ConnectionSlot>, u64)> = None;
        loop {
            let slot = state.slot_for(client, wait_policy);
            if waited.is_none()
                && !(wait_policy == WaitPolicy::OnlyIfDue && slot.is_doubted())
                && let Some(connection) = slot.open()
            {
                return Ok((connection, None));
            }
            if slot.open().is_none() {
                state.place(&slot)?;
            }
            let mut changes = slot.state_changes();
            let seen = match &waited {
                // The attempt may have shown that the source cannot be shared: then the slot is another.
                Some((before, seen)) if Arc::ptr_eq(before, &slot) => *seen,
                _ => slot.failures(),
            };
            let start = || {
                let begin = FirstStep::Attempt(state.made_for(client, &slot));
                tokio::spawn(drive(Arc::clone(state), Arc::clone(&slot), begin))
            };
            match slot.request_connection(wait_policy, seen, start) {
                SlotAnswer::Open(connection, discovery) => {
                    return Ok((connection, discovery.map(|discovery| *discovery)));
                }
                SlotAnswer::Refused(error) => return Err(error),
                SlotAnswer::Wait => {}
            }
            // Never an error: the slot holds the sender.
            let _ = changes.changed().await;
            waited = Some((slot, seen));
        }
    }
}

impl<D> Drop for SupervisedSource<D> {
    fn drop(&mut self) {
        let own = self.state.own().drain();
        own.iter().for_each(|slot| slot.stop_now());
        self.state.shared_slots().for_each(|slot| slot.stop_now());
        self.state.closing().drain(..).for_each(|task| task.abort());
    }
}

impl<D: std::fmt::Debug> std::fmt::Debug for SupervisedSource<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.state.connector.fmt(f)
    }
}

#[cfg(test)]
mod tests;
