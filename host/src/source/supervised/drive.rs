//! The driver of a connection slot: the task that makes its connection, watches it, and makes it again.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::connection::{Connection, KnownLists};
use super::eras::ProbePolicy;
use super::machine::ConnectionEvent;
use super::slot::ConnectionSlot;
use super::{Connector, SupervisorState};
use crate::call::Cause;
use crate::item::ItemKind;
use crate::protocol::Notification;
use crate::source::mcp_connection::{ConnectionEnd, EraChoice, McpConnection};
use crate::source::{DRAIN_DEADLINE, Discovery, SourceClient};

/// The interval at which a remote source is sent a ping, so that fewer connections are dropped on the way for being
/// idle.
const KEEPALIVE: Duration = Duration::from_secs(180);

/// The longest time that the source may take to answer a ping.
const PING_DEADLINE: Duration = Duration::from_secs(10);

/// The number of consecutive unanswered pings after which the connection is given up.
const MAX_SILENCES: u32 = 2;

/// The longest time that it may take to restore a session's settings on a new connection.
const RESTORE_DEADLINE: Duration = Duration::from_secs(5);

/// The longest time that the lists which sessions know may take on a new connection.
const LIST_DEADLINE: Duration = Duration::from_secs(5);

/// The kinds of lists whose changes are announced, each with the capability that a source which has them declares.
const ANNOUNCED: [(ItemKind, Option<&str>); 3] =
    [(ItemKind::Tool, None), (ItemKind::Prompt, Some("prompts")), (ItemKind::Resource, Some("resources"))];

/// The step with which a driver begins.
pub(super) enum FirstStep {
    /// An attempt to connect, for the client that asked, if there is one.
    Attempt(Option<Weak<dyn SourceClient>>),
    /// An open connection, to be watched.
    Keep(Arc<Connection>),
    /// The end of the present driver and connection.
    End(SlotEnd),
}

/// The driver and the connection of a slot that must be ended, and the way to do so.
pub(super) struct SlotEnd {
    /// The driver that is ended.
    pub(super) before: Option<JoinHandle<()>>,
    pub(super) connection: Option<Arc<Connection>>,
    pub(super) event: ConnectionEvent,
    pub(super) cause: Cause,
    /// The longest time that awaited answers may still take.
    pub(super) drain_time: Duration,
    pub(super) then: AfterEnd,
}

/// The step that follows the end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterEnd {
    /// Another connection is made.
    Connect,
    /// The driver ends, too.
    Stop,
}

/// Makes connections for as long as they are wanted and the slot is not stopped.
pub(super) fn drive<D: Connector>(
    state: Arc<SupervisorState<D>>,
    slot: Arc<ConnectionSlot>,
    begin: FirstStep,
) -> BoxFuture<'static, ()> {
    Box::pin(work(state, slot, begin))
}

async fn work<D: Connector>(state: Arc<SupervisorState<D>>, slot: Arc<ConnectionSlot>, begin: FirstStep) {
    let mut made = match begin {
        FirstStep::Attempt(client) => attempt(&state, &slot, client).await,
        FirstStep::Keep(connection) => AttemptOutcome::Connected(connection),
        FirstStep::End(end) => {
            let then = end.then;
            finish(&slot, end).await;
            match then {
                AfterEnd::Connect => attempt(&state, &slot, None).await,
                AfterEnd::Stop => AttemptOutcome::HandedOver,
            }
        }
    };
    loop {
        let needless = match made {
            AttemptOutcome::Connected(connection) => keep(&state, &slot, connection).await,
            AttemptOutcome::Failed => false,
            AttemptOutcome::HandedOver => true,
        };
        if needless || !state.wants(&slot) {
            return state.leave(&slot);
        }
        made = attempt(&state, &slot, None).await;
    }
}

/// Ends the previous driver and the connection of a slot.
async fn finish(slot: &ConnectionSlot, end: SlotEnd) {
    if let Some(before) = end.before {
        before.abort();
        // Cancelled, most likely; an incomplete connection is dropped with it.
        let _ = before.await;
    }
    slot.ended(end.event, &end.cause);
    if let Some(connection) = end.connection {
        connection.retire(end.drain_time).await;
    }
}

/// The result of an attempt.
enum AttemptOutcome {
    /// A connection on this slot.
    Connected(Arc<Connection>),
    /// Nothing for this slot: the connection belongs to another slot, or none may be made.
    HandedOver,
    /// The attempt failed.
    Failed,
}

/// Makes one attempt to connect, once it is due.
async fn attempt<D: Connector>(
    state: &Arc<SupervisorState<D>>,
    slot: &Arc<ConnectionSlot>,
    whom: Option<Weak<dyn SourceClient>>,
) -> AttemptOutcome {
    let Some(due) = slot.next_attempt_at() else { return AttemptOutcome::HandedOver };
    sleep_until(due).await;
    let Some(client) = whom.and_then(|client| client.upgrade()).or_else(|| slot.client()) else {
        return AttemptOutcome::HandedOver;
    };
    let probe_policy = if slot.is_last_attempt() { ProbePolicy::Always } else { ProbePolicy::UnlessMissing };
    if !slot.begin("wanted") {
        return AttemptOutcome::HandedOver;
    }
    match state.connect(&client, slot.era_choice(), &slot.subscribers, probe_policy).await {
        Ok((mcp, discovery)) => install_connection(state, slot, &client, mcp, discovery).await,
        Err(error) => {
            slot.refused(error);
            AttemptOutcome::Failed
        }
    }
}

/// Puts a new connection into the slot that it belongs to.
async fn install_connection<D: Connector>(
    state: &Arc<SupervisorState<D>>,
    slot: &Arc<ConnectionSlot>,
    client: &Arc<dyn SourceClient>,
    mcp: McpConnection,
    discovery: Discovery,
) -> AttemptOutcome {
    let (is_modern, has_owner) = (mcp.is_modern(), mcp.has_owner());
    let connection = Arc::new(Connection::new(mcp, &discovery.tools));
    // The first connection may show that the source cannot be shared, or speaks only one era.
    let home = match slot.is_shared() {
        true if has_owner => {
            let own = state.own_slot(client).filter(|own| state.place(own).is_ok());
            Some((own, "the source keeps state for each session"))
        }
        true if is_modern && slot.era_choice() == EraChoice::LegacyFirst => {
            Some((Some(Arc::clone(&state.shared)), "the source speaks only the modern era"))
        }
        true if !is_modern && !Arc::ptr_eq(slot, state.slot_with_initialize()) => {
            Some((Some(Arc::clone(state.slot_with_initialize())), "the source speaks only the legacy era"))
        }
        _ => None,
    };
    if let Some((home, cause)) = home {
        let is_adopted = home.is_some_and(|home| {
            let first = FirstStep::Keep(Arc::clone(&connection));
            let start = || tokio::spawn(drive(Arc::clone(state), Arc::clone(&home), first));
            home.adopt(&connection, discovery.clone(), start)
        });
        if is_adopted {
            state.remember(&connection, &discovery);
        } else {
            // That slot has a connection already, or may have none.
            connection.mcp.close().await;
        }
        state.learn(slot.era_choice(), &connection.mcp);
        slot.handed_over(cause);
        return AttemptOutcome::HandedOver;
    }
    state.learn(slot.era_choice(), &connection.mcp);
    restore(slot, &connection).await;
    let changed = match slot.opened(&connection, discovery.clone()) {
        None => Vec::new(),
        Some(KnownLists::Unknown) => ANNOUNCED.map(|(kind, _)| kind).into(),
        Some(KnownLists::Of(before)) => {
            // A list that takes long counts as another.
            let kinds = before.keys().copied().collect();
            timeout(LIST_DEADLINE, connection.differing(before)).await.unwrap_or(kinds)
        }
    };
    if changed.contains(&ItemKind::Tool) {
        state.counters.changes.fetch_add(1, Ordering::Relaxed);
    }
    state.remember(&connection, &discovery);
    announce(state, slot, &connection, &changed).await;
    AttemptOutcome::Connected(connection)
}

/// Restores a session's settings on its new connection. A refusal of the source is ignored.
async fn restore(slot: &ConnectionSlot, connection: &Connection) {
    let settings = slot.settings();
    let repeated = settings.requests().map(|(method, params)| connection.mcp.repeat(method, params));
    if timeout(RESTORE_DEADLINE, join_all(repeated)).await.is_err() {
        tracing::warn!(
            "the log level and subscriptions of a session were not restored in time on its new connection to a source"
        );
    }
}

/// Notifies the sessions that use a slot that the source is connected, and that its lists of these kinds may have
/// changed. Other tools may come with anything else, too.
async fn announce<D: Connector>(
    state: &SupervisorState<D>,
    slot: &ConnectionSlot,
    connection: &Connection,
    changed: &[ItemKind],
) {
    for (kind, capability) in ANNOUNCED {
        let is_of =
            |other: &ItemKind| matches!(other, ItemKind::Tool) || other.changed_method() == kind.changed_method();
        if !changed.iter().any(is_of) || !capability.is_none_or(|capability| connection.mcp.declares(capability)) {
            continue;
        }
        let changed = Notification { method: kind.changed_method(), params: None };
        match slot.is_shared() {
            true => slot.subscribers.notify(&state.counters.name, &changed).await,
            false => {
                if let Some(client) = slot.client() {
                    client.notify(state.counters.name.as_str(), changed).await;
                }
            }
        }
    }
}

/// Keeps a connection until it has ended, and puts it away. Reports whether it was closed because it was idle.
async fn keep<D: Connector>(state: &SupervisorState<D>, slot: &ConnectionSlot, connection: Arc<Connection>) -> bool {
    let WatchEnd { event, why, answers_nothing } = watch(state, slot, &connection).await;
    slot.ended(event, &why);
    if answers_nothing {
        // No answer is on its way, and the next process may need what this one holds.
        connection.mcp.close().await;
        return false;
    }
    retire_later(state, connection);
    event == ConnectionEvent::Closed
}

/// The end of a connection, as its driver saw it.
struct WatchEnd {
    event: ConnectionEvent,
    why: Cause,
    /// True if the source answered neither requests nor a ping.
    answers_nothing: bool,
}

impl WatchEnd {
    fn new(event: ConnectionEvent, why: Cause) -> Self {
        Self { event, why, answers_nothing: false }
    }
}

/// Watches a connection until it has ended, or has to be ended.
async fn watch<D: Connector>(state: &SupervisorState<D>, slot: &ConnectionSlot, connection: &Connection) -> WatchEnd {
    let (mut silences, mut late) = (0, 0);
    let mut next_ping = Instant::now() + KEEPALIVE;
    // The connection of an eager source is kept even without a session.
    let may_close = !state.is_kept(slot);
    loop {
        let idle_from = if slot.must_stay() { Instant::now() } else { connection.mcp.used() };
        tokio::select! {
            biased;
            ConnectionEnd { why, expired } = connection.mcp.ended() => {
                return WatchEnd::new(if expired { ConnectionEvent::Expired } else { ConnectionEvent::Lost }, why);
            }
            requests = connection.mcp.timed_out(late) => {
                late = requests;
                let why = Cause::own(format!("{requests} requests in a row had no answer in time"));
                slot.noticed(ConnectionEvent::TimedOut(requests), &why);
                if slot.is_doubted() {
                    match ping(state, connection).await {
                        None => {
                            late = 0;
                            slot.noticed(ConnectionEvent::Answered, &"it answered a ping: it is slow".into());
                        }
                        Some(silence) => {
                            let why = silence.under("; ").under(why.to_string());
                            return WatchEnd { event: ConnectionEvent::Lost, why, answers_nothing: true };
                        }
                    }
                }
            }
            () = sleep_until(idle_from + state.supervision.idle), if may_close => {
                if !slot.must_stay() && connection.mcp.used().elapsed() >= state.supervision.idle {
                    let why = format!("not used for {} s", state.supervision.idle.as_secs_f32());
                    return WatchEnd::new(ConnectionEvent::Closed, Cause::own(why));
                }
            }
            () = sleep_until(next_ping), if state.supervision.remote => {
                match ping(state, connection).await {
                    None => {
                        silences = 0;
                        slot.noticed(ConnectionEvent::Answered, &"it answers again".into());
                    }
                    Some(why) => {
                        silences += 1;
                        if silences >= MAX_SILENCES {
                            return WatchEnd::new(ConnectionEvent::Lost, why);
                        }
                        slot.noticed(ConnectionEvent::Silent, &why);
                    }
                }
                next_ping = Instant::now() + KEEPALIVE;
            }
        }
    }
}

/// Retires a connection beside the next one, which must not wait for the answers that are still on their way.
fn retire_later<D>(state: &SupervisorState<D>, connection: Arc<Connection>) {
    let (timeout, mut closes) = (state.timeout, state.closes.subscribe());
    state.close_later(async move {
        // An error means that the source was dropped.
        let closes = async { closes.wait_for(|closes| *closes).await.is_ok() };
        tokio::select! {
            () = connection.retire(timeout) => {}
            _ = closes => connection.retire(DRAIN_DEADLINE).await,
        }
    });
}

/// Sends a ping to a source. Returns the error if it is not answered.
pub(super) async fn ping<D>(state: &SupervisorState<D>, connection: &Connection) -> Option<Cause> {
    match connection.mcp.ping(PING_DEADLINE).await {
        Ok(()) => {
            state.counters.ping_answered();
            None
        }
        Err(error) => {
            state.counters.failed();
            Some(error.into_cause())
        }
    }
}
