//! The calls of a run: with arguments from the schemas, many times or with particular values.

use std::path::{Path, PathBuf};

use portcullis_learn::calls::arguments;
use serde_json::{Value, json};

use crate::observation::Condition;

/// The number of times that each of the first [`MAX_OFTEN`] tools is called in the baseline: behaviour that waits for a
/// tenth call is seen.
pub(crate) const REPEATS: usize = 12;

/// The largest number of tools that are called.
const MAX_TOOLS: usize = 64;
/// The largest number of tools that are called often; the others are called once.
const MAX_OFTEN: usize = 16;

/// The number of times that each of the first [`MAX_OFTEN`] tools is called under another condition.
const OTHER_REPEATS: usize = 2;

/// The largest number of calls with particular values that are made of one tool, the plain call included.
const MAX_VALUES: usize = 24;
/// The largest number of calls with particular values that are made of all tools together.
const MAX_VALUE_CALLS: usize = 240;

/// Argument values that may trigger hidden behaviour.
const WORDS: [&str; 8] = ["", "admin", "root", "password", "secret", "production", "debug", "*"];

/// The longest arguments that a call is made with, and the longest value that a schema names for one property, in
/// bytes.
const MAX_ARGUMENTS_BYTES: usize = 64 * 1024;

/// A call to make.
#[derive(Debug, Clone)]
pub struct PlannedCall {
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub arguments: Value,
    /// The paths in them that were chosen here, and not by a schema.
    pub asked: Vec<PathBuf>,
    /// True if one of these paths is that of a canary.
    pub asks_for_secret: bool,
}

impl PlannedCall {
    /// Returns the plain call of a tool, unless it has no name or its arguments are too long.
    fn of(tool: &Value, path: &Path) -> Option<Self> {
        let arguments = arguments(tool, Some(path));
        let asked = if holds(&arguments, &path.to_string_lossy()) { vec![path.to_owned()] } else { Vec::new() };
        let name = tool.get("name")?.as_str()?.to_owned();
        let fits = arguments.to_string().len() <= MAX_ARGUMENTS_BYTES;
        fits.then_some(Self { tool: name, arguments, asked, asks_for_secret: false })
    }
}

/// Returns the calls of a run, in order. A text that means a path becomes `path`; `canaries` are paths that only
/// [`Condition::Values`] names.
#[must_use]
pub fn planned(condition: Condition, tools: &[Value], path: &Path, canaries: &[String]) -> Vec<PlannedCall> {
    let calls: Vec<_> =
        tools.iter().take(MAX_TOOLS).filter_map(|tool| Some((tool, PlannedCall::of(tool, path)?))).collect();
    let rounds = |often: usize| -> Vec<_> {
        // In rounds, so that what depends on the order of tools is seen, too.
        let most = |round: usize| if round == 0 { MAX_TOOLS } else { MAX_OFTEN };
        (0..often).flat_map(|round| calls.iter().take(most(round)).map(|(_, call)| call.clone())).collect()
    };
    match condition {
        Condition::Baseline => rounds(REPEATS),
        Condition::Values => {
            let all = calls.iter().flat_map(|(tool, plain)| varied(tool, plain, canaries));
            // Secret files are named last: a server that reads one before that was not asked to.
            let (last, mut first): (Vec<_>, Vec<_>) = all.take(MAX_VALUE_CALLS).partition(|call| call.asks_for_secret);
            first.extend(last);
            first
        }
        _ => rounds(OTHER_REPEATS),
    }
}

/// Reports whether a value is this text or holds it.
fn holds(value: &Value, text: &str) -> bool {
    match value {
        Value::String(known) => known == text,
        Value::Array(items) => items.iter().any(|item| holds(item, text)),
        Value::Object(members) => members.values().any(|member| holds(member, text)),
        _ => false,
    }
}

/// Returns calls of one tool that differ from the plain one in one property each.
fn varied(tool: &Value, plain: &PlannedCall, canaries: &[String]) -> Vec<PlannedCall> {
    let mut calls = vec![plain.clone()];
    let properties = tool.pointer("/inputSchema/properties").and_then(Value::as_object);
    let mut lists: Vec<_> = properties
        .into_iter()
        .flatten()
        .map(|(property, schema)| (property, values(schema, canaries).into_iter()))
        .collect();
    // One value of each property in turn, so that a bound leaves none out.
    while calls.len() < MAX_VALUES {
        let before = calls.len();
        for (property, values) in &mut lists {
            let Some((value, canary)) = values.next().filter(|_| calls.len() < MAX_VALUES) else { continue };
            let mut changed = plain.clone();
            if let Some(members) = changed.arguments.as_object_mut() {
                members.insert((*property).clone(), value);
            }
            changed.asks_for_secret = canary.is_some();
            changed.asked.extend(canary.map(PathBuf::from));
            calls.push(changed);
        }
        if calls.len() == before {
            break;
        }
    }
    calls
}

/// Returns particular values for a property, each with the path of a canary if it is one. The values that a schema
/// names are the source's own choice.
fn values<'a>(schema: &Value, canaries: &'a [String]) -> Vec<(Value, Option<&'a String>)> {
    let listed = |key: &str| {
        let values = schema.get(key).and_then(Value::as_array).into_iter().flatten().take(MAX_VALUES);
        values.filter(|value| value.to_string().len() <= MAX_ARGUMENTS_BYTES).map(|value| (value.clone(), None))
    };
    let mut all: Vec<(Value, Option<&String>)> = listed("enum").collect();
    let bound = |key: &str| schema.get(key).filter(|bound| bound.is_number()).cloned();
    match schema.get("type").and_then(Value::as_str) {
        _ if !all.is_empty() => {}
        Some("string") | None => {
            let canary = |path: &'a String| (json!(path), Some(path));
            all.extend(canaries.iter().take(1).map(canary));
            all.extend(WORDS.iter().map(|word| (json!(word), None)));
            all.extend(canaries.iter().skip(1).map(canary));
            all.extend(listed("examples"));
            all.push((json!("x".repeat(5000)), None));
        }
        Some("integer" | "number") => {
            let bounds = [bound("minimum"), bound("maximum"), Some(json!(0)), Some(json!(-1)), Some(json!(65_536))];
            all.extend(bounds.into_iter().flatten().map(|value| (value, None)));
        }
        Some("boolean") => all.extend([json!(true), json!(false)].map(|value| (value, None))),
        Some("array") => all.push((json!([]), None)),
        Some("object") => all.push((json!({}), None)),
        _ => {}
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;

    #[test]
    fn every_tool_is_called_often_and_every_word_of_an_enumeration_once() {
        let tools = [
            json!({ "name": "a", "inputSchema": { "type": "object", "properties": {
                "mode": { "enum": ["one", "two", "three"] }, "text": { "type": "string" }, "n": { "type": "integer", "maximum": 9 },
            } } }),
            json!({ "name": "b" }),
        ];
        let calls = planned(Condition::Baseline, &tools, Path::new("/w"), &[]);
        assert_eq!(calls.iter().filter(|call| call.tool == "b").count(), REPEATS);
        let calls = planned(Condition::Values, &tools, Path::new("/w"), &["/home/alex/.ssh/id".to_owned()]);
        for wanted in [json!("three"), json!("admin"), json!(""), json!("/home/alex/.ssh/id"), json!(9), json!(-1)] {
            let used =
                calls.iter().any(|call| call.arguments.as_object().unwrap().values().any(|value| *value == wanted));
            assert!(used, "{wanted}");
        }
    }

    #[test]
    fn a_source_with_very_many_tools_gets_a_bounded_number_of_calls() {
        let tools: Vec<Value> = (0..5000).map(|n| json!({ "name": format!("t{n}") })).collect();
        for condition in Condition::ALL {
            assert!(
                planned(condition, &tools, Path::new("/w"), &[]).len()
                    <= MAX_TOOLS + REPEATS * MAX_OFTEN + MAX_VALUE_CALLS
            );
        }
    }

    #[test]
    fn only_what_is_chosen_here_is_asked_for() {
        let key = "/home/alex/.ssh/id".to_owned();
        let tools = |schema: Value| {
            [
                json!({ "name": "a", "inputSchema": { "type": "object", "required": ["path"], "properties": { "path": schema } } }),
            ]
        };
        let asked = |schema: Value| {
            let calls = planned(Condition::Values, &tools(schema), Path::new("/w"), std::slice::from_ref(&key));
            calls.into_iter().flat_map(|call| call.asked).collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(asked(json!({ "type": "string" })), [PathBuf::from(&key), "/w".into()].into());
        for schema in
            [json!({ "enum": [key] }), json!({ "const": key }), json!({ "type": "string", "default": "/home" })]
        {
            assert!(!asked(schema.clone()).contains(Path::new("/home")), "{schema}");
            let first = planned(Condition::Values, &tools(schema.clone()), Path::new("/w"), std::slice::from_ref(&key))
                .remove(0);
            assert!(first.asked.is_empty() && !first.asks_for_secret, "{schema}");
        }
        assert_eq!(asked(json!({ "enum": [key] })), [].into(), "the source named it");
    }

    #[test]
    fn a_schema_that_names_very_long_values_makes_no_long_call() {
        let long = "x".repeat(MAX_ARGUMENTS_BYTES);
        let tool = |schema: Value| json!({ "name": "a", "inputSchema": { "type": "object", "required": ["a"], "properties": { "a": schema } } });
        assert!(planned(Condition::Baseline, &[tool(json!({ "default": long }))], Path::new("/w"), &[]).is_empty());
        let calls = planned(Condition::Values, &[tool(json!({ "enum": ["short", long] }))], Path::new("/w"), &[]);
        assert!(calls.iter().all(|call| call.arguments["a"] == "short"));
    }
}
