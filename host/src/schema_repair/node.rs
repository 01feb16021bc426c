//! Builds the tree of a schema in the keywords that models read, from which the repaired schema is written.

use std::collections::BTreeSet;
use std::collections::hash_map::Entry;

use serde_json::{Value, json};

use super::alternatives::MAX_COMPARISONS;
use super::budget::{WorkBudget, weight};
use super::flatten::MAX_COPIED_NAMES;
use super::keywords::{Words, written_keywords};
use super::plan::{ObjectPlan, RestorePlan, ValuePlan, Values};
use super::resolve::{Resolved, Resolver, TOO_LARGE};
use super::types::Types;
use super::{Members, RepairKind, Repairs, pointer};
use crate::protocol::Json;

/// The largest number of parts, one inside the other. A part that lies deeper becomes a generic object.
const MAX_DEPTH: usize = 32;

/// A part of a schema as it will be written.
pub(super) struct Node {
    pub(super) words: Words,
    pub(super) nullable: bool,
    pub(super) kind: NodeKind,
}

/// The kind of value that a part of a schema describes.
pub(super) enum NodeKind {
    /// An object with members.
    Object(ObjectNode),
    /// Anything else, as written.
    Leaf(Members, RestorePlan),
}

/// An object with members.
pub(super) struct ObjectNode {
    pub(super) members: Vec<MemberNode>,
    /// True if the source says that there may be other members.
    pub(super) open: bool,
    /// The plan of those.
    pub(super) others: Option<Box<RestorePlan>>,
    /// True if the source limits the number of members, or states which ones need others.
    pub(super) bound: bool,
}

/// One member of an object.
pub(super) struct MemberNode {
    pub(super) name: String,
    pub(super) required: bool,
    pub(super) node: Node,
}

/// Builds the tree of one schema, and writes it.
pub(super) struct NodeBuilder<'a> {
    root: &'a Value,
    depth: usize,
    pub(super) resolver: Resolver<'a>,
    pub(super) repairs: Repairs,
    /// The comparisons of alternatives that tell whether each excludes the others.
    pub(super) comparisons: WorkBudget,
    /// The names of outer objects that are copied for members that are moved out of them.
    pub(super) copied_names: WorkBudget,
}

impl<'a> NodeBuilder<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        Self {
            root,
            depth: 0,
            resolver: Resolver::new(root),
            repairs: Repairs::default(),
            comparisons: WorkBudget::new(MAX_COMPARISONS),
            copied_names: WorkBudget::new(MAX_COPIED_NAMES),
        }
    }

    /// Builds the whole schema. The arguments of a tool are always an object, so alternatives become one there.
    pub(super) fn root(&mut self) -> Node {
        let root = self.root;
        let node = match self.resolver.resolve(root, "", &mut self.repairs) {
            Resolved::Schema(members) => match self.one_object(members) {
                Ok(members) => self.node(members, ""),
                Err(why) => self.generic("", why),
            },
            Resolved::Never => self.generic("", "no arguments are valid"),
            Resolved::Unresolved(why) => self.generic("", why),
        };
        let is_object = matches!(node.kind, NodeKind::Object(_));
        let node = if is_object
            || matches!(&node.kind, NodeKind::Leaf(members, _) if members.get("type").is_some_and(|it| it == "object"))
        {
            node
        } else {
            self.generic("", "it does not describe an object")
        };
        Node { nullable: false, ..node }
    }

    /// Builds a part, or returns `None` if no value is valid there.
    pub(super) fn part(&mut self, schema: &Value, at: &str) -> Option<Node> {
        let open = self.resolver.open();
        let node = match self.resolver.resolve(schema, at, &mut self.repairs) {
            Resolved::Schema(members) => Some(self.node(members, at)),
            Resolved::Never => None,
            Resolved::Unresolved(why) => Some(self.generic_of(schema, at, why)),
        };
        self.resolver.close(open);
        node
    }

    /// Returns a generic object.
    pub(super) fn generic(&mut self, at: &str, why: impl Into<String>) -> Node {
        self.repairs.add(RepairKind::Generic, at, why);
        let schema = Members::from_iter([("type".to_owned(), json!("object"))]);
        Node { words: Words::default(), nullable: false, kind: NodeKind::Leaf(schema, RestorePlan::Keep) }
    }

    /// Returns a generic object with the words of the schema that it stands for.
    fn generic_of(&mut self, schema: &Value, at: &str, why: String) -> Node {
        let keys = ["title", "description"];
        let texts = keys.into_iter().filter_map(|key| Some((key.to_owned(), schema.get(key)?.clone())));
        let words = Words::of(&mut texts.collect(), at, &mut self.repairs);
        Node { words, ..self.generic(at, why) }
    }

    /// Builds a part in which nothing refers to another part.
    pub(super) fn node(&mut self, members: Members, at: &str) -> Node {
        if self.depth >= MAX_DEPTH {
            return self.generic(at, format!("it lies deeper than {MAX_DEPTH} parts"));
        }
        self.depth += 1;
        let node = self.node_within_depth(members, at);
        self.depth -= 1;
        node
    }

    fn node_within_depth(&mut self, mut members: Members, at: &str) -> Node {
        if let Some(alternatives) = self.alternatives(&mut members, at) {
            return alternatives;
        }
        if let Some(constant) = members.remove("const") {
            self.repairs.add(RepairKind::Values, at, "const");
            members.insert("enum".to_owned(), json!([constant]));
        }
        let declared = Types::declared(&members);
        let types = declared.unwrap_or_else(|| self.inferred(&members, at));
        let listed = members.get("enum").and_then(Value::as_array);
        let nullable = types.contains(Types::NULL)
            && types != Types::NULL
            && listed.is_none_or(|values| values.contains(&Value::Null));
        let types = if types == Types::NULL { types } else { types.without(Types::NULL) };
        if nullable && declared.is_some() {
            self.repairs.add(RepairKind::Type, at, "null");
        }
        let words = Words::of(&mut members, at, &mut self.repairs);
        let mut node = match listed_values(&members, types) {
            Some(values) => self.values(&values, &members, words, at),
            None if types == Types::OBJECT => self.object(members, words, at),
            None if types.names().len() == 1 => self.single(types, &members, words, at),
            None => self.several(types, &members, words, at),
        };
        node.nullable = nullable;
        node
    }

    /// Returns the types of a schema that names none, by its other keywords.
    fn inferred(&mut self, members: &Members, at: &str) -> Types {
        let has = |keywords: &[&str]| keywords.iter().any(|keyword| members.contains_key(*keyword));
        let types = if let Some(Value::Array(values)) = members.get("enum") {
            return values.iter().fold(Types::NONE, |types, value| types | Types::of(value));
        } else if has(&["properties", "required", "additionalProperties", "patternProperties", "minProperties"]) {
            Types::OBJECT
        } else if has(&["items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"]) {
            Types::ARRAY
        } else if has(&["pattern", "minLength", "maxLength", "format"]) {
            Types::STRING
        } else if has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]) {
            Types::NUMBER
        } else {
            Types::ALL
        };
        self.repairs.add(RepairKind::Type, at, "no type");
        types
    }

    /// Builds a list of values. Models choose them by text: many take no values of other types.
    fn values(&mut self, values: &[Value], members: &Members, mut words: Words, at: &str) -> Node {
        let (mut by_text, mut texts) = (Values::default(), Vec::new());
        let mut types = Types::NONE;
        for value in values {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            types = types | Types::of(value);
            if let Entry::Vacant(entry) = by_text.by_text.entry(text) {
                texts.push(entry.key().clone());
                entry.insert(Json::of(value));
            }
        }
        if types != Types::STRING {
            self.repairs.add(RepairKind::Values, at, "enum");
        }
        words.default = words.default.take().filter(|default| values.contains(default)).map(|default| match default {
            Value::String(_) => default,
            other => other.to_string().into(),
        });
        // A text that is not a listed value is not valid for the source: only the list is written.
        let mut schema = Members::from_iter([("type".to_owned(), json!("string")), ("enum".to_owned(), json!(texts))]);
        if let Some(header) = members.get(super::keywords::HEADER).filter(|_| types == Types::STRING) {
            schema.insert(super::keywords::HEADER.to_owned(), header.clone());
        }
        let plan = ValuePlan { types, values: Some(by_text), object: None, items: None };
        Node { words, nullable: false, kind: NodeKind::Leaf(schema, RestorePlan::Value(Box::new(plan))) }
    }

    /// Builds a value of one type other than an object.
    fn single(&mut self, types: Types, members: &Members, mut words: Words, at: &str) -> Node {
        let mut schema = written_keywords(types, members, &mut words, at, &mut self.repairs);
        let mut plan = ValuePlan { types, values: None, object: None, items: None };
        if types == Types::ARRAY {
            let items = members.get("items").filter(|items| !items.is_array());
            let node = match items {
                Some(items) => self.part(items, &pointer(at, "items")),
                None => Some(self.several(Types::ALL, &Members::new(), Words::default(), at)),
            };
            let (items, items_plan) = match node {
                Some(node) => self.emit(node, &pointer(at, "items")),
                None => {
                    schema.insert("maxItems".to_owned(), json!(0));
                    (json!({ "type": "string" }), RestorePlan::Keep)
                }
            };
            if members.get("items") != Some(&items) && !members.get("items").is_some_and(Value::is_object) {
                self.repairs.add(RepairKind::Type, at, "items");
            }
            schema.insert("items".to_owned(), items);
            plan.items = Some(items_plan);
        }
        Node { words, nullable: false, kind: NodeKind::Leaf(schema, RestorePlan::Value(Box::new(plan))) }
    }

    /// Builds a value of several types, each with the keywords that are about it.
    pub(super) fn several(&mut self, types: Types, members: &Members, words: Words, at: &str) -> Node {
        let (mut written, mut plans) = (Vec::new(), Vec::new());
        for name in types.without(Types::NULL).names() {
            let Some(one) = Types::named(name) else { continue };
            // A value without a description is written as a text, a number, a boolean or an object: lists would need
            // items.
            if types == Types::ALL && one == Types::ARRAY && !members.contains_key("items") {
                continue;
            }
            let node = if one == Types::OBJECT {
                self.object(members.clone(), Words::default(), at)
            } else {
                self.single(one, members, Words::default(), at)
            };
            let (schema, plan) = self.emit(node, at);
            written.push(schema);
            plans.push(plan);
        }
        if types != Types::ALL {
            self.repairs.add(RepairKind::Type, at, "types");
        }
        let plan = if types == Types::ALL { RestorePlan::Keep } else { RestorePlan::Variants(plans) };
        let schema = Members::from_iter([("anyOf".to_owned(), Value::Array(written))]);
        Node { words, nullable: false, kind: NodeKind::Leaf(schema, plan) }
    }

    fn object(&mut self, mut members: Members, mut words: Words, at: &str) -> Node {
        let mut properties = match members.remove("properties") {
            Some(Value::Object(properties)) => properties,
            _ => Members::new(),
        };
        let others = members.get("additionalProperties").cloned();
        let required = members.remove("required");
        let required: BTreeSet<&str> =
            required.iter().filter_map(Value::as_array).flatten().filter_map(Value::as_str).collect();
        let described = others.as_ref().unwrap_or(&Value::Bool(true));
        let missing: Vec<_> = required.iter().filter(|name| !properties.contains_key(**name)).collect();
        if !missing.is_empty() && !self.resolver.budget.spend(missing.len().saturating_mul(weight(described))) {
            return Node { words, ..self.generic(at, TOO_LARGE) };
        }
        for name in missing {
            // A model sends only members that are described.
            self.repairs.add(RepairKind::Type, at, "required");
            properties.insert((*name).to_owned(), described.clone());
        }
        let mut nodes = Vec::with_capacity(properties.len());
        for (name, property) in properties {
            let property_at = pointer(&pointer(at, "properties"), &name);
            let required = required.contains(&*name);
            match self.part(&property, &property_at) {
                Some(node) => nodes.push(MemberNode { name, required, node }),
                None if required => return Node { words, ..self.generic(at, format!("nothing is valid as `{name}`")) },
                None => self.repairs.add(RepairKind::Keyword, &property_at, "false"),
            }
        }
        let bound = ["minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "dependencies"];
        let bound = bound.iter().any(|keyword| members.contains_key(*keyword));
        let mut schema = written_keywords(Types::OBJECT, &members, &mut words, at, &mut self.repairs);
        let open = members.contains_key("patternProperties") || others.as_ref().is_some_and(|others| *others != false);
        let others = others.filter(Value::is_object).and_then(|others| {
            let others_at = pointer(at, "additionalProperties");
            let node = self.part(&others, &others_at)?;
            let (written, plan) = self.emit(node, &others_at);
            if others.as_object().is_some_and(|it| !it.is_empty()) {
                self.repairs.add(RepairKind::Loosened, at, "additionalProperties");
                words.note(&format!("It may have other members; each must match {written}"));
            }
            Some(Box::new(plan))
        });
        let kind = if nodes.is_empty() {
            schema.insert("type".to_owned(), json!("object"));
            let plan = ObjectPlan::new(true, others);
            NodeKind::Leaf(schema, RestorePlan::of_object(Types::OBJECT, plan))
        } else {
            NodeKind::Object(ObjectNode { members: nodes, open, others, bound })
        };
        Node { words, nullable: false, kind }
    }
}

/// Returns the values of `enum` that have one of the types, without null, if there is such a list.
fn listed_values(members: &Members, types: Types) -> Option<Vec<Value>> {
    let values = members.get("enum")?.as_array()?;
    let possible = values.iter().filter(|value| types.contains(Types::of(value)));
    let possible: Vec<_> = possible.cloned().collect();
    (!possible.is_empty()).then_some(possible)
}
