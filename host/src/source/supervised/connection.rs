//! One connection, and what it listed last.
//!
//! Invariant 7: a call goes out only if the connection it goes over has listed the very definition that the caller was
//! shown. A source that comes back with other tools, or lists others to somebody else, is not called on old terms.

use std::collections::HashMap;
use std::time::Duration;

use crate::call::Call;
use crate::digest::Digest;
use crate::item::ItemKind;
use crate::protocol::Json;
use crate::source::link::Link;
use crate::source::{Discovery, Listed, SourceError};
use crate::sync::{Mutex, MutexGuard};

/// The digest of each definition, by the source's own name for it.
pub(super) type Digests = HashMap<String, Digest>;

/// One connection, and what it listed last.
pub(super) struct Connection {
    pub(super) link: Link,
    /// Whether the source knows tasks, which end with the connection that began them.
    pub(super) has_tasks: bool,
    listed: Mutex<HashMap<ItemKind, Digests>>,
}

impl Connection {
    /// A connection that has just listed its tools.
    pub(super) fn new(link: Link, tools: &Listed) -> Self {
        let has_tasks = link.declares("tasks");
        Self { link, has_tasks, listed: Mutex::new(HashMap::from([(ItemKind::Tool, digests(ItemKind::Tool, tools))])) }
    }

    /// What the source says of itself now, with its tools.
    pub(super) async fn discover(&self) -> Result<Discovery, SourceError> {
        let discovery = self.link.discover().await?;
        self.note(ItemKind::Tool, &discovery.tools);
        Ok(discovery)
    }

    /// What it offers of one kind now.
    pub(super) async fn list(&self, kind: ItemKind) -> Result<Listed, SourceError> {
        let listed = self.link.list(kind).await?;
        self.note(kind, &listed);
        Ok(listed)
    }

    fn note(&self, kind: ItemKind, list: &Listed) {
        self.listed().insert(kind, digests(kind, list));
    }

    /// The tools that it listed last.
    pub(super) fn tools(&self) -> Digests {
        self.listed().get(&ItemKind::Tool).cloned().unwrap_or_default()
    }

    /// Why this call must not go out over this connection. What a resource is changes with what is in it; a tool or a
    /// prompt is what the caller was shown.
    pub(super) async fn objection(&self, call: &Call) -> Option<String> {
        let item = &call.item;
        if !matches!(item.kind, ItemKind::Tool | ItemKind::Prompt) {
            return None;
        }
        let look = || self.listed().get(&item.kind).map(|listed| listed.get(&*item.name).copied());
        let listed = match look() {
            Some(listed) => listed,
            None => match self.list(item.kind).await {
                Ok(_) => look().flatten(),
                Err(error) => return Some(error.to_string()),
            },
        };
        let changed = match listed {
            Some(digest) if digest == item.digest => return None,
            Some(_) => "has changed its definition",
            None => "no longer offers it",
        };
        Some(format!(
            "{} `{}` is not the one that this session was shown: source `{}` {changed} since; nothing was sent, and a new \
             session sees the source as it is now",
            item.kind.as_str(),
            item.name,
            call.source(),
        ))
    }

    /// Lets the answers that are waited for arrive, for at most `patience`, and ends.
    pub(super) async fn retire(&self, patience: Duration) {
        // Who still waits then is told that nothing is known.
        let _ = tokio::time::timeout(patience, self.link.drained()).await;
        self.link.close().await;
    }

    fn listed(&self) -> MutexGuard<'_, HashMap<ItemKind, Digests>> {
        self.listed.lock()
    }
}

fn digests(kind: ItemKind, list: &Listed) -> Digests {
    let digest = |item: &Json| Some((item.get_str(kind.key())?, Digest::of_json(item).ok()?));
    // Of a name that is listed twice the first counts, as it does in the catalog.
    list.items.iter().rev().filter_map(digest).collect()
}
