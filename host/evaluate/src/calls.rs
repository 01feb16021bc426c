//! The calls of a run: with arguments from the schemas, many times or with particular values.

use std::path::Path;

use portcullis_learn::calls::arguments;
use serde_json::{Value, json};

use crate::observation::Condition;

/// The number of times that each of the first [`MAX_OFTEN`] tools is called in the baseline: what waits for a tenth
/// call is seen.
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

/// Words on which something hidden may wait.
const WORDS: [&str; 8] = ["", "admin", "root", "password", "secret", "production", "debug", "*"];

/// Returns the calls of a run, in order. A text that means a path becomes `path`; `canaries` are paths that only
/// [`Condition::Values`] names.
#[must_use]
pub fn planned(condition: Condition, tools: &[Value], path: &Path, canaries: &[String]) -> Vec<(String, Value)> {
    let named = |tool: &Value| Some((tool.get("name")?.as_str()?.to_owned(), arguments(tool, Some(path))));
    let calls: Vec<_> = tools.iter().take(MAX_TOOLS).filter_map(named).collect();
    let rounds = |often: usize| -> Vec<_> {
        // In rounds, so that what depends on the order of tools is seen, too.
        let round = |round: usize| calls.iter().take(if round == 0 { MAX_TOOLS } else { MAX_OFTEN }).cloned();
        (0..often).flat_map(round).collect()
    };
    match condition {
        Condition::Baseline => rounds(REPEATS),
        Condition::Values => {
            let each = tools.iter().take(MAX_TOOLS).zip(&calls);
            let all = each.flat_map(|(tool, (name, plain))| varied(tool, name, plain, canaries));
            // Secret files are named last: who reads one before that was not asked to.
            let (last, mut first): (Vec<_>, Vec<_>) =
                all.take(MAX_VALUE_CALLS).partition(|(_, arguments)| names_any(arguments, canaries));
            first.extend(last);
            first
        }
        _ => rounds(OTHER_REPEATS),
    }
}

/// Returns calls of one tool that differ from the plain one in one property each.
fn varied(tool: &Value, name: &str, plain: &Value, canaries: &[String]) -> Vec<(String, Value)> {
    let mut calls = vec![(name.to_owned(), plain.clone())];
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
            let Some(value) = values.next().filter(|_| calls.len() < MAX_VALUES) else { continue };
            let mut changed = plain.clone();
            if let Some(members) = changed.as_object_mut() {
                members.insert((*property).clone(), value);
            }
            calls.push((name.to_owned(), changed));
        }
        if calls.len() == before {
            break;
        }
    }
    calls
}

/// Reports whether arguments name one of these paths.
#[must_use]
pub fn names_any(arguments: &Value, paths: &[String]) -> bool {
    let members = arguments.as_object().into_iter().flat_map(|members| members.values());
    members.filter_map(Value::as_str).any(|text| paths.iter().any(|path| path == text))
}

fn values(schema: &Value, canaries: &[String]) -> Vec<Value> {
    let listed = schema.get("enum").and_then(Value::as_array).cloned().unwrap_or_default();
    let kind = schema.get("type").and_then(Value::as_str);
    let bound = |key: &str| schema.get(key).filter(|bound| bound.is_number()).cloned();
    let more = match kind {
        _ if !listed.is_empty() => Vec::new(),
        Some("string") | None => {
            let words = WORDS.iter().map(|word| json!(word));
            let examples = schema.get("examples").and_then(Value::as_array).cloned().unwrap_or_default();
            let mut all: Vec<Value> = canaries.iter().take(1).map(|path| json!(path)).chain(words).collect();
            all.extend(canaries.iter().skip(1).map(|path| json!(path)));
            all.extend(examples);
            all.push(json!("x".repeat(5000)));
            all
        }
        Some("integer" | "number") => {
            [bound("minimum"), bound("maximum"), Some(json!(0)), Some(json!(-1)), Some(json!(65_536))]
                .into_iter()
                .flatten()
                .collect()
        }
        Some("boolean") => vec![json!(true), json!(false)],
        Some("array") => vec![json!([])],
        Some("object") => vec![json!({})],
        _ => Vec::new(),
    };
    listed.into_iter().chain(more).collect()
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
        assert_eq!(calls.iter().filter(|(name, _)| name == "b").count(), REPEATS);
        let calls = planned(Condition::Values, &tools, Path::new("/w"), &["/home/alex/.ssh/id".to_owned()]);
        for wanted in [json!("three"), json!("admin"), json!(""), json!("/home/alex/.ssh/id"), json!(9), json!(-1)] {
            let used = calls
                .iter()
                .any(|(_, arguments)| arguments.as_object().unwrap().values().any(|value| *value == wanted));
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
}
