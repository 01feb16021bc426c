//! The catalog: all items that the sources offer, under the names that agents see.

mod collect;
mod filter;
mod naming;
mod search;

use std::collections::HashMap;
use std::sync::Arc;

use crate::item::{Item, ItemKind};
use crate::name::SourceName;

pub use collect::{Collected, Remark, items_of};
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
    /// Two sources expose the same name.
    #[error(
        "{} `{exposed}` is offered by source `{first}` and by source `{second}`; give one of them another `names` \
         (`\"source\"`, or `{{ prefix = \"…\" }}`)",
        label(*kind)
    )]
    Collision {
        /// The kind of the items.
        kind: ItemKind,
        /// The exposed name.
        exposed: String,
        /// The source that offered the name first.
        first: SourceName,
        /// The source that also offers the name.
        second: SourceName,
    },
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
    /// counts.
    ///
    /// # Errors
    /// [`CatalogError::Collision`] if two sources that are not members of one group expose the same name.
    pub fn merge(sources: impl IntoIterator<Item = Vec<Arc<Item>>>) -> Result<Self, CatalogError> {
        let mut catalog = Self::default();
        for item in sources.into_iter().flatten() {
            if let Some(first) = catalog.get(&item.exposed) {
                if first.group.is_some() && first.group == item.group {
                    continue;
                }
                let (first, kind, exposed) = (first.source.clone(), item.kind, item.exposed.to_string());
                return Err(CatalogError::Collision { kind, exposed, first, second: item.source.clone() });
            }
            catalog.by_exposed.insert(item.exposed.clone(), catalog.items.len());
            catalog.items.push(item);
        }
        Ok(catalog)
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
