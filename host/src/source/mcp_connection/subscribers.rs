//! The sessions that are notified when a source changes what it offers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::call::SessionId;
use crate::name::SourceName;
use crate::protocol::Notification;
use crate::source::SourceClient;
use crate::sync::Mutex;

/// The sessions that are notified when a source changes what it offers.
#[derive(Default)]
pub(crate) struct Subscribers {
    members: Mutex<Members>,
    /// The number of times that the source has said that a list has changed, over this connection and those that share
    /// the counter.
    changes: Arc<AtomicU64>,
}

#[derive(Default)]
struct Members {
    sessions: HashMap<SessionId, Weak<dyn SourceClient>>,
    /// The number of sessions that have ever joined.
    ever: usize,
}

impl Subscribers {
    /// Returns an empty set of sessions that shares its counter of changes with others.
    pub(crate) fn counting(changes: &Arc<AtomicU64>) -> Self {
        Self { members: Mutex::default(), changes: Arc::clone(changes) }
    }

    /// Notifies a client of changes from now on.
    pub(crate) fn join(&self, client: &Arc<dyn SourceClient>) {
        let Some(session) = client.session() else { return };
        let mut members = self.members.lock();
        if members.sessions.insert(session.clone(), Arc::downgrade(client)).is_none() {
            members.ever += 1;
        }
    }

    /// Stops notifying a session.
    pub(crate) fn leave(&self, session: &SessionId) {
        self.members.lock().sessions.remove(session);
    }

    /// Reports whether at most one session has ever joined: then everything that the source sends is for that one.
    pub(super) fn had_one_session(&self) -> bool {
        self.members.lock().ever <= 1
    }

    /// Returns the only session that has ever joined.
    pub(super) fn only_session(&self) -> Option<Arc<dyn SourceClient>> {
        let members = self.members.lock();
        members.sessions.values().next().filter(|_| members.ever == 1).and_then(Weak::upgrade)
    }

    /// Counts a change of a list.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Reports whether any session is still notified.
    pub(crate) fn listens(&self) -> bool {
        self.members.lock().sessions.values().any(|client| client.strong_count() > 0)
    }

    /// Sends a notification to all sessions, and waits until each has taken it.
    pub(crate) async fn notify(&self, source: &SourceName, notification: &Notification) {
        let clients: Vec<_> = self.members.lock().sessions.values().filter_map(Weak::upgrade).collect();
        let told = clients.iter().map(|client| client.notify(source.as_str(), notification.clone()));
        futures_util::future::join_all(told).await;
    }

    /// Returns a session that is notified of changes, by its id.
    pub(super) fn session(&self, session: &SessionId) -> Option<Arc<dyn SourceClient>> {
        self.members.lock().sessions.get(session).and_then(Weak::upgrade)
    }
}
