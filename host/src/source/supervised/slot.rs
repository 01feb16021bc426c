//! Connection slots: a slot keeps one connection, which sessions share or which belongs to one session.
//!
//! A slot does nothing on its own. A caller that wants a connection starts the slot's driver ([`super::drive`]) if none
//! runs, and waits.

use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::connection::{Connection, KnownLists, ListDigests};
use super::health_tracker::HealthTracker;
use super::machine::{ConnectionEvent, ConnectionState, MAX_ATTEMPTS, MAX_TIMEOUTS, random_fraction};
use super::session_settings::SessionSettings;
use crate::call::{Cause, SessionId};
use crate::ledger;
use crate::source::mcp_connection::{EraChoice, Subscribers};
use crate::source::{Discovery, SourceClient, SourceError, SourceStatus};
use crate::sync::{Mutex, MutexGuard};

/// The policy that says how long a caller waits for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitPolicy {
    /// Does not wait if the source is known to be down, because another member can be called. Otherwise waits until the
    /// next attempt has failed.
    NotIfDown,
    /// Waits until the next attempt has failed. If the last attempt failed or the connection was lost, waits only for
    /// an attempt that is due and has not begun, because a list can be built without the source. Does not wait for a
    /// source that must prove that it is alive.
    OnlyIfDue,
    /// Waits until the next attempt has failed.
    NextAttempt,
    /// Waits until all attempts have failed if the source was connected before. Otherwise waits until the next attempt
    /// has failed.
    AllAttempts,
}

/// The answer to a caller that wants a connection.
pub(super) enum SlotAnswer {
    /// An open connection, and the source's description from its start, unless another caller has taken that.
    Open(Arc<Connection>, Option<Box<Discovery>>),
    /// The reason why there is no connection.
    Refused(SourceError),
    /// Nothing yet: the caller waits for a change and asks again.
    Wait,
}

/// A connection slot: holds one connection to a source, which sessions share or which belongs to one session.
pub(super) struct ConnectionSlot {
    counters: Arc<HealthTracker>,
    /// The session that owns the slot, or `None` for a shared one.
    owner: Option<SlotOwner>,
    /// The era in which its connections are made.
    era_choice: EraChoice,
    /// The sessions that are notified of changes, if the slot is shared.
    pub(super) subscribers: Arc<Subscribers>,
    state: Mutex<SlotState>,
    state_changed: watch::Sender<()>,
}

/// The session that owns a slot.
pub(super) struct SlotOwner {
    pub(super) session: SessionId,
    /// The principal that opened the session.
    pub(super) principal: Arc<str>,
    pub(super) client: Weak<dyn SourceClient>,
}

/// The order in which slots give up their places: the smallest goes first. Slots whose session waits for nothing go
/// before the others; among equals, slots without a connection go first, and then the one that was unused for the
/// longest time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EvictionRank {
    is_awaited: bool,
    /// The time since which its connection was unused, if it has one.
    unused_since: Option<Instant>,
}

#[derive(Default)]
struct SlotState {
    machine: ConnectionState,
    connection: Option<Arc<Connection>>,
    /// The source's answer when the connection was made, for the first caller that takes it.
    discovery: Option<Discovery>,
    /// The error with which the last attempt failed, or the last connection was lost.
    error: Option<SourceError>,
    /// The number of attempts that have ever failed.
    failures: u64,
    /// The lists that the sessions using this slot know from the last connection. `None` before the first one, and
    /// after a failed attempt.
    known_lists: Option<ListDigests>,
    driver: Option<JoinHandle<()>>,
    /// The settings that the session made on its connection, and that must be repeated on the next one.
    settings: SessionSettings,
}

impl SlotState {
    /// Takes the connection, and keeps what was listed over it.
    fn take_connection(&mut self) -> Option<Arc<Connection>> {
        let connection = self.connection.take()?;
        self.known_lists = Some(connection.lists());
        Some(connection)
    }
}

impl ConnectionSlot {
    pub(super) fn new(counters: &Arc<HealthTracker>, owner: Option<SlotOwner>, era_choice: EraChoice) -> Arc<Self> {
        let (state_changed, subscribers) = (watch::Sender::new(()), Arc::new(Subscribers::counting(&counters.changes)));
        Arc::new(Self {
            counters: Arc::clone(counters),
            owner,
            era_choice,
            subscribers,
            state: Mutex::default(),
            state_changed,
        })
    }

    /// Returns the client for which the slot's driver makes a connection, or `None` if the session that owns the slot
    /// has ended.
    pub(super) fn client(&self) -> Option<Arc<dyn SourceClient>> {
        match &self.owner {
            None => Some(Arc::new(crate::source::NoClient)),
            Some(owner) => owner.client.upgrade(),
        }
    }

    /// Returns the session that owns the slot, or `None` for a shared one.
    pub(super) fn owner(&self) -> Option<&SlotOwner> {
        self.owner.as_ref()
    }

    pub(super) fn is_shared(&self) -> bool {
        self.owner.is_none()
    }

    pub(super) fn era_choice(&self) -> EraChoice {
        self.era_choice
    }

    pub(super) fn status(&self) -> SourceStatus {
        self.state().machine.status()
    }

    /// Returns the connection if it is open.
    pub(super) fn open(&self) -> Option<Arc<Connection>> {
        self.state().connection.as_ref().filter(|connection| connection.mcp.is_open()).map(Arc::clone)
    }

    /// Reports whether so many requests have timed out that the source must prove that it is alive by answering a ping.
    pub(super) fn is_doubted(&self) -> bool {
        self.state().machine.is_doubted()
    }

    /// Returns the slot's rank for giving up its place, or `None` if it is in use.
    pub(super) fn eviction_rank(&self) -> Option<EvictionRank> {
        let state = self.state();
        let unused_since = match (&state.connection, state.machine.status()) {
            (Some(connection), _) => Some(connection.mcp.unused_since()?),
            (None, SourceStatus::BackingOff | SourceStatus::Failed) => None,
            (None, _) => return None,
        };
        Some(EvictionRank { is_awaited: state.settings.must_stay(), unused_since })
    }

    /// Returns the settings that the session made on its connection, and that must be repeated on the next one.
    pub(super) fn settings(&self) -> SessionSettings {
        self.state().settings.clone()
    }

    /// Changes the session's settings that the next connection must be told.
    pub(super) fn change_settings(&self, change: impl FnOnce(&mut SessionSettings)) {
        change(&mut self.state().settings);
    }

    /// Reports whether the connection must stay open although it is unused.
    pub(super) fn must_stay(&self) -> bool {
        self.state().settings.must_stay()
    }

    /// Returns why there is no connection, if there should be one.
    pub(super) fn error(&self) -> Option<String> {
        self.state().error.as_ref().map(ToString::to_string)
    }

    pub(super) fn state_changes(&self) -> watch::Receiver<()> {
        self.state_changed.subscribe()
    }

    /// Returns the number of attempts that have failed so far.
    pub(super) fn failures(&self) -> u64 {
        self.state().failures
    }

    /// Returns the connection, the reason why there is none, or the advice to wait. `seen` is the number of failures
    /// when the wait began. If no driver runs, `start` starts one.
    pub(super) fn request_connection(
        &self,
        wait_policy: WaitPolicy,
        seen: u64,
        start: impl FnOnce() -> JoinHandle<()>,
    ) -> SlotAnswer {
        let mut state = self.state();
        if wait_policy == WaitPolicy::OnlyIfDue && state.machine.is_doubted() {
            return SlotAnswer::Refused(SourceError::Closed(Cause::own(format!(
                "it left {MAX_TIMEOUTS} requests in a row unanswered, and will be restarted unless it answers a `ping`"
            ))));
        }
        if let Some(connection) = state.connection.as_ref().filter(|connection| connection.mcp.is_open()) {
            let connection = Arc::clone(connection);
            return SlotAnswer::Open(connection, state.discovery.take().map(Box::new));
        }
        let error = || state.error.clone().unwrap_or_else(|| SourceError::Closed("it did not start".into()));
        let is_retried = wait_policy == WaitPolicy::AllAttempts && state.machine.was_connected();
        match state.machine.status() {
            SourceStatus::Stopped => {
                return SlotAnswer::Refused(SourceError::Closed("the source was stopped".into()));
            }
            // The circuit breaker is open, and the next attempt is not due.
            SourceStatus::Failed if state.machine.not_before().is_some_and(|at| Instant::now() < at) => {
                let wait = state.machine.not_before().map(|at| at.saturating_duration_since(Instant::now()));
                return SlotAnswer::Refused(error().paused_after(MAX_ATTEMPTS, wait.unwrap_or_default()));
            }
            _ if state.failures > seen && !is_retried => return SlotAnswer::Refused(error()),
            _ => {}
        }
        let pauses = state.machine.not_before().is_some_and(|at| Instant::now() < at);
        let refused = state.error.clone().filter(|_| match wait_policy {
            WaitPolicy::NotIfDown => true,
            // An attempt that is due may succeed, so it is waited for. One that is already under way is not: this
            // caller does without it.
            WaitPolicy::OnlyIfDue => pauses || state.driver.is_some(),
            WaitPolicy::NextAttempt | WaitPolicy::AllAttempts => false,
        });
        if state.driver.is_none() {
            state.driver = Some(start());
        }
        refused.map_or(SlotAnswer::Wait, SlotAnswer::Refused)
    }

    /// Returns the time from which the next attempt may begin, or `None` if the slot is stopped.
    pub(super) fn next_attempt_at(&self) -> Option<Instant> {
        let state = self.state();
        (state.machine.status() != SourceStatus::Stopped)
            .then(|| state.machine.not_before().unwrap_or_else(Instant::now))
    }

    /// Reports whether only one attempt is left, so that it must not rely on anything that was learned before.
    pub(super) fn is_last_attempt(&self) -> bool {
        self.state().machine.is_last_attempt()
    }

    /// Notes that a connection is being made. Returns false if none may be made now.
    pub(super) fn begin(&self, cause: &'static str) -> bool {
        self.apply_event(&mut self.state(), ConnectionEvent::Begun, &cause.into())
    }

    /// Notes that a connection is open. Returns the lists that its sessions know, if it is not the first one.
    pub(super) fn opened(&self, connection: &Arc<Connection>, discovery: Discovery) -> Option<KnownLists> {
        self.put(&mut self.state(), connection, discovery)
    }

    /// Takes over a connection that was made for another slot, with a driver that watches it. Returns false if the slot
    /// may have no connection now. Under one lock, so that no caller starts a driver in between.
    pub(super) fn adopt(
        &self,
        connection: &Arc<Connection>,
        discovery: Discovery,
        start: impl FnOnce() -> JoinHandle<()>,
    ) -> bool {
        let mut state = self.state();
        if !self.apply_event(&mut state, ConnectionEvent::Begun, &"opened by a discovery".into()) {
            return false;
        }
        self.put(&mut state, connection, discovery);
        // One that waits until it may connect has nothing to do any more.
        if let Some(before) = state.driver.replace(start()) {
            before.abort();
        }
        true
    }

    fn put(&self, state: &mut SlotState, connection: &Arc<Connection>, discovery: Discovery) -> Option<KnownLists> {
        state.error = None;
        state.connection = Some(Arc::clone(connection));
        state.discovery = Some(discovery);
        let again = state.machine.was_connected() || state.failures > 0;
        let known = state.known_lists.replace(connection.lists()).map_or(KnownLists::Unknown, KnownLists::Of);
        (self.apply_event(state, ConnectionEvent::Opened, &"connected".into()) && again).then_some(known)
    }

    /// Notes that an attempt has failed.
    pub(super) fn refused(&self, error: SourceError) {
        self.counters.failed();
        let cause = error.clone().into_cause();
        let mut state = self.state();
        state.error = Some(error);
        state.failures += 1;
        state.known_lists = None;
        self.apply_event(&mut state, ConnectionEvent::Refused, &cause);
    }

    /// Notes that the connection was made, but belongs to another slot.
    pub(super) fn handed_over(&self, cause: &'static str) {
        let mut state = self.state();
        state.error = None;
        self.apply_event(&mut state, ConnectionEvent::HandedOver, &cause.into());
    }

    /// Notes that the connection has ended.
    pub(super) fn ended(&self, event: ConnectionEvent, cause: &Cause) {
        let mut state = self.state();
        state.take_connection();
        state.discovery = None;
        state.settings.end();
        self.apply_event(&mut state, event, cause);
        // A connection that is made again at once does not count as failed.
        if matches!(state.machine.status(), SourceStatus::BackingOff | SourceStatus::Failed) {
            self.counters.failed();
            state.error = Some(SourceError::Closed(cause.clone()));
        }
    }

    /// Notes an event that does not replace the connection.
    pub(super) fn noticed(&self, event: ConnectionEvent, cause: &Cause) {
        self.apply_event(&mut self.state(), event, cause);
    }

    /// Notes that the driver has ended, and wakes the callers that wait: the next one starts another.
    pub(super) fn driver_ended(&self) {
        self.state().driver = None;
        self.state_changed.send_replace(());
    }

    /// Replaces the driver with one that `start` makes, which gets the previous driver and the connection. From here
    /// on, no caller gets that connection. Does nothing if the slot was stopped.
    pub(super) fn replace_driver(
        &self,
        start: impl FnOnce(Option<JoinHandle<()>>, Option<Arc<Connection>>) -> JoinHandle<()>,
    ) {
        let mut state = self.state();
        if state.machine.status() == SourceStatus::Stopped {
            return;
        }
        let (before, connection) = (state.driver.take(), state.take_connection());
        state.driver = Some(start(before, connection));
    }

    /// Stops the slot permanently: awaited answers have `drain_time` to arrive. Idempotent.
    pub(super) async fn stop(&self, drain_time: Duration) {
        let (driver, connection) = self.stop_driver("stopped");
        if let Some(driver) = driver {
            driver.abort();
            // The driver was most likely cancelled; a connection that it was making is dropped with it.
            let _ = driver.await;
        }
        if let Some(connection) = connection {
            connection.retire(drain_time).await;
        }
    }

    /// Stops the slot at once, without waiting.
    pub(super) fn stop_now(&self) {
        let (driver, _) = self.stop_driver("dropped");
        if let Some(driver) = driver {
            driver.abort();
        }
    }

    fn stop_driver(&self, cause: &'static str) -> (Option<JoinHandle<()>>, Option<Arc<Connection>>) {
        let mut state = self.state();
        self.apply_event(&mut state, ConnectionEvent::Stopped, &cause.into());
        (state.driver.take(), state.connection.take())
    }

    /// Passes an event to the machine, and records a change of state. Happens under the lock, so that the records are
    /// in order.
    fn apply_event(&self, state: &mut SlotState, event: ConnectionEvent, cause: &Cause) -> bool {
        let Some(from) = state.machine.on(event, Instant::now(), random_fraction()) else { return false };
        let to = state.machine.status();
        let cause = cause.recorded();
        tracing::debug!(source = %self.counters.name, from = from.as_str(), to = to.as_str(), cause, "the state of a source has changed");
        let body = json!({ "source": self.counters.name, "from": from.as_str(), "to": to.as_str(), "cause": cause });
        let event = ledger::Event::new(ledger::EventKind::SourceState, body);
        (self.counters.record)(match &self.owner {
            Some(owner) => event.in_run(&owner.session),
            None => event,
        });
        self.state_changed.send_replace(());
        true
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock()
    }
}
