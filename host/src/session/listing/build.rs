//! Builds a list: merges what sources offer, and shows or hides each item.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::sync::OnceCell;

use super::{RecordedNames, SessionCatalog, VisibleItem, may_see};
use crate::call::Cause;
use crate::catalog::{Catalog, ContestedName, ItemFilter, borrowed_names};
use crate::config::{Exposure, ProfileConfig, Schemas};
use crate::context::{FlagState, FlaggedDefinition, MAX_REMARKS, OfferedItems, RepairedTool, Upstream};
use crate::gate::risk_of;
use crate::item::{Item, ItemKind};
use crate::ledger::EventKind;
use crate::lockfile::Lockfile;
use crate::name::SourceName;
use crate::session::configured::ConfiguredSession;
use crate::session::discovery::{ListResult, ListedItems};
use crate::session::group::ToolGroup;
use crate::session::{deferred, health};
use crate::sync::Mutex;

/// The sources of a session, divided into those that can be used, with their lists of one kind, and those that failed.
struct Offered<'a> {
    usable: Vec<UsableSource<'a>>,
    /// The index of each source in `usable`.
    index_by_source: HashMap<SourceName, usize>,
    /// The optional sources that failed, and why.
    absent: Vec<(Arc<Upstream>, Cause)>,
}

/// A source that can be used.
struct UsableSource<'a> {
    upstream: Arc<Upstream>,
    /// The items of the source that the profile admits.
    filter: &'a ItemFilter,
    /// The source's list of one kind.
    list: &'a OfferedItems,
}

impl Offered<'_> {
    fn lists(&self) -> impl Iterator<Item = &OfferedItems> {
        self.usable.iter().map(|source| source.list).filter(|list| !list.items.is_empty())
    }

    fn of(&self, item: &Item) -> Option<&UsableSource<'_>> {
        self.usable.get(*self.index_by_source.get(&item.source)?)
    }
}

/// Returns the names under which the broker itself offers something under this profile, and a source does too.
pub(crate) fn contested_by_broker(profile: &ProfileConfig, kind: ItemKind, catalog: &Catalog) -> Vec<ContestedName> {
    match kind {
        ItemKind::Tool if profile.tools == Exposure::Deferred => deferred::contested(catalog),
        ItemKind::Resource if profile.status => health::contested(catalog).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// The items that are offered, by what the session sees of them.
#[derive(Default)]
struct DecidedItems {
    /// By exposed name, in the order of the list.
    shown: Vec<(Arc<str>, VisibleItem)>,
    hidden: HashSet<Arc<str>>,
    /// Those of the hidden ones that a person can turn on, by accepting them.
    off: BTreeSet<Arc<str>>,
}

/// Which of a session's lists of one kind is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::session) enum ListingRound {
    /// The session has seen no earlier list.
    First,
    /// The list replaces one that the session has seen.
    Later,
}

impl ConfiguredSession {
    /// Builds the list that the session may see from the answers of its sources.
    ///
    /// # Errors
    /// The cause of the first required source that failed, or whose names collide: nothing is served with only some of
    /// the required sources. Lists that other sources fail to give are left out.
    pub(in crate::session) async fn build_listing(
        &self,
        answered: Vec<ListResult>,
        round: ListingRound,
        kind: ItemKind,
    ) -> Result<SessionCatalog, Cause> {
        // Boxed, as the compiler limits the nesting of futures.
        Box::pin(self.assemble(answered, round, kind)).await
    }

    async fn assemble(
        &self,
        answered: Vec<ListResult>,
        round: ListingRound,
        kind: ItemKind,
    ) -> Result<SessionCatalog, Cause> {
        let lock = self.context.lock.current().await.map_err(Cause::of)?;
        let offered = self.offered(&answered)?;
        let (catalog, contested) = self.merged(&offered, kind)?;
        if kind == ItemKind::Tool && self.profile.schemas == Schemas::Repair {
            for UsableSource { upstream, list, .. } in &offered.usable {
                self.record_repaired(upstream, &upstream.repair_schemas(&list.items).await);
            }
        }
        // Boxed as a separate type, as the compiler limits the nesting of futures.
        let decided: BoxFuture<'_, _> = Box::pin(self.decide(&catalog, contested, &offered, &lock));
        let DecidedItems { shown, hidden, off } = decided.await;
        if round == ListingRound::First {
            shown.iter().for_each(|(_, entry)| self.record_differences(entry));
        }
        self.record_hidden(&hidden, kind);
        let quarantined_instructions = self.record_findings(&answered, &lock);
        let serves_all_alike = self.context.serves_all_alike();
        Ok(SessionCatalog {
            listing: shown.iter().map(|(_, entry)| entry.definition()).collect(),
            shown: shown.into_iter().collect(),
            hidden,
            off,
            ttl_ms: offered.lists().map(|list| list.ttl_ms).min().unwrap_or(0),
            public: serves_all_alike && offered.lists().count() > 0 && offered.lists().all(|list| list.public),
            // With several sources, nobody could tell whose members these are.
            other_members: match offered.usable.as_slice() {
                [only] if offered.absent.is_empty() => only.list.other_members.clone(),
                _ => None,
            },
            answered,
            quarantined_instructions,
            removed: HashSet::new(),
            index: OnceCell::new(),
            seen: Mutex::default(),
        })
    }

    /// Decides which items the session sees.
    async fn decide(
        &self,
        catalog: &Catalog,
        contested: Vec<ContestedName>,
        offered: &Offered<'_>,
        lock: &Lockfile,
    ) -> DecidedItems {
        let mut decided = DecidedItems::default();
        for ContestedName { exposed, message, .. } in contested {
            tracing::warn!("{message}: it is left out");
            decided.hidden.insert(exposed);
        }
        let mut members: HashMap<_, Vec<_>> = HashMap::new();
        for item in offered.lists().flat_map(|list| list.items.iter()).filter(|item| item.group.is_some()) {
            members.entry(&item.exposed).or_default().push(item);
        }
        for item in catalog.items() {
            let (mut seen, mut is_off) = (Vec::new(), false);
            for item in members.get(&item.exposed).map_or_else(|| vec![item], Vec::clone) {
                let Some(entry) = self.visible_item(item, offered, lock).await else { continue };
                if entry.upstream.turns_off(&entry.item, &entry.acceptance, &self.profile) {
                    is_off = true;
                } else {
                    seen.push(entry);
                }
            }
            let entry = match &item.group {
                Some(name) => ToolGroup::of(name, seen, &offered.absent),
                None => seen.pop(),
            };
            let exposed = item.exposed.clone();
            match entry {
                Some(entry) => decided.shown.push((exposed, entry)),
                None => {
                    if is_off {
                        decided.off.insert(exposed.clone());
                    }
                    decided.hidden.insert(exposed);
                }
            }
        }
        decided
    }

    /// Records the scanner's findings in the sources' texts. Returns the sources whose instructions the session does
    /// not see for it.
    fn record_findings(&self, answered: &[ListResult], lock: &Lockfile) -> HashSet<SourceName> {
        let instructions =
            |listed: &ListedItems| listed.discovered.as_ref().and_then(|discovered| discovered.instructions.clone());
        let mut quarantined_instructions = HashSet::new();
        for ListResult { upstream, listed } in answered {
            let Ok(listed) = listed else { continue };
            let (instructions, flags) = (instructions(listed), &listed.offer.flags);
            let quarantines = |item: &Arc<Item>| upstream.quarantines(item, flags, &lock.of(item, upstream.identity));
            if instructions.as_ref().is_some_and(quarantines) {
                quarantined_instructions.insert(upstream.config.name.clone());
            }
            self.record_flagged(&upstream.newly_flagged(listed.offer.items.iter().chain(&instructions), flags, lock));
        }
        quarantined_instructions
    }

    /// Separates the sources that can be used from those that failed.
    fn offered<'a>(&'a self, answered: &'a [ListResult]) -> Result<Offered<'a>, Cause> {
        let (mut usable, mut absent) = (Vec::new(), Vec::new());
        for (upstream, filter) in self.context.admitted(&self.caller.profile) {
            let result = answered.iter().find(|result| result.is_of(&upstream.config.name));
            match result.map(|result| &result.listed) {
                Some(Ok(ListedItems { offer, .. })) => usable.push(UsableSource { upstream, filter, list: offer }),
                Some(Err(error)) if upstream.config.required => return Err(error.clone()),
                Some(Err(error)) => absent.push((upstream, error.clone())),
                None => {}
            }
        }
        // Members of a group stand together, in their order.
        usable.sort_by(|a, b| {
            let (a, b) = (&a.upstream.config, &b.upstream.config);
            (a.offered_as(), a.turn()).cmp(&(b.offered_as(), b.turn()))
        });
        let index_by_source =
            usable.iter().enumerate().map(|(index, source)| (source.upstream.config.name.clone(), index));
        Ok(Offered { index_by_source: index_by_source.collect(), usable, absent })
    }

    /// Merges all lists under exposed names, without those that are contested, which it returns.
    ///
    /// # Errors
    /// If a required source contests a name: nothing is served with only a part of its offer.
    fn merged(&self, offered: &Offered<'_>, kind: ItemKind) -> Result<(Catalog, Vec<ContestedName>), Cause> {
        let lists = offered.usable.iter().map(|source| source.list.items.to_vec());
        let (catalog, mut contested) = Catalog::merge(lists);
        contested.extend(contested_by_broker(&self.profile, kind, &catalog));
        contested.extend(borrowed_names(&self.context.config, kind, &catalog));
        if kind == ItemKind::Tool {
            for (missing, _) in offered.absent.iter().filter(|(missing, _)| missing.config.group.is_none()) {
                let names = missing.described_tools();
                let taken = catalog.items().iter().filter(|item| names.contains(&*item.exposed));
                contested.extend(taken.map(|item| ContestedName::of_missing(item, &missing.config.name)));
            }
        }
        let is_required = |name: &SourceName| {
            let mut required =
                offered.usable.iter().map(|source| &source.upstream.config).filter(|config| config.required);
            required.any(|config| config.name == *name)
        };
        match contested.iter().find(|it| it.sources.iter().any(is_required)) {
            Some(contested) => Err(Cause::own(contested.message.clone())),
            None => Ok((catalog.without(&contested), contested)),
        }
    }

    /// Returns an item with its risk and acceptance. `None` if it is quarantined or the session may not see it.
    async fn visible_item(&self, item: &Arc<Item>, offered: &Offered<'_>, lock: &Lockfile) -> Option<VisibleItem> {
        let UsableSource { upstream, filter, list } = offered.of(item)?;
        let acceptance = lock.of(item, upstream.identity);
        if upstream.quarantines(item, &list.flags, &acceptance) {
            return None;
        }
        let risk = risk_of(item, &upstream.config, upstream.cell_effects(), &acceptance);
        let (item, upstream) = (item.clone(), Arc::clone(upstream));
        let repair = upstream.repair_of(&item).filter(|_| self.profile.schemas == Schemas::Repair);
        let entry = VisibleItem {
            repair,
            without_output_schema: item.kind == ItemKind::Tool && self.profile.max_result.is_some(),
            ..VisibleItem::new(item, risk, acceptance, upstream)
        };
        may_see(&self.context, &self.caller, filter, &entry).await.then_some(entry)
    }

    fn record_hidden(&self, hidden: &HashSet<Arc<str>>, kind: ItemKind) {
        if !hidden.is_empty() {
            let RecordedNames { listed: hidden, further } = RecordedNames::of(hidden);
            let mut body = json!({ "trust": self.profile.trust.as_str(), "kind": kind.as_str(), "hidden": hidden });
            if let Some(body) = body.as_object_mut().filter(|_| further > 0) {
                body.insert("further".to_owned(), json!(further));
            }
            self.list_records.record(EventKind::ListFiltered, kind.as_str(), body);
        }
    }

    /// Records and logs what the scanner found in one source's definitions for the first time. No text of the source is
    /// repeated there: `check` and `status` show it.
    fn record_flagged(&self, flagged: &[FlaggedDefinition]) {
        let Some(FlaggedDefinition { source, kind, .. }) = flagged.first() else { return };
        let about = format!("{source} {}", kind.as_str());
        let (named, further) = flagged.split_at(flagged.len().min(MAX_REMARKS));
        let switch = self.context.config.data_dir_switch();
        for flagged in named {
            let (kind, pin) = (flagged.kind.as_str(), &flagged.pin);
            let rule = flagged.findings.first().map(|finding| finding.rule).unwrap_or_default();
            if flagged.state == FlagState::Quarantined {
                tracing::warn!(
                    %source, kind, rule,
                    "a definition is quarantined; `portcullis lock diff{switch}` shows it, `portcullis lock accept{switch} {pin}` releases it"
                );
            } else {
                tracing::warn!(
                    %source, kind, rule,
                    "a definition may try to steer the model; `portcullis lock diff{switch}` shows it"
                );
            }
        }
        let named = named.iter().map(|FlaggedDefinition { kind, name, definition, state, findings, .. }| {
            let found = findings.iter().map(|found| json!({ "rule": found.rule, "severity": found.severity }));
            let found: Vec<_> = found.collect();
            json!({ "kind": kind, "name": &**name, "definition": definition, "state": state, "findings": found })
        });
        let named: Vec<_> = named.collect();
        let further: Vec<_> = further.iter().map(|flagged| flagged.definition).collect();
        let body = json!({ "source": source, "definitions": named, "further": further });
        self.list_records.record(EventKind::DefinitionFlagged, &about, body);
    }

    /// Records the repairs of a source's input schemas that were made for the first time.
    fn record_repaired(&self, upstream: &Upstream, repaired: &[RepairedTool]) {
        if repaired.is_empty() {
            return;
        }
        let (named, further) = repaired.split_at(repaired.len().min(MAX_REMARKS));
        let named = named.iter().map(|RepairedTool { item, repair }| {
            json!({ "tool": &*item.exposed, "definition": item.digest, "repairs": repair.counts() })
        });
        let named: Vec<_> = named.collect();
        let further: Vec<_> = further.iter().map(|tool| tool.item.digest).collect();
        let body = json!({ "source": upstream.config.name, "tools": named, "further": further });
        self.list_records.record(EventKind::SchemaRepaired, upstream.config.name.as_str(), body);
    }

    /// Records that a member of a group offers another tool under the same name.
    fn record_differences(&self, entry: &VisibleItem) {
        let Some(group) = &entry.group else { return };
        for source in &group.mismatched {
            let (tool, shown) = (&*entry.item.exposed, &entry.item.source);
            tracing::warn!(group = %group.name, %source, tool, "a member of a group takes other arguments, and is not called");
            let body = json!({ "group": group.name, "tool": tool, "shown": shown, "source": source });
            self.record(EventKind::GroupDiffers, body);
        }
    }
}
