//! One connection, and the digests of what the source listed last over it.
//!
//! Invariant 7: a call is sent over a connection only if the source has listed over it exactly the definition that the
//! caller was shown. A source that comes back with other tools, or lists other tools to another client, is not called
//! under the earlier definitions.

use std::collections::HashMap;
use std::time::Duration;

use crate::call::{Call, Cause};
use crate::digest::Digest;
use crate::item::ItemKind;
use crate::protocol::{Era, Json};
use crate::source::mcp_connection::McpConnection;
use crate::source::{Discovery, ListedDefinitions, SourceError};
use crate::sync::{Mutex, MutexGuard};

/// The digest of each definition, by the source's own name for the item.
type DefinitionDigests = HashMap<String, Digest>;

/// The digests of lists, by their kind.
pub(super) type ListDigests = HashMap<ItemKind, DefinitionDigests>;

/// The lists that the sessions using a slot know from its last connection.
pub(super) enum KnownLists {
    /// Lists that nobody knows: an attempt to connect has failed since.
    Unknown,
    /// The lists with these digests.
    Of(ListDigests),
}

/// One connection, and the digests of what the source listed last over it.
pub(super) struct Connection {
    pub(super) mcp: McpConnection,
    /// True if the source supports tasks, which end with the connection that began them.
    pub(super) has_tasks: bool,
    listed: Mutex<ListDigests>,
}

/// The reason why a call must not be sent over a connection.
pub(super) struct Objection {
    pub(super) cause: Cause,
    /// The list of the caller that the source does not stand by any more, if that is the reason.
    pub(super) outdated: Option<ItemKind>,
}

impl Connection {
    /// Returns a connection over which the tools have just been listed.
    pub(super) fn new(mcp: McpConnection, tools: &ListedDefinitions) -> Self {
        let has_tasks = mcp.declares("tasks");
        Self { mcp, has_tasks, listed: Mutex::new(HashMap::from([(ItemKind::Tool, digests(ItemKind::Tool, tools))])) }
    }

    /// Lists the tools again, and returns them with the source's description of itself.
    pub(super) async fn discover(&self) -> Result<Discovery, SourceError> {
        let discovery = self.mcp.discover().await?;
        self.remember_digests(ItemKind::Tool, &discovery.tools);
        Ok(discovery)
    }

    /// Lists the items of one kind again.
    pub(super) async fn list(&self, kind: ItemKind) -> Result<ListedDefinitions, SourceError> {
        let listed = self.mcp.list(kind).await?;
        self.remember_digests(kind, &listed);
        Ok(listed)
    }

    fn remember_digests(&self, kind: ItemKind, list: &ListedDefinitions) {
        self.listed().insert(kind, digests(kind, list));
    }

    /// Returns the digests of what was listed last.
    pub(super) fn lists(&self) -> ListDigests {
        self.listed().clone()
    }

    /// Returns the kinds of those lists that are others now. One that the source does not give counts as another.
    pub(super) async fn differing(&self, before: ListDigests) -> Vec<ItemKind> {
        let mut differing = Vec::new();
        for (kind, before) in before {
            let is_listed = self.listed().contains_key(&kind) || self.list(kind).await.is_ok();
            if !is_listed || self.listed().get(&kind) != Some(&before) {
                differing.push(kind);
            }
        }
        differing
    }

    /// Returns the reason why this call must not be sent over this connection, if there is one. Only tools and prompts
    /// must be as the caller was shown: the description of a resource may change with its content. `era` is that of the
    /// caller's agent.
    pub(super) async fn objection(&self, call: &Call, era: Option<Era>) -> Option<Objection> {
        let item = &call.item;
        if !matches!(item.kind, ItemKind::Tool | ItemKind::Prompt) {
            return None;
        }
        let look = || self.listed().get(&item.kind).map(|listed| listed.get(&*item.name).copied());
        let listed = match look() {
            Some(listed) => listed,
            None => match self.list(item.kind).await {
                Ok(_) => look().flatten(),
                Err(error) => return Some(Objection { cause: error.into_cause(), outdated: None }),
            },
        };
        let changed = match listed {
            Some(digest) if digest == item.digest => return None,
            Some(_) => "has changed its definition",
            None => "no longer offers it",
        };
        // A modern agent has no session that it could begin anew, and tools alone are a snapshot.
        let way_out = match item.kind {
            ItemKind::Tool if era != Some(Era::Modern) => "a new session sees the source as it is now",
            _ => "list again to see the source as it is now",
        };
        let cause = Cause::own(format!(
            "{} `{}` is not the one that this session was shown: source `{}` {changed} since; nothing was sent; {way_out}",
            item.kind.as_str(),
            item.name,
            call.source(),
        ));
        Some(Objection { cause, outdated: Some(item.kind) })
    }

    /// Waits at most `drain_time` for the awaited answers, and closes the connection.
    pub(super) async fn retire(&self, drain_time: Duration) {
        // Calls that still wait then end as unknown.
        let _ = tokio::time::timeout(drain_time, self.mcp.drained()).await;
        self.mcp.close().await;
    }

    fn listed(&self) -> MutexGuard<'_, ListDigests> {
        self.listed.lock()
    }
}

fn digests(kind: ItemKind, list: &ListedDefinitions) -> DefinitionDigests {
    let digest = |item: &Json| Some((item.get_str(kind.key())?, Digest::of_json(item).ok()?));
    // If a name is listed twice, the first definition counts, as in the catalog.
    list.items.iter().rev().filter_map(digest).collect()
}
