//! The supervision of sources with a connection: a connection is made when it is first needed, watched, and made again
//! when it has broken.
//!
//! [`machine`] says when a connection may be tried, a [`slot`] is a place where one is kept, and [`drive`] is the task
//! that makes and watches it. A source has one shared connection slot, and one for each session that cannot share.
//! [`eras`] says in which era of the protocol a connection is made; a source that speaks both may have a second shared
//! slot, which legacy agents use.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, join_all};
use tokio::time::timeout_at;

use super::link::{CallTime, Deadlines, Link, Party};
use super::{
    ConcurrencyLimit, DRAIN_DEADLINE, Discovery, Health, Listed, Relay, Source, SourceClient, SourceError, Status,
};
use crate::call::{Outcome, SessionId};
use crate::config::{Lifecycle, SourceConfig};
use crate::gate::Permit;
use crate::item::ItemKind;
use crate::ledger::Recorder;
use crate::name::SourceName;
use crate::protocol::{Era, Notification};
use common::Core;
use connection::Connection;
use drive::{Begin, drive};
use slot::{ConnectionSlot, Patience, Wanted};

mod common;
mod connection;
mod drive;
mod eras;
mod held;
mod known;
mod machine;
mod own;
mod slot;

/// The way to make a connection to one source.
#[async_trait]
pub(crate) trait Dial: Send + Sync + std::fmt::Debug + 'static {
    /// Makes a connection. Cancellation safe: an incomplete connection is torn down.
    async fn dial(&self, deadlines: Deadlines, party: Party) -> Result<(Link, Discovery), SourceError>;

    /// Waits, when the source is closed, for work that must not be cut off.
    async fn settle(&self) {}
}

/// The settings by which a source is supervised.
pub(crate) struct SupervisionConfig {
    pub(crate) name: SourceName,
    /// The time limit of each call.
    pub(crate) timeout: Duration,
    pub(crate) concurrency: ConcurrencyLimit,
    pub(crate) lifecycle: Lifecycle,
    /// How long an unused connection is kept.
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
    pub(crate) record: Recorder,
}

impl SupervisionConfig {
    pub(crate) fn of(config: &SourceConfig, record: Recorder) -> Self {
        Self {
            name: config.name.clone(),
            timeout: config.timeout,
            concurrency: ConcurrencyLimit::new(&config.name, config.places),
            lifecycle: config.lifecycle,
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
pub(crate) struct Supervised<D> {
    core: Arc<Core<D>>,
}

impl<D: Dial> Supervised<D> {
    pub(super) fn of(supervision: SupervisionConfig, dial: D) -> Self {
        Self { core: Arc::new(Core::new(supervision, dial)) }
    }

    /// Returns the parts that tests change, before anything is connected.
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
    async fn discover(&self, client: &Arc<dyn SourceClient>) -> Result<Discovery, SourceError> {
        if self.core.supervision.lifecycle == Lifecycle::PerCall {
            return Ok(self.core.single(client).await?.1);
        }
        if let Some(discovery) = self.core.known_to(client) {
            return Ok(discovery);
        }
        self.over(client, |connection, said| match said {
            Some(discovery) => Box::pin(std::future::ready(Ok(discovery))),
            None => Box::pin(connection.discover()),
        })
        .await
    }

    async fn list(&self, client: &Arc<dyn SourceClient>, kind: ItemKind) -> Result<Listed, SourceError> {
        if self.core.supervision.lifecycle == Lifecycle::PerCall {
            let (single, _) = self.core.single(client).await?;
            return single.connection.link.list(kind).await;
        }
        self.over(client, move |connection, _| Box::pin(connection.list(kind))).await
    }

    async fn call(&self, permit: Permit, client: &Arc<dyn SourceClient>, relay: Relay) -> Outcome {
        let core = &self.core;
        let time = CallTime::of(core.timeout);
        let _turn = match core.supervision.concurrency.turn(permit.method(), time.until).await {
            Ok(turn) => turn,
            Err(busy) => return Outcome::NotSent(busy),
        };
        if core.supervision.lifecycle == Lifecycle::PerCall {
            let single = match timeout_at(time.until, core.single(client)).await {
                Ok(Ok((single, _))) => single,
                Ok(Err(error)) => return Outcome::NotSent(error.into_cause()),
                Err(_) => return Outcome::NotSent(time.is_over()),
            };
            return core.send_call(&single.connection, &permit, client, relay, time).await;
        }
        let others = permit.call().attempt.is_some_and(|attempt| attempt.others);
        let patience = if others { Patience::Elsewhere } else { Patience::Reconnect };
        let mut first = true;
        loop {
            let connection = match timeout_at(time.until, self.connect(client, patience)).await {
                Ok(Ok((connection, _))) => connection,
                Ok(Err(error)) => return Outcome::NotSent(error.into_cause()),
                Err(_) => return Outcome::NotSent(time.is_over()),
            };
            let outcome = core.send_call(&connection, &permit, client, relay.clone(), time).await;
            if connection.link.has_owner() {
                core.note_held(client, &connection, &permit, &outcome);
            }
            // The connection had ended unnoticed, and the source certainly did not act on this call, so sending it
            // again is no replay.
            let ended = matches!(outcome, Outcome::NotSent(_)) && !connection.link.is_open();
            if !(ended && std::mem::take(&mut first)) {
                return outcome;
            }
        }
    }

    async fn notify(&self, permit: Permit, client: &Arc<dyn SourceClient>) -> Result<(), SourceError> {
        let core = &self.core;
        // Without a connection it was surely not sent.
        let failed = |error: SourceError| SourceError::Start(error.into_cause());
        let (method, params) = (permit.method(), permit.source_params());
        if core.supervision.lifecycle == Lifecycle::PerCall {
            let (single, _) = core.single(client).await.map_err(failed)?;
            return single.connection.link.notify(method, params, client, core.timeout).await;
        }
        let mut first = true;
        loop {
            let (connection, _) = self.connect(client, Patience::Attempt).await.map_err(failed)?;
            let told = connection.link.notify(method, params, client, core.timeout).await;
            // As for a call: what was certainly not sent may be sent again.
            let unsent = matches!(&told, Err(error) if !matches!(error, SourceError::Timeout { .. }));
            if !(unsent && !connection.link.is_open() && std::mem::take(&mut first)) {
                return told;
            }
        }
    }

    fn tell(&self, session: &SessionId, notification: Notification) {
        let line = self.core.own().get(session).cloned();
        // A connection that is still being made needs no notification: the source will ask later and get the current
        // state.
        if let Some(connection) = line.and_then(|line| line.open()) {
            connection.link.tell(notification);
        }
    }

    fn end_session(&self, session: &SessionId) {
        self.core.shared_lines().for_each(|line| line.subscribers.leave(session));
        let line = self.core.own().remove(session);
        let Some(line) = line else { return };
        self.core.close_later(async move { line.stop(Duration::ZERO).await });
    }

    fn only_era(&self) -> Option<Era> {
        self.core.eras.only()
    }

    fn health(&self) -> Health {
        let core = &self.core;
        let own = core.own().placed();
        let lines = || own.iter().chain(core.shared_lines());
        Health {
            status: Status::of_all(lines().map(|line| line.status())),
            connected: lines().any(|line| line.open().is_some()),
            last_ping: u64::try_from(core.counters.last_ping.load(Ordering::Relaxed)).ok().filter(|at| *at > 0),
            error_count: core.counters.errors.load(Ordering::Relaxed),
            error: lines().find_map(|line| line.error()),
        }
    }

    async fn ping(&self) {
        let own = self.core.own().placed();
        let open = own.iter().chain(self.core.shared_lines()).filter_map(|line| Some((line, line.open()?)));
        let pings = open.map(async |(line, connection)| match drive::ping(&self.core, &connection).await {
            None => line.noticed(machine::Event::Answered, &"it answers again".into()),
            Some(why) => line.noticed(machine::Event::Silent, &why),
        });
        join_all(pings).await;
    }

    async fn restart(&self, cause: &str, patience: Duration) -> Result<Status, SourceError> {
        let core = &self.core;
        core.forget();
        for line in core.own().placed() {
            // Other sessions' connections are made when they are needed.
            core.end(&line, machine::Event::Restarted, cause, DRAIN_DEADLINE, line.must_stay());
        }
        let shared: Vec<_> = core.shared_lines().cloned().collect();
        let wanted = |line: &&Arc<ConnectionSlot>| line.status() != Status::Idle || core.wants(line);
        let restarted = shared.iter().filter(wanted).map(|line| {
            core.end(line, machine::Event::Restarted, cause, DRAIN_DEADLINE, true);
        });
        if restarted.count() == 0 {
            return Ok(Status::Idle);
        }
        let nobody: Arc<dyn SourceClient> = Arc::new(super::NoClient);
        match tokio::time::timeout(patience, self.connect(&nobody, Patience::Attempt)).await {
            Ok(connected) => connected.map(|_| Status::Ready),
            Err(_) => Ok(core.main_line().status()),
        }
    }

    async fn close(&self) {
        let core = &self.core;
        let own = core.own().drain();
        core.closes.send_replace(true);
        join_all(own.iter().chain(core.shared_lines()).map(|line| line.stop(DRAIN_DEADLINE))).await;
        let closing = std::mem::take(&mut *core.closing());
        join_all(closing).await;
        core.dial.settle().await;
    }
}

impl<D: Dial> Supervised<D> {
    /// Does work over a connection that may be repeated. If the connection turns out to have ended, the work is
    /// repeated once over a new one: a source that has forgotten a session says so only when it gets a request.
    async fn over<T>(
        &self,
        client: &Arc<dyn SourceClient>,
        work: impl for<'a> Fn(&'a Connection, Option<Discovery>) -> BoxFuture<'a, Result<T, SourceError>>,
    ) -> Result<T, SourceError> {
        // Without a session, the caller wants to know the result of the next attempt.
        let patience = if client.session().is_some() { Patience::Look } else { Patience::Attempt };
        let (connection, said) = self.connect(client, patience).await?;
        match work(&connection, said).await {
            Err(_) if !connection.link.is_open() => {
                let (connection, said) = self.connect(client, patience).await?;
                work(&connection, said).await
            }
            done => done,
        }
    }

    /// Returns the open connection for a client, or a new one with what the source said of itself.
    async fn connect(
        &self,
        client: &Arc<dyn SourceClient>,
        patience: Patience,
    ) -> Result<(Arc<Connection>, Option<Discovery>), SourceError> {
        let core = &self.core;
        let mut waited: Option<(Arc<ConnectionSlot>, u64)> = None;
        loop {
            let line = core.line_for(client, patience);
            if waited.is_none()
                && !(patience == Patience::Look && line.is_doubted())
                && let Some(connection) = line.open()
            {
                return Ok((connection, None));
            }
            if line.open().is_none() {
                core.place(&line)?;
            }
            let mut news = line.news();
            let seen = match &waited {
                // The attempt may have shown that the source cannot be shared: then the slot is another.
                Some((before, seen)) if Arc::ptr_eq(before, &line) => *seen,
                _ => line.failures(),
            };
            let start = || {
                let begin = Begin::Attempt(core.made_for(client, &line));
                tokio::spawn(drive(Arc::clone(core), Arc::clone(&line), begin))
            };
            match line.want(patience, seen, start) {
                Wanted::Open(connection, discovery) => return Ok((connection, discovery)),
                Wanted::Refused(error) => return Err(error),
                Wanted::Wait => {}
            }
            // Never an error: the slot holds the sender.
            let _ = news.changed().await;
            waited = Some((line, seen));
        }
    }
}

impl<D> Drop for Supervised<D> {
    fn drop(&mut self) {
        let own = self.core.own().drain();
        own.iter().for_each(|line| line.drop_all());
        self.core.shared_lines().for_each(|line| line.drop_all());
        self.core.closing().drain(..).for_each(|task| task.abort());
    }
}

impl<D: std::fmt::Debug> std::fmt::Debug for Supervised<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.core.dial.fmt(f)
    }
}

#[cfg(test)]
mod tests;
