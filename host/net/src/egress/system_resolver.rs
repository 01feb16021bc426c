//! The system's resolver, on separate threads.
//!
//! `getaddrinfo` blocks its thread for as long as the name server is silent, which may be half a minute, and nothing
//! can interrupt it. The operator of a source's host runs its name server, too. Therefore lookups take none of the
//! threads that the rest of the broker shares, and each source has its own [`SystemResolver`], so that the names of one
//! source hold up only its own lookups.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use portcullis_core::sync::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::NameResolver;

/// The largest number of names that one resolver looks up at once, each on its own thread. A program that starts may
/// look for all its hosts at the same moment, and an answer takes milliseconds; further names wait for a place.
const MAX_LOOKUPS: usize = 8;

/// Bytes of the stack of a thread that looks up a name, enough for `getaddrinfo` and the modules of the name service.
const STACK_BYTES: usize = 512 << 10;

/// The function that looks up a name, and blocks meanwhile.
type BlockingLookup = Arc<dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// The addresses of a name, or why there are none: an error of the system cannot be cloned for each caller.
type SharedAnswer = Result<Vec<SocketAddr>, (io::ErrorKind, String)>;

/// The system's resolver: `/etc/hosts`, DNS, and whatever else the machine is configured with.
///
/// It looks up a name once at a time: callers that ask for a name which is being looked up get the same answer. A
/// caller that waits for a place waits until it drops its future. The lookup then continues, also for the remaining
/// callers.
pub(super) struct SystemResolver {
    lookup: BlockingLookup,
    places: Arc<Semaphore>,
    /// The lookups that have no answer yet. They belong to their callers and threads.
    pending: Mutex<HashMap<String, Weak<PendingLookup>>>,
}

/// One lookup of a name, which all callers share that ask for the name meanwhile.
struct PendingLookup {
    /// The sender of the answer, until a thread has taken it.
    unstarted: Mutex<Option<watch::Sender<Option<SharedAnswer>>>>,
    answer: watch::Receiver<Option<SharedAnswer>>,
}

impl SystemResolver {
    /// Returns a resolver without threads. It starts one for each lookup.
    pub(super) fn new() -> Self {
        // Each caller has its own port.
        Self::by(Arc::new(|name: &str| Ok((name, 0).to_socket_addrs()?.collect())))
    }

    /// Returns a resolver that looks up names with another function.
    fn by(lookup: BlockingLookup) -> Self {
        Self { lookup, places: Arc::new(Semaphore::new(MAX_LOOKUPS)), pending: Mutex::default() }
    }

    /// Returns the lookup of a name that has no answer yet, or else a new one.
    fn pending(&self, name: &str) -> Arc<PendingLookup> {
        let mut pending = self.pending.lock();
        let open = pending.get(name).and_then(Weak::upgrade).filter(|lookup| lookup.answer.borrow().is_none());
        open.unwrap_or_else(|| {
            pending.retain(|_, lookup| lookup.strong_count() > 0);
            let (sender, answer) = watch::channel(None);
            let lookup = Arc::new(PendingLookup { unstarted: Mutex::new(Some(sender)), answer });
            pending.insert(name.to_owned(), Arc::downgrade(&lookup));
            lookup
        })
    }
}

#[async_trait]
impl NameResolver for SystemResolver {
    async fn lookup(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let pending = self.pending(name);
        let mut answer = pending.answer.clone();
        let waited = async {
            let answered = answer.wait_for(Option::is_some).await.ok().and_then(|answered| answered.clone());
            answered.unwrap_or_else(|| Err((io::ErrorKind::Other, "the lookup could not be made".to_owned())))
        };
        tokio::pin!(waited);
        let answered = tokio::select! {
            biased;
            answered = &mut waited => answered,
            place = Arc::clone(&self.places).acquire_owned(), if pending.is_unstarted() => {
                // The semaphore is never closed. Another caller may have started the lookup meanwhile.
                if let Ok(place) = place {
                    pending.start(name, Arc::clone(&self.lookup), place)?;
                }
                waited.await
            }
        };
        let addresses = answered.map_err(|(kind, cause)| io::Error::new(kind, cause))?;
        let with_port = |mut address: SocketAddr| {
            address.set_port(port);
            address
        };
        Ok(addresses.into_iter().map(with_port).collect())
    }
}

impl PendingLookup {
    fn is_unstarted(&self) -> bool {
        self.unstarted.lock().is_some()
    }

    /// Starts the thread that looks up the name and holds the place meanwhile, unless the lookup was started before.
    fn start(self: &Arc<Self>, name: &str, lookup: BlockingLookup, place: OwnedSemaphorePermit) -> io::Result<()> {
        let Some(sender) = self.unstarted.lock().take() else { return Ok(()) };
        // The thread keeps the lookup, so that it is found by callers who come after the first ones have given up.
        let (pending, name) = (Arc::clone(self), name.to_owned());
        let work = move || {
            let answer = lookup(&name).map_err(|error| (error.kind(), error.to_string()));
            // Nobody may be waiting any more.
            let _ = sender.send(Some(answer));
            drop((pending, place));
        };
        std::thread::Builder::new().name("resolver".to_owned()).stack_size(STACK_BYTES).spawn(work).map(drop)
    }
}

#[cfg(test)]
mod tests;
