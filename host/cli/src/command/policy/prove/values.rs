//! The values of arguments at which policies can change their mind.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::constants::{Constants, NamedMembers};

/// The deepest nesting of a schema whose parts get values of their own.
const MAX_DEPTH: usize = 4;

/// The largest number of members of an object that are tried. Each value of a member is an object with all of them.
const MAX_MEMBERS: usize = 64;

/// The largest number of members that all objects within the arguments of a tool have together.
const MAX_MEMBERS_OF_ALL: usize = 100_000;

/// Makes the values of arguments.
pub(super) struct ArgumentValues<'a> {
    constants: &'a Constants,
    /// The members that policies name, without saying of what, and that no schema declares.
    anywhere: BTreeSet<&'a str>,
    /// The members that further objects may have, together.
    room: Cell<usize>,
    /// True if an object has fewer members or values than its schema declares.
    is_cut: Cell<bool>,
}

/// A member of an object: an argument, or one within an argument.
pub(super) struct DeclaredMember<'a> {
    pub(super) name: String,
    pub(super) schema: Value,
    /// The members that policies name within it.
    pub(super) named: &'a NamedMembers,
    pub(super) is_declared: bool,
}

/// No member is named.
pub(super) static NONE: NamedMembers = NamedMembers(BTreeMap::new());

/// Returns the members that policies name of something that was calculated, and that no part of the schema declares.
fn anywhere<'a>(constants: &'a Constants, schema: &Value) -> BTreeSet<&'a str> {
    let mut undeclared: BTreeSet<&str> = constants.members.iter().map(String::as_str).collect();
    let mut parts = vec![schema];
    while let Some(part) = parts.pop() {
        for (name, _) in part["properties"].as_object().into_iter().flatten() {
            undeclared.remove(name.as_str());
        }
        match part {
            Value::Array(items) => parts.extend(items),
            Value::Object(members) => parts.extend(members.values()),
            _ => {}
        }
    }
    undeclared
}

impl<'a> ArgumentValues<'a> {
    /// Makes values for the arguments of a tool with this input schema.
    pub(super) fn new(constants: &'a Constants, schema: &Value) -> Self {
        let anywhere = anywhere(constants, schema);
        Self { constants, anywhere, room: Cell::new(MAX_MEMBERS_OF_ALL), is_cut: Cell::new(false) }
    }

    /// Reports whether an object has fewer members or values than its schema declares.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut.get()
    }

    /// Returns the members that an object can have: those that policies name, and those of its schema.
    pub(super) fn members(&self, schema: &Value, named: &'a NamedMembers) -> Vec<DeclaredMember<'a>> {
        let declared = schema["properties"].as_object();
        let of_schema = declared.into_iter().flatten().map(|(name, schema)| DeclaredMember {
            name: name.clone(),
            schema: schema.clone(),
            named: named.0.get(name).unwrap_or(&NONE),
            is_declared: true,
        });
        let further: BTreeSet<&str> = named.0.keys().map(String::as_str).chain(self.anywhere.iter().copied()).collect();
        let further = further.into_iter().filter(|name| declared.is_none_or(|declared| !declared.contains_key(*name)));
        let further = further.map(|name| DeclaredMember {
            name: name.to_owned(),
            schema: Value::Null,
            named: named.0.get(name).unwrap_or(&NONE),
            is_declared: false,
        });
        let mut members: Vec<_> = of_schema.chain(further).collect();
        // Members that policies name are tried first, whatever else a source declares.
        members.sort_by_key(|member| member.is_declared && !named.0.contains_key(&member.name));
        members
    }

    /// Returns the values of an argument at which policies can change their mind. An argument without a type can have
    /// any.
    pub(super) fn of(&self, schema: &Value, named: &'a NamedMembers, depth: usize) -> Vec<Value> {
        let listed = schema["enum"].as_array().into_iter().flatten().chain(schema.get("const"));
        let mut values: Vec<Value> = listed.cloned().collect();
        let kind = schema["type"].as_str();
        let is = |wanted: &str| kind == Some(wanted) || (kind.is_none() && values.is_empty());
        let (texts, numbers) = (is("string"), is("integer") || is("number"));
        let (booleans, arrays) = (is("boolean"), kind == Some("array"));
        let objects = kind == Some("object") || (kind.is_none() && !named.0.is_empty());
        if texts {
            values.extend(["", "x"].map(Value::from));
            let around = |text: &String| [text.clone(), format!("{text}x"), format!("x{text}")];
            values.extend(self.constants.texts.iter().flat_map(around).map(Value::from));
        }
        if numbers {
            let bounds = ["minimum", "maximum"].into_iter().filter_map(|key| schema[key].as_i64());
            let around = |n: i64| [n.saturating_sub(1), n, n.saturating_add(1)];
            let integers = &self.constants.integers;
            let whole: BTreeSet<i64> = integers.iter().copied().chain(bounds).chain([0]).flat_map(around).collect();
            if kind != Some("integer") {
                values.extend(integers.iter().map(|n| json!(precise(*n) + 0.5)));
            }
            values.extend(whole.into_iter().map(Value::from));
        }
        if booleans {
            values.extend([false, true].map(Value::from));
        }
        if arrays && depth < MAX_DEPTH {
            let items = self.of(&schema["items"], named, depth + 1);
            values.push(json!([]));
            values.extend(items.iter().map(|item| json!([item])));
            values.extend(items.windows(2).map(|two| json!(two)));
        }
        if objects && depth < MAX_DEPTH {
            values.extend(self.objects(schema, named, depth));
        }
        // A value that a source may get, although its schema does not say so.
        values.push(Value::Null);
        let mut seen = BTreeSet::new();
        values.retain(|value| seen.insert(value.to_string()));
        values
    }

    /// Returns objects that differ from a first one, which has the declared members, in at most one member.
    fn objects(&self, schema: &Value, named: &'a NamedMembers, depth: usize) -> Vec<Value> {
        let of_member = |member: DeclaredMember<'a>| {
            let values = self.of(&member.schema, member.named, depth + 1);
            (member, values)
        };
        let mut members = self.members(schema, named);
        self.is_cut.set(self.is_cut() || members.len() > MAX_MEMBERS);
        members.truncate(MAX_MEMBERS);
        let members: Vec<_> = members.into_iter().map(of_member).collect();
        let declared = members.iter().filter(|(member, _)| member.is_declared);
        let first: Map<String, Value> =
            declared.filter_map(|(member, values)| Some((member.name.clone(), values.first()?.clone()))).collect();
        let mut objects = vec![json!({}), Value::Object(first.clone())];
        for (DeclaredMember { name, .. }, values) in &members {
            for value in values {
                if !self.has_room_for(first.len() + 1) {
                    return objects;
                }
                let mut object = first.clone();
                object.insert(name.clone(), value.clone());
                objects.push(Value::Object(object));
            }
            let mut object = first.clone();
            object.remove(name);
            objects.push(Value::Object(object));
        }
        objects
    }

    /// Takes up room for an object with this many members, or returns false, from then on for every object.
    fn has_room_for(&self, members: usize) -> bool {
        let left = self.room.get().saturating_sub(members);
        self.room.set(left);
        self.is_cut.set(self.is_cut() || left == 0);
        left > 0
    }
}

#[expect(clippy::cast_precision_loss, reason = "a value near a constant is as good as another one")]
fn precise(value: i64) -> f64 {
    value as f64
}
