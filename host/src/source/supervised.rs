//! What all sources with a connection have in common: it is made when first needed, and made again when it has broken.
//!
//! Invariant 7: a call goes out only if the connection it goes over has listed the very definition that the caller was
//! shown. A source that comes back with other tools, or lists others to somebody else, is not called on old terms.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;

use super::link::{Deadlines, Link};
use super::{Discovery, Relay, SourceError};
use crate::call::{Call, Outcome};
use crate::digest::Digest;
use crate::gate::Permit;

/// How one connection is made.
#[async_trait]
pub(super) trait Dial: Send + Sync {
    /// Makes a connection. Cancellation safe: one that was half-way up is torn down.
    async fn dial(&self, deadlines: Deadlines) -> Result<(Link, Discovery), SourceError>;
}

/// A source behind one shared connection. Connects to nothing before the first discovery or call.
pub(super) struct Supervised<D> {
    pub(super) dial: D,
    pub(super) deadlines: Deadlines,
    pub(super) timeout: Duration,
    connection: Mutex<Option<Arc<Connection>>>,
    /// It was met, and speaks the older revisions: the probe is not sent again.
    legacy: AtomicBool,
}

impl<D: Dial> Supervised<D> {
    /// Calls get `timeout` each.
    pub(super) fn new(dial: D, timeout: Duration) -> Self {
        let (connection, legacy) = (Mutex::new(None), AtomicBool::new(false));
        Self { dial, deadlines: Deadlines::default(), timeout, connection, legacy }
    }

    pub(super) async fn discover(&self) -> Result<Discovery, SourceError> {
        let (connection, discovery) = self.connect().await?;
        let discovery = match discovery {
            Some(discovery) => discovery,
            None => connection.link.discover().await?,
        };
        connection.note(&discovery);
        Ok(discovery)
    }

    pub(super) async fn call(&self, permit: Permit, relay: Option<Relay>) -> Outcome {
        let mut first = true;
        loop {
            let connection = match self.connect().await {
                Ok((connection, _)) => connection,
                Err(error) => return Outcome::NotSent(error.to_string()),
            };
            if let Some(objection) = connection.objection(permit.call()) {
                return Outcome::NotSent(objection);
            }
            let link = &connection.link;
            let outcome = link.call(permit.method(), permit.source_params(), relay.as_ref(), self.timeout).await;
            // It had ended unnoticed, and the source surely never saw this call: nothing is replayed.
            let ended = matches!(outcome, Outcome::NotSent(_)) && !link.is_open();
            if !(ended && std::mem::take(&mut first)) {
                return outcome;
            }
        }
    }

    pub(super) async fn close(&self) {
        let connection = self.connection.lock().await.take();
        if let Some(connection) = connection {
            connection.link.close().await;
        }
    }

    /// The open connection, or a new one with what it said of itself.
    async fn connect(&self) -> Result<(Arc<Connection>, Option<Discovery>), SourceError> {
        // Held while it starts: whoever comes meanwhile waits for the same connection.
        let mut place = self.connection.lock().await;
        if let Some(connection) = place.as_ref().filter(|connection| connection.link.is_open()) {
            return Ok((Arc::clone(connection), None));
        }
        let (link, discovery) = self.start().await?;
        self.legacy.store(!link.is_modern(), Ordering::Relaxed);
        let connection = Arc::new(Connection { link, listed: std::sync::Mutex::default() });
        connection.note(&discovery);
        *place = Some(Arc::clone(&connection));
        Ok((connection, Some(discovery)))
    }

    async fn start(&self) -> Result<(Link, Discovery), SourceError> {
        let unprobed = Deadlines { probe: None, ..self.deadlines.clone() };
        if self.legacy.load(Ordering::Relaxed) {
            return self.dial.dial(unprobed).await;
        }
        match self.dial.dial(self.deadlines.clone()).await {
            // Older SDKs end the connection over any first message but `initialize`.
            Err(SourceError::Closed(why)) => {
                tracing::debug!(why, "a source ended when probed; connecting again without the probe");
                self.dial.dial(unprobed).await
            }
            opened => opened,
        }
    }
}

/// One connection, and what it listed last.
struct Connection {
    link: Link,
    /// The digest of each tool's definition, by the source's own name for it.
    listed: std::sync::Mutex<HashMap<String, Digest>>,
}

impl Connection {
    fn note(&self, discovery: &Discovery) {
        let digest = |tool: &crate::message::Json| Some((tool.get_str("name")?, Digest::of_json(tool).ok()?));
        let listed = discovery.tools.iter().filter_map(digest).collect();
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = listed;
    }

    /// Why this call must not go out over this connection.
    fn objection(&self, call: &Call) -> Option<String> {
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner).get(&*call.tool.name).copied();
        let changed = match listed {
            Some(digest) if digest == call.tool.digest => return None,
            Some(_) => "has changed its definition",
            None => "no longer offers it",
        };
        Some(format!(
            "tool `{}` is not the one that this session was shown: source `{}` {changed} since; nothing was sent, and a new \
             session sees the source as it is now",
            call.tool.name,
            call.source(),
        ))
    }
}
