//! Rewrites a tool's input schema for models that read only a part of JSON Schema, and restores the arguments that they
//! send to the form that the tool's source asked for.
//!
//! The repaired schema never permits more than the source's own, except where a [`RepairKind`] says so. So arguments
//! that are valid by the repaired schema are valid by the source's, once [`Repair::restore`] has restored them.
//! Arguments that already have the source's form are left unchanged.

mod alternatives;
mod budget;
mod correct;
mod document;
mod flatten;
mod keywords;
mod merge;
mod node;
mod plan;
mod problems;
mod resolve;
mod restore;
mod types;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::limits::MAX_DEFINITION_BYTES;
use crate::protocol::Json;

use node::NodeBuilder;
use plan::RestorePlan;
pub use problems::{SchemaProblem, schema_problems};
pub use restore::RestoreError;

/// The largest number of steps of one repair that are kept for people. Further steps are only counted.
const MAX_STEPS: usize = 64;

/// The most characters of the detail of one step. Details name what the source chose, which may be a text of 256 KiB.
const MAX_DETAIL: usize = 512;

/// The longest JSON Pointer that is made, in bytes. Each part of a schema has one, with the names of all parts around
/// it.
const MAX_POINTER: usize = 4096;

/// The repair of one input schema.
#[derive(Debug)]
pub struct Repair {
    schema: Option<Json>,
    repairs: Repairs,
    plan: RestorePlan,
}

/// One thing that was changed in a schema.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct RepairStep {
    /// The kind of the change.
    pub kind: RepairKind,
    /// The JSON Pointer to the changed part of the source's schema, or to one around it if that would take more than
    /// 4 KiB. Escape it before showing it.
    pub at: String,
    /// The detail, such as the name of a keyword or the new name of a property, cut after 512 characters. Escape it
    /// before showing it.
    pub what: String,
}

/// The kind of a change in a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RepairKind {
    /// A `$ref` was replaced by its target.
    Reference,
    /// An `allOf` was merged into one schema.
    Merged,
    /// An `anyOf` or `oneOf` was simplified, or written as `anyOf`.
    Alternatives,
    /// A list of types, a missing type or `null` was written in another way.
    Type,
    /// A list of values or a constant was written as a list of texts.
    Values,
    /// A keyword that many models do not read was removed or written in another way; the same arguments are valid.
    Keyword,
    /// The property of a nested object became one of the object around it.
    Flattened,
    /// A property was given a name of letters, digits and `_`.
    Renamed,
    /// A constraint that cannot be expressed is only mentioned in the description: a model may break it.
    Loosened,
    /// Nothing else helped, and a generic object replaces the schema: a model learns only that it is an object.
    Generic,
}

impl RepairKind {
    /// Returns the word that the ledger and messages use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::Merged => "merged",
            Self::Alternatives => "alternatives",
            Self::Type => "type",
            Self::Values => "values",
            Self::Keyword => "keyword",
            Self::Flattened => "flattened",
            Self::Renamed => "renamed",
            Self::Loosened => "loosened",
            Self::Generic => "generic",
        }
    }

    /// Reports whether any value that is valid by the repaired part is valid by the source's own, once restored.
    #[must_use]
    pub fn is_exact(self) -> bool {
        !matches!(self, Self::Loosened | Self::Generic)
    }
}

impl Repair {
    /// Repairs an input schema. An invalid schema is repaired as far as it can be read.
    #[must_use]
    pub fn of(schema: &Json) -> Self {
        let own = schema.read::<Value>().unwrap_or_default();
        let mut builder = NodeBuilder::new(&own);
        let root = builder.root();
        let (repaired, mut plan) = builder.emit(root, "");
        let mut repairs = builder.repairs;
        let mut repaired = Json::of(&repaired);
        if repaired.as_bytes().len() > MAX_DEFINITION_BYTES {
            repaired = Json::of(&serde_json::json!({ "type": "object", "properties": {} }));
            plan = RestorePlan::Keep;
            repairs = Repairs::default();
            let what = format!("the repaired schema would take more than {MAX_DEFINITION_BYTES} bytes");
            repairs.add(RepairKind::Generic, "", what);
        }
        Self { schema: (!repairs.counts.is_empty()).then_some(repaired), repairs, plan }
    }

    /// Returns the repaired schema, or `None` if the source's own needs no repair.
    #[must_use]
    pub fn schema(&self) -> Option<&Json> {
        self.schema.as_ref()
    }

    /// Returns the first 64 changes, in the order in which they were made.
    #[must_use]
    pub fn steps(&self) -> &[RepairStep] {
        &self.repairs.steps
    }

    /// Returns the number of changes of each kind.
    #[must_use]
    pub fn counts(&self) -> &BTreeMap<RepairKind, usize> {
        &self.repairs.counts
    }

    /// Returns the arguments of a call in the form that the source asked for, or `None` if they have it already.
    ///
    /// # Errors
    /// [`RestoreError`] if two of the arguments stand for the same one of the source's.
    pub fn restore(&self, arguments: &Json) -> Result<Option<Json>, RestoreError> {
        restore::restore(&self.plan, arguments)
    }

    /// Returns a definition with the repaired schema in place of its own, and everything else byte for byte.
    #[must_use]
    pub fn applied_to(&self, definition: Json) -> Json {
        let repaired = self.schema.as_ref().and_then(|schema| definition.with("inputSchema", schema));
        repaired.unwrap_or(definition)
    }
}

/// The changes so far.
#[derive(Debug, Default)]
struct Repairs {
    steps: Vec<RepairStep>,
    counts: BTreeMap<RepairKind, usize>,
}

impl Repairs {
    fn add(&mut self, kind: RepairKind, at: &str, what: impl Into<String>) {
        *self.counts.entry(kind).or_default() += 1;
        if self.steps.len() < MAX_STEPS {
            let mut what = what.into();
            if let Some((end, _)) = what.char_indices().nth(MAX_DETAIL) {
                what.truncate(end);
                what.push('…');
            }
            self.steps.push(RepairStep { kind, at: at.to_owned(), what });
        }
    }
}

/// The members of a schema.
type Members = Map<String, Value>;

/// Returns a JSON Pointer extended by one key, or the pointer itself if it would get too long.
fn pointer(at: &str, key: &str) -> String {
    if at.len() + key.len() >= MAX_POINTER {
        return at.to_owned();
    }
    format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests;
