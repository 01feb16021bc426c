//! What all sources with a connection have in common: it is made when first needed, watched, and made again when it has broken.
//!
//! [`machine`] says when a source may be tried, [`line`] is a place where a connection is kept, [`drive`] the task that makes
//! and watches it. A source has one line that is shared, and one for each session that cannot share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::link::{Audience, Deadlines, Link, Party};
use super::{Client, DRAIN_DEADLINE, Discovery, Health, Listed, Relay, Source, SourceError, Status};
use crate::call::{Outcome, SessionId};
use crate::catalog::Kind;
use crate::config::{Lifecycle, SourceConfig};
use crate::gate::Permit;
use crate::message::{Json, Notification};
use crate::name::SourceName;
use connection::Connection;
use drive::{Begin, drive};
pub(crate) use line::Record;
use line::{Line, Patience, Vitals, Wanted};

mod connection;
mod drive;
mod line;
mod machine;

/// How many sessions may have a connection (most often a process) of their own to one source, or calls where each has one.
/// What agents of one machine or team have open, and not what would exhaust it.
const MAX_OWN: usize = 256;

/// How one connection is made.
#[async_trait]
pub(crate) trait Dial: Send + Sync + std::fmt::Debug + 'static {
    /// Makes a connection. Cancellation safe: one that was half-way up is torn down.
    async fn dial(&self, deadlines: Deadlines, party: Party) -> Result<(Link, Discovery), SourceError>;

    /// Waits, when the source is closed, for what must not be cut off.
    async fn settle(&self) {}
}

/// How a source is looked after.
pub(crate) struct Care {
    pub(crate) name: SourceName,
    /// Of each call.
    pub(crate) timeout: Duration,
    pub(crate) lifecycle: Lifecycle,
    /// How long a shared connection that nobody uses is kept.
    pub(crate) idle: Duration,
    /// Wanted even if no session is there.
    pub(crate) eager: bool,
    /// Behind a network, which forgets connections that are silent.
    pub(crate) remote: bool,
    /// Takes what happens, for the ledger.
    pub(crate) record: Record,
}

impl Care {
    pub(crate) fn of(config: &SourceConfig, record: Record) -> Self {
        Self {
            name: config.name.clone(),
            timeout: config.timeout,
            lifecycle: config.lifecycle,
            idle: config.idle,
            eager: config.eager,
            remote: matches!(config.endpoint, crate::config::Endpoint::Url { .. }),
            record,
        }
    }
}

/// A source behind one shared connection, and one for each session that cannot share. Connects to nothing before the first
/// discovery or call. Dropping it ends all connections.
pub(crate) struct Supervised<D> {
    core: Arc<Core<D>>,
}

/// What the source and the drivers of its lines have in common.
pub(super) struct Core<D> {
    pub(super) dial: D,
    pub(super) deadlines: Deadlines,
    pub(super) timeout: Duration,
    care: Care,
    vitals: Arc<Vitals>,
    shared: Arc<Line>,
    audience: Arc<Audience>,
    own: Mutex<HashMap<SessionId, Arc<Line>>>,
    /// Calls with a connection each.
    single: Semaphore,
    /// What ends connections that nobody uses any more.
    closing: Mutex<Vec<JoinHandle<()>>>,
    /// It was met, and speaks the older revisions: the probe is not sent again.
    legacy: AtomicBool,
    /// It was met, and keeps something for each of its clients.
    stateful: AtomicBool,
}

impl<D: Dial> Supervised<D> {
    pub(super) fn of(care: Care, dial: D) -> Self {
        let vitals = Arc::new(Vitals {
            name: care.name.clone(),
            record: Arc::clone(&care.record),
            errors: AtomicU64::new(0),
            last_ping: AtomicI64::new(0),
        });
        let core = Core {
            dial,
            deadlines: Deadlines::default(),
            timeout: care.timeout,
            care,
            shared: Line::new(&vitals, None),
            vitals,
            audience: Arc::default(),
            own: Mutex::default(),
            single: Semaphore::new(MAX_OWN),
            closing: Mutex::default(),
            legacy: AtomicBool::new(false),
            stateful: AtomicBool::new(false),
        };
        Self { core: Arc::new(core) }
    }

    /// For tests that are in a hurry, before anything is connected.
    #[cfg(test)]
    pub(super) fn tune(&mut self) -> &mut Core<D> {
        match Arc::get_mut(&mut self.core) {
            Some(core) => core,
            None => unreachable!("it is connected already"),
        }
    }
}

#[async_trait]
impl<D: Dial> Source for Supervised<D> {
    async fn discover(&self, client: &Arc<dyn Client>) -> Result<Discovery, SourceError> {
        if self.core.care.lifecycle == Lifecycle::PerCall {
            let (connection, discovery) = self.core.single(client).await?;
            self.core.close_later(async move { connection.link.close().await });
            return Ok(discovery);
        }
        let (connection, discovery) = self.connect(client, Patience::Attempt).await?;
        match discovery {
            Some(discovery) => Ok(discovery),
            None => {
                let discovery = connection.link.discover().await?;
                connection.note(Kind::Tool, &discovery.tools);
                Ok(discovery)
            }
        }
    }

    async fn list(&self, client: &Arc<dyn Client>, kind: Kind) -> Result<Listed, SourceError> {
        if self.core.care.lifecycle == Lifecycle::PerCall {
            let (connection, _) = self.core.single(client).await?;
            let listed = connection.link.list(kind).await;
            self.core.close_later(async move { connection.link.close().await });
            return listed;
        }
        let (connection, _) = self.connect(client, Patience::Attempt).await?;
        let listed = connection.link.list(kind).await?;
        connection.note(kind, &listed);
        Ok(listed)
    }

    async fn call(&self, permit: Permit, client: &Arc<dyn Client>, relay: Relay) -> Outcome {
        let core = &self.core;
        if core.care.lifecycle == Lifecycle::PerCall {
            let connection = match core.single(client).await {
                Ok((connection, _)) => connection,
                Err(error) => return Outcome::NotSent(error.to_string()),
            };
            let outcome = core.carry(&connection, &permit, client, relay, core.timeout).await;
            core.close_later(async move { connection.link.close().await });
            return outcome;
        }
        let deadline = Instant::now() + core.timeout;
        let mut first = true;
        loop {
            let connection = match timeout_at(deadline, self.connect(client, Patience::Reconnect)).await {
                Ok(Ok((connection, _))) => connection,
                Ok(Err(error)) => return Outcome::NotSent(error.to_string()),
                Err(_) => {
                    let why = format!("no connection to the source within {} s", core.timeout.as_secs_f32());
                    return Outcome::NotSent(format!("{why}; nothing was sent"));
                }
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let outcome = core.carry(&connection, &permit, client, relay.clone(), left).await;
            // It had ended unnoticed, and the source surely did nothing with this call: nothing is replayed.
            let ended = matches!(outcome, Outcome::NotSent(_)) && !connection.link.is_open();
            if !(ended && std::mem::take(&mut first)) {
                return outcome;
            }
        }
    }

    async fn notify(&self, permit: Permit, client: &Arc<dyn Client>) -> Result<(), SourceError> {
        let core = &self.core;
        let failed = |error: SourceError| SourceError::Start(error.to_string());
        let (method, params) = (permit.method(), permit.source_params());
        if core.care.lifecycle == Lifecycle::PerCall {
            let (connection, _) = core.single(client).await.map_err(failed)?;
            let told = connection.link.notify(method, params, client, core.timeout).await;
            core.close_later(async move { connection.link.close().await });
            return told;
        }
        let (connection, _) = self.connect(client, Patience::Attempt).await.map_err(failed)?;
        connection.link.notify(method, params, client, core.timeout).await
    }

    fn tell(&self, session: &SessionId, notification: Notification) {
        let line = self.core.own().get(session).cloned();
        // One that is still being made is told nothing: what it asks for later is up to date.
        if let Some(connection) = line.and_then(|line| line.open()) {
            connection.link.tell(notification);
        }
    }

    fn end_session(&self, session: &SessionId) {
        self.core.audience.leave(session);
        let Some(line) = self.core.own().remove(session) else { return };
        self.core.close_later(async move { line.stop(Duration::ZERO).await });
    }

    fn health(&self) -> Health {
        let core = &self.core;
        let own: Vec<_> = core.own().values().cloned().collect();
        let lines = || own.iter().chain([&core.shared]);
        Health {
            status: Status::of_all(lines().map(|line| line.status())),
            connected: lines().any(|line| line.open().is_some()),
            last_ping: u64::try_from(core.vitals.last_ping.load(Ordering::Relaxed)).ok().filter(|at| *at > 0),
            error_count: core.vitals.errors.load(Ordering::Relaxed),
            error: lines().find_map(|line| line.error()),
        }
    }

    async fn ping(&self) {
        let own: Vec<_> = self.core.own().values().cloned().collect();
        let open = own.iter().chain([&self.core.shared]).filter_map(|line| Some((line, line.open()?)));
        let pings = open.map(async |(line, connection)| match drive::ping(&self.core, &connection).await {
            None => line.noticed(machine::Event::Answered, "it answers again"),
            Some(why) => line.noticed(machine::Event::Silent, &why),
        });
        futures_util::future::join_all(pings).await;
    }

    async fn close(&self) {
        let core = &self.core;
        let own: Vec<_> = core.own().drain().map(|(_, line)| line).collect();
        futures_util::future::join_all(own.iter().chain([&core.shared]).map(|line| line.stop(DRAIN_DEADLINE))).await;
        let closing = std::mem::take(&mut *core.closing());
        futures_util::future::join_all(closing).await;
        core.dial.settle().await;
    }
}

impl<D: Dial> Supervised<D> {
    /// The open connection for a client, or a new one with what it said of itself.
    async fn connect(
        &self,
        client: &Arc<dyn Client>,
        patience: Patience,
    ) -> Result<(Arc<Connection>, Option<Discovery>), SourceError> {
        let core = &self.core;
        let mut waited: Option<(Arc<Line>, u64)> = None;
        loop {
            let line = core.line_for(client)?;
            if waited.is_none()
                && let Some(connection) = line.open()
            {
                return Ok((connection, None));
            }
            let mut news = line.news();
            let seen = match &waited {
                // What was waited for may have shown that the source cannot be shared.
                Some((before, seen)) if Arc::ptr_eq(before, &line) => *seen,
                _ => line.failures(),
            };
            let start = || {
                let begin = Begin::Attempt(Arc::downgrade(client));
                tokio::spawn(drive(Arc::clone(core), Arc::clone(&line), begin))
            };
            match line.want(patience, seen, start) {
                Wanted::Open(connection, discovery) => return Ok((connection, discovery)),
                Wanted::Refused(error) => return Err(error),
                Wanted::Wait => {}
            }
            // The line holds the other end.
            let _ = news.changed().await;
            waited = Some((line, seen));
        }
    }
}

impl<D> Drop for Supervised<D> {
    fn drop(&mut self) {
        self.core.own().drain().for_each(|(_, line)| line.drop_all());
        self.core.shared.drop_all();
        self.core.closing().drain(..).for_each(|task| task.abort());
    }
}

impl<D: std::fmt::Debug> std::fmt::Debug for Supervised<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.core.dial.fmt(f)
    }
}

impl<D: Dial> Core<D> {
    /// Sends a permitted call over a connection.
    async fn carry(
        &self,
        connection: &Connection,
        permit: &Permit,
        client: &Arc<dyn Client>,
        relay: Relay,
        timeout: Duration,
    ) -> Outcome {
        if let Some(objection) = connection.objection(permit.call()).await {
            return Outcome::NotSent(objection);
        }
        connection.link.call(permit.method(), permit.source_params(), client, relay, timeout).await
    }

    /// A connection for one use.
    async fn single(&self, client: &Arc<dyn Client>) -> Result<(Connection, Discovery), SourceError> {
        let full = || SourceError::Start(format!("{MAX_OWN} calls have a connection to this source already"));
        let _room = self.single.try_acquire().map_err(|_| full())?;
        let (link, discovery) = self.dial(client, false).await.inspect_err(|_| self.vitals.failed())?;
        self.learn(!link.is_modern(), link.keeps_state());
        Ok((Connection::new(link, &discovery.tools), discovery))
    }

    async fn dial(&self, client: &Arc<dyn Client>, from_nothing: bool) -> Result<(Link, Discovery), SourceError> {
        let party = Party {
            source: self.vitals.name.clone(),
            capabilities: client.capabilities(),
            client: client.session().is_some().then(|| Arc::downgrade(client)),
            audience: Arc::clone(&self.audience),
        };
        let unprobed = Deadlines { probe: None, ..self.deadlines.clone() };
        if self.legacy.load(Ordering::Relaxed) && !from_nothing {
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

    /// Whether a line whose connection has gone should have another without being asked.
    fn wants(&self, line: &Line) -> bool {
        let wanted =
            if line.is_shared() { self.care.eager || self.audience.listens() } else { line.client().is_some() };
        wanted && line.status() != Status::Stopped
    }
}

impl<D> Core<D> {
    /// The line that a client uses, as far as is known.
    fn line_for(&self, client: &Arc<dyn Client>) -> Result<Arc<Line>, SourceError> {
        if self.cannot_share(client) {
            return self.own_line(client);
        }
        self.audience.join(client);
        Ok(Arc::clone(&self.shared))
    }

    /// Whether it is known already that this client needs a connection of its own.
    fn cannot_share(&self, client: &Arc<dyn Client>) -> bool {
        let declares = || self.stateful.load(Ordering::Relaxed) || client.capabilities() != Json::empty_object();
        client.session().is_some() && self.legacy.load(Ordering::Relaxed) && declares()
    }

    fn own_line(&self, client: &Arc<dyn Client>) -> Result<Arc<Line>, SourceError> {
        let Some(session) = client.session() else { return Ok(Arc::clone(&self.shared)) };
        let mut own = self.own();
        if let Some(line) = own.get(session) {
            return Ok(Arc::clone(line));
        }
        if own.len() >= MAX_OWN {
            return Err(SourceError::Start(format!(
                "{MAX_OWN} sessions have a connection of their own to this source already; end one of them"
            )));
        }
        self.audience.leave(session);
        let line = Line::new(&self.vitals, Some((session.clone(), Arc::downgrade(client))));
        own.insert(session.clone(), Arc::clone(&line));
        Ok(line)
    }

    /// Remembers what a source is like that was met.
    fn learn(&self, legacy: bool, stateful: bool) {
        self.legacy.store(legacy, Ordering::Relaxed);
        self.stateful.fetch_or(stateful, Ordering::Relaxed);
    }

    /// Ends something that nobody waits for before the source is closed.
    fn close_later(&self, closing: impl Future<Output = ()> + Send + 'static) {
        // Dropped outside a runtime, it ends too, and nobody can wait for that.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut tasks = self.closing();
        tasks.retain(|task| !task.is_finished());
        tasks.push(runtime.spawn(closing));
    }

    fn closing(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        // The list is whole at every point at which a holder could panic.
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Line>>> {
        // The map is whole at every point at which a holder could panic.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
