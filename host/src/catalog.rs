//! The catalog: all that the sources offer, under the names that agents see.

mod filter;
mod item;
mod lock;
mod naming;
mod search;

use std::collections::HashMap;
use std::sync::Arc;

use crate::config::{Naming, SourceConfig};
use crate::digest::{CanonicalError, Digest};
use crate::message::Json;
use crate::name::SourceName;

pub use crate::metrics::Tally;
pub use filter::{Filter, FilterError};
pub use item::{Hints, Item, Kind};
pub use lock::{Acceptance, Lock, LockError, Locked, LockedPackage};
pub use naming::{MAX_EXPOSED_BYTES, MAX_URI_BYTES, NamingError};
pub(crate) use naming::{Resolved, exposed_uri, resolve_uri};
pub use search::{Index, Wanted};

/// The most tools one source may offer: more than any known server has, fewer than would drown a model or the broker.
pub const MAX_TOOLS_PER_SOURCE: usize = 1_000;

/// The most prompts, resources or templates of one source. Servers of files list hundreds; beyond this they have templates.
pub const MAX_ITEMS_PER_SOURCE: usize = 10_000;

/// The largest definition of one item, in bytes. The largest known real one, of a tool, has 20 KiB.
pub const MAX_DEFINITION_BYTES: usize = 256 * 1024;

/// All items of one kind, of a set of sources.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    items: Vec<Arc<Item>>,
    by_exposed: HashMap<Arc<str>, usize>,
}

/// Why a set of items is no catalog.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// A definition is no object with a `name`, `uri` or `uriTemplate`, as its kind needs one.
    #[error("source `{source_name}` offers a {} without a {}", kind.as_str(), kind.key())]
    NoName {
        /// The source.
        source_name: SourceName,
        /// Of which kind.
        kind: Kind,
    },
    /// The name cannot be exposed.
    #[error("source `{source_name}`: {error}")]
    Naming {
        /// The source.
        source_name: SourceName,
        /// What is wrong with it.
        error: NamingError,
    },
    /// The definition has no canonical form, so that it cannot be pinned.
    #[error("source `{source_name}`: the definition of {} `{name}` is ambiguous: {error}", kind.as_str())]
    Ambiguous {
        /// The source.
        source_name: SourceName,
        /// Of which kind.
        kind: Kind,
        /// The item.
        name: String,
        /// Why.
        error: CanonicalError,
    },
    /// Over [`MAX_TOOLS_PER_SOURCE`], [`MAX_ITEMS_PER_SOURCE`] or [`MAX_DEFINITION_BYTES`].
    #[error("source `{source_name}` {what}")]
    Limit {
        /// The source.
        source_name: SourceName,
        /// Which limit.
        what: String,
    },
    /// The same name twice.
    #[error(
        "{} `{exposed}` is offered by source `{first}` and by source `{second}`; give one of them another `names` \
         (`\"source\"`, or `{{ prefix = \"…\" }}`)",
        label(*kind)
    )]
    Collision {
        /// Of which kind.
        kind: Kind,
        /// The exposed name.
        exposed: String,
        /// Who had it.
        first: SourceName,
        /// Who wants it too.
        second: SourceName,
    },
    /// The same name twice from one source.
    #[error("source `{source_name}` offers two {} that would both be called `{exposed}`", plural(*kind))]
    Duplicate {
        /// Of which kind.
        kind: Kind,
        /// The source.
        source_name: SourceName,
        /// The exposed name.
        exposed: String,
    },
}

fn label(kind: Kind) -> &'static str {
    match kind {
        Kind::Tool => "tool name",
        Kind::Prompt => "prompt name",
        Kind::Resource => "resource",
        Kind::Template => "resource template",
        Kind::Source => "source",
    }
}

fn plural(kind: Kind) -> &'static str {
    match kind {
        Kind::Tool => "tools",
        Kind::Prompt => "prompts",
        Kind::Resource => "resources",
        Kind::Template => "resource templates",
        Kind::Source => "sources",
    }
}

/// Names and digests what one source offers of one kind.
///
/// # Errors
/// See [`CatalogError`]; one bad item refuses the source's whole list, because a source that plays with names is not to be
/// trusted with the rest.
pub fn items_of(kind: Kind, config: &SourceConfig, definitions: &[Json]) -> Result<Vec<Arc<Item>>, CatalogError> {
    let source_name = || config.name.clone();
    let limit = if kind == Kind::Tool { MAX_TOOLS_PER_SOURCE } else { MAX_ITEMS_PER_SOURCE };
    if definitions.len() > limit {
        let what = format!("offers {} {}, more than the limit of {limit}", definitions.len(), plural(kind));
        return Err(CatalogError::Limit { source_name: source_name(), what });
    }
    let tags: Arc<[String]> = config.tags.clone().into();
    // Members of a group offer their tools under its name; all else is what each has for itself.
    let group = config.group.as_ref().filter(|_| kind == Kind::Tool).map(|member| &member.group);
    let (offerer, names) = group.map_or((&config.name, &config.names), |group| (group, &Naming::Source));
    let mut items = Vec::with_capacity(definitions.len());
    let mut seen = std::collections::HashSet::new();
    for definition in definitions {
        let name = definition.get_str(kind.key());
        let name = name.ok_or_else(|| CatalogError::NoName { source_name: source_name(), kind })?;
        let size = definition.as_bytes().len();
        if size > MAX_DEFINITION_BYTES {
            let kind = kind.as_str();
            let what = format!("defines a {kind} in {size} bytes, more than the limit of {MAX_DEFINITION_BYTES}");
            return Err(CatalogError::Limit { source_name: source_name(), what });
        }
        let exposed: Arc<str> = naming::expose(kind, offerer, names, &name)
            .map_err(|error| CatalogError::Naming { source_name: source_name(), error })?
            .into();
        if !seen.insert(exposed.clone()) {
            return Err(CatalogError::Duplicate { kind, source_name: source_name(), exposed: exposed.to_string() });
        }
        let digest = Digest::of_json(definition).map_err(|error| CatalogError::Ambiguous {
            source_name: source_name(),
            kind,
            name: name.clone(),
            error,
        })?;
        items.push(Arc::new(Item {
            kind,
            source: source_name(),
            group: group.cloned(),
            name: name.into(),
            exposed,
            definition: definition.clone(),
            digest,
            hints: Hints::of(definition),
            tags: tags.clone(),
            tally: Tally::default(),
        }));
    }
    Ok(items)
}

impl Catalog {
    /// Merges what several sources offer, in the order given. Of members of a group that offer the same, the first counts.
    ///
    /// # Errors
    /// [`CatalogError::Collision`] if two sources expose the same name otherwise.
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

    /// The items, in the order of the sources' names and then the source's own.
    #[must_use]
    pub fn items(&self) -> &[Arc<Item>] {
        &self.items
    }

    /// The item of this exposed name.
    #[must_use]
    pub fn get(&self, exposed: &str) -> Option<&Arc<Item>> {
        self.items.get(*self.by_exposed.get(exposed)?)
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
