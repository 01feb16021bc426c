//! The lists of a source, page by page.
//!
//! Specification: MCP 2026-07-28 and 2025-11-25, "Tools" and "Pagination".

use std::collections::HashSet;
use std::time::Duration;

use super::handshake::{HandshakeResult, explain, refused};
use super::meta::{RequestFacts, with_facts};
use super::pending::McpConnectionState;
use crate::call::Cause;
use crate::item::ItemKind;
use crate::limits::{MAX_DEFINITION_BYTES, MAX_ITEMS_PER_SOURCE, MAX_TOOLS_PER_SOURCE};
use crate::protocol::{Answer, AskingMembers, Json};
use crate::source::{ListedDefinitions, SourceError};

/// The most pages of one list. A source may list one tool a page, up to this.
const MAX_PAGES: usize = 500;

/// The largest list of one kind, in bytes of all its pages together.
const MAX_LIST_BYTES: usize = 64 * 1024 * 1024;

/// Fetches all pages of a list.
pub(super) async fn list(
    shared: &McpConnectionState,
    agreed: &HandshakeResult,
    kind: ItemKind,
    deadline: Duration,
) -> Result<ListedDefinitions, SourceError> {
    let (method, limit) = match kind {
        ItemKind::Tool => (kind.list_method(), MAX_TOOLS_PER_SOURCE),
        _ => (kind.list_method(), MAX_ITEMS_PER_SOURCE),
    };
    let declared = agreed.capabilities.get(capability_of(kind)).is_some();
    if !declared && kind != ItemKind::Tool {
        return Ok(ListedDefinitions::default());
    }
    let (mut items, mut ttl_ms, mut public, mut other_members) = (Vec::new(), u64::MAX, true, None);
    let (mut cursors, nothing, mut listed) = (HashSet::new(), Json::of(&[(); 0]), 0_usize);
    let mut params = Json::empty_object();
    for _ in 0..MAX_PAGES {
        let with_facts = |_| with_facts(&params, &RequestFacts::of_broker(agreed.era), None);
        let page = match shared.request(&method, with_facts, None, deadline).await {
            Ok(Answer::Result(page)) => page,
            // Tools are listed even if they are not declared, because some servers forget to declare them; and some
            // servers with resources do not know templates.
            Ok(Answer::Error(_)) if !declared || kind == ItemKind::Template => return Ok(ListedDefinitions::default()),
            Ok(Answer::Error(error)) => return Err(refused(&method, &error)),
            Err(lost) => return Err(explain(&method, deadline, lost)),
        };
        listed = listed.saturating_add(page.as_bytes().len());
        if listed > MAX_LIST_BYTES {
            let why = format!("the source's list of {} has more than {MAX_LIST_BYTES} bytes", kind.member());
            return Err(SourceError::Protocol(Cause::own(why)));
        }
        // A kept item must not keep the rest of its page alive. Items that are too large are not kept, and are named.
        let kept = |item: Json| if item.as_bytes().len() > MAX_DEFINITION_BYTES { item } else { item.detached() };
        items.extend(items_of(kind, &page)?.into_iter().map(kept));
        let others = || page.edited(&[(kind.member(), Some(&nothing)), ("nextCursor", None)]);
        // A list asks nobody: a member that a parser may take for a question is left out with all other members besides
        // the items.
        let small = |all: &Json| all.as_bytes().len() <= MAX_DEFINITION_BYTES;
        let kept = |all: &Json| small(all) && !AskingMembers::of(all, |_, _| {}).asks();
        other_members = other_members.or_else(|| others().filter(kept));
        public &= page.get_str("cacheScope").as_deref() == Some("public");
        ttl_ms = ttl_ms.min(page.get("ttlMs").and_then(|ttl| ttl.read().ok()).unwrap_or(0));
        if items.len() > limit {
            let why = format!("the source lists more than {limit} {}", kind.member());
            return Err(SourceError::Protocol(Cause::own(why)));
        }
        // The SDKs take an empty cursor for none, and servers that always send one rely on it.
        let Some(cursor) = page.get("nextCursor").filter(|cursor| !matches!(cursor.as_str(), "null" | "\"\"")) else {
            return Ok(ListedDefinitions { items, ttl_ms, public, other_members });
        };
        params = Json::empty_object().with("cursor", &cursor).unwrap_or_else(Json::empty_object);
        if !cursors.insert(cursor) {
            let what = kind.member();
            let why = format!("the source's list of {what} never ends: it gave the same `nextCursor` twice");
            return Err(SourceError::Protocol(Cause::own(why)));
        }
    }
    let why = format!("the source's list of {} has more than {MAX_PAGES} pages", kind.member());
    Err(SourceError::Protocol(Cause::own(why)))
}

/// Returns the capability that a source declares if it can list items of this kind.
fn capability_of(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Tool => "tools",
        ItemKind::Prompt => "prompts",
        ItemKind::Resource | ItemKind::Template | ItemKind::Source => "resources",
    }
}

fn items_of(kind: ItemKind, page: &Json) -> Result<Vec<Json>, SourceError> {
    let items = page.get(kind.member()).and_then(|list| list.items());
    items.ok_or_else(|| {
        let (method, member) = (kind.list_method(), kind.member());
        SourceError::Protocol(Cause::own(format!("the source's answer to `{method}` holds no list `{member}`")))
    })
}
