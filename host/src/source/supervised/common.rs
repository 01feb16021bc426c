//! The state that a source and the drivers of its connection slots share: what is known of the source, and which client
//! uses which slot.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{timeout, timeout_at};

use super::connection::Connection;
use super::drive::{Begin, End, drive};
use super::eras::Eras;
use super::held;
use super::known::Known;
use super::machine::Event;
use super::own::{CROWD, Full, MAX_OF_ONE, MAX_OWN, Own};
use super::slot::{ConnectionSlot, HealthCounters, Owner, Patience};
use super::{Dial, SupervisionConfig};
use crate::call::{Cause, Outcome};
use crate::gate::Permit;
use crate::limits::CLOSE_DEADLINE;
use crate::protocol::{Era, Json};
use crate::source::link::{CallTime, Deadlines, Link, Opening, Party, Subscribers};
use crate::source::{Discovery, Relay, SourceClient, SourceError, Status};
use crate::sync::{Mutex, MutexGuard};

/// The state that a source and the drivers of its connection slots share.
pub(in crate::source) struct Core<D> {
    pub(in crate::source) dial: D,
    pub(in crate::source) deadlines: Deadlines,
    pub(in crate::source) timeout: Duration,
    pub(super) supervision: SupervisionConfig,
    pub(super) counters: Arc<HealthCounters>,
    /// The shared slot for the newest era that the source speaks.
    pub(super) shared: Arc<ConnectionSlot>,
    /// The slot that legacy agents share, at a source that may speak both eras. Made when the first of them comes.
    shared_by_legacy: OnceLock<Arc<ConnectionSlot>>,
    own: Mutex<Own>,
    known: Mutex<Known>,
    /// Places for calls that each have a connection of their own.
    single: Arc<Semaphore>,
    /// True once the source is being closed: awaited answers then have
    /// [`DRAIN_DEADLINE`](crate::source::DRAIN_DEADLINE).
    pub(super) closes: watch::Sender<bool>,
    /// The tasks that close connections which are no longer used.
    closing: Mutex<Vec<JoinHandle<()>>>,
    pub(super) eras: Eras,
    /// True if the source is known to keep state for each client.
    stateful: AtomicBool,
}

/// A connection for one use, and its place. However that use ends, queued control messages are sent before the
/// connection is closed.
pub(super) struct Single<D> {
    core: Arc<Core<D>>,
    pub(super) connection: Arc<Connection>,
    room: Option<OwnedSemaphorePermit>,
}

impl<D> Drop for Single<D> {
    fn drop(&mut self) {
        let (connection, room) = (Arc::clone(&self.connection), self.room.take());
        self.core.close_later(async move {
            // A source that takes no messages is closed without them.
            let _ = timeout(CLOSE_DEADLINE, connection.link.said()).await;
            connection.link.close().await;
            drop(room);
        });
    }
}

impl<D> Core<D> {
    pub(super) fn new(supervision: SupervisionConfig, dial: D) -> Self {
        let counters = Arc::new(HealthCounters {
            name: supervision.name.clone(),
            record: Arc::clone(&supervision.record),
            errors: AtomicU64::new(0),
            last_ping: AtomicI64::new(0),
            changes: Arc::default(),
        });
        let eras = Eras::of(supervision.era);
        Self {
            dial,
            deadlines: Deadlines::default(),
            timeout: supervision.timeout,
            supervision,
            shared: ConnectionSlot::new(&counters, None, Opening::Newest),
            shared_by_legacy: OnceLock::new(),
            counters,
            own: Mutex::default(),
            known: Mutex::default(),
            single: Arc::new(Semaphore::new(MAX_OWN)),
            closes: watch::Sender::new(false),
            closing: Mutex::default(),
            eras,
            stateful: AtomicBool::new(false),
        }
    }
}

impl<D: Dial> Core<D> {
    /// Sends a permitted call over a connection.
    pub(super) async fn send_call(
        &self,
        connection: &Connection,
        permit: &Permit,
        client: &Arc<dyn SourceClient>,
        relay: Relay,
        time: CallTime,
    ) -> Outcome {
        match timeout_at(time.until, connection.objection(permit.call())).await {
            Ok(None) => connection.link.call(permit.method(), permit.source_params(), client, relay, time).await,
            Ok(Some(objection)) => Outcome::NotSent(objection),
            Err(_) => Outcome::NotSent(time.is_over()),
        }
    }

    /// Remembers a session's settings on its own connection, if this call made one.
    pub(super) fn note_held(
        &self,
        client: &Arc<dyn SourceClient>,
        connection: &Connection,
        permit: &Permit,
        outcome: &Outcome,
    ) {
        let line = || self.own().get(client.session()?).cloned();
        if let Some(note) = held::noted(permit, outcome, connection.has_tasks)
            && let Some(line) = line()
        {
            line.hold(note);
        }
    }

    /// Makes a connection for one use.
    pub(super) async fn single(
        self: &Arc<Self>,
        client: &Arc<dyn SourceClient>,
    ) -> Result<(Single<D>, Discovery), SourceError> {
        let full = || Cause::own(format!("{MAX_OWN} calls have a connection to this source already"));
        let room = Arc::clone(&self.single).try_acquire_owned().map_err(|_| SourceError::Start(full()))?;
        let opening = self.eras.opening_for(&**client);
        let dialled = self.dial(client, opening, &self.shared.subscribers, false).await;
        let (link, discovery) = dialled.inspect_err(|_| self.counters.failed())?;
        self.learn(opening, link.is_modern(), link.keeps_state());
        let connection = Arc::new(Connection::new(link, &discovery.tools));
        Ok((Single { core: Arc::clone(self), connection, room: Some(room) }, discovery))
    }

    pub(super) async fn dial(
        &self,
        client: &Arc<dyn SourceClient>,
        opening: Opening,
        subscribers: &Arc<Subscribers>,
        from_nothing: bool,
    ) -> Result<(Link, Discovery), SourceError> {
        let opening = self.eras.settled(opening);
        let party = Party {
            source: self.counters.name.clone(),
            opening,
            capabilities: client.capabilities(),
            context: Arc::clone(&self.supervision.context),
            client: client.session().is_some().then(|| Arc::downgrade(client)),
            subscribers: Arc::clone(subscribers),
        };
        let unprobed = Deadlines { probe: None, ..self.deadlines.clone() };
        if opening == Opening::Newest && !self.eras.probes(from_nothing) {
            return self.dial.dial(unprobed, party).await;
        }
        match self.dial.dial(self.deadlines.clone(), party.clone()).await {
            // Older SDKs end the connection if the first message is not `initialize`.
            Err(SourceError::Closed(why)) if opening == Opening::Newest => {
                tracing::debug!(%why, "a source ended when probed; connecting again without the probe");
                self.dial.dial(unprobed, party).await
            }
            opened => opened,
        }
    }

    /// Reports whether a slot that has lost its connection should get another before a caller asks for one.
    pub(super) fn wants(&self, line: &ConnectionSlot) -> bool {
        let wanted =
            if line.is_shared() { self.is_kept(line) || line.subscribers.listens() } else { line.client().is_some() };
        wanted && line.status() != Status::Stopped
    }

    /// Reports whether this slot is kept connected even if it is unused.
    pub(super) fn is_kept(&self, line: &ConnectionSlot) -> bool {
        self.supervision.eager && std::ptr::eq(line, &**self.main_line())
    }
}

impl<D: Dial> Core<D> {
    /// Returns the slot that a client uses, as far as is known. A client that declares nothing and only lists uses a
    /// shared slot: listing leaves no state at the source.
    pub(super) fn line_for(&self, client: &Arc<dyn SourceClient>, patience: Patience) -> Arc<ConnectionSlot> {
        if self.cannot_share(client)
            && !self.only_looks(client, patience)
            && let Some(line) = self.own_line(client)
        {
            return line;
        }
        let line = self.shared_line_for(client);
        line.subscribers.join(client);
        line
    }

    /// Returns the client for which a connection is made on a slot, or `None` if it will be shared by all clients that
    /// only list.
    pub(super) fn made_for(
        &self,
        client: &Arc<dyn SourceClient>,
        line: &ConnectionSlot,
    ) -> Option<Weak<dyn SourceClient>> {
        (!line.is_shared() || !self.cannot_share(client)).then(|| Arc::downgrade(client))
    }

    fn only_looks(&self, client: &Arc<dyn SourceClient>, patience: Patience) -> bool {
        patience == Patience::Look && client.capabilities() == Json::empty_object() && !self.has_own(client)
    }

    /// Gives a session's slot a place, for which another may have to give up its own.
    pub(super) fn place(self: &Arc<Self>, line: &Arc<ConnectionSlot>) -> Result<(), SourceError> {
        let (new, leaving) = self.own().place(line).map_err(|full| {
            let (count, whose) = match full {
                Full::Share => (MAX_OF_ONE, "the sessions of one caller"),
                Full::All => (MAX_OWN, "several callers' sessions"),
            };
            SourceError::Start(Cause::own(format!(
                "{count} connections to this source are in use by {whose}, which is the limit; wait until one of \
                 their calls has ended"
            )))
        })?;
        if let Some(owner) = line.owner().filter(|_| new) {
            // The session is notified of changes over its own connection.
            self.shared_lines().for_each(|line| line.subscribers.leave(&owner.session));
        }
        if let Some(leaving) = leaving {
            self.hears_with_others(&leaving);
            self.end(&leaving, Event::Rested, "another session needed its place", self.timeout, false);
        }
        Ok(())
    }

    /// Ends the driver and the connection of a slot, and connects again if `again` is set. Does not wait for it.
    pub(super) fn end(
        self: &Arc<Self>,
        line: &Arc<ConnectionSlot>,
        event: Event,
        cause: &str,
        patience: Duration,
        again: bool,
    ) {
        line.take_over(|before, connection| {
            let end = End { before, connection, event, cause: Cause::own(cause.to_owned()), patience, again };
            tokio::spawn(drive(Arc::clone(self), Arc::clone(line), Begin::End(end)))
        });
    }
}

impl<D> Core<D> {
    /// Releases a slot's place when its driver ends.
    pub(super) fn leave(&self, line: &ConnectionSlot) {
        if self.own().release(line) {
            self.hears_with_others(line);
        }
        line.leave();
    }

    /// Subscribes a session that no longer has its own connection to the notifications of the shared one.
    fn hears_with_others(&self, line: &ConnectionSlot) {
        if let Some(client) = line.owner().and_then(|owner| owner.client.upgrade()) {
            self.shared_line_for(&client).subscribers.join(&client);
        }
    }

    /// Returns the recent discovery for a client that declared the same capabilities, for a crowd of sessions that
    /// would otherwise connect only to list. A client that declares nothing uses the shared connection for that.
    pub(super) fn known_to(&self, client: &Arc<dyn SourceClient>) -> Option<Discovery> {
        let declared = client.capabilities();
        if declared == Json::empty_object() || !self.cannot_share(client) || self.has_own(client) {
            return None;
        }
        if self.own().count(client.principal()) < CROWD {
            return None;
        }
        let discovery = self.known().get(&declared, self.counters.changes.load(Ordering::Relaxed))?;
        self.shared_line_for(client).subscribers.join(client);
        Some(discovery)
    }

    /// Remembers the discovery of a legacy source over a new connection.
    pub(super) fn remember(&self, connection: &Connection, discovery: &Discovery) {
        if !connection.link.is_modern() {
            let (declared, changes) =
                (connection.link.declared().clone(), self.counters.changes.load(Ordering::Relaxed));
            self.known().insert(declared, changes, discovery.clone());
        }
    }

    /// Forgets the recent discoveries, and that the source keeps state for each client.
    pub(super) fn forget(&self) {
        self.known().clear();
        self.stateful.store(false, Ordering::Relaxed);
    }

    fn has_own(&self, client: &Arc<dyn SourceClient>) -> bool {
        client.session().and_then(|session| self.own().get(session)?.open()).is_some()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    /// Returns the shared slot that a client would use.
    fn shared_line_for(&self, client: &Arc<dyn SourceClient>) -> Arc<ConnectionSlot> {
        let line = match self.eras.opening_for(&**client) {
            Opening::LegacyFirst => match self.shared_by_legacy.get() {
                Some(line) => line,
                // The source is being closed: this slot is stopped, and a new one would not be.
                None if *self.closes.borrow() => &self.shared,
                None => self
                    .shared_by_legacy
                    .get_or_init(|| ConnectionSlot::new(&self.counters, None, Opening::LegacyFirst)),
            },
            Opening::Newest | Opening::Modern => self.main_line(),
        };
        Arc::clone(line)
    }

    /// Returns the shared slot for the newest era that the source speaks. If that is the legacy one, and legacy agents
    /// connected first, it is theirs, so that a source of one era has one shared connection.
    pub(super) fn main_line(&self) -> &Arc<ConnectionSlot> {
        if self.eras.only() == Some(Era::Legacy) { self.line_with_initialize() } else { &self.shared }
    }

    /// Returns the shared slot for connections that begin with `initialize`.
    pub(super) fn line_with_initialize(&self) -> &Arc<ConnectionSlot> {
        self.shared_by_legacy.get().unwrap_or(&self.shared)
    }

    /// Returns the shared slots.
    pub(super) fn shared_lines(&self) -> impl Iterator<Item = &Arc<ConnectionSlot>> {
        std::iter::once(&self.shared).chain(self.shared_by_legacy.get())
    }

    /// Reports whether it is already known that this client needs a connection of its own.
    fn cannot_share(&self, client: &Arc<dyn SourceClient>) -> bool {
        let declares = || self.stateful.load(Ordering::Relaxed) || client.capabilities() != Json::empty_object();
        client.session().is_some() && self.eras.is_legacy_for(&**client) && declares()
    }

    /// Returns the slot of a client's session, or `None` for a client without a session.
    pub(super) fn own_line(&self, client: &Arc<dyn SourceClient>) -> Option<Arc<ConnectionSlot>> {
        let session = client.session()?;
        let owner =
            || Owner { session: session.clone(), principal: client.principal().into(), client: Arc::downgrade(client) };
        let opening = self.eras.opening_for(&**client);
        Some(self.own().get_or_insert(session, || ConnectionSlot::new(&self.counters, Some(owner()), opening)))
    }

    /// Remembers what a new connection has shown of the source.
    pub(super) fn learn(&self, opening: Opening, modern: bool, stateful: bool) {
        self.eras.learn(opening, modern);
        self.stateful.fetch_or(stateful, Ordering::Relaxed);
    }

    /// Runs something to its end in the background; only the closing of the source waits for it.
    pub(super) fn close_later(&self, closing: impl Future<Output = ()> + Send + 'static) {
        // Outside a runtime it is dropped, which also ends the connection, and nothing can wait.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut tasks = self.closing();
        tasks.retain(|task| !task.is_finished());
        tasks.push(runtime.spawn(closing));
    }

    pub(super) fn closing(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.closing.lock()
    }

    pub(super) fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock()
    }
}
