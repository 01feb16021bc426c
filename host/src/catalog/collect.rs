//! Collects the items of one kind that one source offers: names and digests them, and leaves out what cannot be
//! offered.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use super::naming::{ExposedName, NamingError, expose};
use super::{CatalogError, plural};
use crate::config::{Naming, SourceConfig};
use crate::digest::Digest;
use crate::item::{ExposedDefinition, Item, ItemKind, ToolAnnotations};
use crate::limits::{MAX_DEFINITION_BYTES, MAX_ITEMS_PER_SOURCE, MAX_TOOLS_PER_SOURCE};
use crate::metrics::SeriesLink;
use crate::protocol::{CanonicalError, Json};

/// The number of characters of a bad name that a remark repeats. A name may be of any length and hold anything.
const MAX_SHOWN: usize = 128;

/// The items of one kind that one source offers, and remarks on those that are not offered unchanged.
#[derive(Debug, Clone, Default)]
pub struct CollectedItems {
    /// The items, in the source's own order.
    pub items: Vec<Arc<Item>>,
    /// Remarks on definitions that are renamed or not offered.
    pub remarks: Vec<Remark>,
}

/// A note on one definition that the broker could not offer unchanged: its action instead, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Remark {
    /// The source's own name for the item, cut to 128 characters. Escape it before showing it.
    pub name: String,
    /// The name under which the item is offered instead, or `None` if it is left out.
    pub exposed: Option<String>,
    /// The reason.
    pub why: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, exposed, why } = self;
        match exposed {
            Some(exposed) => write!(f, "{name:?} is offered as `{exposed}`: {why}"),
            None => write!(f, "{name:?} is left out: {why}"),
        }
    }
}

/// The reason why one definition is left out. The other items of its source are still offered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Flaw {
    #[error("it has no {}", .0.key())]
    NoName(ItemKind),
    #[error("{0}")]
    Naming(#[from] NamingError),
    #[error("its definition takes {0} bytes, more than the limit of {MAX_DEFINITION_BYTES}")]
    TooLarge(usize),
    #[error("its definition is ambiguous: {0}")]
    Ambiguous(#[from] CanonicalError),
    #[error("the source already offers another one with this name")]
    Twice,
}

/// A definition that can be offered.
struct Candidate<'a> {
    name: String,
    exposed: ExposedName,
    definition: &'a Json,
    digest: Digest,
}

/// Names and digests the items of one kind that one source offers. Only the definitions that cannot be offered are left
/// out, and a name that is not safe for every client is exposed in an escaped form; a [`Remark`] reports each case.
///
/// # Errors
/// [`CatalogError::Limit`] if the source offers more than [`MAX_TOOLS_PER_SOURCE`] or [`MAX_ITEMS_PER_SOURCE`].
pub fn items_of(kind: ItemKind, config: &SourceConfig, definitions: &[Json]) -> Result<CollectedItems, CatalogError> {
    let limit = if kind == ItemKind::Tool { MAX_TOOLS_PER_SOURCE } else { MAX_ITEMS_PER_SOURCE };
    if definitions.len() > limit {
        let what = format!("offers {} {}, more than the limit of {limit}", definitions.len(), plural(kind));
        return Err(CatalogError::Limit { source_name: config.name.clone(), what });
    }
    let mut collected = CollectedItems::default();
    let (mut candidates, mut names) = (Vec::with_capacity(definitions.len()), HashSet::new());
    for definition in definitions {
        let name = definition.get_str(kind.key()).unwrap_or_default();
        match candidate(kind, config, &name, definition) {
            Ok(candidate) if names.insert(name.clone()) => candidates.push(candidate),
            Ok(_) => collected.leave_out(&name, &Flaw::Twice),
            Err(flaw) => collected.leave_out(&name, &flaw),
        }
    }
    let mut wanted: HashMap<String, usize> = HashMap::new();
    candidates.iter().for_each(|candidate| *wanted.entry(candidate.exposed.name.clone()).or_default() += 1);
    let tags: Arc<[String]> = config.tags.clone().into();
    let group = config.group.as_ref().filter(|_| kind == ItemKind::Tool).map(|member| &member.group);
    let mut taken = HashSet::new();
    for Candidate { name, exposed, definition, digest } in candidates {
        // Several names can become equal when they are made safe. The item that has exactly that name keeps it, in any
        // order.
        let shared = !exposed.is_exact() && wanted.get(&exposed.name).is_some_and(|count| *count > 1);
        let odd = exposed.is_escaped();
        let exposed: Arc<str> = if shared { exposed.disambiguated() } else { exposed.name }.into();
        if !taken.insert(exposed.clone()) {
            collected.leave_out(&name, &Flaw::Twice);
            continue;
        }
        if odd || shared {
            let why = if odd {
                "its name holds characters that clients refuse or that others can imitate"
            } else {
                "another name of its source would be exposed as the same one"
            };
            collected.remark(&name, Some(&exposed), why.to_owned());
        }
        collected.items.push(Arc::new(Item {
            kind,
            source: config.name.clone(),
            group: group.cloned(),
            name: name.into(),
            exposed,
            definition: definition.clone(),
            digest,
            hints: ToolAnnotations::of(definition),
            tags: tags.clone(),
            series_link: SeriesLink::default(),
            exposed_definition: ExposedDefinition::default(),
        }));
    }
    Ok(collected)
}

fn candidate<'a>(
    kind: ItemKind,
    config: &SourceConfig,
    name: &str,
    definition: &'a Json,
) -> Result<Candidate<'a>, Flaw> {
    if definition.get_str(kind.key()).is_none() {
        return Err(Flaw::NoName(kind));
    }
    let size = definition.as_bytes().len();
    if size > MAX_DEFINITION_BYTES {
        return Err(Flaw::TooLarge(size));
    }
    // Members of a group offer their tools under the group's name, and all other items under their own.
    let group = config.group.as_ref().filter(|_| kind == ItemKind::Tool).map(|member| &member.group);
    let (offerer, names) = group.map_or((&config.name, &config.names), |group| (group, &Naming::Source));
    let exposed = expose(kind, offerer, names, name)?;
    Ok(Candidate { name: name.to_owned(), exposed, definition, digest: Digest::of_json(definition)? })
}

impl CollectedItems {
    fn leave_out(&mut self, name: &str, flaw: &Flaw) {
        self.remark(name, None, flaw.to_string());
    }

    fn remark(&mut self, name: &str, exposed: Option<&str>, why: String) {
        let name = name.chars().take(MAX_SHOWN).collect();
        self.remarks.push(Remark { name, exposed: exposed.map(str::to_owned), why });
    }
}
