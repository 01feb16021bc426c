//! Compares the definitions that sources list with the lock file, for people who decide what to accept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::definitions::everything;
use super::operator::upstream_named;
use super::{Broker, BuildError, Inner};
use crate::context::{Context, FlagState, FlaggedDefinition, Upstream};
use crate::control::{ControlRefusal, ControlReply, ListedDefinition};
use crate::digest::Digest;
use crate::item::{Item, ItemKind};
use crate::ledger::{Event, EventKind};
use crate::lockfile::{Acceptance, Lockfile, pin};
use crate::name::SourceName;

/// The longest time that a running broker takes to list what its sources offer: less than
/// [`control::DEADLINE`](crate::control::DEADLINE). Earlier lists come from memory.
const LIST_TIMEOUT: Duration = Duration::from_secs(8);

/// The definitions that sources list, compared with the lock file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LockComparison {
    /// The definitions: every tool, and those prompts, resources and templates that were asked for, were accepted
    /// before, or have findings.
    pub definitions: Vec<ComparedDefinition>,
    /// The sources that do not answer, and why.
    pub missing: BTreeMap<SourceName, String>,
    /// The kinds that a source does not list, and why.
    pub unlisted: Vec<(SourceName, ItemKind, String)>,
}

/// A definition that a source lists, compared with the lock file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComparedDefinition {
    /// The source.
    pub source: SourceName,
    /// The kind of the item; [`ItemKind::Source`] for the source's instructions.
    pub kind: ItemKind,
    /// The name, URI or URI template at the source. Escape it before showing it.
    pub name: String,
    /// The name, URI or URI template that agents see. Escape it before showing it.
    pub exposed: String,
    /// The digest of the definition.
    pub digest: Digest,
    /// True if the source says that the tool may destroy something or reach beyond the source, or does not deny it.
    pub may_do_harm: bool,
    /// The state of the definition in the lock file.
    pub state: LockState,
    /// The lines that describe the changes since it was accepted, if any.
    pub changes: Vec<String>,
    /// The consequence of the scanner's findings in it, if any.
    pub flag: Option<FlagState>,
    /// The [`FlaggedDefinition`] as JSON, if the scanner found something.
    pub flagged: Option<Value>,
}

impl ComparedDefinition {
    /// Returns the pin that names exactly this definition: the source, `@` and the digest.
    #[must_use]
    pub fn pin(&self) -> String {
        pin(&self.source, self.digest)
    }
}

/// The state of a definition in the lock file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LockState {
    /// No definition of the item was accepted.
    New,
    /// Exactly this definition was accepted.
    Accepted,
    /// Another definition of the item was accepted.
    Changed,
}

impl Broker {
    /// Discovers every configured source in parallel, and compares what each lists with the lock file. `kind` is the
    /// kind of item to return in full.
    ///
    /// # Errors
    /// [`BuildError::Lock`] if the lock file is damaged.
    #[doc(hidden)]
    pub async fn compare_with_lock(&self, kind: ItemKind) -> Result<LockComparison, BuildError> {
        let context = self.inner.context();
        let definitions = self.definitions().await;
        let lock = context.lock.current().await?;
        let mut compared = LockComparison::default();
        for (source, found) in definitions {
            match (found, context.upstreams.get(&source)) {
                (Ok(found), Some(upstream)) => {
                    compared.add(upstream, &found.items, &lock, kind);
                    let errors = found.list_errors.into_iter();
                    compared.unlisted.extend(errors.map(|(kind, error)| (source.clone(), kind, error.to_string())));
                }
                (Err(error), _) => drop(compared.missing.insert(source, error.to_string())),
                (Ok(_), None) => {}
            }
        }
        Ok(compared)
    }

    /// Accepts these definitions, as a source listed them last, into the lock file, records each, and applies the lock
    /// file to the sessions that are open. That also releases those that are quarantined. `kind` is listed for it,
    /// besides tools and flagged items.
    ///
    /// # Errors
    /// [`ControlRefusal::Absent`] if there is no such source. [`ControlRefusal::Error`] if the source does not list one
    /// of the definitions any more, or the lock file or the ledger cannot be read or written; then nothing is accepted.
    #[doc(hidden)]
    pub async fn accept_listed(
        &self,
        source: &SourceName,
        kind: ItemKind,
        definitions: &[ListedDefinition],
        by: &str,
    ) -> Result<(), ControlRefusal> {
        accept(&self.inner, source.as_str(), kind, definitions, by).await.map(drop)
    }
}

impl LockComparison {
    fn add(&mut self, upstream: &Upstream, items: &[Arc<Item>], lock: &Lockfile, wanted: ItemKind) {
        let flagged = upstream.flagged(lock);
        for item in items {
            let is_it = |flagged: &&FlaggedDefinition| flagged.kind == item.kind && flagged.definition == item.digest;
            let flagged = flagged.iter().find(is_it);
            let (state, changes) = match lock.of(item, upstream.identity) {
                Acceptance::Unknown => (LockState::New, Vec::new()),
                Acceptance::Accepted => (LockState::Accepted, Vec::new()),
                Acceptance::Changed(changes) => (LockState::Changed, changes),
            };
            let is_wanted = item.kind == ItemKind::Tool || item.kind == wanted;
            if is_wanted || state != LockState::New || flagged.is_some() {
                self.definitions.push(ComparedDefinition {
                    source: item.source.clone(),
                    kind: item.kind,
                    name: item.name.to_string(),
                    exposed: item.exposed.to_string(),
                    digest: item.digest,
                    may_do_harm: item.hints.may_do_harm(),
                    state,
                    changes,
                    flag: flagged.map(|flagged| flagged.state),
                    flagged: flagged.map(|flagged| json!(flagged)),
                });
            }
        }
    }
}

/// Compares the latest lists of a running broker's sources with the lock file. A source is asked only for what nobody
/// has asked it for yet.
pub(super) async fn compare(inner: &Inner, kind: ItemKind) -> ControlReply {
    let context = inner.context();
    let lock = context.lock.current().await.map_err(|error| ControlRefusal::Error(error.to_string()))?;
    let mut compared = LockComparison::default();
    // All at once: each may take nearly as long as the whole exchange.
    let listed = join_all(context.upstreams.values().map(|upstream| listed(&context, upstream, kind))).await;
    for ((source, upstream), listed) in context.upstreams.iter().zip(listed) {
        match listed {
            Ok(items) => compared.add(upstream, &items, &lock, kind),
            Err(error) => drop(compared.missing.insert(source.clone(), error)),
        }
    }
    Ok(json!(compared))
}

/// Accepts definitions that a source listed last, and applies the lock file to all sessions.
pub(super) async fn accept(
    inner: &Inner,
    source: &str,
    kind: ItemKind,
    definitions: &[ListedDefinition],
    by: &str,
) -> ControlReply {
    let context = inner.context();
    let upstream = upstream_named(&context, source)?;
    let listed = listed(&context, upstream, kind).await.map_err(ControlRefusal::Error)?;
    let mut chosen = Vec::new();
    for ListedDefinition { kind, digest } in definitions {
        let found = listed.iter().find(|item| item.kind == *kind && item.digest == *digest);
        let gone = || {
            ControlRefusal::Error(format!("source `{source}` lists no definition with the digest {digest} any more"))
        };
        chosen.push(found.cloned().ok_or_else(gone)?);
    }
    inner.accept(&chosen, by).await.map_err(|error| ControlRefusal::Error(error.to_string()))?;
    inner.apply_lock_file().await;
    Ok(json!({ "accepted": chosen.len() }))
}

impl Inner {
    /// Accepts definitions into the lock file, and records each; see [`Broker::accept`].
    pub(super) async fn accept(&self, items: &[Arc<Item>], by: &str) -> Result<(), BuildError> {
        let context = self.context();
        context.lock.current().await?;
        for item in items {
            context.ledger.append(Event::new(EventKind::LockAccepted, item.acceptance_record(by))).await?;
        }
        let identity = |item: &Arc<Item>| Some((Arc::clone(item), context.upstreams.get(&item.source)?.identity));
        let accepted: Vec<_> = items.iter().filter_map(identity).collect();
        let accept =
            move |lock: &mut Lockfile| accepted.iter().for_each(|(item, identity)| lock.accept(item, *identity));
        Ok(context.lock.change(accept).await?)
    }

    /// Applies the current lock file to the open sessions.
    pub(super) async fn apply_lock_file(&self) {
        for session in self.live_sessions() {
            session.apply_lock_file().await;
        }
    }
}

/// Returns the tools that a source listed last, everything of a kind, and all else that was flagged. No second
/// connection is made for items that the agents' own connections have listed.
async fn listed(context: &Context, upstream: &Upstream, kind: ItemKind) -> Result<Vec<Arc<Item>>, String> {
    let late = |_| format!("it has not listed what it offers within {} s", LIST_TIMEOUT.as_secs());
    if upstream.has_listed() && matches!(kind, ItemKind::Tool | ItemKind::Source) {
        let others = upstream.flagged_items().into_iter().filter(|item| item.kind != ItemKind::Tool);
        return Ok(upstream.last_tools().into_iter().chain(others).collect());
    }
    let everything = timeout(LIST_TIMEOUT, everything(context, upstream)).await.map_err(late)?;
    Ok(everything.map_err(|error| error.to_string())?.items)
}
