//! The items of one kind that a session sees: from all its sources that answered, or none if a required one failed.

mod build;

pub(super) use build::ListingRound;
pub(crate) use build::contested_by_broker;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use tokio::sync::OnceCell;

use super::ListPage;
use super::discovery::ListResult;
use super::group::ToolGroup;
use crate::call::{Call, Caller, Cause, Params, Risk};
use crate::catalog::{Index, ItemFilter};
use crate::config::ToolListUpdates;
use crate::context::{Context, DiscoveredSource, Upstream};
use crate::item::Item;
use crate::lockfile::Acceptance;
use crate::name::{SEPARATOR, SourceName};
use crate::protocol::Json;
use crate::schema_repair::Repair;
use crate::sync::Mutex;

/// The largest number of tools that are off and named to an agent.
const MAX_OFF_NAMED: usize = 8;

/// The most text of the names that a record lists, in bytes: a name may be an address of 8 KiB.
const MAX_RECORDED_BYTES: usize = 64 * 1024;

/// The items of one kind that a session sees.
#[derive(Debug)]
pub(super) struct SessionCatalog {
    shown: HashMap<Arc<str>, VisibleItem>,
    hidden: HashSet<Arc<str>>,
    /// The hidden tools that a person may turn on. They are hidden because their source calls them destructive.
    off: BTreeSet<Arc<str>>,
    listing: Arc<[Json]>,
    ttl_ms: u64,
    public: bool,
    /// The other members of the result, if there is only one source.
    other_members: Option<Json>,
    /// The result of asking each source. Those that failed are not required.
    pub(super) answered: Vec<ListResult>,
    /// The sources whose instructions are quarantined. For lists of tools only.
    quarantined_instructions: HashSet<SourceName>,
    /// The names that an earlier list had and this one has not.
    removed: HashSet<Arc<str>>,
    /// The search index, made by the first search.
    index: OnceCell<Arc<Index>>,
    /// The number of times that the session's information flow had been cleared when this list was last kept in it, or
    /// `None` if it was not kept yet.
    pub(super) seen: Mutex<Option<u64>>,
}

/// One item that the session may use.
#[derive(Debug, Clone)]
pub(super) struct VisibleItem {
    pub(super) item: Arc<Item>,
    pub(super) risk: Risk,
    pub(super) acceptance: Acceptance,
    pub(super) upstream: Arc<Upstream>,
    /// The group, if it is a tool of one: this member is the first of it.
    pub(super) group: Option<Arc<ToolGroup>>,
    /// The repair of its input schema, if it is a tool and the profile has schemas repaired.
    pub(super) repair: Option<Arc<Repair>>,
    /// True if the agent is not promised structured content, as it may get only the beginning of a result.
    pub(super) without_output_schema: bool,
}

/// Returns the sentence that tells an agent that these tools are off, if there is any.
pub(super) fn off_sentence(off: &BTreeSet<Arc<str>>) -> Option<String> {
    let named: Vec<_> = off.iter().take(MAX_OFF_NAMED).map(|name| format!("`{name}`")).collect();
    let rest = off.len() - named.len();
    let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    let tools = match off.len() {
        0 => return None,
        1 => "1 tool that its source calls destructive is off until a person accepts it".to_owned(),
        count => format!("{count} tools that their source calls destructive are off until a person accepts them"),
    };
    Some(format!("{tools} with `portcullis lock accept NAME`: {}{rest}.", named.join(", ")))
}

impl VisibleItem {
    /// Makes an item that is shown as its source defines it, and stands only for itself.
    pub(super) fn new(item: Arc<Item>, risk: Risk, acceptance: Acceptance, upstream: Arc<Upstream>) -> Self {
        Self { item, risk, acceptance, upstream, group: None, repair: None, without_output_schema: false }
    }

    /// Returns the source itself as an item, for requests that are about none of its items.
    pub(super) fn whole_source(upstream: &Arc<Upstream>) -> Self {
        Self::new(Arc::new(upstream.whole_item()), Risk::Harmless, Acceptance::Unknown, upstream.clone())
    }

    /// Reports whether this item belongs to that source.
    pub(super) fn is_of(&self, upstream: &Upstream) -> bool {
        self.upstream.config.name == upstream.config.name
    }

    /// Returns the definition as the agent sees it: under the exposed name, and with the repaired schema if there is
    /// one. Everything else is the source's, byte for byte.
    pub(super) fn definition(&self) -> Json {
        let mut exposed = self.item.exposed_definition();
        if self.without_output_schema {
            exposed = exposed.without("outputSchema");
        }
        match &self.repair {
            Some(repair) => repair.applied_to(exposed),
            None => exposed,
        }
    }

    /// Reports whether the agent is shown the same definition as of the other item.
    pub(super) fn is_shown_like(&self, other: &Self) -> bool {
        let repaired = |shown: &Self| shown.repair.as_ref().is_some_and(|repair| repair.schema().is_some());
        self.item.digest == other.item.digest
            && repaired(self) == repaired(other)
            && self.without_output_schema == other.without_output_schema
    }
}

impl SessionCatalog {
    pub(super) fn list_page(&self) -> ListPage {
        ListPage {
            items: self.listing.clone(),
            ttl_ms: self.ttl_ms,
            public: self.public,
            other_members: self.other_members.clone(),
        }
    }

    pub(super) fn get(&self, exposed: &str) -> Option<&VisibleItem> {
        self.shown.get(exposed)
    }

    /// Returns the search index of all items.
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

    /// Reports whether a tool is off until a person accepts it because its source calls it destructive.
    pub(super) fn is_off(&self, exposed: &str) -> bool {
        self.off.contains(exposed)
    }

    /// Returns the sentence that tells an agent which tools are off, if any is.
    pub(super) fn off_sentence(&self) -> Option<String> {
        off_sentence(&self.off)
    }

    /// Reports whether the instructions of a source are quarantined.
    pub(super) fn is_silenced(&self, source: &SourceName) -> bool {
        self.quarantined_instructions.contains(source)
    }

    /// Reports whether an item was listed before, and its source has removed it.
    pub(super) fn has_removed(&self, exposed: &str) -> bool {
        self.removed.contains(exposed)
    }

    /// Returns why an item cannot be used, if its name begins with that of a source that is absent, or of a group none
    /// of whose members is there.
    pub(super) fn why_absent(&self, exposed: &str) -> Option<String> {
        let prefix = exposed.split_once(SEPARATOR)?.0;
        let members = || self.answered.iter().filter(|result| result.upstream.config.offered_as().as_str() == prefix);
        // Without the sources' own words, which no policy has judged.
        let causes: Vec<_> = members().filter_map(|result| Some(result.listed.as_ref().err()?.recorded())).collect();
        if causes.is_empty() || causes.len() < members().count() {
            return None;
        }
        let is_group = members().any(|result| result.upstream.config.group.is_some());
        let subject = if is_group { format!("no member of group `{prefix}` is there: ") } else { String::new() };
        Some(format!("{subject}{}", causes.join("; ")))
    }

    /// Reports whether a source is missing that may be there later, or has not yet answered this session.
    pub(super) fn is_partial(&self) -> bool {
        self.answered.iter().any(|result| result.listed.as_ref().map_or(true, |listed| listed.old))
    }

    /// Returns why a source was not discovered. `None` if it was.
    pub(super) fn missing_cause(&self, source: &SourceName) -> Option<&Cause> {
        self.answered.iter().find(|result| result.is_of(source))?.listed.as_ref().err()
    }

    /// Reports whether a source is absent, or has not answered this session.
    pub(super) fn is_missing(&self, source: &SourceName) -> bool {
        let result = self.answered.iter().find(|result| result.is_of(source));
        result.is_some_and(|result| result.listed.as_ref().map_or(true, |listed| listed.old))
    }

    /// Reports whether the source of a result has given a list.
    pub(super) fn has_listed(&self, result: &ListResult) -> bool {
        self.answered.iter().any(|before| before.is_of(&result.upstream.config.name) && before.listed.is_ok())
    }

    /// Returns the sources that could not be discovered.
    pub(super) fn absent(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.answered.iter().filter(|result| result.listed.is_err()).map(|result| &result.upstream)
    }

    /// Returns the names of the sources and groups that are missing from the list, for an agent.
    pub(super) fn missing(&self) -> Vec<&SourceName> {
        let there = |offered_as: &SourceName| {
            let mut listed = self.answered.iter().filter(|result| result.listed.is_ok());
            listed.any(|result| result.upstream.config.offered_as() == offered_as)
        };
        let missing = self.absent().map(|upstream| upstream.config.offered_as()).filter(|name| !there(name));
        missing.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns the result of asking each source, with newer results in place of some.
    pub(super) fn with_newer_results(&self, other: Vec<ListResult>) -> Vec<ListResult> {
        let mut answered = self.answered.clone();
        for newer in other {
            match answered.iter_mut().find(|before| before.is_of(&newer.upstream.config.name)) {
                Some(before) => before.listed = newer.listed,
                None => answered.push(newer),
            }
        }
        answered
    }

    /// Returns the list with the names that earlier lists had and this one lacks.
    pub(super) fn after(mut self, before: &Self) -> Self {
        let gone = before.shown.keys().chain(&before.removed).filter(|name| !self.shown.contains_key(*name));
        self.removed = gone.cloned().collect();
        self
    }

    /// Reports whether the tools may change although the agent did not ask for that.
    pub(super) fn is_live(&self) -> bool {
        self.sources().any(|(upstream, _)| upstream.config.discovery == ToolListUpdates::Live)
    }

    /// Returns the sources that were discovered, with the result of discovery. For lists of tools only.
    pub(super) fn sources(&self) -> impl Iterator<Item = (&Arc<Upstream>, &DiscoveredSource)> {
        self.answered
            .iter()
            .filter_map(|result| Some((&result.upstream, result.listed.as_ref().ok()?.discovered.as_ref()?)))
    }
}

/// Reports whether the profile's lists and the policies of the `list` phase let the session see an item.
pub(super) async fn may_see(context: &Context, caller: &Arc<Caller>, filter: &ItemFilter, entry: &VisibleItem) -> bool {
    filter.admits(&entry.item) && context.gate.shows(&about_to_be_shown(entry, caller)).await
}

/// Returns the call by which policies decide whether an item is shown.
fn about_to_be_shown(entry: &VisibleItem, caller: &Arc<Caller>) -> Arc<Call> {
    let method = entry.item.kind.use_method();
    let params = Params::parse(&method, Json::empty_object());
    Arc::new(Call::new(&method, params, caller, entry.item.clone(), entry.risk))
}

/// The names that a record lists, and the number of the others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RecordedNames<'a> {
    pub(super) listed: Vec<&'a str>,
    pub(super) further: usize,
}

impl<'a> RecordedNames<'a> {
    /// Lists the first of these names, as many as a record has room for, and counts the others.
    pub(super) fn of(names: impl IntoIterator<Item = &'a Arc<str>>) -> Self {
        let (mut recorded, mut room) = (Self::default(), MAX_RECORDED_BYTES);
        for name in names {
            match room.checked_sub(name.len()).filter(|_| recorded.further == 0) {
                Some(left) => {
                    recorded.listed.push(&**name);
                    room = left;
                }
                None => recorded.further += 1,
            }
        }
        recorded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_lists_the_first_names_and_counts_the_others() {
        let long = (0..100).map(|_| Arc::<str>::from("x".repeat(8 * 1024)));
        let names: Vec<Arc<str>> = long.chain([Arc::from("y")]).collect();
        let recorded = RecordedNames::of(&names);
        assert_eq!((recorded.listed.len(), recorded.further), (8, 93));
        assert_eq!(RecordedNames::of(names.last()), RecordedNames { listed: vec!["y"], further: 0 });
    }
}
