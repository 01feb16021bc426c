//! The requests that the command line of the same user may make of a live broker over its control socket. Agents never
//! reach this.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Broker, Inner, lock_comparison};
use crate::context::{Context, Upstream};
use crate::control::{
    ControlError, ControlHandler, ControlRefusal, ControlReply, ControlRequest, ControlSocket, LocalConnection,
};
use crate::gate::{AnswerRoute, GivenAnswer, InboxError};
use crate::ledger::{Event, EventKind, LedgerTrouble};
use crate::name::ProfileName;

/// The longest time that a source may take to come back before the operator learns that it is not connected yet: less
/// than [`control::DEADLINE`](crate::control::DEADLINE).
const RESTART_TIMEOUT: Duration = Duration::from_secs(8);

/// The largest number of connections for sessions that wait to be taken.
const MAX_WAITING: usize = 16;

/// The most bytes of the list of questions; each question gets an equal share.
const MAX_LIST_BYTES: usize = 1024 * 1024;

/// The most bytes of a part of a question's arguments.
const MAX_PART_BYTES: usize = 256 * 1024;

/// Opens the control socket.
pub(super) fn listen(inner: &Arc<Inner>) -> Result<ControlSocket, ControlError> {
    let operated = Arc::new(OperatedBroker(Arc::downgrade(inner)));
    ControlSocket::serve(&inner.context().config.data_dir, inner.core.ledger.chain(), operated)
}

/// A broker as its control socket knows it. Weak, as a socket must not keep alive a broker that was dropped without
/// being closed.
struct OperatedBroker(Weak<Inner>);

impl ControlHandler for OperatedBroker {
    fn answer(&self, request: ControlRequest) -> BoxFuture<'_, ControlReply> {
        Box::pin(async move {
            let inner = self.0.upgrade().ok_or_else(|| ControlRefusal::Error("the broker is going away".to_owned()))?;
            answer(&inner, request).await
        })
    }

    fn connected(&self, connection: LocalConnection) {
        let Some(inner) = self.0.upgrade() else { return };
        let waiting = inner.local_connections.lock().clone();
        if waiting.is_none_or(|waiting| waiting.try_send(connection).is_err()) {
            tracing::warn!("a session of the command line is refused: too many wait to be served");
        }
    }
}

impl Broker {
    /// Returns the connections of programs of the same user that ask for a session over the control socket, to be
    /// served by a front ([`serve_local`](crate::front::stdio::serve_local)). An earlier receiver gets no more
    /// connections.
    #[doc(hidden)]
    #[must_use]
    pub fn local_connections(&self) -> mpsc::Receiver<LocalConnection> {
        let (out, connections) = mpsc::channel(MAX_WAITING);
        *self.inner.local_connections.lock() = Some(out);
        connections
    }
}

async fn answer(inner: &Inner, request: ControlRequest) -> ControlReply {
    match request {
        ControlRequest::Status => Ok(status(inner).await),
        ControlRequest::Questions => Ok(json!(inner.core.inbox.list_within(MAX_LIST_BYTES))),
        ControlRequest::Show { question, from } => {
            let part = inner.core.inbox.part(&question, from, MAX_PART_BYTES);
            part.map(|part| json!(part)).map_err(|error| unanswered(&error))
        }
        ControlRequest::Answer { question, approve, scope, until, by } => {
            let answer = GivenAnswer { approve, scope, until };
            let answered = inner.core.inbox.answer(&question, &answer, &by, AnswerRoute::Person).await;
            answered.map(|answered| json!(answered)).map_err(|error| unanswered(&error))
        }
        ControlRequest::Restart { source, by } => restart(inner, &source, &by).await,
        ControlRequest::Clear { session, by } => clear(inner, &session, &by).await,
        ControlRequest::Session { profile, config } => may_connect(inner, &profile, &config),
        ControlRequest::Definitions { kind } => lock_comparison::compare(inner, kind).await,
        ControlRequest::Accept { source, kind, definitions, by } => {
            lock_comparison::accept(inner, &source, kind, &definitions, &by).await
        }
    }
}

/// Returns the refusal of a request about a question. Another broker may have a question that this one does not know.
fn unanswered(error: &InboxError) -> ControlRefusal {
    match error {
        InboxError::Unknown(_) => ControlRefusal::Absent(error.to_string()),
        _ => ControlRefusal::Error(error.to_string()),
    }
}

/// Reports whether a session over the control socket can be served.
fn may_connect(inner: &Inner, profile: &ProfileName, config: &str) -> ControlReply {
    let context = inner.context();
    if inner.local_connections.lock().as_ref().is_none_or(mpsc::Sender::is_closed) {
        return Err(ControlRefusal::Absent("this broker serves no sessions over its control socket".to_owned()));
    }
    if context.digest.to_string() != config {
        return Err(ControlRefusal::Absent("this broker runs with another configuration".to_owned()));
    }
    if !context.profiles.contains_key(profile) {
        return Err(ControlRefusal::Absent(format!("no profile `{profile}` is configured in this broker")));
    }
    Ok(json!({ "chain": context.ledger.chain() }))
}

/// Ends a source and starts it again. Returns the state that it then has.
async fn restart(inner: &Inner, source: &str, by: &str) -> ControlReply {
    let context = inner.context();
    let upstream = upstream_named(&context, source)?;
    tracing::warn!(source, by, "a source is restarted");
    let restarted = upstream.restart(&format!("restarted by {by}"), RESTART_TIMEOUT).await;
    let status = restarted.map_err(|error| ControlRefusal::Error(format!("source `{source}`: {error}")))?;
    Ok(json!({ "source": source, "state": status.as_str() }))
}

/// Returns the source of this name, or the refusal that lists the sources.
pub(super) fn upstream_named<'a>(context: &'a Context, source: &str) -> Result<&'a Arc<Upstream>, ControlRefusal> {
    let found = context.upstreams.values().find(|upstream| upstream.config.name.as_str() == source);
    found.ok_or_else(|| {
        let known: Vec<_> = context.upstreams.keys().map(|name| format!("`{name}`")).collect();
        ControlRefusal::Absent(format!(
            "no source {source:?} is configured in this broker; its sources are {}",
            known.join(", ")
        ))
    })
}

/// Clears what a session has seen. The record is written first.
async fn clear(inner: &Inner, session: &str, by: &str) -> ControlReply {
    let live = inner.live_sessions().into_iter().find(|live| live.caller().session.as_str() == session);
    let live = live.ok_or_else(|| {
        ControlRefusal::Absent(format!("this broker has no session {session:?}; `portcullis status --json` lists them"))
    })?;
    let event = Event::new(EventKind::SessionCleared, json!({ "by": by })).in_run(&live.caller().session);
    let recorded = inner.context().ledger.append(event).await;
    recorded.map_err(|error| ControlRefusal::Error(format!("the ledger cannot record it: {error}")))?;
    Ok(json!({ "session": session, "labels": live.clear_flow() }))
}

async fn status(inner: &Inner) -> Value {
    let sessions: Vec<_> = inner
        .live_sessions()
        .iter()
        .map(|session| {
            let caller = session.caller();
            json!({
                "id": caller.session.as_str(),
                "principal": &*caller.principal,
                "profile": caller.profile,
                "client": &*caller.client,
            })
        })
        .collect();
    let context = inner.context();
    let trouble = context.ledger.trouble();
    let refusing = trouble.map(|LedgerTrouble { error, lost }| json!({ "reason": error.to_string(), "lost": lost }));
    let lock = context.lockfile_or_empty().await;
    let state = context.state(&lock);
    let of = |upstream: &Arc<Upstream>| {
        let mut status = upstream.status(&lock);
        if let Some(members) = status.as_object_mut() {
            members.insert("off".to_owned(), json!(context.off_tools(upstream, &lock)));
        }
        status
    };
    let sources: Vec<_> = context.upstreams.values().map(of).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "chain": context.ledger.chain(),
        "config": context.config.file,
        "dataDir": context.config.data_dir,
        "configDigest": context.digest,
        "configRefused": *inner.refused.lock(),
        "refusing": refusing,
        "uptimeSeconds": inner.started.elapsed().as_secs(),
        "sources": sources,
        "disabled": context.config.disabled.keys().collect::<Vec<_>>(),
        "total_tools": state.total_tools,
        "total_quarantined": state.total_quarantined,
        "last_discovery": state.last_discovery,
        "receivers": inner.core.receivers.states(),
        "sessions": sessions,
        "asks": inner.core.inbox.len(),
    })
}
