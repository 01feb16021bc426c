//! Asks the sources of a session what they offer, without waiting for one that fails or is slow.
//!
//! A session waits a few seconds for a source that it can do without, or that was discovered before. A list that such a
//! source sends later is added when it arrives ([`super::tool_refresh`]). A required source that was never discovered
//! is waited for until it is installed and started: without it there is no session.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::list_records::ListRecorder;
use crate::call::Cause;
use crate::context::{DiscoveredSource, MAX_REMARKS, OfferedItems, Upstream};
use crate::digest::Digest;
use crate::item::{Item, ItemKind};
use crate::ledger::EventKind;
use crate::name::SourceName;
use crate::source::{SourceClient, SourceError};

/// The longest time that a session waits for a source that it can begin without: an interpreter has started by then,
/// and no agent has given up.
pub(super) const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// The items of one kind that a source has listed.
#[derive(Debug, Clone)]
pub(super) struct ListedItems {
    pub(super) offer: OfferedItems,
    /// The result of discovery, if the items are tools.
    pub(super) discovered: Option<DiscoveredSource>,
    /// The time at which the source listed them.
    pub(super) at: Instant,
    /// True if the source listed these to an earlier session, and has not answered this one.
    pub(super) old: bool,
}

/// The result of asking a source. The cause of a failure names the source.
#[derive(Debug, Clone)]
pub(super) struct ListResult {
    pub(super) upstream: Arc<Upstream>,
    pub(super) listed: Result<ListedItems, Cause>,
}

impl ListResult {
    /// Reports whether this is the result of the source of this name.
    pub(super) fn is_of(&self, source: &SourceName) -> bool {
        self.upstream.config.name == *source
    }
}

/// A source that is still being asked.
pub(super) struct PendingSource {
    pub(super) upstream: Arc<Upstream>,
    pub(super) kind: ItemKind,
    pub(super) listed: BoxFuture<'static, Result<ListedItems, SourceError>>,
}

/// The results of asking all sources, in their order, and the sources that are still being asked.
#[derive(Default)]
pub(super) struct DiscoveryResults {
    pub(super) answered: Vec<ListResult>,
    pub(super) pending: Vec<PendingSource>,
}

/// Asks sources in parallel, and records the result of each: `mcp.connected` for tools, `mcp.listed` for the other
/// kinds unless the list is empty, `mcp.error` for a failure.
pub(super) async fn ask_all(
    upstreams: Vec<Arc<Upstream>>,
    records: &ListRecorder,
    client: &Arc<dyn SourceClient>,
    kind: ItemKind,
) -> DiscoveryResults {
    let asked = upstreams.iter().map(|upstream| ask(upstream, client, kind));
    let listed = join_all(asked).await;
    let mut asked = DiscoveryResults::default();
    for (upstream, (listed, pending)) in upstreams.into_iter().zip(listed) {
        let listed = noted(records, kind, &upstream, listed);
        asked.answered.push(ListResult { upstream, listed });
        asked.pending.extend(pending);
    }
    asked
}

async fn ask(
    upstream: &Arc<Upstream>,
    client: &Arc<dyn SourceClient>,
    kind: ItemKind,
) -> (Result<ListedItems, SourceError>, Option<PendingSource>) {
    let required = upstream.config.required;
    let before = if kind == ItemKind::Tool { upstream.cached_discovery(client) } else { None };
    let before = before.map(|discovered| ListedItems {
        offer: discovered.tools.clone(),
        discovered: Some(discovered),
        at: Instant::now(),
        old: true,
    });
    let mut listed = question(upstream, client, kind);
    if required && before.is_none() {
        return (listed.await, None);
    }
    match (timeout(DISCOVERY_TIMEOUT, &mut listed).await, before) {
        (Ok(Err(error)), Some(before)) if upstream.is_coming_back() => {
            let source = &upstream.config.name;
            tracing::warn!(%source, %error, "a session begins with what a source listed before, as the source fails now");
            (Ok(before), None)
        }
        (Ok(listed), _) => (listed, None),
        (Err(_), before) => {
            let unlisted = || {
                SourceError::Start(Cause::own(format!(
                    "it did not list what it offers within {} s; the session begins without it, and adds it as soon as it has",
                    DISCOVERY_TIMEOUT.as_secs()
                )))
            };
            let pending = PendingSource { upstream: Arc::clone(upstream), kind, listed };
            (before.ok_or_else(unlisted), Some(pending))
        }
    }
}

/// Asks one source, however long it takes.
pub(super) fn question(
    upstream: &Arc<Upstream>,
    client: &Arc<dyn SourceClient>,
    kind: ItemKind,
) -> BoxFuture<'static, Result<ListedItems, SourceError>> {
    let (upstream, client) = (Arc::clone(upstream), Arc::clone(client));
    Box::pin(async move {
        if kind != ItemKind::Tool {
            let offer = upstream.list(&client, kind).await?;
            return Ok(ListedItems { offer, discovered: None, at: Instant::now(), old: false });
        }
        let discovered = upstream.discover(&client).await?;
        let offer = discovered.tools.clone();
        Ok(ListedItems { offer, discovered: Some(discovered), at: Instant::now(), old: false })
    })
}

/// Records what a source listed, or the cause of its failure.
pub(super) fn noted(
    records: &ListRecorder,
    kind: ItemKind,
    upstream: &Upstream,
    listed: Result<ListedItems, SourceError>,
) -> Result<ListedItems, Cause> {
    let name = &upstream.config.name;
    match listed {
        Ok(listed) => {
            if !listed.old {
                record_listed(records, kind, upstream, &listed.offer);
            }
            Ok(listed)
        }
        Err(error) => {
            let cause = error.into_cause().under(format!("source `{name}`: "));
            let required = upstream.config.required;
            let body = json!({ "source": name, "error": cause.recorded(), "required": required });
            records.record(EventKind::McpError, name.as_str(), body);
            tracing::warn!(source = %name, required, "{cause}");
            Err(cause)
        }
    }
}

/// Records each definition of tools and prompts, and one digest of all items of the other kinds, as there may be
/// thousands.
fn record_listed(records: &ListRecorder, kind: ItemKind, upstream: &Upstream, offer: &OfferedItems) {
    let (source, identity, count) = (&upstream.config.name, upstream.identity, offer.items.len());
    let named = |item: &Arc<Item>| json!({ kind.as_str(): &*item.name, "definition": item.digest });
    let (event, body) = match kind {
        ItemKind::Tool => {
            let tools: Vec<_> = offer.items.iter().map(named).collect();
            let mut body = json!({ "source": source, "identity": identity, "count": count, "tools": tools });
            if let Some(body) = body.as_object_mut().filter(|_| !offer.remarks.is_empty()) {
                body.insert("remarks".to_owned(), json!(offer.remarks.iter().take(MAX_REMARKS).collect::<Vec<_>>()));
            }
            (EventKind::McpConnected, body)
        }
        _ if count == 0 => return,
        ItemKind::Prompt => {
            let prompts: Vec<_> = offer.items.iter().map(named).collect();
            (EventKind::McpListed, json!({ "source": source, "count": count, "prompts": prompts }))
        }
        ItemKind::Resource | ItemKind::Template | ItemKind::Source => {
            let digests: String = offer.items.iter().map(|item| item.digest.to_string()).collect();
            let digest = Digest::of(digests.as_bytes());
            let body = json!({ "source": source, "kind": kind.as_str(), "count": count, "digest": digest });
            (EventKind::McpListed, body)
        }
    };
    records.record(event, &format!("{source} {}", kind.as_str()), body);
}
