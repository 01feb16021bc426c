//! Writes the repaired schema: gives members safe names, and moves the members of nested objects out where an object is
//! deeper or larger than models fill in well.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::budget::weight_of_text;
use super::node::{MemberNode, Node, NodeBuilder, NodeKind, ObjectNode};
use super::plan::{MemberPlan, ObjectPlan, RestorePlan};
use super::types::Types;
use super::{Members, RepairKind, pointer};
use crate::digest::Digest;
use crate::name::SEPARATOR;

/// The depth from which on the members of nested objects are moved out: models lose members of objects in objects in
/// objects.
const MAX_DEPTH: usize = 2;

/// The number of members at all depths from which the members of nested objects are moved out.
const MAX_LEAVES: usize = 10;

/// The most copies that one repair makes of the names of objects for the members that it moves out of them. Each 64
/// bytes of a name count as a further copy. Objects whose members would need more stay unchanged. With names that
/// people choose, the members of a definition of 256 KiB need fewer.
pub(super) const MAX_COPIED_NAMES: usize = 50_000;

/// The longest name of a property, in characters, that all providers of models take.
const MAX_NAME: usize = 64;

/// A member as it is written, perhaps out of nested objects.
struct Written {
    path: Vec<String>,
    required: bool,
    node: Node,
}

impl NodeBuilder<'_> {
    /// Writes a part, and returns the plan by which its values are restored.
    pub(super) fn emit(&mut self, node: Node, at: &str) -> (Value, RestorePlan) {
        let Node { mut words, nullable, kind } = node;
        let (mut schema, plan) = match kind {
            NodeKind::Leaf(schema, plan) => (schema, plan),
            NodeKind::Object(object) => {
                let (schema, plan) = self.object_scope(object, at);
                (schema, RestorePlan::of_object(Types::OBJECT, plan))
            }
        };
        if at.is_empty() {
            schema.entry("properties").or_insert_with(|| json!({}));
        }
        if nullable {
            schema.insert("nullable".to_owned(), json!(true));
            words.note("It may be null");
        }
        words.write(&mut schema);
        (Value::Object(schema), if nullable { plan.or_null() } else { plan })
    }

    /// Writes an object, with the members of nested ones moved out if it is too deep or too large.
    fn object_scope(&mut self, object: ObjectNode, at: &str) -> (Members, ObjectPlan) {
        let flatten = depth(&object) > MAX_DEPTH || depth(&object) > 1 && leaves(&object) > MAX_LEAVES;
        let mut names = UsedNames::of(&object);
        let (mut written, mut paths) = (Vec::new(), Vec::new());
        let mut plan = self.spread(object, &[], true, flatten, &mut written);
        let (mut properties, mut required) = (Members::new(), Vec::new());
        for Written { path, required: is_required, mut node } in written {
            let own = path.join(".");
            let name = match path.as_slice() {
                [one] if is_safe(one) => one.clone(),
                _ => names.unused(&safe(&path.join(SEPARATOR))),
            };
            if name != own || path.len() > 1 {
                let kind = if path.len() > 1 { RepairKind::Flattened } else { RepairKind::Renamed };
                self.repairs.add(
                    kind,
                    &path.iter().fold(at.to_owned(), |at, part| pointer(&pointer(&at, "properties"), part)),
                    &*name,
                );
                node.words.note(&format!("This is `{own}` of the tool"));
                paths.push((name.clone(), path.clone()));
            }
            if is_required {
                required.push(name.clone());
            }
            let (schema, member) = self.emit(node, &pointer(&pointer(at, "properties"), &name));
            properties.insert(name, schema);
            place(&mut plan, &path, member);
        }
        plan.paths = paths.into_iter().collect();
        let mut schema = Members::from_iter([("type".to_owned(), json!("object"))]);
        schema.insert("properties".to_owned(), Value::Object(properties));
        if !required.is_empty() {
            schema.insert("required".to_owned(), json!(required));
        }
        (schema, plan)
    }

    /// Collects the members that are written, and returns the plan of the object, without the plans of those members.
    fn spread(
        &mut self,
        object: ObjectNode,
        path: &[String],
        required: bool,
        flatten: bool,
        written: &mut Vec<Written>,
    ) -> ObjectPlan {
        let mut plan = ObjectPlan::new(object.open, object.others);
        for MemberNode { name, required: own, node } in object.members {
            let path: Vec<String> = path.iter().cloned().chain([name.clone()]).collect();
            let required_here = required && own;
            let (moved_out, member) = match node.kind {
                NodeKind::Object(inner)
                    if flatten
                        && !node.nullable
                        && may_move_out(&inner, own)
                        && self.copied_names.spend(leaves(&inner).saturating_mul(1 + weight_of_text(&name))) =>
                {
                    let summary = node.words.summary();
                    let first = written.len();
                    let inner = self.spread(inner, &path, required_here, flatten, written);
                    if let (Some(summary), Some(first)) = (summary, written.get_mut(first)) {
                        first.node.words.note(&format!("`{}`: {summary}", path.join(".")));
                    }
                    (true, RestorePlan::of_object(Types::OBJECT, inner))
                }
                kind => {
                    written.push(Written { path, required: required_here, node: Node { kind, ..node } });
                    (false, RestorePlan::Keep)
                }
            };
            plan.add(MemberPlan { name, required: own, moved_out, plan: member });
        }
        plan
    }
}

/// Puts the plan of a member into its place.
fn place(plan: &mut ObjectPlan, path: &[String], member: RestorePlan) {
    let Some((first, rest)) = path.split_first() else { return };
    let Some(found) = plan.member_mut(first) else { return };
    match &mut found.plan {
        RestorePlan::Value(inner) if !rest.is_empty() => {
            if let Some(inner) = &mut inner.object {
                place(inner, rest, member);
            }
        }
        own => *own = member,
    }
}

/// Reports whether the members of an object can be moved out without permitting more than the source does: no rule
/// states which of them go together.
fn may_move_out(object: &ObjectNode, required: bool) -> bool {
    !object.open && !object.bound && (required || !needs_a_member(object))
}

/// Reports whether an object is invalid without some member that a model must send.
fn needs_a_member(object: &ObjectNode) -> bool {
    object.members.iter().filter(|member| member.required).any(|member| match &member.node.kind {
        NodeKind::Object(inner) => member.node.nullable || !may_move_out(inner, true) || needs_a_member(inner),
        NodeKind::Leaf(..) => true,
    })
}

fn depth(object: &ObjectNode) -> usize {
    let inner = object.members.iter().map(|member| match &member.node.kind {
        NodeKind::Object(inner) => depth(inner),
        NodeKind::Leaf(..) => 0,
    });
    1 + inner.max().unwrap_or(0)
}

fn leaves(object: &ObjectNode) -> usize {
    let inner = object.members.iter().map(|member| match &member.node.kind {
        NodeKind::Object(inner) => leaves(inner),
        NodeKind::Leaf(..) => 1,
    });
    inner.sum()
}

fn is_safe(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    name.len() <= MAX_NAME
        && name.bytes().next().is_some_and(letter)
        && name.bytes().all(|byte| letter(byte) || byte.is_ascii_digit())
}

/// Returns a name of letters, digits and `_` that resembles this one.
fn safe(name: &str) -> String {
    if is_safe(name) {
        return name.to_owned();
    }
    let letters = name.chars().map(|char| if char.is_ascii_alphanumeric() || char == '_' { char } else { '_' });
    let mut safe: String = letters.collect();
    if !safe.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
        safe.insert(0, '_');
    }
    if safe.len() > MAX_NAME {
        let digest = Digest::of(name.as_bytes()).to_string();
        let digest = digest.rsplit(':').next().unwrap_or_default();
        safe = format!("{}_{}", safe.get(..MAX_NAME - 9).unwrap_or_default(), digest.get(..8).unwrap_or_default());
    }
    safe
}

/// The names under which the members of one object are written.
struct UsedNames {
    names: HashSet<String>,
    /// The next number that a name gets, for names that more than one member would have.
    numbers: HashMap<String, usize>,
}

impl UsedNames {
    /// Reserves the names of the object's own members, so that no made-up name causes one of them to be renamed.
    fn of(object: &ObjectNode) -> Self {
        let names = object.members.iter().map(|member| member.name.clone()).collect();
        Self { names, numbers: HashMap::new() }
    }

    /// Takes the name, or one with a number after it that nothing else has.
    fn unused(&mut self, name: &str) -> String {
        let mut unused = name.to_owned();
        if self.names.contains(name) {
            let number = self.numbers.entry(name.to_owned()).or_insert(2);
            while self.names.contains(&unused) {
                let suffix = format!("_{number}");
                let kept = name.get(..name.len().min(MAX_NAME - suffix.len())).unwrap_or_default();
                unused = format!("{kept}{suffix}");
                *number += 1;
            }
        }
        self.names.insert(unused.clone());
        unused
    }
}
