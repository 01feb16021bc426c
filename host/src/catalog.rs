//! The catalog: all items that the sources offer, under the names that agents see.

mod borrowed;
mod collect;
mod filter;
mod naming;
mod search;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::item::{Item, ItemKind};
use crate::name::SourceName;

pub(crate) use borrowed::borrowed_names;
pub use collect::{CollectedItems, Remark, items_of};
pub(crate) use filter::is_match;
pub use filter::{FilterError, ItemFilter};
pub use naming::{MAX_EXPOSED_BYTES, MAX_URI_BYTES, NamingError};
pub(crate) use naming::{ResolvedUri, exposed_uri, resolve_uri};
pub use search::{Index, ToolQuery};

/// All items of one kind that a set of sources offers.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    items: Vec<Arc<Item>>,
    by_exposed: HashMap<Arc<str>, usize>,
}

/// The reason why a set of items cannot form a catalog.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// A source offers more than [`MAX_TOOLS_PER_SOURCE`](crate::limits::MAX_TOOLS_PER_SOURCE) or
    /// [`MAX_ITEMS_PER_SOURCE`](crate::limits::MAX_ITEMS_PER_SOURCE).
    #[error("source `{source_name}` {what}")]
    Limit {
        /// The source.
        source_name: SourceName,
        /// The number that was offered, and the limit that it exceeds.
        what: String,
    },
}

/// A name under which more than one source, or a source and the broker, offer an item. Nobody gets it: an agent could
/// not tell whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContestedName {
    /// The exposed name.
    pub exposed: Arc<str>,
    /// The sources that offer it.
    pub sources: Vec<SourceName>,
    /// The sentence that names the sources that offer it, and the way out.
    pub message: String,
}

impl ContestedName {
    fn between(first: &Item, second: &Item) -> Self {
        let message = format!(
            "{} `{}` is offered by source `{}` and by source `{}`; give one of them another `names` (`\"source\"`, or \
             `{{ prefix = \"…\" }}`)",
            label(first.kind),
            first.exposed,
            first.source,
            second.source,
        );
        let sources = vec![first.source.clone(), second.source.clone()];
        Self { exposed: first.exposed.clone(), sources, message }
    }

    /// Returns an item's name as one that a missing source has: another must not take its place meanwhile.
    pub(crate) fn of_missing(item: &Item, missing: &SourceName) -> Self {
        let message = format!(
            "{} `{}` of source `{}` is one that source `{missing}` has, which is missing; give one of them another \
             `names` (`\"source\"`, or `{{ prefix = \"…\" }}`)",
            label(item.kind),
            item.exposed,
            item.source,
        );
        Self { exposed: item.exposed.clone(), sources: vec![item.source.clone()], message }
    }
}

fn label(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Tool => "tool name",
        ItemKind::Prompt => "prompt name",
        ItemKind::Resource => "resource",
        ItemKind::Template => "resource template",
        ItemKind::Source => "source",
    }
}

fn plural(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Tool => "tools",
        ItemKind::Prompt => "prompts",
        ItemKind::Resource => "resources",
        ItemKind::Template => "resource templates",
        ItemKind::Source => "sources",
    }
}

impl Catalog {
    /// Merges the items of several sources, in the order given. If members of a group offer the same name, the first
    /// counts. Names that other sources contest are left out, and returned.
    pub fn merge(sources: impl IntoIterator<Item = Vec<Arc<Item>>>) -> (Self, Vec<ContestedName>) {
        let (mut catalog, mut contested) = (Self::default(), Vec::<ContestedName>::new());
        for item in sources.into_iter().flatten() {
            match catalog.get(&item.exposed) {
                Some(first) if first.group.is_some() && first.group == item.group => continue,
                Some(first) => contested.push(ContestedName::between(first, &item)),
                None => {
                    catalog.by_exposed.insert(item.exposed.clone(), catalog.items.len());
                    catalog.items.push(item);
                }
            }
        }
        contested.dedup_by(|a, b| a.exposed == b.exposed);
        (catalog.without(&contested), contested)
    }

    /// Returns the catalog without these names.
    pub(crate) fn without(self, contested: &[ContestedName]) -> Self {
        if contested.is_empty() {
            return self;
        }
        let names: HashSet<&str> = contested.iter().map(|it| &*it.exposed).collect();
        let items: Vec<_> = self.items.into_iter().filter(|item| !names.contains(&*item.exposed)).collect();
        let by_exposed = items.iter().enumerate().map(|(place, item)| (item.exposed.clone(), place)).collect();
        Self { items, by_exposed }
    }

    /// Returns the items, in the order in which the sources were merged, and for each source in its own order.
    #[must_use]
    pub fn items(&self) -> &[Arc<Item>] {
        &self.items
    }

    /// Returns the item with this exposed name.
    #[must_use]
    pub fn get(&self, exposed: &str) -> Option<&Arc<Item>> {
        self.items.get(*self.by_exposed.get(exposed)?)
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
