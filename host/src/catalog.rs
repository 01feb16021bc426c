//! The catalog: all tools of all sources, under the names that agents see.

mod filter;
mod lock;
mod naming;

use std::collections::HashMap;
use std::sync::Arc;

use crate::config::SourceConfig;
use crate::digest::{CanonicalError, Digest};
use crate::message::Json;
use crate::name::SourceName;

pub use filter::{Filter, FilterError};
pub use lock::{Acceptance, Lock, LockError, Locked};
pub use naming::{MAX_EXPOSED_BYTES, NamingError};

/// The most tools one source may offer: more than any known server has, fewer than would drown a model or the broker.
pub const MAX_TOOLS_PER_SOURCE: usize = 1_000;

/// The largest definition of one tool, in bytes. The largest known real one has 20 KiB.
pub const MAX_DEFINITION_BYTES: usize = 256 * 1024;

/// One tool of one source.
#[derive(Debug, Clone)]
pub struct Tool {
    /// The source that offers it.
    pub source: SourceName,
    /// Its name at the source.
    pub name: Arc<str>,
    /// Its name for the agent.
    pub exposed: Arc<str>,
    /// An MCP `Tool` as the source gave it, byte for byte.
    pub definition: Json,
    /// Of the definition's canonical form.
    pub digest: Digest,
    /// The source's hints.
    pub hints: Hints,
    /// The source's tags.
    pub tags: Arc<[String]>,
}

impl Tool {
    /// The definition under its exposed name, everything else byte for byte.
    #[must_use]
    pub fn exposed_definition(&self) -> Json {
        self.definition.with("name", &Json::of(&&*self.exposed)).unwrap_or_else(Json::null)
    }
}

/// `ToolAnnotations`: claims of the source. None where it says nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Hints {
    /// `readOnlyHint`
    #[serde(rename = "readOnlyHint")]
    pub read_only: Option<bool>,
    /// `destructiveHint`
    #[serde(rename = "destructiveHint")]
    pub destructive: Option<bool>,
    /// `idempotentHint`
    #[serde(rename = "idempotentHint")]
    pub idempotent: Option<bool>,
    /// `openWorldHint`
    #[serde(rename = "openWorldHint")]
    pub open_world: Option<bool>,
}

impl Hints {
    fn of(definition: &Json) -> Self {
        // Annotations of a wrong shape claim nothing, and nothing is what lowers no risk.
        definition.get("annotations").and_then(|json| json.read().ok()).unwrap_or_default()
    }

    /// Whether the tool may destroy something or reach beyond its source. MCP's defaults: yes, unless the source denies it.
    #[must_use]
    pub fn grave(self) -> bool {
        let destructive = self.destructive.unwrap_or(true) && self.read_only != Some(true);
        destructive || self.open_world.unwrap_or(true)
    }

    /// Whether the source itself says that the tool is dangerous.
    #[must_use]
    pub fn raise_risk(self) -> bool {
        self.destructive == Some(true) && self.read_only != Some(true) || self.open_world == Some(true)
    }

    /// Whether the source says that the tool only reads, and nothing that contradicts it.
    #[must_use]
    pub fn claim_harmless(self) -> bool {
        self.read_only == Some(true) && self.destructive != Some(true) && self.open_world != Some(true)
    }
}

/// All tools of a set of sources.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    tools: Vec<Arc<Tool>>,
    by_exposed: HashMap<Arc<str>, usize>,
}

/// Why a set of tools is no catalog.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// A definition is no object with a `name`.
    #[error("source `{source_name}` offers a tool without a name")]
    NoName {
        /// The source.
        source_name: SourceName,
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
    #[error("source `{source_name}`: the definition of tool `{tool}` is ambiguous: {error}")]
    Ambiguous {
        /// The source.
        source_name: SourceName,
        /// The tool.
        tool: String,
        /// Why.
        error: CanonicalError,
    },
    /// Over [`MAX_TOOLS_PER_SOURCE`] or [`MAX_DEFINITION_BYTES`].
    #[error("source `{source_name}` {what}")]
    Limit {
        /// The source.
        source_name: SourceName,
        /// Which limit.
        what: String,
    },
    /// The same name twice.
    #[error(
        "tool name `{exposed}` is offered by source `{first}` and by source `{second}`; give one of them another `names` \
         (`\"source\"`, or `{{ prefix = \"…\" }}`)"
    )]
    Collision {
        /// The exposed name.
        exposed: String,
        /// Who had it.
        first: SourceName,
        /// Who wants it too.
        second: SourceName,
    },
    /// The same name twice from one source.
    #[error("source `{source_name}` offers two tools that would both be called `{exposed}`")]
    Duplicate {
        /// The source.
        source_name: SourceName,
        /// The exposed name.
        exposed: String,
    },
}

/// Names and digests the tools of one source.
///
/// # Errors
/// See [`CatalogError`]; one bad tool refuses the source, because a source that plays with names is not to be trusted with
/// the rest.
pub fn tools_of(config: &SourceConfig, definitions: &[Json]) -> Result<Vec<Arc<Tool>>, CatalogError> {
    let source_name = || config.name.clone();
    if definitions.len() > MAX_TOOLS_PER_SOURCE {
        let what = format!("offers {} tools, more than the limit of {MAX_TOOLS_PER_SOURCE}", definitions.len());
        return Err(CatalogError::Limit { source_name: source_name(), what });
    }
    let tags: Arc<[String]> = config.tags.clone().into();
    let mut tools = Vec::with_capacity(definitions.len());
    let mut seen = std::collections::HashSet::new();
    for definition in definitions {
        let name = definition.get_str("name").ok_or_else(|| CatalogError::NoName { source_name: source_name() })?;
        let size = definition.as_bytes().len();
        if size > MAX_DEFINITION_BYTES {
            let what = format!("defines a tool in {size} bytes, more than the limit of {MAX_DEFINITION_BYTES}");
            return Err(CatalogError::Limit { source_name: source_name(), what });
        }
        let exposed: Arc<str> = naming::expose(&config.name, &config.names, &name)
            .map_err(|error| CatalogError::Naming { source_name: source_name(), error })?
            .into();
        if !seen.insert(exposed.clone()) {
            return Err(CatalogError::Duplicate { source_name: source_name(), exposed: exposed.to_string() });
        }
        let digest = Digest::of_json(definition).map_err(|error| CatalogError::Ambiguous {
            source_name: source_name(),
            tool: name.clone(),
            error,
        })?;
        tools.push(Arc::new(Tool {
            source: source_name(),
            name: name.into(),
            exposed,
            definition: definition.clone(),
            digest,
            hints: Hints::of(definition),
            tags: tags.clone(),
        }));
    }
    Ok(tools)
}

impl Catalog {
    /// Merges the tools of several sources, in the order given.
    ///
    /// # Errors
    /// [`CatalogError::Collision`] if two sources expose the same name.
    pub fn merge(sources: impl IntoIterator<Item = Vec<Arc<Tool>>>) -> Result<Self, CatalogError> {
        let mut catalog = Self::default();
        for tool in sources.into_iter().flatten() {
            let index = catalog.tools.len();
            if let Some(first) = catalog.by_exposed.insert(tool.exposed.clone(), index) {
                let first = catalog.tools.get(first).map_or_else(|| tool.source.clone(), |t| t.source.clone());
                let (exposed, second) = (tool.exposed.to_string(), tool.source.clone());
                return Err(CatalogError::Collision { exposed, first, second });
            }
            catalog.tools.push(tool);
        }
        Ok(catalog)
    }

    /// The tools, in the order of the sources' names and then the source's own.
    #[must_use]
    pub fn tools(&self) -> &[Arc<Tool>] {
        &self.tools
    }

    /// The tool of this exposed name.
    #[must_use]
    pub fn get(&self, exposed: &str) -> Option<&Arc<Tool>> {
        self.tools.get(*self.by_exposed.get(exposed)?)
    }
}

#[cfg(test)]
mod tests;
