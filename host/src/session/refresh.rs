//! What a session does when a source says that its tools have changed.
//!
//! A session keeps the tools that it began with, unless the source is `discovery = "live"`: then it takes that source's tools
//! anew, and its agent is told what it can see for itself. Calls that are under way are about the definitions that they began
//! with, and go on.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;

use super::listing::{self, Listing};
use super::{Era, Session};
use crate::catalog::Kind;
use crate::ledger;
use crate::message::Notification;

/// After one refresh the next begins no sooner: a list that changes all the time costs one discovery a second.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a refresh waits for a source: as long as it has to connect. Then the session keeps what it has of it.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Names of each sort that a log line shows; the ledger has all.
const SHOWN: usize = 16;

pub(super) const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

/// Whether tools are being taken anew.
#[derive(Default)]
pub(super) struct Refresh(Mutex<Stage>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    Quiet,
    Running,
    /// And once more after that: another change came meanwhile.
    Again,
}

impl Refresh {
    /// Whether whoever asks is to begin.
    fn begin(&self) -> bool {
        let mut stage = self.lock();
        let quiet = *stage == Stage::Quiet;
        *stage = if quiet { Stage::Running } else { Stage::Again };
        quiet
    }

    /// Whether whoever has just refreshed is to do it again.
    fn goes_on(&self) -> bool {
        let mut stage = self.lock();
        let again = *stage == Stage::Again;
        *stage = if again { Stage::Running } else { Stage::Quiet };
        again
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        // Every value is valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// Takes the tools of live sources anew, soon, and however often it is asked meanwhile, once.
    pub(super) fn refresh(&self) {
        if !self.refresh.begin() {
            return;
        }
        let me = self.me.clone();
        tokio::spawn(async move {
            loop {
                let Some(session) = me.upgrade().filter(|session| !session.ended()) else { return };
                session.take_anew().await;
                // A session that ends meanwhile is held by nobody.
                drop(session);
                tokio::time::sleep(PAUSE).await;
                if !me.upgrade().is_some_and(|session| session.refresh.goes_on()) {
                    return;
                }
            }
        });
    }

    async fn take_anew(&self) {
        // What was not decided yet needs no refresh.
        let Some(Ok(before)) = self.lock_tools().get().cloned() else { return };
        let client = self.client();
        let after = match listing::take_after(&before, &self.broker, &self.caller, &self.profile, &client).await {
            Ok(after) => Arc::new(after),
            Err(error) => return tracing::warn!(error, "a session keeps the tools that it has"),
        };
        let change = Change::between(&before, &after);
        if change.is_none() {
            return tracing::info!("a source says that its tools have changed, and they have not");
        }
        let Change { added, removed, changed } = &change;
        let shown = |names: &BTreeSet<Arc<str>>| names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(" ");
        tracing::warn!(
            added = shown(added),
            removed = shown(removed),
            changed = shown(changed),
            "the tools of a session have changed"
        );
        let all = |names: &BTreeSet<Arc<str>>| names.iter().map(|name| json!(&**name)).collect::<Vec<_>>();
        let body = json!({ "added": all(added), "removed": all(removed), "changed": all(changed) });
        self.record(ledger::Kind::ListChanged, body);
        *self.lock_tools() = Arc::new(tokio::sync::OnceCell::new_with(Some(Ok(after))));
        let told = Notification { method: TOOLS_CHANGED.to_owned(), params: None };
        match self.agent.era {
            Era::Legacy => self.outlet.offer(told),
            Era::Modern => self.listeners.tell(&told),
        }
    }
}

/// What is different, by exposed name.
#[derive(Debug, Default, PartialEq, Eq)]
struct Change {
    added: BTreeSet<Arc<str>>,
    removed: BTreeSet<Arc<str>>,
    changed: BTreeSet<Arc<str>>,
}

impl Change {
    fn between(before: &Listing, after: &Listing) -> Self {
        let mut change = Self::default();
        for shown in after.items() {
            let name = shown.item.exposed.clone();
            match before.get(&name) {
                None => change.added.insert(name),
                Some(old) if old.item.digest != shown.item.digest => change.changed.insert(name),
                Some(_) => continue,
            };
        }
        let gone = before.items().filter(|shown| after.get(&shown.item.exposed).is_none());
        change.removed = gone.map(|shown| shown.item.exposed.clone()).collect();
        change
    }

    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// That the tool with this name was there, and is not any more.
pub(super) fn removed(kind: Kind, name: &str) -> String {
    format!(
        "{} `{name}` was removed by its source since it was listed; nothing was sent, and a new list shows what there is",
        kind.as_str()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_changes_come_meanwhile_one_more_refresh_follows() {
        let refresh = Refresh::default();
        assert!(refresh.begin());
        assert!(!refresh.begin() && !refresh.begin());
        assert!(refresh.goes_on());
        assert!(!refresh.goes_on());
        assert!(refresh.begin());
    }
}
