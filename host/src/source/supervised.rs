//! What all sources with a connection have in common: it is made when first needed, and made again when it has broken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;

use super::link::{Deadlines, Link};
use super::{Discovery, Relay, SourceError};
use crate::call::Outcome;
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
    link: Mutex<Option<Arc<Link>>>,
    /// It was met, and speaks the older revisions: the probe is not sent again.
    legacy: AtomicBool,
}

impl<D: Dial> Supervised<D> {
    /// Calls get `timeout` each.
    pub(super) fn new(dial: D, timeout: Duration) -> Self {
        let (link, legacy) = (Mutex::new(None), AtomicBool::new(false));
        Self { dial, deadlines: Deadlines::default(), timeout, link, legacy }
    }

    pub(super) async fn discover(&self) -> Result<Discovery, SourceError> {
        match self.connect().await? {
            (_, Some(discovery)) => Ok(discovery),
            (link, None) => link.discover().await,
        }
    }

    pub(super) async fn call(&self, permit: Permit, relay: Option<Relay>) -> Outcome {
        let mut first = true;
        loop {
            let link = match self.connect().await {
                Ok((link, _)) => link,
                Err(error) => return Outcome::NotSent(error.to_string()),
            };
            let outcome = link.call(permit.method(), permit.source_params(), relay.as_ref(), self.timeout).await;
            // It had ended unnoticed, and the source surely never saw this call: nothing is replayed.
            let ended = matches!(outcome, Outcome::NotSent(_)) && !link.is_open();
            if !(ended && std::mem::take(&mut first)) {
                return outcome;
            }
        }
    }

    pub(super) async fn close(&self) {
        let link = self.link.lock().await.take();
        if let Some(link) = link {
            link.close().await;
        }
    }

    /// The open connection, or a new one with what it said of itself.
    async fn connect(&self) -> Result<(Arc<Link>, Option<Discovery>), SourceError> {
        // Held while it starts: whoever comes meanwhile waits for the same connection.
        let mut place = self.link.lock().await;
        if let Some(link) = place.as_ref().filter(|link| link.is_open()) {
            return Ok((Arc::clone(link), None));
        }
        let (link, discovery) = self.start().await?;
        self.legacy.store(!link.is_modern(), Ordering::Relaxed);
        let link = Arc::new(link);
        *place = Some(Arc::clone(&link));
        Ok((link, Some(discovery)))
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
