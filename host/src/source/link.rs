//! One MCP connection to one source: requests out, answers and whatever is said meanwhile back, over any transport.
//!
//! A connection that several sessions share declares no client capabilities, so a source has nothing to ask of anybody: its
//! own requests are refused, because nothing tells for whom they are. One that belongs to a session puts them to its agent.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::transport::Transport;
use super::{Discovery, Listed, Relay, SourceClient, SourceError};
use crate::call::Outcome;
use crate::item::ItemKind;
use crate::name::SourceName;
use crate::protocol::meta::LOG_LEVEL;
use crate::protocol::{Era, Json, Message, Method, Notification};
use crate::sync::Mutex;

mod control_queue;
mod handshake;
mod meta;
mod pages;
mod pending;
mod route;
mod subscribers;
mod time;

use control_queue::ControlMessage;
use handshake::Agreed;
pub(crate) use handshake::{Deadlines, Opening};
use meta::Hop;
pub(crate) use pages::needed as pages_needed;
use pending::{Caller, Lost, Shared};
pub(crate) use subscribers::Subscribers;
pub(crate) use time::CallTime;

/// Short messages of our own (cancellations, answers to pings) that wait to be sent. Beyond it they are dropped: a source
/// that reads nothing would not read them either.
const MAX_CONTROL_MESSAGES: usize = 64;

/// How long a request may stay open whose point is to stay open. Ends before a counter of milliseconds does.
const FOR_GOOD: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// An open connection. Dropping it ends it.
pub(crate) struct Link {
    shared: Arc<Shared>,
    agreed: Agreed,
    deadlines: Deadlines,
    /// The least grave log messages that a legacy source was asked for last.
    level: tokio::sync::Mutex<Option<Json>>,
    tasks: [JoinHandle<()>; 2],
}

/// Why a connection does not stand any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    /// For people.
    pub(crate) why: String,
    /// The source has forgotten the session, and would open another.
    pub(crate) expired: bool,
}

/// What a connection is made for.
#[derive(Clone)]
pub(crate) struct Party {
    /// The source's configured name, for whoever is told what it says.
    pub(crate) source: SourceName,
    /// In which era the connection is made.
    pub(crate) opening: Opening,
    /// What is declared to a legacy source.
    pub(crate) capabilities: Json,
    /// What of an agent's `_meta` the source may have.
    pub(crate) context: Arc<[String]>,
    /// Whose the connection becomes if it cannot be shared.
    pub(crate) client: Option<Weak<dyn SourceClient>>,
    /// Who is told of changes where it is shared.
    pub(crate) subscribers: Arc<Subscribers>,
}

impl Link {
    /// Finds out which era the source speaks, agrees on a revision and lists the tools. Cancellation safe: dropping the
    /// future drops the connection. On an error the transport has been closed.
    ///
    /// # Errors
    /// [`SourceError`]; what the transport knows of an end is in [`Transport::exit_reason`].
    pub(crate) async fn open(
        transport: Arc<dyn Transport>,
        deadlines: Deadlines,
        party: Party,
    ) -> Result<(Self, Discovery), SourceError> {
        let whole = deadlines.whole;
        let (control_queue, queue) = mpsc::channel(MAX_CONTROL_MESSAGES);
        let shared = Arc::new(Shared {
            transport: Arc::clone(&transport),
            party,
            owner: OnceLock::new(),
            control_queue,
            pending: Mutex::default(),
            places: Arc::new(Semaphore::new(route::MAX_ASKED)),
            strays: AtomicU64::new(0),
            timed_out: AtomicU32::new(0),
            news: watch::Sender::new(()),
        });
        let tasks = [
            tokio::spawn(route::read(Arc::clone(&shared))),
            tokio::spawn(control_queue::run(Arc::clone(&transport), queue)),
        ];
        // From here on a dropped future drops the link, and so stops the tasks.
        let level = tokio::sync::Mutex::default();
        let mut link = Self { shared, agreed: Agreed::default(), deadlines, level, tasks };
        let opened = async {
            link.agreed = handshake::agree(&link.shared, &link.deadlines).await?;
            transport.agreed(&link.agreed.protocol);
            link.discover().await
        };
        match timeout(whole, opened)
            .await
            .unwrap_or_else(|_| Err(handshake::late(&ItemKind::Tool.list_method(), whole)))
        {
            Ok(discovery) => Ok((link, discovery)),
            Err(error) => {
                transport.close().await;
                Err(error)
            }
        }
    }

    /// Lists the tools anew.
    ///
    /// # Errors
    /// [`SourceError`] if the source does not answer, ends, lists too much, or answers with something else.
    pub(crate) async fn discover(&self) -> Result<Discovery, SourceError> {
        Ok(Discovery {
            server: self.agreed.server.clone(),
            protocol: self.agreed.protocol.clone(),
            capabilities: self.agreed.capabilities.clone(),
            instructions: self.agreed.instructions.clone(),
            tools: self.list(ItemKind::Tool).await?,
        })
    }

    /// Lists what the source offers of one kind.
    ///
    /// # Errors
    /// As for [`Link::discover`].
    pub(crate) async fn list(&self, kind: ItemKind) -> Result<Listed, SourceError> {
        let whole = self.deadlines.whole;
        let listing = handshake::list(&self.shared, &self.agreed, kind, self.deadlines.list);
        let mut listed = timeout(whole, listing).await.map_err(|_| handshake::late(&kind.list_method(), whole))??;
        if kind == ItemKind::Tool && self.is_modern() {
            listed.items = self.shared.transport.listed(listed.items);
        }
        Ok(listed)
    }

    /// Whether the connection is for one session alone: the source is a legacy one that was told what the session's agent
    /// can do, or that keeps something for each of its clients.
    pub(crate) fn has_owner(&self) -> bool {
        self.shared.owner.get().is_some()
    }

    /// Carries one request and waits for its answer until the call's time is over, not counting the time in which the source
    /// waits for the agent. Where it is over already, nothing is sent. `params` are the caller's; what this connection needs in `_meta` is put into them. Dropping the
    /// future tells the source that the call is cancelled.
    pub(crate) async fn call(
        &self,
        method: &Method,
        params: &Json,
        client: &Arc<dyn SourceClient>,
        relay: Relay,
        time: CallTime,
    ) -> Outcome {
        // Without it the call goes on and says less.
        let _ = timeout(time.left() / 2, self.set_level(params)).await;
        let left = if method == Method::SubscriptionsListen { FOR_GOOD } else { time.left() };
        if left.is_zero() {
            return Outcome::NotSent(time.is_over());
        }
        let (capabilities, level) = (client.capabilities(), client.log_level());
        let progress = relay.token.is_some();
        let dress = |id| {
            let context = &self.shared.party.context;
            let hop = Hop { era: self.agreed.era, capabilities: &capabilities, level: level.as_ref(), context };
            meta::dress(params, &hop, progress.then_some(id))
        };
        let caller = Caller { session: client.session().cloned(), relay };
        match self.shared.request(method, dress, Some(caller), left).await {
            Ok(answer) => Outcome::Answered(answer),
            Err(Lost::NotSent(why)) => Outcome::NotSent(why),
            Err(Lost::Timeout) => Outcome::Unknown(format!(
                "no answer to `{method}` within {} s; the source may have acted or not",
                time.whole.as_secs_f32()
            )),
            Err(Lost::Broken(why)) => Outcome::Unknown(why),
        }
    }

    /// A modern caller says with each call how much it wants to be told; a legacy source is asked once and remembers.
    async fn set_level(&self, params: &Json) {
        let wanted = params.get("_meta").and_then(|caller| caller.get(LOG_LEVEL));
        let Some(wanted) = wanted.filter(|_| !self.is_modern() && self.declares("logging")) else { return };
        let mut level = self.level.lock().await;
        if level.as_ref() == Some(&wanted) {
            return;
        }
        let params = Json::empty_object().with("level", &wanted).unwrap_or_else(Json::empty_object);
        // One that does not answer is not asked by each call.
        *level = Some(wanted);
        let _ = self.shared.request(&Method::LoggingSetLevel, |_| params, None, self.deadlines.list).await;
    }

    /// Sends a request of the session again that an earlier connection has answered. What is answered now is not looked at.
    pub(crate) async fn repeat(&self, method: Method, params: Json) {
        let _ = self.shared.request(&method, |_| params, None, self.deadlines.list).await;
    }

    /// What was declared to the source, if it is a legacy one.
    pub(crate) fn declared(&self) -> &Json {
        &self.shared.party.capabilities
    }

    /// Sends a notification of the client's agent, and waits until it has left, for at most `timeout`.
    pub(crate) async fn notify(
        &self,
        method: &Method,
        params: &Json,
        client: &Arc<dyn SourceClient>,
        timeout: Duration,
    ) -> Result<(), SourceError> {
        let capabilities = client.capabilities();
        let context = &self.shared.party.context;
        let hop = Hop { era: self.agreed.era, capabilities: &capabilities, level: None, context };
        let params = Some(meta::dress(params, &hop, None));
        let message = Message::Notification(Notification { method: method.clone(), params });
        let sent = tokio::time::timeout(timeout, self.shared.transport.send(&message)).await;
        sent.map_err(|_| handshake::late(method, timeout))?.map_err(|error| {
            self.shared.broke(&error);
            SourceError::Closed(error.to_string())
        })
    }

    /// Sends a notification when the source takes it.
    pub(crate) fn tell(&self, notification: Notification) {
        self.shared.send_soon(Message::Notification(notification));
    }

    /// Whether the connection still stands, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        let pending = self.shared.pending();
        pending.ended.is_none() && pending.broken.is_none()
    }

    /// Waits until the connection does not stand any more, and says why. Cancellation safe.
    pub(crate) async fn ended(&self) -> Ended {
        self.until(|pending| {
            let why = pending.ended.as_ref().or(pending.broken.as_ref())?.clone();
            Some(Ended { why, expired: pending.expired })
        })
        .await
    }

    /// Waits until no answer is waited for any more. Cancellation safe.
    pub(crate) async fn drained(&self) {
        self.shared.pending().draining = true;
        self.until(|pending| (pending.ended.is_some() || pending.awaited() == 0).then_some(())).await;
    }

    /// Waits until the number of requests in a row that had no answer in time is another than `seen`, and gives it. Cancellation
    /// safe.
    pub(crate) async fn timed_out(&self, seen: u32) -> u32 {
        self.until(|_| Some(self.shared.timed_out.load(Ordering::Relaxed)).filter(|now| *now > 0 && *now != seen)).await
    }

    /// When it was used last; now, if it is in use, be it for a subscription.
    pub(crate) fn used(&self) -> Instant {
        self.unused_since().unwrap_or_else(Instant::now)
    }

    /// When it was used last. None if it is in use, be it for a subscription or a question of the source.
    pub(crate) fn unused_since(&self) -> Option<Instant> {
        let pending = self.shared.pending();
        let in_use = pending.slots.values().any(|slot| slot.awaited || slot.caller.is_some());
        (!in_use && pending.asked.is_empty()).then(|| pending.used.unwrap_or_else(Instant::now))
    }

    /// Asks the source whether it lives; any answer says that it does. What has no `ping` any more (2026-07-28) is asked
    /// what it is.
    ///
    /// # Errors
    /// [`SourceError`] if nothing comes within `deadline`, or the connection has ended.
    pub(crate) async fn ping(&self, deadline: Duration) -> Result<(), SourceError> {
        let hop = Hop::quiet(self.agreed.era);
        let method = if self.is_modern() { Method::ServerDiscover } else { Method::Ping };
        let dressed = |_| meta::dress(&Json::empty_object(), &hop, None);
        match self.shared.request(&method, dressed, None, deadline).await {
            Ok(_) => Ok(()),
            Err(lost) => Err(handshake::explain(&method, deadline, lost)),
        }
    }

    /// Whether a legacy source keeps something for each of its clients, so that each needs a connection of its own.
    pub(crate) fn keeps_state(&self) -> bool {
        !self.is_modern() && handshake::keeps_state(&self.agreed.capabilities)
    }

    async fn until<T>(&self, found: impl Fn(&pending::Pending) -> Option<T>) -> T {
        let mut news = self.shared.news.subscribe();
        loop {
            if let Some(found) = found(&self.shared.pending()) {
                return found;
            }
            // The sender stands beside what is looked at.
            let _ = news.changed().await;
        }
    }

    /// Whether the source speaks 2026-07-28.
    pub(crate) fn is_modern(&self) -> bool {
        self.agreed.era == Era::Modern
    }

    /// Whether the source has this capability.
    pub(crate) fn declares(&self, capability: &str) -> bool {
        self.agreed.capabilities.get(capability).is_some()
    }

    /// Waits until what was to be said beside calls has left, such as that one is cancelled. Cancellation safe.
    pub(crate) async fn said(&self) {
        let (done, said) = oneshot::channel();
        // An error is the end of the connection: nothing more can be said.
        if self.shared.control_queue.send(ControlMessage::Said(done)).await.is_ok() {
            let _ = said.await;
        }
    }

    /// Ends the connection. Calls that wait end as unknown.
    pub(crate) async fn close(&self) {
        self.shared.transport.close().await;
        self.shared.end("the connection to the source was closed");
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        for task in self.shared.pending().asked.values() {
            task.abort();
        }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("protocol", &self.agreed.protocol).field("open", &self.is_open()).finish()
    }
}

#[cfg(test)]
mod tests;
