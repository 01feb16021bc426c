//! What one session sees of one kind: taken from all its sources, or not at all.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::json;
use tokio::sync::OnceCell;

use super::discovery::{Answered, Told, note};
use super::group::Group;
use super::{ListPage, deferred, health};
use crate::call::{Call, Caller, Risk};
use crate::catalog::{Catalog, Filter, Index};
use crate::config::{DiscoveryMode, Exposure, ProfileConfig};
use crate::context::{Context, DiscoveredSource, Upstream};
use crate::gate::risk_of;
use crate::item::{Item, ItemKind};
use crate::ledger;
use crate::lockfile::{Acceptance, Lock};
use crate::name::{SEPARATOR, SourceName};
use crate::protocol::Json;

/// What one session sees of one kind.
#[derive(Debug)]
pub(super) struct Listing {
    shown: HashMap<Arc<str>, VisibleItem>,
    hidden: HashSet<Arc<str>>,
    listing: Arc<[Json]>,
    ttl_ms: u64,
    public: bool,
    /// What else stands in the result of the only source.
    around: Option<Json>,
    /// What became of asking each source. Those that failed are not required.
    pub(super) answered: Vec<Answered>,
    /// What a list before this one had and this one has not.
    removed: HashSet<Arc<str>>,
    /// Made when somebody searches.
    index: OnceCell<Arc<Index>>,
}

/// One item that the session may use.
#[derive(Debug, Clone)]
pub(super) struct VisibleItem {
    pub(super) item: Arc<Item>,
    pub(super) risk: Risk,
    pub(super) acceptance: Acceptance,
    pub(super) upstream: Arc<Upstream>,
    /// Who serves it, if it is a tool of a group: this member is the first of them.
    pub(super) group: Option<Arc<Group>>,
}

impl VisibleItem {
    /// The source itself, for what the broker tells it on a session's behalf.
    pub(super) fn whole_source(upstream: &Arc<Upstream>) -> Self {
        let item = Arc::new(upstream.whole_item());
        Self { item, risk: Risk::Harmless, acceptance: Acceptance::Unknown, upstream: upstream.clone(), group: None }
    }
}

impl Listing {
    pub(super) fn list_page(&self) -> ListPage {
        ListPage { items: self.listing.clone(), ttl_ms: self.ttl_ms, public: self.public, around: self.around.clone() }
    }

    pub(super) fn get(&self, exposed: &str) -> Option<&VisibleItem> {
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

    pub(super) fn items(&self) -> impl Iterator<Item = &VisibleItem> {
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
        let of_group = |(upstream, _): &&Answered| of_group(upstream);
        let members = || self.answered.iter().filter(of_group);
        let causes: Vec<_> = members().filter_map(|(_, told)| told.as_ref().err().map(String::as_str)).collect();
        let none = !causes.is_empty() && causes.len() == members().count();
        none.then(|| format!("no member of group `{group}` is there: {}", causes.join("; ")))
    }

    /// Whether a source is missing that may be there later, or has not yet said anew what it offers.
    pub(super) fn is_partial(&self) -> bool {
        self.answered.iter().any(|(_, told)| told.as_ref().map_or(true, |told| told.old))
    }

    /// Why a source is not among those that were met. None if it is.
    pub(super) fn absence(&self, source: &SourceName) -> Option<&str> {
        let (_, told) = self.answered.iter().find(|(upstream, _)| upstream.config.name == *source)?;
        told.as_ref().err().map(String::as_str)
    }

    /// Whether a source is absent, or has not said to this session what it offers.
    pub(super) fn lacks(&self, source: &SourceName) -> bool {
        let told = self.answered.iter().find(|(upstream, _)| upstream.config.name == *source).map(|(_, told)| told);
        told.is_some_and(|told| told.as_ref().map_or(true, |told| told.old))
    }

    /// The sources that could not be met.
    pub(super) fn absent(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.answered.iter().filter(|(_, told)| told.is_err()).map(|(upstream, _)| upstream)
    }

    /// What became of asking each source, with other answers in the place of what some said before.
    pub(super) fn answered_but(&self, other: Vec<Answered>) -> Vec<Answered> {
        let mut answered = self.answered.clone();
        for (upstream, told) in other {
            match answered.iter_mut().find(|(before, _)| before.config.name == upstream.config.name) {
                Some((_, before)) => *before = told,
                None => answered.push((upstream, told)),
            }
        }
        answered
    }

    /// Takes note of what this list lacks of those before it.
    pub(super) fn after(mut self, before: &Self) -> Self {
        let gone = before.shown.keys().chain(&before.removed).filter(|name| !self.shown.contains_key(*name));
        self.removed = gone.cloned().collect();
        self
    }

    /// Whether the tools may be others without the agent asking for that.
    pub(super) fn is_live(&self) -> bool {
        self.sources().any(|(upstream, _)| upstream.config.discovery == DiscoveryMode::Live)
    }

    /// The sources that were met, with what they can do.
    pub(super) fn sources(&self) -> impl Iterator<Item = (&Arc<Upstream>, &DiscoveredSource)> {
        self.answered.iter().filter_map(|(upstream, told)| Some((upstream, told.as_ref().ok()?.met.as_ref()?)))
    }
}

/// What the session may see of what its sources have said. `first` says that it has seen nothing of it before.
///
/// # Errors
/// The text of the first required source that failed, or of names that collide: nothing is served on a partial set.
pub(super) async fn build(
    answered: Vec<Answered>,
    first: bool,
    context: &Context,
    caller: &Arc<Caller>,
    profile: &ProfileConfig,
    kind: ItemKind,
) -> Result<Listing, String> {
    // Boxed: the compiler looks only so deep into futures.
    Box::pin(sift(answered, first, context, caller, profile, kind)).await
}

async fn sift(
    answered: Vec<Answered>,
    first: bool,
    context: &Context,
    caller: &Arc<Caller>,
    profile: &ProfileConfig,
    kind: ItemKind,
) -> Result<Listing, String> {
    let lock = Lock::load(&context.config.data_dir).map_err(|error| error.to_string())?;
    let (mut usable, mut absent) = (Vec::new(), Vec::new());
    for (upstream, filter) in context.admitted(&caller.profile) {
        let of_it = answered.iter().find(|(other, _)| other.config.name == upstream.config.name);
        match of_it.map(|(_, told)| told) {
            Some(Ok(Told { offer, .. })) => usable.push((upstream, filter, offer)),
            Some(Err(error)) if upstream.config.required => return Err(error.clone()),
            Some(Err(error)) => absent.push((upstream, error.clone())),
            None => {}
        }
    }
    // Members of a group stand together, in their order.
    usable.sort_by(|(a, ..), (b, ..)| {
        (a.config.offered_as(), a.config.turn()).cmp(&(b.config.offered_as(), b.config.turn()))
    });
    let catalog =
        Catalog::merge(usable.iter().map(|(_, _, offer)| offer.items.to_vec())).map_err(|error| error.to_string())?;
    if kind == ItemKind::Tool && profile.tools == Exposure::Deferred {
        deferred::check(&catalog)?;
    }
    if kind == ItemKind::Resource && profile.status {
        health::check(&catalog)?;
    }
    let offers = || usable.iter().map(|(_, _, offer)| *offer).filter(|offer| !offer.items.is_empty());
    let ttl_ms = offers().map(|offer| offer.ttl_ms).min();
    let public = context.serves_all_alike() && offers().count() > 0 && offers().all(|offer| offer.public);
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
            let acceptance =
                if kind == ItemKind::Tool { lock.of(item, upstream.identity) } else { Acceptance::Unknown };
            let risk = risk_of(item, &upstream.config, upstream.is_sealed(), &acceptance);
            let entry =
                VisibleItem { item: item.clone(), risk, acceptance, upstream: Arc::clone(upstream), group: None };
            if may_see(context, caller, filter, &entry).await {
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
        if first {
            note_differences(context, caller, &entry);
        }
        listing.push(entry.item.exposed_definition());
        shown.insert(item.exposed.clone(), entry);
    }
    if !hidden.is_empty() {
        let hidden: Vec<&str> = hidden.iter().map(|name| &**name).collect();
        let body = json!({ "trust": profile.trust.as_str(), "kind": kind.as_str(), "hidden": hidden });
        note(context, caller, ledger::EventKind::ListFiltered, body);
    }
    Ok(Listing {
        shown,
        hidden,
        listing: listing.into(),
        ttl_ms: ttl_ms.unwrap_or(0),
        public,
        around,
        answered,
        removed: HashSet::new(),
        index: OnceCell::new(),
    })
}

/// Whether the profile's lists and the policies of the `list` phase let the session see an item.
pub(super) async fn may_see(context: &Context, caller: &Arc<Caller>, filter: &Filter, entry: &VisibleItem) -> bool {
    filter.admits(&entry.item) && context.gate.shows(&about_to_be_shown(entry, caller)).await
}

/// That a member of a group offers something else under the name of a tool.
fn note_differences(context: &Context, caller: &Caller, entry: &VisibleItem) {
    let Some(group) = &entry.group else { return };
    for source in &group.unlike {
        let (tool, shown) = (&*entry.item.exposed, &entry.item.source);
        tracing::warn!(group = %group.name, %source, tool, "a member of a group takes other arguments, and is not called");
        let body = json!({ "group": group.name, "tool": tool, "shown": shown, "source": source });
        note(context, caller, ledger::EventKind::GroupDiffers, body);
    }
}

/// An item as policies see it when it is about to be shown.
fn about_to_be_shown(entry: &VisibleItem, caller: &Arc<Caller>) -> Arc<Call> {
    let method = entry.item.kind.use_method();
    Arc::new(Call::new(&method, Json::empty_object(), caller, entry.item.clone(), entry.risk))
}
