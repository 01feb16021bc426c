//! Resolves a schema: replaces each `$ref` by its target, and merges each `allOf`.

use serde_json::Value;

use super::budget::{WorkBudget, weight};
use super::document::Document;
use super::merge::merge;
use super::{Members, RepairKind, Repairs, pointer};

/// The work that one repair may take: values of the schema that are copied, and 64 bytes of their text each. References
/// to references can make a small schema as large as they like; beyond this limit a generic object stands for each
/// part.
const MAX_WORK: usize = 200_000;

/// The largest number of references and `allOf` that lead to one part, one inside the other.
const MAX_DEPTH: usize = 32;

/// The number of open references that are compared with a further one at the cost of one value that is copied.
const OPEN_PER_STEP: usize = 8;

/// The reason given to people for parts beyond [`MAX_WORK`].
pub(super) const TOO_LARGE: &str = "it is larger than what is repaired, with everything that it refers to";

/// Resolves the parts of one schema.
pub(super) struct Resolver<'a> {
    document: Document<'a>,
    pub(super) budget: WorkBudget,
    /// The references that lead to the part at hand. One that is in here already is a circle.
    references: Vec<String>,
}

/// A part of a schema in which nothing refers to another part.
pub(super) enum Resolved {
    Schema(Members),
    /// No value is valid.
    Never,
    /// It cannot be resolved, and why.
    Unresolved(String),
}

impl<'a> Resolver<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        Self { document: Document::new(root), budget: WorkBudget::new(MAX_WORK), references: Vec::new() }
    }

    /// Returns the number of references that are open, for [`close`](Self::close).
    pub(super) fn open(&self) -> usize {
        self.references.len()
    }

    /// Forgets the references that were opened since. Called when everything below a part is built.
    pub(super) fn close(&mut self, open: usize) {
        self.references.truncate(open);
    }

    /// Like [`close`](Self::close), and returns the references, for [`reopen`](Self::reopen).
    pub(super) fn close_and_keep(&mut self, open: usize) -> Vec<String> {
        self.references.split_off(open.min(self.references.len()))
    }

    /// Opens references again.
    pub(super) fn reopen(&mut self, references: Vec<String>) {
        self.references.extend(references);
    }

    /// Counts the work of copying a schema so often. Returns false if that is more than a repair may take.
    pub(super) fn afford(&mut self, members: &Members, times: usize) -> bool {
        let one: usize = members.values().map(weight).sum();
        self.budget.spend(one.saturating_mul(times))
    }

    /// Resolves a part. The references that lead to its content stay open.
    pub(super) fn resolve(&mut self, schema: &Value, at: &str, repairs: &mut Repairs) -> Resolved {
        let above = self.references.len();
        self.resolve_below(above, &mut Vec::new(), schema, at, repairs)
    }

    /// Resolves a part to which the first `above` open references and those of the `chain` lead.
    fn resolve_below(
        &mut self,
        above: usize,
        chain: &mut Vec<String>,
        schema: &Value,
        at: &str,
        repairs: &mut Repairs,
    ) -> Resolved {
        let own = match schema {
            Value::Bool(true) => return Resolved::Schema(Members::new()),
            Value::Bool(false) => return Resolved::Never,
            Value::Object(own) => own,
            _ => return Resolved::Unresolved("it is not a schema".to_owned()),
        };
        if chain.len() > MAX_DEPTH {
            return Resolved::Unresolved("too many references lead to it".to_owned());
        }
        if !self.budget.spend(weight(schema)) {
            return Resolved::Unresolved(TOO_LARGE.to_owned());
        }
        let mut members = own.clone();
        if let Some(other) = ["$dynamicRef", "$recursiveRef"].iter().find(|keyword| members.contains_key(**keyword)) {
            return Resolved::Unresolved(format!("`{other}` is not resolved"));
        }
        if let Some(reference) = members.remove("$ref") {
            match self.referred(above, chain, &reference, at, repairs) {
                Resolved::Schema(referred) => {
                    let mut lost = |lost| repairs.add(RepairKind::Loosened, at, lost);
                    if let Err(why) = merge(&mut members, referred, &mut self.budget, &mut lost) {
                        return Resolved::Unresolved(why.to_string());
                    }
                }
                other => return other,
            }
        }
        let Some(Value::Array(all)) = members.get("allOf").cloned() else { return Resolved::Schema(members) };
        members.remove("allOf");
        repairs.add(RepairKind::Merged, at, "allOf");
        for (number, part) in all.iter().enumerate() {
            let part_at = pointer(&pointer(at, "allOf"), &number.to_string());
            // No reference is empty: this counts as a step of the chain, and is equal to none.
            chain.push(String::new());
            let resolved = self.resolve_below(above, chain, part, &part_at, repairs);
            chain.pop();
            match resolved {
                Resolved::Schema(part) => {
                    let mut lost = |lost| repairs.add(RepairKind::Loosened, &part_at, lost);
                    if let Err(why) = merge(&mut members, part, &mut self.budget, &mut lost) {
                        return Resolved::Unresolved(why.to_string());
                    }
                }
                other => return other,
            }
        }
        Resolved::Schema(members)
    }

    fn referred(
        &mut self,
        above: usize,
        chain: &mut Vec<String>,
        reference: &Value,
        at: &str,
        repairs: &mut Repairs,
    ) -> Resolved {
        let Some(reference) = reference.as_str() else {
            return Resolved::Unresolved("its `$ref` is not a string".to_owned());
        };
        if !self.budget.spend(above / OPEN_PER_STEP) {
            return Resolved::Unresolved(TOO_LARGE.to_owned());
        }
        if self.references.iter().take(above).chain(chain.iter()).any(|open| open == reference) {
            return Resolved::Unresolved(format!("it refers to itself: {reference}"));
        }
        let Some(found) = self.document.find(reference) else {
            return Resolved::Unresolved(format!("{reference} is not in this schema"));
        };
        repairs.add(RepairKind::Reference, at, reference);
        self.references.push(reference.to_owned());
        chain.push(reference.to_owned());
        let resolved = self.resolve_below(above, chain, found, at, repairs);
        chain.pop();
        resolved
    }
}
