//! What one session sees of one kind: taken from all its sources, or not at all.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::json;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::group::Group;
use super::refresh::PATIENCE;
use super::{Shelf, deferred, health};
use crate::broker::{Inner, Met, Offer, Upstream};
use crate::call::{Call, Caller, Risk};
use crate::catalog::{Acceptance, Catalog, Filter, Index, Item, Kind, Lock};
use crate::config::{Exposure, Follow, ProfileConfig};
use crate::digest::Digest;
use crate::gate::risk_of;
use crate::ledger::{self, Event};
use crate::message::Json;
use crate::name::SEPARATOR;
use crate::source::{Client, SourceError};

/// What one session sees of one kind.
#[derive(Debug)]
pub(super) struct Listing {
    shown: HashMap<Arc<str>, Shown>,
    hidden: HashSet<Arc<str>>,
    listing: Arc<[Json]>,
    ttl_ms: u64,
    public: bool,
    /// What else stands in the result of the only source.
    around: Option<Json>,
    /// What each source said when it was met; of the tools only.
    pub(super) met: Vec<(Arc<Upstream>, Met)>,
    /// The sources that are not required and could not be met, and why.
    pub(super) absent: Vec<(Arc<Upstream>, String)>,
    /// What a list before this one had and this one has not.
    removed: HashSet<Arc<str>>,
    /// Made when somebody searches.
    index: OnceCell<Arc<Index>>,
}

/// One item that the session may use.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    pub(super) item: Arc<Item>,
    pub(super) risk: Risk,
    pub(super) acceptance: Acceptance,
    pub(super) upstream: Arc<Upstream>,
    /// Who serves it, if it is a tool of a group: this member is the first of them.
    pub(super) group: Option<Arc<Group>>,
}

impl Shown {
    /// The source itself, for what the broker tells it on a session's behalf.
    pub(super) fn whole_source(upstream: &Arc<Upstream>) -> Self {
        let item = Arc::new(Item::of_source(&upstream.config));
        Self { item, risk: Risk::Harmless, acceptance: Acceptance::Unknown, upstream: upstream.clone(), group: None }
    }
}

impl Listing {
    pub(super) fn shelf(&self) -> Shelf {
        Shelf { items: self.listing.clone(), ttl_ms: self.ttl_ms, public: self.public, around: self.around.clone() }
    }

    pub(super) fn get(&self, exposed: &str) -> Option<&Shown> {
        self.shown.get(exposed)
    }

    /// All of it, to be searched.
    pub(super) async fn index(&self) -> Result<Arc<Index>, String> {
        let made = self.index.get_or_try_init(|| async {
            let items: Vec<_> = self.items().map(|shown| shown.item.clone()).collect();
            let made =
                tokio::task::spawn_blocking(move || Index::of(items)).await.map_err(|error| error.to_string())?;
            made.map(Arc::new).map_err(|error| format!("the tools cannot be searched: {error}"))
        });
        made.await.cloned()
    }

    pub(super) fn items(&self) -> impl Iterator<Item = &Shown> {
        self.shown.values()
    }

    pub(super) fn hides(&self, exposed: &str) -> bool {
        self.hidden.contains(exposed)
    }

    /// Whether an item was there before, and its source has removed it.
    pub(super) fn has_removed(&self, exposed: &str) -> bool {
        self.removed.contains(exposed)
    }

    /// Why nobody has what may be a tool of a group: none of its members is there.
    pub(super) fn is_of_nobody(&self, exposed: &str) -> Option<String> {
        let group = exposed.split_once(SEPARATOR)?.0;
        let of_group =
            |upstream: &Upstream| upstream.config.group.is_some() && upstream.config.offered_as().as_str() == group;
        let causes: Vec<_> = self.absent.iter().filter(|(up, _)| of_group(up)).map(|(_, why)| why.as_str()).collect();
        let none = !causes.is_empty() && !self.met.iter().any(|(upstream, _)| of_group(upstream));
        none.then(|| format!("no member of group `{group}` is there: {}", causes.join("; ")))
    }

    /// Whether a source is missing that may be there later.
    pub(super) fn is_partial(&self) -> bool {
        !self.absent.is_empty()
    }

    /// Whether the tools may be others without the agent asking for that.
    pub(super) fn is_live(&self) -> bool {
        self.met.iter().any(|(upstream, _)| upstream.config.discovery == Follow::Live)
    }

    /// The sources that were met, with what they can do.
    pub(super) fn sources(&self) -> impl Iterator<Item = (&Arc<Upstream>, &Met)> {
        self.met.iter().map(|(upstream, met)| (upstream, met))
    }
}

/// Asks the profile's sources in parallel and takes what the session may see. Events of the tools, which are listed when a
/// source is met: `mcp.connected` for each source, `mcp.error` for each that failed; of other kinds `mcp.listed`.
///
/// # Errors
/// The text of the first required source that failed, or of names that collide: nothing is served on a partial set.
pub(super) async fn take(
    broker: &Inner,
    caller: &Arc<Caller>,
    profile: &ProfileConfig,
    client: &Arc<dyn Client>,
    kind: Kind,
) -> Result<Listing, String> {
    // Boxed: the compiler looks only so deep into futures.
    Box::pin(gather(None, broker, caller, profile, client, kind)).await
}

/// The same of the tools after `before`: a source that was met then and is no live one is not asked again, and one that
/// fails now is as it was.
pub(super) async fn take_after(
    before: &Listing,
    broker: &Inner,
    caller: &Arc<Caller>,
    profile: &ProfileConfig,
    client: &Arc<dyn Client>,
) -> Result<Listing, String> {
    let mut after = Box::pin(gather(Some(before), broker, caller, profile, client, Kind::Tool)).await?;
    let gone = before.shown.keys().chain(&before.removed).filter(|name| !after.shown.contains_key(*name));
    after.removed = gone.cloned().collect();
    Ok(after)
}

async fn gather(
    before: Option<&Listing>,
    broker: &Inner,
    caller: &Arc<Caller>,
    profile: &ProfileConfig,
    client: &Arc<dyn Client>,
    kind: Kind,
) -> Result<Listing, String> {
    let lock = Lock::load(&broker.config.data_dir).map_err(|error| error.to_string())?;
    let admitted: Vec<_> = broker.admitted(&caller.profile).collect();
    let met_before = |upstream: &Upstream| before?.met.iter().find(|(up, _)| up.config.name == upstream.config.name);
    let asked = admitted.iter().map(|(upstream, _)| async {
        match met_before(upstream) {
            Some((_, met)) if upstream.config.discovery == Follow::Snapshot => Ok(Told::Before(met.clone())),
            known => match (ask(upstream, client, kind, before.is_some()).await, known) {
                (Ok((offer, met)), _) => Ok(Told::Now(offer, met)),
                (Err(error), Some((_, met))) => {
                    tracing::warn!(source = %upstream.config.name, %error, "a source does not list anew");
                    Ok(Told::Before(met.clone()))
                }
                (Err(error), None) => Err(error),
            },
        }
    });
    let answered = join_all(asked).await;

    let (mut failure, mut absent) = (None, Vec::new());
    let (mut usable, mut all_met) = (Vec::new(), Vec::new());
    for ((upstream, filter), answered) in admitted.into_iter().zip(answered) {
        let name = &upstream.config.name;
        match answered {
            Ok(told) => {
                let (offer, met) = match told {
                    Told::Now(offer, met) => {
                        note_listed(broker, caller, kind, &upstream, &offer);
                        (offer, met)
                    }
                    Told::Before(met) => (met.tools.clone(), Some(met)),
                };
                all_met.extend(met.map(|met| (Arc::clone(&upstream), met)));
                usable.push((upstream, filter, offer));
            }
            Err(error) => {
                let error = format!("source `{name}`: {error}");
                let required = upstream.config.required;
                let body = json!({ "source": name, "error": error, "required": required });
                note(broker, caller, ledger::Kind::McpError, body);
                tracing::warn!(source = %name, required, "{error}");
                if required {
                    failure.get_or_insert(error);
                } else {
                    absent.push((upstream, error));
                }
            }
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    // Members of a group stand together, in their order.
    usable.sort_by(|(a, ..), (b, ..)| {
        (a.config.offered_as(), a.config.turn()).cmp(&(b.config.offered_as(), b.config.turn()))
    });
    let catalog =
        Catalog::merge(usable.iter().map(|(_, _, offer)| offer.items.to_vec())).map_err(|error| error.to_string())?;
    if kind == Kind::Tool && profile.tools == Exposure::Deferred {
        deferred::check(&catalog)?;
    }
    if kind == Kind::Resource && profile.status {
        health::check(&catalog)?;
    }
    let offers = || usable.iter().map(|(_, _, offer)| offer).filter(|offer| !offer.items.is_empty());
    let ttl_ms = offers().map(|offer| offer.ttl_ms).min();
    let public = broker.serves_all_alike() && offers().count() > 0 && offers().all(|offer| offer.public);
    // Of several nobody could tell whose it is.
    let around = match usable.as_slice() {
        [(_, _, only)] if absent.is_empty() => only.around.clone(),
        _ => None,
    };
    let of_source: HashMap<_, _> = usable.iter().map(|(up, filter, _)| (&up.config.name, (up, *filter))).collect();
    let mut of_groups: HashMap<_, Vec<_>> = HashMap::new();
    for item in offers().flat_map(|offer| offer.items.iter()).filter(|item| item.group.is_some()) {
        of_groups.entry(&item.exposed).or_default().push(item);
    }

    let mut listing = Vec::new();
    let (mut shown, mut hidden) = (HashMap::new(), HashSet::new());
    for item in catalog.items() {
        let mut seen = Vec::new();
        for item in of_groups.get(&item.exposed).map_or_else(|| vec![item], Vec::clone) {
            let Some((upstream, filter)) = of_source.get(&item.source) else { continue };
            let acceptance = if kind == Kind::Tool { lock.of(item, upstream.identity) } else { Acceptance::Unknown };
            let risk = risk_of(item, &upstream.config, upstream.is_sealed(), &acceptance);
            let entry = Shown { item: item.clone(), risk, acceptance, upstream: Arc::clone(upstream), group: None };
            if may_see(broker, caller, filter, &entry).await {
                seen.push(entry);
            }
        }
        let entry = match &item.group {
            Some(name) => Group::of(name, seen, &absent),
            None => seen.pop(),
        };
        let Some(entry) = entry else {
            hidden.insert(item.exposed.clone());
            continue;
        };
        if before.is_none() {
            note_differences(broker, caller, &entry);
        }
        listing.push(entry.item.exposed_definition());
        shown.insert(item.exposed.clone(), entry);
    }
    if !hidden.is_empty() {
        let hidden: Vec<&str> = hidden.iter().map(|name| &**name).collect();
        let body = json!({ "trust": profile.trust.as_str(), "kind": kind.as_str(), "hidden": hidden });
        note(broker, caller, ledger::Kind::ListFiltered, body);
    }
    Ok(Listing {
        shown,
        hidden,
        listing: listing.into(),
        ttl_ms: ttl_ms.unwrap_or(0),
        public,
        around,
        met: all_met,
        absent,
        removed: HashSet::new(),
        index: OnceCell::new(),
    })
}

/// What a source said of its items.
enum Told {
    /// Just now.
    Now(Offer, Option<Met>),
    /// When it was met for the list before.
    Before(Met),
}

/// Whether the profile's lists and the policies of the `list` phase let the session see an item.
pub(super) async fn may_see(broker: &Inner, caller: &Arc<Caller>, filter: &Filter, entry: &Shown) -> bool {
    filter.admits(&entry.item) && broker.gate.shows(&about_to_be_shown(entry, caller)).await
}

/// Asks one source. `again`, its answer is not waited for longer than [`PATIENCE`]; else as long as it takes to be installed and
/// started, and to list.
async fn ask(
    upstream: &Upstream,
    client: &Arc<dyn Client>,
    kind: Kind,
    again: bool,
) -> Result<(Offer, Option<Met>), SourceError> {
    if kind != Kind::Tool {
        return Ok((upstream.list(client, kind).await?, None));
    }
    let discovered = upstream.discover(client);
    let late = |_| SourceError::Timeout { method: kind.list_method().to_owned(), seconds: PATIENCE.as_secs() };
    let met = if again { timeout(PATIENCE, discovered).await.map_err(late)?? } else { discovered.await? };
    Ok((met.tools.clone(), Some(met)))
}

/// Of tools and prompts each definition; of the rest, of which there may be thousands, one digest of all.
fn note_listed(broker: &Inner, caller: &Caller, kind: Kind, upstream: &Upstream, offer: &Offer) {
    let (source, identity, count) = (&upstream.config.name, upstream.identity, offer.items.len());
    let named = |item: &Arc<Item>| json!({ kind.as_str(): &*item.name, "definition": item.digest });
    let (event, body) = match kind {
        Kind::Tool => {
            let tools: Vec<_> = offer.items.iter().map(named).collect();
            let body = json!({ "source": source, "identity": identity, "count": count, "tools": tools });
            (ledger::Kind::McpConnected, body)
        }
        _ if count == 0 => return,
        Kind::Prompt => {
            let prompts: Vec<_> = offer.items.iter().map(named).collect();
            (ledger::Kind::McpListed, json!({ "source": source, "count": count, "prompts": prompts }))
        }
        Kind::Resource | Kind::Template | Kind::Source => {
            let digests: String = offer.items.iter().map(|item| item.digest.to_string()).collect();
            let digest = Digest::of(digests.as_bytes());
            let body = json!({ "source": source, "kind": kind.as_str(), "count": count, "digest": digest });
            (ledger::Kind::McpListed, body)
        }
    };
    note(broker, caller, event, body);
}

/// That a member of a group offers something else under the name of a tool.
fn note_differences(broker: &Inner, caller: &Caller, entry: &Shown) {
    let Some(group) = &entry.group else { return };
    for source in &group.unlike {
        let (tool, shown) = (&*entry.item.exposed, &entry.item.source);
        tracing::warn!(group = %group.name, %source, tool, "a member of a group takes other arguments, and is not called");
        let body = json!({ "group": group.name, "tool": tool, "shown": shown, "source": source });
        note(broker, caller, ledger::Kind::GroupDiffers, body);
    }
}

/// An item as policies see it when it is about to be shown.
fn about_to_be_shown(entry: &Shown, caller: &Arc<Caller>) -> Arc<Call> {
    let method = entry.item.kind.use_method();
    Arc::new(Call::new(method, Json::empty_object(), caller, entry.item.clone(), entry.risk))
}

fn note(broker: &Inner, caller: &Caller, kind: ledger::Kind, body: serde_json::Value) {
    broker.ledger.note(Event { kind, run: Some(caller.session.clone()), call: None, body });
}
