//! Merges two schemas into one that permits what both permit.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::Members;
use super::budget::{WorkBudget, weight, weight_of_text};
use super::resolve::TOO_LARGE;
use super::types::Types;

/// The work of putting a schema into a list with another one, beyond that of copying it.
const WORK_OF_JOINING: usize = 2;

/// The reason why two schemas are not merged.
#[derive(Debug, thiserror::Error)]
pub(super) enum MergeError {
    /// No value is valid by both.
    #[error("{0}")]
    Impossible(&'static str),
    /// Merging them takes more work than a repair may.
    #[error("{TOO_LARGE}")]
    TooLarge,
}

/// Merges the keywords of another schema into this one. `lost` is called with each constraint of the other one that the
/// merged schema lacks.
///
/// The caller has counted the work of copying the other one. The parts of this one are counted here where they are read
/// or copied: a schema may be merged with thousands of small ones.
///
/// # Errors
/// [`MergeError`] if no value is valid by both, or if that takes more than the rest of the budget.
pub(super) fn merge(
    into: &mut Members,
    other: Members,
    budget: &mut WorkBudget,
    lost: &mut dyn FnMut(String),
) -> Result<(), MergeError> {
    let named_types = into.get("type").and_then(Value::as_array).map_or(0, Vec::len);
    if !budget.spend(named_types) {
        return Err(MergeError::TooLarge);
    }
    let types = match (Types::declared(into), Types::declared(&other)) {
        (Some(own), Some(others)) => Some(own.and(others)),
        (own, others) => own.or(others),
    };
    if types == Some(Types::NONE) {
        return Err(MergeError::Impossible("its parts have no type in common"));
    }
    close_properties(into, &other, budget)?;
    let mut other = other;
    close_properties(&mut other, into, budget)?;
    for (keyword, value) in other {
        let Some(own) = into.get_mut(&keyword).map(std::mem::take) else {
            into.insert(keyword, value);
            continue;
        };
        if ["required", "enum"].contains(&keyword.as_str()) && !budget.spend(weight(&own)) {
            return Err(MergeError::TooLarge);
        }
        let merged = match keyword.as_str() {
            "type" => types.map_or(own, |types| json!(types.names())),
            "properties" => together(own, value),
            "required" => json!(union(&own, &value)),
            "enum" => common(&own, &value)?,
            "const" if own != value => {
                return Err(MergeError::Impossible("its parts want different constants"));
            }
            "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties" => greater(own, value),
            "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties" => lesser(own, value),
            "items" | "additionalProperties" if own != value => joined("allOf", own, value),
            "uniqueItems" => json!(own == true || value == true),
            "title" | "description" | "default" | "examples" | "$schema" | "$id" | "$comment" | "$defs"
            | "definitions" | "deprecated" | "readOnly" | "writeOnly" => own,
            _ if own == value => own,
            _ => {
                lost(format!("`{keyword}`: {value}"));
                own
            }
        };
        into.insert(keyword, merged);
    }
    Ok(())
}

/// Applies a schema's rule for members that it does not name to those that only the other one names.
fn close_properties(into: &mut Members, closed: &Members, budget: &mut WorkBudget) -> Result<(), MergeError> {
    let Some(others) = closed.get("additionalProperties").filter(|others| **others != true) else { return Ok(()) };
    let Some(Value::Object(properties)) = into.get_mut("properties") else { return Ok(()) };
    if closed.contains_key("patternProperties") {
        return Ok(());
    }
    if !budget.spend(properties.keys().map(|name| 1 + weight_of_text(name)).sum()) {
        return Err(MergeError::TooLarge);
    }
    let named = closed.get("properties").and_then(Value::as_object);
    let is_unnamed = |name: &str| !named.is_some_and(|named| named.contains_key(name));
    let copies = properties.keys().filter(|name| is_unnamed(name)).count();
    if copies > 0 && !budget.spend(copies.saturating_mul(WORK_OF_JOINING + weight(others))) {
        return Err(MergeError::TooLarge);
    }
    for (_, property) in properties.iter_mut().filter(|(name, _)| is_unnamed(name)) {
        let own = std::mem::take(property);
        *property = if *others == false { false.into() } else { joined("allOf", own, others.clone()) };
    }
    Ok(())
}

/// Returns the properties of both. One that both have must be valid by both.
fn together(own: Value, other: Value) -> Value {
    let (Value::Object(mut own), Value::Object(other)) = (own, other) else { return Value::Null };
    for (name, property) in other {
        let both = match own.get_mut(&name).map(std::mem::take) {
            Some(same) if same == property => property,
            Some(first) => joined("allOf", first, property),
            None => property,
        };
        own.insert(name, both);
    }
    Value::Object(own)
}

/// Returns a schema that consists of two. A third is added to the same list, because schemas must not get deeper with
/// their number.
pub(super) fn joined(keyword: &str, first: Value, second: Value) -> Value {
    match first {
        Value::Object(mut members) if members.len() == 1 && members.get(keyword).is_some_and(Value::is_array) => {
            if let Some(Value::Array(list)) = members.get_mut(keyword) {
                list.push(second);
            }
            Value::Object(members)
        }
        first => json!({ keyword: [first, second] }),
    }
}

fn union(own: &Value, other: &Value) -> Vec<Value> {
    let names = [own, other].into_iter().filter_map(Value::as_array).flatten().filter_map(Value::as_str);
    let mut seen = HashSet::new();
    names.filter(|name| seen.insert(*name)).map(Value::from).collect()
}

fn common(own: &Value, other: &Value) -> Result<Value, MergeError> {
    let of = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let others: HashSet<String> = of(other).iter().map(Value::to_string).collect();
    let both: Vec<_> = of(own).into_iter().filter(|value| others.contains(&value.to_string())).collect();
    if both.is_empty() { Err(MergeError::Impossible("its parts have no value in common")) } else { Ok(both.into()) }
}

fn greater(own: Value, other: Value) -> Value {
    if own.as_f64() >= other.as_f64() { own } else { other }
}

fn lesser(own: Value, other: Value) -> Value {
    if own.as_f64() <= other.as_f64() { own } else { other }
}
