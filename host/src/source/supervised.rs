//! What all sources with a connection have in common: it is made when first needed, and made again when it has broken.
//!
//! Invariant 7: a call goes out only if the connection it goes over has listed the very definition that the caller was
//! shown. A source that comes back with other tools, or lists others to somebody else, is not called on old terms.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::link::{Audience, Deadlines, Link, Party};
use super::{Client, Discovery, Listed, Relay, Source, SourceError};
use crate::call::{Call, Outcome, SessionId};
use crate::catalog::Kind;
use crate::digest::Digest;
use crate::gate::Permit;
use crate::message::{Json, Notification};
use crate::name::SourceName;

/// How many sessions may have a connection (most often a process) of their own to one source. What agents of one machine
/// or team have open, and not what would exhaust it.
const MAX_OWN: usize = 256;

/// How one connection is made.
#[async_trait]
pub(crate) trait Dial: Send + Sync + std::fmt::Debug {
    /// Makes a connection. Cancellation safe: one that was half-way up is torn down.
    async fn dial(&self, deadlines: Deadlines, party: Party) -> Result<(Link, Discovery), SourceError>;

    /// Waits, when the source is closed, for what must not be cut off.
    async fn settle(&self) {}
}

/// A source behind one shared connection, and one for each session that cannot share. Connects to nothing before the first
/// discovery or call; once a connection has ended, the next of them makes another.
pub(crate) struct Supervised<D> {
    pub(super) dial: D,
    pub(super) deadlines: Deadlines,
    pub(super) timeout: Duration,
    name: SourceName,
    shared: Place,
    audience: Arc<Audience>,
    own: std::sync::Mutex<HashMap<SessionId, Place>>,
    /// What ends the connections of sessions that have ended.
    closing: std::sync::Mutex<Vec<JoinHandle<()>>>,
    /// It was met, and speaks the older revisions: the probe is not sent again.
    legacy: AtomicBool,
    /// It was met, and keeps something for each of its clients.
    stateful: AtomicBool,
}

/// Where a connection is kept. Locked while one is made: whoever comes meanwhile waits for the same one.
type Place = Arc<Mutex<Option<Arc<Connection>>>>;

impl<D: Dial> Supervised<D> {
    /// Calls get `timeout` each.
    pub(super) fn of(name: SourceName, dial: D, timeout: Duration) -> Self {
        Self {
            dial,
            deadlines: Deadlines::default(),
            timeout,
            name,
            shared: Place::default(),
            audience: Arc::default(),
            own: std::sync::Mutex::default(),
            closing: std::sync::Mutex::default(),
            legacy: AtomicBool::new(false),
            stateful: AtomicBool::new(false),
        }
    }
}

#[async_trait]
impl<D: Dial> Source for Supervised<D> {
    async fn discover(&self, client: &Arc<dyn Client>) -> Result<Discovery, SourceError> {
        let (connection, discovery) = self.connect(client).await?;
        let discovery = match discovery {
            Some(discovery) => discovery,
            None => connection.link.discover().await?,
        };
        connection.note(Kind::Tool, &discovery.tools);
        Ok(discovery)
    }

    async fn list(&self, client: &Arc<dyn Client>, kind: Kind) -> Result<Listed, SourceError> {
        let (connection, _) = self.connect(client).await?;
        let listed = connection.link.list(kind).await?;
        connection.note(kind, &listed);
        Ok(listed)
    }

    async fn call(&self, permit: Permit, client: &Arc<dyn Client>, relay: Relay) -> Outcome {
        let mut first = true;
        loop {
            let connection = match self.connect(client).await {
                Ok((connection, _)) => connection,
                Err(error) => return Outcome::NotSent(error.to_string()),
            };
            if let Some(objection) = connection.objection(permit.call()).await {
                return Outcome::NotSent(objection);
            }
            let link = &connection.link;
            let (method, params) = (permit.method(), permit.source_params());
            let outcome = link.call(method, params, client, relay.clone(), self.timeout).await;
            // It had ended unnoticed, and the source surely never saw this call: nothing is replayed.
            let ended = matches!(outcome, Outcome::NotSent(_)) && !link.is_open();
            if !(ended && std::mem::take(&mut first)) {
                return outcome;
            }
        }
    }

    async fn notify(&self, permit: Permit, client: &Arc<dyn Client>) -> Result<(), SourceError> {
        let connected = self.connect(client).await;
        let (connection, _) = connected.map_err(|error| SourceError::Start(error.to_string()))?;
        connection.link.notify(permit.method(), permit.source_params(), client, self.timeout).await
    }

    fn tell(&self, session: &SessionId, notification: Notification) {
        let place = self.own().get(session).cloned();
        // One that is still being made is told nothing: what it asks for later is up to date.
        if let Some(connection) = place.and_then(|place| place.try_lock().ok()?.clone()) {
            connection.link.tell(notification);
        }
    }

    fn end_session(&self, session: &SessionId) {
        self.audience.leave(session);
        let Some(place) = self.own().remove(session) else { return };
        // Dropped outside a runtime, it ends too, and nobody can wait for that.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut closing = self.closing();
        closing.retain(|task| !task.is_finished());
        closing.push(runtime.spawn(async move { close(&place).await }));
    }

    async fn close(&self) {
        let own: Vec<_> = self.own().drain().map(|(_, place)| place).collect();
        futures_util::future::join_all(own.iter().chain([&self.shared]).map(close)).await;
        let closing = std::mem::take(&mut *self.closing());
        futures_util::future::join_all(closing).await;
        self.dial.settle().await;
    }
}

impl<D: Dial> std::fmt::Debug for Supervised<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.dial.fmt(f)
    }
}

impl<D: Dial> Supervised<D> {
    /// The open connection for a client, or a new one with what it said of itself.
    async fn connect(&self, client: &Arc<dyn Client>) -> Result<(Arc<Connection>, Option<Discovery>), SourceError> {
        if !self.cannot_share(client) {
            let mut shared = self.shared.lock().await;
            // What was waited for may have shown that the source cannot be shared.
            if !self.cannot_share(client) {
                return self.share(&mut shared, client).await;
            }
        }
        let place = self.own_place(client)?;
        let mut place = place.lock().await;
        if let Some(connection) = open(&place) {
            return Ok((connection, None));
        }
        let (connection, discovery) = self.start(client).await?;
        *place = Some(Arc::clone(&connection));
        Ok((connection, Some(discovery)))
    }

    async fn share(
        &self,
        shared: &mut Option<Arc<Connection>>,
        client: &Arc<dyn Client>,
    ) -> Result<(Arc<Connection>, Option<Discovery>), SourceError> {
        if let Some(connection) = open(shared) {
            self.audience.join(client);
            return Ok((connection, None));
        }
        let (connection, discovery) = self.start(client).await?;
        if connection.link.has_owner() {
            // Met for the first time, the source turned out to be one that cannot be shared.
            *self.own_place(client)?.lock().await = Some(Arc::clone(&connection));
        } else {
            self.audience.join(client);
            *shared = Some(Arc::clone(&connection));
        }
        Ok((connection, Some(discovery)))
    }

    /// Whether it is known already that this client needs a connection of its own.
    fn cannot_share(&self, client: &Arc<dyn Client>) -> bool {
        let declares = || self.stateful.load(Ordering::Relaxed) || client.capabilities() != Json::empty_object();
        client.session().is_some() && self.legacy.load(Ordering::Relaxed) && declares()
    }

    fn own_place(&self, client: &Arc<dyn Client>) -> Result<Place, SourceError> {
        let Some(session) = client.session() else { return Ok(Arc::clone(&self.shared)) };
        let mut own = self.own();
        if own.len() >= MAX_OWN && !own.contains_key(session) {
            return Err(SourceError::Start(format!(
                "{MAX_OWN} sessions have a connection of their own to this source already; end one of them"
            )));
        }
        Ok(Arc::clone(own.entry(session.clone()).or_default()))
    }

    fn closing(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        // The list is whole at every point at which a holder could panic.
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self) -> MutexGuard<'_, HashMap<SessionId, Place>> {
        // The map is whole at every point at which a holder could panic.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn start(&self, client: &Arc<dyn Client>) -> Result<(Arc<Connection>, Discovery), SourceError> {
        let (link, discovery) = self.dial(client).await?;
        self.legacy.store(!link.is_modern(), Ordering::Relaxed);
        self.stateful.fetch_or(link.has_owner() && client.capabilities() == Json::empty_object(), Ordering::Relaxed);
        let connection = Arc::new(Connection { link, listed: std::sync::Mutex::default() });
        connection.note(Kind::Tool, &discovery.tools);
        Ok((connection, discovery))
    }

    async fn dial(&self, client: &Arc<dyn Client>) -> Result<(Link, Discovery), SourceError> {
        let party = Party {
            source: self.name.clone(),
            capabilities: client.capabilities(),
            client: client.session().is_some().then(|| Arc::downgrade(client)),
            audience: Arc::clone(&self.audience),
        };
        let unprobed = Deadlines { probe: None, ..self.deadlines.clone() };
        if self.legacy.load(Ordering::Relaxed) {
            return self.dial.dial(unprobed, party).await;
        }
        match self.dial.dial(self.deadlines.clone(), party.clone()).await {
            // Older SDKs end the connection over any first message but `initialize`.
            Err(SourceError::Closed(why)) => {
                tracing::debug!(why, "a source ended when probed; connecting again without the probe");
                self.dial.dial(unprobed, party).await
            }
            opened => opened,
        }
    }
}

fn open(place: &Option<Arc<Connection>>) -> Option<Arc<Connection>> {
    place.as_ref().filter(|connection| connection.link.is_open()).map(Arc::clone)
}

async fn close(place: &Place) {
    let connection = place.lock().await.take();
    if let Some(connection) = connection {
        connection.link.close().await;
    }
}

/// One connection, and what it listed last.
struct Connection {
    link: Link,
    /// The digest of each definition, by the source's own name for it.
    listed: std::sync::Mutex<HashMap<Kind, HashMap<String, Digest>>>,
}

impl Connection {
    fn note(&self, kind: Kind, list: &Listed) {
        let digest = |item: &Json| Some((item.get_str(kind.key())?, Digest::of_json(item).ok()?));
        let digests = list.items.iter().filter_map(digest).collect();
        self.listed().insert(kind, digests);
    }

    /// Why this call must not go out over this connection. What a resource is changes with what is in it; a tool or a
    /// prompt is what the caller was shown.
    async fn objection(&self, call: &Call) -> Option<String> {
        let item = &call.item;
        if !matches!(item.kind, Kind::Tool | Kind::Prompt) {
            return None;
        }
        if !self.listed().contains_key(&item.kind) {
            match self.link.list(item.kind).await {
                Ok(listed) => self.note(item.kind, &listed),
                Err(error) => return Some(error.to_string()),
            }
        }
        let listed = self.listed().get(&item.kind).and_then(|listed| listed.get(&*item.name)).copied();
        let changed = match listed {
            Some(digest) if digest == item.digest => return None,
            Some(_) => "has changed its definition",
            None => "no longer offers it",
        };
        Some(format!(
            "{} `{}` is not the one that this session was shown: source `{}` {changed} since; nothing was sent, and a new \
             session sees the source as it is now",
            item.kind.as_str(),
            item.name,
            call.source(),
        ))
    }

    fn listed(&self) -> MutexGuard<'_, HashMap<Kind, HashMap<String, Digest>>> {
        // The map is whole at every point at which a holder could panic.
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
