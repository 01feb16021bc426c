//! The state that a source and the drivers of its connection slots share: the known facts about the source, and the
//! slot of each client.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout_at;

use super::connection::{Connection, Objection};
use super::drive::{AfterEnd, FirstStep, SlotEnd, drive};
use super::eras::{KnownEras, ProbePolicy};
use super::health_tracker::HealthTracker;
use super::machine::ConnectionEvent;
use super::recent_discoveries::RecentDiscoveries;
use super::session_settings;
use super::session_slots::{AllSlotsInUse, REUSE_FROM, SessionSlots};
use super::single_use::SingleUsePlaces;
use super::slot::{ConnectionSlot, SlotOwner, WaitPolicy};
use super::{Connector, SupervisionConfig};
use crate::call::{Cause, Outcome};
use crate::gate::Permit;
use crate::protocol::{Era, Json, Notification};
use crate::source::mcp_connection::{
    CallDeadline, EraChoice, HandshakeDeadlines, McpConnection, McpConnectionConfig, Subscribers,
};
use crate::source::{CallEventSender, Discovery, SourceClient, SourceError, SourceStatus};
use crate::sync::{Mutex, MutexGuard};

/// The state that a source and the drivers of its connection slots share.
pub(in crate::source) struct SupervisorState<D> {
    pub(in crate::source) connector: D,
    pub(in crate::source) deadlines: HandshakeDeadlines,
    pub(in crate::source) timeout: Duration,
    pub(super) supervision: SupervisionConfig,
    pub(super) counters: Arc<HealthTracker>,
    /// The shared slot for the newest era that the source speaks.
    pub(super) shared: Arc<ConnectionSlot>,
    /// The slot that legacy agents share, at a source that may speak both eras. Made when the first of them comes.
    shared_by_legacy: OnceLock<Arc<ConnectionSlot>>,
    own: Mutex<SessionSlots>,
    recent_discoveries: Mutex<RecentDiscoveries>,
    /// Places for connections that are for one use.
    pub(super) single: SingleUsePlaces,
    /// True once the source is being closed: awaited answers then have
    /// [`DRAIN_DEADLINE`](crate::source::DRAIN_DEADLINE).
    pub(super) closes: watch::Sender<bool>,
    /// The tasks that close connections which are no longer used.
    closing: Mutex<Vec<JoinHandle<()>>>,
    pub(super) eras: KnownEras,
    /// True if the source is known to keep state for each client.
    stateful: AtomicBool,
}

impl<D> SupervisorState<D> {
    pub(super) fn new(supervision: SupervisionConfig, connector: D) -> Self {
        let counters = Arc::new(HealthTracker {
            name: supervision.name.clone(),
            record: Arc::clone(&supervision.record),
            errors: AtomicU64::new(0),
            last_ping: AtomicI64::new(0),
            changes: Arc::default(),
        });
        let eras = KnownEras::of(supervision.era);
        let own = Mutex::new(SessionSlots::new(supervision.max_connections));
        let single = SingleUsePlaces::new(supervision.max_connections);
        Self {
            connector,
            deadlines: HandshakeDeadlines::default(),
            timeout: supervision.timeout,
            supervision,
            shared: ConnectionSlot::new(&counters, None, EraChoice::ModernFirst),
            shared_by_legacy: OnceLock::new(),
            counters,
            own,
            recent_discoveries: Mutex::default(),
            single,
            closes: watch::Sender::new(false),
            closing: Mutex::default(),
            eras,
            stateful: AtomicBool::new(false),
        }
    }
}

impl<D: Connector> SupervisorState<D> {
    /// Sends a permitted call over a connection.
    pub(super) async fn send_call(
        &self,
        connection: &Connection,
        permit: &Permit,
        client: &Arc<dyn SourceClient>,
        events: CallEventSender,
        time: CallDeadline,
    ) -> Outcome {
        match timeout_at(time.until, connection.objection(permit.call(), client.era())).await {
            Ok(None) => connection.mcp.call(permit.method(), permit.source_params(), client, events, time).await,
            Ok(Some(Objection { cause, outdated })) => {
                if let Some(kind) = outdated {
                    // The source may never have announced it, and the session would keep its list.
                    let changed = Notification { method: kind.changed_method(), params: None };
                    client.notify(self.counters.name.as_str(), changed).await;
                }
                Outcome::NotSent(cause)
            }
            Err(_) => Outcome::NotSent(time.is_over()),
        }
    }

    /// Remembers a session's settings on its own connection, if this call made one.
    pub(super) fn remember_settings(
        &self,
        client: &Arc<dyn SourceClient>,
        connection: &Connection,
        permit: &Permit,
        outcome: &Outcome,
    ) {
        let slot = || self.own().get(client.session()?).cloned();
        if let Some(note) = session_settings::change_after(permit, outcome, connection.has_tasks)
            && let Some(slot) = slot()
        {
            slot.change_settings(note);
        }
    }

    pub(super) async fn connect(
        &self,
        client: &Arc<dyn SourceClient>,
        era_choice: EraChoice,
        subscribers: &Arc<Subscribers>,
        probe_policy: ProbePolicy,
    ) -> Result<(McpConnection, Discovery), SourceError> {
        let era_choice = self.eras.resolve(era_choice);
        let config = McpConnectionConfig {
            source: self.counters.name.clone(),
            era_choice,
            capabilities: client.capabilities(),
            context: Arc::clone(&self.supervision.context),
            client: client.session().is_some().then(|| Arc::downgrade(client)),
            subscribers: Arc::clone(subscribers),
        };
        let unprobed = HandshakeDeadlines { probe: None, ..self.deadlines.clone() };
        if era_choice == EraChoice::ModernFirst && !self.eras.probes(probe_policy) {
            return self.connector.connect(unprobed, config).await;
        }
        match self.connector.connect(self.deadlines.clone(), config.clone()).await {
            // Older SDKs end the connection if the first message is not `initialize`.
            Err(SourceError::Closed(why)) if era_choice == EraChoice::ModernFirst => {
                tracing::debug!(%why, "a source ended when probed; connecting again without the probe");
                self.connector.connect(unprobed, config).await
            }
            opened => opened,
        }
    }

    /// Reports whether a slot that has lost its connection should get another before a caller asks for one.
    pub(super) fn wants(&self, slot: &ConnectionSlot) -> bool {
        let wanted =
            if slot.is_shared() { self.is_kept(slot) || slot.subscribers.listens() } else { slot.client().is_some() };
        wanted && slot.status() != SourceStatus::Stopped
    }

    /// Reports whether this slot is kept connected even if it is unused.
    pub(super) fn is_kept(&self, slot: &ConnectionSlot) -> bool {
        self.supervision.eager && std::ptr::eq(slot, &**self.main_slot())
    }
}

impl<D: Connector> SupervisorState<D> {
    /// Returns the slot that a client uses, as far as is known. A client that declares nothing and only lists uses a
    /// shared slot: listing leaves no state at the source.
    pub(super) fn slot_for(&self, client: &Arc<dyn SourceClient>, wait_policy: WaitPolicy) -> Arc<ConnectionSlot> {
        if self.cannot_share(client)
            && !self.only_lists(client, wait_policy)
            && let Some(slot) = self.own_slot(client)
        {
            return slot;
        }
        let slot = self.shared_slot_for(client);
        slot.subscribers.join(client);
        slot
    }

    /// Returns the client for which a connection is made on a slot, or `None` if it will be shared by all clients that
    /// only list.
    pub(super) fn made_for(
        &self,
        client: &Arc<dyn SourceClient>,
        slot: &ConnectionSlot,
    ) -> Option<Weak<dyn SourceClient>> {
        (!slot.is_shared() || !self.cannot_share(client)).then(|| Arc::downgrade(client))
    }

    fn only_lists(&self, client: &Arc<dyn SourceClient>, wait_policy: WaitPolicy) -> bool {
        wait_policy == WaitPolicy::OnlyIfDue && client.capabilities() == Json::empty_object() && !self.has_own(client)
    }

    /// Gives a session's slot a place, for which another slot may lose its own.
    pub(super) fn place(self: &Arc<Self>, slot: &Arc<ConnectionSlot>) -> Result<(), SourceError> {
        let (new, leaving) = self.own().place(slot).map_err(|full| {
            let (count, owner) = match full {
                AllSlotsInUse::Share(share) => (share, "the sessions of one caller"),
                AllSlotsInUse::All(most) => (most, "several callers' sessions"),
            };
            SourceError::Start(Cause::own(format!(
                "{count} connections to this source are in use by {owner}, which is the limit (`max-connections`); \
                 wait until one of their calls has ended"
            )))
        })?;
        if let Some(owner) = slot.owner().filter(|_| new) {
            // The session is notified of changes over its own connection.
            self.shared_slots().for_each(|slot| slot.subscribers.leave(&owner.session));
        }
        if let Some(leaving) = leaving {
            self.subscribe_to_shared(&leaving);
            self.end(
                &leaving,
                ConnectionEvent::Closed,
                "another session needed its place",
                self.timeout,
                AfterEnd::Stop,
            );
        }
        Ok(())
    }

    /// Ends the driver and the connection of a slot. Does not wait for it.
    pub(super) fn end(
        self: &Arc<Self>,
        slot: &Arc<ConnectionSlot>,
        event: ConnectionEvent,
        cause: &str,
        drain_time: Duration,
        then: AfterEnd,
    ) {
        slot.replace_driver(|before, connection| {
            let end = SlotEnd { before, connection, event, cause: Cause::own(cause.to_owned()), drain_time, then };
            tokio::spawn(drive(Arc::clone(self), Arc::clone(slot), FirstStep::End(end)))
        });
    }
}

impl<D> SupervisorState<D> {
    /// Releases a slot's place when its driver ends.
    pub(super) fn leave(&self, slot: &ConnectionSlot) {
        if self.own().release(slot) {
            self.subscribe_to_shared(slot);
        }
        slot.driver_ended();
    }

    /// Subscribes a session that no longer has its own connection to the notifications of the shared one.
    fn subscribe_to_shared(&self, slot: &ConnectionSlot) {
        if let Some(client) = slot.owner().and_then(|owner| owner.client.upgrade()) {
            self.shared_slot_for(&client).subscribers.join(&client);
        }
    }

    /// Returns the recent discovery for a client that declared the same capabilities, for a crowd of sessions that
    /// would otherwise connect only to list. A client that declares nothing uses the shared connection for that.
    pub(super) fn recent_discovery_for(&self, client: &Arc<dyn SourceClient>) -> Option<Discovery> {
        let declared = client.capabilities();
        if declared == Json::empty_object() || !self.cannot_share(client) || self.has_own(client) {
            return None;
        }
        let has_many = {
            let own = self.own();
            own.count(client.principal()) >= REUSE_FROM.min(own.share())
        };
        if !has_many {
            return None;
        }
        let discovery = self.recent_discoveries().get(&declared, self.counters.changes.load(Ordering::Relaxed))?;
        self.shared_slot_for(client).subscribers.join(client);
        Some(discovery)
    }

    /// Remembers the discovery of a legacy source over a new connection.
    pub(super) fn remember(&self, connection: &Connection, discovery: &Discovery) {
        if !connection.mcp.is_modern() {
            let (declared, changes) =
                (connection.mcp.declared().clone(), self.counters.changes.load(Ordering::Relaxed));
            self.recent_discoveries().insert(declared, changes, discovery.clone());
        }
    }

    /// Forgets the recent discoveries, and that the source keeps state for each client.
    pub(super) fn forget(&self) {
        self.recent_discoveries().clear();
        self.stateful.store(false, Ordering::Relaxed);
    }

    fn has_own(&self, client: &Arc<dyn SourceClient>) -> bool {
        client.session().and_then(|session| self.own().get(session)?.open()).is_some()
    }

    fn recent_discoveries(&self) -> MutexGuard<'_, RecentDiscoveries> {
        self.recent_discoveries.lock()
    }

    /// Returns the shared slot that a client would use.
    fn shared_slot_for(&self, client: &Arc<dyn SourceClient>) -> Arc<ConnectionSlot> {
        let slot = match self.eras.choice_for(&**client) {
            EraChoice::LegacyFirst => match self.shared_by_legacy.get() {
                Some(slot) => slot,
                // The source is being closed: this slot is stopped, and a new one would not be.
                None if *self.closes.borrow() => &self.shared,
                None => self
                    .shared_by_legacy
                    .get_or_init(|| ConnectionSlot::new(&self.counters, None, EraChoice::LegacyFirst)),
            },
            EraChoice::ModernFirst | EraChoice::ModernOnly => self.main_slot(),
        };
        Arc::clone(slot)
    }

    /// Returns the shared slot for the newest era that the source speaks. If that is the legacy one, and legacy agents
    /// connected first, it is theirs, so that a source of one era has one shared connection.
    pub(super) fn main_slot(&self) -> &Arc<ConnectionSlot> {
        if self.eras.only_era() == Some(Era::Legacy) { self.slot_with_initialize() } else { &self.shared }
    }

    /// Returns the shared slot for connections that begin with `initialize`.
    pub(super) fn slot_with_initialize(&self) -> &Arc<ConnectionSlot> {
        self.shared_by_legacy.get().unwrap_or(&self.shared)
    }

    /// Returns the shared slots.
    pub(super) fn shared_slots(&self) -> impl Iterator<Item = &Arc<ConnectionSlot>> {
        std::iter::once(&self.shared).chain(self.shared_by_legacy.get())
    }

    /// Reports whether it is already known that this client needs its own connection.
    fn cannot_share(&self, client: &Arc<dyn SourceClient>) -> bool {
        let declares = || self.stateful.load(Ordering::Relaxed) || client.capabilities() != Json::empty_object();
        client.session().is_some() && self.eras.is_legacy_for(&**client) && declares()
    }

    /// Returns the slot of a client's session, or `None` for a client without a session.
    pub(super) fn own_slot(&self, client: &Arc<dyn SourceClient>) -> Option<Arc<ConnectionSlot>> {
        let session = client.session()?;
        let owner = || SlotOwner {
            session: session.clone(),
            principal: client.principal().into(),
            client: Arc::downgrade(client),
        };
        let era_choice = self.eras.choice_for(&**client);
        Some(self.own().get_or_insert(session, || ConnectionSlot::new(&self.counters, Some(owner()), era_choice)))
    }

    /// Remembers what a new connection has shown of the source.
    pub(super) fn learn(&self, era_choice: EraChoice, mcp: &McpConnection) {
        self.eras.learn(era_choice, mcp.era());
        self.stateful.fetch_or(mcp.keeps_state(), Ordering::Relaxed);
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

    pub(super) fn own(&self) -> MutexGuard<'_, SessionSlots> {
        self.own.lock()
    }
}
