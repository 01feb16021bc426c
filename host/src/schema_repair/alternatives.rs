//! Simplifies alternatives: `anyOf` and `oneOf`.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::keywords::Words;
use super::merge::{MergeError, joined, merge};
use super::node::{Node, NodeBuilder, NodeKind};
use super::plan::RestorePlan;
use super::resolve::Resolved;
use super::types::Types;
use super::{Members, RepairKind, pointer};

/// The most comparisons of two alternatives, and of their members and values, that one repair takes to find out whether
/// they exclude each other. Beyond this limit the description tells a model that only one may match.
pub(super) const MAX_COMPARISONS: usize = 200_000;

/// The keywords of an alternative that is only a list of values.
const OF_VALUES: [&str; 5] = ["type", "const", "enum", "title", "description"];

/// An alternative, and the references that lead to its content.
struct Alternative {
    members: Result<Members, String>,
    references: Vec<String>,
}

impl NodeBuilder<'_> {
    /// Builds a part that has alternatives, or returns `None` if it has none.
    pub(super) fn alternatives(&mut self, members: &mut Members, at: &str) -> Option<Node> {
        let (keyword, list) = self.take_alternatives(members, at)?;
        let words = Words::of(members, at, &mut self.repairs);
        if !self.resolver.afford(members, list.len()) {
            return Some(self.generic(at, format!("`{keyword}` is larger than what is repaired")));
        }
        let (mut found, mut nullable) = (Vec::new(), false);
        for (number, alternative) in list.iter().enumerate() {
            let alternative_at = pointer(&pointer(at, keyword), &number.to_string());
            let open = self.resolver.open();
            let resolved = self.resolver.resolve(alternative, &alternative_at, &mut self.repairs);
            let references = self.resolver.close_and_keep(open);
            let resolved = match resolved {
                Resolved::Schema(own) if is_null(&own) => {
                    nullable = true;
                    continue;
                }
                Resolved::Schema(own) => own,
                Resolved::Never => continue,
                Resolved::Unresolved(why) => {
                    found.push(Alternative { members: Err(why), references });
                    continue;
                }
            };
            let (mut merged, repairs) = (resolved, &mut self.repairs);
            let mut lost = |lost| repairs.add(RepairKind::Loosened, &alternative_at, lost);
            match merge(&mut merged, members.clone(), &mut self.resolver.budget, &mut lost) {
                Ok(()) => found.push(Alternative { members: Ok(merged), references }),
                Err(MergeError::Impossible(_)) => {}
                Err(why @ MergeError::TooLarge) => {
                    found.push(Alternative { members: Err(why.to_string()), references });
                }
            }
        }
        nullable &= Types::declared(members).is_none_or(|types| types.contains(Types::NULL));
        let node = match values_of(&found) {
            Some(values) => self.node(Members::from_iter([("enum".to_owned(), values)]), at),
            None => self.any_of(found, keyword, at),
        };
        let nullable = nullable || node.nullable;
        Some(Node { words: words.or(node.words), nullable, kind: node.kind })
    }

    /// Takes the alternatives out of a schema. If there are both `anyOf` and `oneOf`, the first is only described.
    fn take_alternatives(&mut self, members: &mut Members, at: &str) -> Option<(&'static str, Vec<Value>)> {
        let list = |members: &mut Members, keyword| match members.get(keyword) {
            Some(Value::Array(list)) if !list.is_empty() => {
                let list = list.clone();
                members.remove(keyword);
                Some((keyword, list))
            }
            _ => None,
        };
        let taken = list(members, "oneOf").or_else(|| list(members, "anyOf"))?;
        self.repairs.add(RepairKind::Alternatives, at, taken.0);
        Some(taken)
    }

    /// Builds the alternatives one by one, and writes the remaining ones.
    fn any_of(&mut self, found: Vec<Alternative>, keyword: &str, at: &str) -> Node {
        let (mut nodes, only) = (Vec::new(), found.len() == 1);
        for Alternative { members, references } in found {
            let open = self.resolver.open();
            self.resolver.reopen(references);
            nodes.push(match members {
                Ok(members) => self.node(members, at),
                Err(why) => self.generic(at, why),
            });
            self.resolver.close(open);
        }
        if only && let Some(node) = nodes.pop() {
            return node;
        }
        let nullable = nodes.iter().any(|node| node.nullable);
        let (mut written, mut plans, mut known) = (Vec::new(), Vec::new(), HashSet::new());
        for node in nodes {
            let (schema, plan) = self.emit(Node { nullable: false, ..node }, at);
            if known.insert(schema.clone()) {
                written.push(schema);
                plans.push(plan);
            }
        }
        let mut words = Words::default();
        if keyword == "oneOf" && !self.exclude_each_other(&plans) {
            self.repairs.add(RepairKind::Loosened, at, keyword);
            words.note("Exactly one of the alternatives must match");
        }
        match (written.len(), written.first()) {
            (0, _) => Node { nullable, ..self.generic(at, "none of its alternatives is possible") },
            (1, Some(Value::Object(schema))) => {
                let plan = plans.pop().unwrap_or(RestorePlan::Keep);
                Node { words, nullable, kind: NodeKind::Leaf(schema.clone(), plan) }
            }
            _ => {
                let schema = Members::from_iter([("anyOf".to_owned(), Value::Array(written))]);
                Node { words, nullable, kind: NodeKind::Leaf(schema, RestorePlan::Variants(plans)) }
            }
        }
    }

    /// Reports whether no value is described by two of the plans. Returns false if that takes too many comparisons to
    /// find out.
    fn exclude_each_other(&mut self, plans: &[RestorePlan]) -> bool {
        let mut disjoint = |plan: &RestorePlan, other| plan.is_disjoint(other, &mut self.comparisons);
        let mut pairs = plans.iter().enumerate();
        pairs.all(|(number, plan)| plans.iter().skip(number + 1).all(|other| disjoint(plan, other)))
    }

    /// Makes one object of alternatives at the root, with the members of all. The alternatives themselves are described
    /// in words.
    ///
    /// # Errors
    /// The reason why that exceeds the limits of a repair.
    pub(super) fn one_object(&mut self, mut members: Members) -> Result<Members, String> {
        let Some((keyword, list)) = self.take_alternatives(&mut members, "") else { return Ok(members) };
        let mut objects = Vec::new();
        for (number, alternative) in list.iter().enumerate() {
            let at = pointer(&pointer("", keyword), &number.to_string());
            let open = self.resolver.open();
            let resolved = self.resolver.resolve(alternative, &at, &mut self.repairs);
            self.resolver.close(open);
            if let Resolved::Schema(own) = resolved
                && Types::declared(&own).is_none_or(|types| types.contains(Types::OBJECT))
            {
                objects.push(own);
            }
        }
        members.entry("type").or_insert_with(|| json!("object"));
        if objects.len() == 1
            && let Some(only) = objects.pop()
        {
            let repairs = &mut self.repairs;
            let mut lost = |lost| repairs.add(RepairKind::Loosened, "", lost);
            match merge(&mut members, only, &mut self.resolver.budget, &mut lost) {
                Ok(()) => return Ok(members),
                Err(MergeError::Impossible(_)) => {}
                Err(why @ MergeError::TooLarge) => return Err(why.to_string()),
            }
        }
        self.repairs.add(RepairKind::Loosened, "", keyword);
        let sets =
            objects.iter().map(|object| object.get("required").cloned().unwrap_or_else(|| json!([])).to_string());
        let note = format!("The arguments must include one of these sets: {}.", sets.collect::<Vec<_>>().join(" or "));
        let description = members
            .get("description")
            .and_then(Value::as_str)
            .map(|description| format!("{description}\n"))
            .unwrap_or_default();
        members.insert("description".to_owned(), format!("{description}{note}").into());
        let common = objects.iter().map(|object| names(object.get("required")));
        let common = common.reduce(|all, one| {
            let one: HashSet<_> = one.into_iter().collect();
            all.into_iter().filter(|name| one.contains(name)).collect()
        });
        let mut required = names(members.get("required"));
        required.extend(common.unwrap_or_default());
        members.insert("required".to_owned(), json!(required));
        let properties = members.entry("properties").or_insert_with(|| json!({}));
        if let Value::Object(properties) = properties {
            for (name, property) in objects.into_iter().filter_map(|mut it| it.remove("properties")).flat_map(entries) {
                let either = match properties.get_mut(&name).map(std::mem::take) {
                    Some(same) if same == property => property,
                    Some(other) => joined("anyOf", other, property),
                    None => property,
                };
                properties.insert(name, either);
            }
        }
        members.remove("additionalProperties");
        Ok(members)
    }
}

fn entries(properties: Value) -> Members {
    match properties {
        Value::Object(properties) => properties,
        _ => Members::new(),
    }
}

fn names(required: Option<&Value>) -> Vec<String> {
    let names = required.and_then(Value::as_array).into_iter().flatten();
    names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

/// Reports whether a schema permits only null.
fn is_null(members: &Members) -> bool {
    Types::declared(members) == Some(Types::NULL)
        || members.get("const").is_some_and(Value::is_null)
        || members.get("enum") == Some(&json!([null]))
}

/// Returns the values of all alternatives, if they are only lists of values.
fn values_of(found: &[Alternative]) -> Option<Value> {
    let mut values: Vec<Value> = Vec::new();
    for Alternative { members, .. } in found {
        let members = members.as_ref().ok()?;
        if members.keys().any(|keyword| !OF_VALUES.contains(&keyword.as_str())) {
            return None;
        }
        let own = match (members.get("const"), members.get("enum")) {
            (Some(constant), None) => vec![constant.clone()],
            (None, Some(Value::Array(listed))) => listed.clone(),
            _ => return None,
        };
        values.extend(own);
    }
    (!values.is_empty()).then(|| values.into())
}
