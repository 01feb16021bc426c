//! One place where a connection is kept: one that sessions share, or that of one session.
//!
//! A line does nothing by itself. Whoever wants a connection starts its driver ([`super::drive`]) if none runs, and waits.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::connection::{Connection, Digests};
use super::held::Held;
use super::machine::{ATTEMPTS, Event, Machine, TIMEOUTS};
use crate::call::{SessionId, now_millis, without_last_words};
use crate::ledger::{self, Recorder};
use crate::name::SourceName;
use crate::source::link::{Opening, Subscribers};
use crate::source::{Discovery, SourceClient, SourceError, Status};
use crate::sync::{Mutex, MutexGuard};

/// What is told of a source as a whole.
pub(super) struct HealthCounters {
    pub(super) name: SourceName,
    pub(super) record: Recorder,
    /// Connections that could not be made or were lost, and questions whether it lives that it did not answer.
    pub(super) errors: AtomicU64,
    /// Milliseconds since the Unix epoch; 0 is never.
    pub(super) last_ping: AtomicI64,
    /// How often the source has said, over any connection, that a list has changed.
    pub(super) changes: Arc<AtomicU64>,
}

impl HealthCounters {
    pub(super) fn failed(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn lives(&self) {
        self.last_ping.store(i64::try_from(now_millis()).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}

/// For how long somebody waits who wants a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Not at all for a source that is known to be down, as another can be asked; else until the next attempt has failed.
    Elsewhere,
    /// Until the next attempt has failed; but not at all for a source that is known to be ill, as whoever lists begins without it.
    Look,
    /// Until the next attempt has failed.
    Attempt,
    /// Until the attempts are spent, if a connection ever stood: the source is known, and may be back soon.
    Reconnect,
}

/// What somebody gets who wants a connection.
pub(super) enum Wanted {
    /// This one, and what the source said when it was made, if nobody was told yet.
    Open(Arc<Connection>, Option<Discovery>),
    /// None.
    Refused(SourceError),
    /// Something will happen that is worth another look.
    Wait,
}

/// One place where a connection is kept.
pub(super) struct ConnectionSlot {
    counters: Arc<HealthCounters>,
    /// The session that it is for, or `None` for a shared one.
    whose: Option<Owner>,
    /// In which era its connections are made.
    opening: Opening,
    /// Who is told of changes, where it is shared.
    pub(super) subscribers: Arc<Subscribers>,
    kept: Mutex<Kept>,
    news: watch::Sender<()>,
}

/// The session that a line is for.
pub(super) struct Owner {
    pub(super) session: SessionId,
    /// Who opened the session.
    pub(super) principal: Arc<str>,
    pub(super) client: Weak<dyn SourceClient>,
}

/// How much a line is missed if it has to go: the less the earlier it goes. First those that their session waits for nothing from, and
/// of those the ones without a connection, and then whichever was not used for the longest time.
pub(super) type Worth = (bool, Option<Instant>);

#[derive(Default)]
struct Kept {
    machine: Machine,
    connection: Option<Arc<Connection>>,
    /// What the source said when that was made, for whoever waited for it.
    discovery: Option<Discovery>,
    /// Why the last attempt failed.
    error: Option<SourceError>,
    /// Attempts that failed, ever.
    failures: u64,
    /// The tools that whoever uses this line has reason to believe in. None before it was used, or if it was seen to fail.
    believed: Option<Digests>,
    driver: Option<JoinHandle<()>>,
    /// What the session asked of its connection and the next one must know.
    held: Held,
}

impl ConnectionSlot {
    pub(super) fn new(counters: &Arc<HealthCounters>, whose: Option<Owner>, opening: Opening) -> Arc<Self> {
        let (news, subscribers) = (watch::Sender::new(()), Arc::new(Subscribers::counting(&counters.changes)));
        Arc::new(Self { counters: Arc::clone(counters), whose, opening, subscribers, kept: Mutex::default(), news })
    }

    /// For whom a connection is made on this line if nobody in particular asks; None if its session has gone.
    pub(super) fn client(&self) -> Option<Arc<dyn SourceClient>> {
        match &self.whose {
            None => Some(Arc::new(crate::source::NoClient)),
            Some(owner) => owner.client.upgrade(),
        }
    }

    /// The session that it is for, or `None` for the shared one.
    pub(super) fn owner(&self) -> Option<&Owner> {
        self.whose.as_ref()
    }

    pub(super) fn is_shared(&self) -> bool {
        self.whose.is_none()
    }

    pub(super) fn opening(&self) -> Opening {
        self.opening
    }

    pub(super) fn status(&self) -> Status {
        self.kept().machine.status()
    }

    /// The connection that stands.
    pub(super) fn open(&self) -> Option<Arc<Connection>> {
        self.kept().connection.as_ref().filter(|connection| connection.link.is_open()).map(Arc::clone)
    }

    /// Whether the source answers nothing, and is being asked whether it lives.
    pub(super) fn is_doubted(&self) -> bool {
        self.kept().machine.is_doubted()
    }

    /// How much it is missed if it goes now. None if it is in use.
    pub(super) fn worth(&self) -> Option<Worth> {
        let kept = self.kept();
        let holds = kept.held.must_stay();
        match (&kept.connection, kept.machine.status()) {
            (Some(connection), _) => Some((holds, Some(connection.link.unused_since()?))),
            (None, Status::BackingOff | Status::Failed) => Some((holds, None)),
            (None, _) => None,
        }
    }

    /// What the session asked of its connection and the next one must know.
    pub(super) fn held(&self) -> Held {
        self.kept().held.clone()
    }

    /// Takes note of what the session has asked of its connection.
    pub(super) fn hold(&self, change: impl FnOnce(&mut Held)) {
        change(&mut self.kept().held);
    }

    /// Whether the connection must stay although nobody uses it.
    pub(super) fn must_stay(&self) -> bool {
        self.kept().held.must_stay()
    }

    /// Why there is no connection, if there was to be one.
    pub(super) fn error(&self) -> Option<String> {
        self.kept().error.as_ref().map(ToString::to_string)
    }

    pub(super) fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Attempts that failed so far.
    pub(super) fn failures(&self) -> u64 {
        self.kept().failures
    }

    /// Gives the connection, or says whether it is worth to wait for one. `seen` are the failures when the wait began. Where
    /// nobody works on it, `start` is asked for a driver.
    pub(super) fn want(&self, patience: Patience, seen: u64, start: impl FnOnce() -> JoinHandle<()>) -> Wanted {
        let mut kept = self.kept();
        if patience == Patience::Look && kept.machine.is_doubted() {
            return Wanted::Refused(SourceError::Closed(format!(
                "it has left {TIMEOUTS} requests in a row unanswered, and is started anew unless it answers a `ping`"
            )));
        }
        if let Some(connection) = kept.connection.as_ref().filter(|connection| connection.link.is_open()) {
            let connection = Arc::clone(connection);
            return Wanted::Open(connection, kept.discovery.take());
        }
        let error = || kept.error.clone().unwrap_or_else(|| SourceError::Closed("it did not start".to_owned()));
        match kept.machine.status() {
            Status::Stopped => {
                return Wanted::Refused(SourceError::Closed("the source was stopped".to_owned()));
            }
            // Open, and not to be tried yet.
            Status::Failed if kept.machine.not_before().is_some_and(|at| Instant::now() < at) => {
                let wait = kept.machine.not_before().map(|at| at.saturating_duration_since(Instant::now()));
                return Wanted::Refused(error().left_alone(ATTEMPTS, wait.unwrap_or_default()));
            }
            _ if kept.failures > seen && (patience != Patience::Reconnect || !kept.machine.met()) => {
                return Wanted::Refused(error());
            }
            _ => {}
        }
        let pauses = kept.machine.not_before().is_some_and(|at| Instant::now() < at);
        let refused = kept.error.clone().filter(|_| match patience {
            Patience::Elsewhere => true,
            // An attempt that is due is a new chance; of one that others wait for, nobody knows better than they.
            Patience::Look => pauses || kept.driver.is_some(),
            Patience::Attempt | Patience::Reconnect => false,
        });
        if kept.driver.is_none() {
            kept.driver = Some(start());
        }
        refused.map_or(Wanted::Wait, Wanted::Refused)
    }

    /// When the next connection may be begun; None if none ever.
    pub(super) fn turn(&self) -> Option<Instant> {
        let kept = self.kept();
        (kept.machine.status() != Status::Stopped).then(|| kept.machine.not_before().unwrap_or_else(Instant::now))
    }

    /// Whether the attempts are spent, so that the one that is begun is made from nothing.
    pub(super) fn is_last_try(&self) -> bool {
        self.kept().machine.is_last_try()
    }

    /// A connection is being made. False if none may be.
    pub(super) fn begin(&self, cause: &str) -> bool {
        self.note(&mut self.kept(), Event::Begun, cause)
    }

    /// A connection stands. What it means for those who use this line: whether they have reason to look again.
    pub(super) fn opened(&self, connection: &Arc<Connection>, discovery: Discovery) -> bool {
        let tools = connection.tools();
        let mut kept = self.kept();
        kept.error = None;
        kept.connection = Some(Arc::clone(connection));
        kept.discovery = Some(discovery);
        let again = kept.machine.met() || kept.failures > 0;
        let other = kept.believed.as_ref() != Some(&tools);
        kept.believed = Some(tools);
        self.note(&mut kept, Event::Opened, "connected") && again && other
    }

    /// The attempt came to nothing.
    pub(super) fn refused(&self, error: SourceError) {
        self.counters.failed();
        let cause = error.to_string();
        let mut kept = self.kept();
        kept.error = Some(error);
        kept.failures += 1;
        kept.believed = None;
        self.note(&mut kept, Event::Refused, &cause);
    }

    /// The connection is one that does not belong here.
    pub(super) fn handed_over(&self, cause: &str) {
        let mut kept = self.kept();
        kept.error = None;
        self.note(&mut kept, Event::HandedOver, cause);
    }

    /// The connection does not stand any more.
    pub(super) fn ended(&self, event: Event, cause: &str) {
        let mut kept = self.kept();
        (kept.connection, kept.discovery) = (None, None);
        kept.held.end();
        self.note(&mut kept, event, cause);
        // One that is made again at once has not failed.
        if matches!(kept.machine.status(), Status::BackingOff | Status::Failed) {
            self.counters.failed();
            kept.error = Some(SourceError::Closed(cause.to_owned()));
        }
    }

    /// Something that changes no connection.
    pub(super) fn noticed(&self, event: Event, cause: &str) {
        self.note(&mut self.kept(), event, cause);
    }

    /// The driver has nothing more to do. Whoever waits has to start another.
    pub(super) fn leave(&self) {
        self.kept().driver = None;
        self.news.send_replace(());
    }

    /// The driver of a connection that was made elsewhere.
    pub(super) fn driven_by(&self, driver: JoinHandle<()>) {
        self.kept().driver = Some(driver);
    }

    /// Puts another driver, which `start` makes, in the place of the one before it, and hands it that and the connection. From here
    /// on nobody gets that connection. Does nothing to a line that was stopped.
    pub(super) fn take_over(
        &self,
        start: impl FnOnce(Option<JoinHandle<()>>, Option<Arc<Connection>>) -> JoinHandle<()>,
    ) {
        let mut kept = self.kept();
        if kept.machine.status() == Status::Stopped {
            return;
        }
        let (before, connection) = (kept.driver.take(), kept.connection.take());
        kept.driver = Some(start(before, connection));
    }

    /// Ends it for good: answers that are waited for have `patience` to arrive. Idempotent.
    pub(super) async fn stop(&self, patience: Duration) {
        let (driver, connection) = self.cut("stopped");
        if let Some(driver) = driver {
            driver.abort();
            // Cancelled, most likely; what it was making is gone with it.
            let _ = driver.await;
        }
        if let Some(connection) = connection {
            connection.retire(patience).await;
        }
    }

    /// The same at once, where nobody can wait.
    pub(super) fn drop_all(&self) {
        let (driver, _) = self.cut("dropped");
        if let Some(driver) = driver {
            driver.abort();
        }
    }

    fn cut(&self, cause: &str) -> (Option<JoinHandle<()>>, Option<Arc<Connection>>) {
        let mut kept = self.kept();
        self.note(&mut kept, Event::Stopped, cause);
        (kept.driver.take(), kept.connection.take())
    }

    /// Lets the machine take an event, and records what came of it. Under the lock, so that the records stand in their order.
    fn note(&self, kept: &mut Kept, event: Event, cause: &str) -> bool {
        let Some(from) = kept.machine.on(event, Instant::now(), chance()) else { return false };
        let to = kept.machine.status();
        let cause = without_last_words(cause);
        tracing::debug!(source = %self.counters.name, from = from.as_str(), to = to.as_str(), cause, "a source");
        let body = json!({ "source": self.counters.name, "from": from.as_str(), "to": to.as_str(), "cause": cause });
        let event = ledger::Event::new(ledger::EventKind::SourceState, body);
        (self.counters.record)(match &self.whose {
            Some(owner) => event.in_run(&owner.session),
            None => event,
        });
        self.news.send_replace(());
        true
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock()
    }
}

/// From 0 to below 1. Where the system gives none, all wait as long as they may.
fn chance() -> f64 {
    let mut byte = [0];
    getrandom::fill(&mut byte).map_or(0.0, |()| f64::from(byte[0]) / 256.0)
}
