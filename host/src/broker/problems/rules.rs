//! Rules of the built-in policy `rules` that name no tool: one that denies would be noticed only after the call.

use serde_json::Value;

use crate::catalog::{FilterError, is_match};
use crate::config::{PluginConfig, PluginRef};
use crate::item::Item;

/// The lists of rules in the settings, and the effect of a rule in each.
const LISTS: [(&str, &str); 3] = [("deny", "denies"), ("ask", "asks about"), ("allow", "allows")];

/// Returns a sentence for each rule whose patterns match none of the items.
pub(super) fn unmatched(policies: &[PluginConfig], items: &[&Item]) -> Result<Vec<String>, FilterError> {
    let mut sentences = Vec::new();
    let is_rules = |policy: &&PluginConfig| policy.plugin == PluginRef::Builtin("rules".to_owned());
    for policy in policies.iter().filter(is_rules) {
        for (key, does) in LISTS {
            for rule in policy.settings.get(key).and_then(Value::as_array).into_iter().flatten() {
                if !matches_any(rule, key, items)? {
                    sentences.push(format!(
                        "`builtin:rules`: `{key}` has {rule}, which {does} nothing that the sources offer; \
                         it is matched with names as `portcullis tools` shows them"
                    ));
                }
            }
        }
    }
    Ok(sentences)
}

/// Reports whether a rule matches one of the items, as the plugin compares their names. Arguments, methods and
/// conditions of the rule are ignored.
fn matches_any(rule: &Value, key: &str, items: &[&Item]) -> Result<bool, FilterError> {
    let (tool, source) = match rule {
        Value::String(pattern) => (Some(pattern.as_str()), None),
        rule => (rule.get("tool").and_then(Value::as_str), rule.get("source").and_then(Value::as_str)),
    };
    // A template has addresses that nobody lists.
    if tool.is_some_and(|pattern| pattern.contains("://")) {
        return Ok(true);
    }
    let own_name_counts = rule.is_object() && (key != "allow" || source.is_some());
    for item in items {
        let names = [&*item.exposed, &*item.name];
        let names = if own_name_counts { names.as_slice() } else { names.get(..1).unwrap_or_default() };
        let is_tool = tool.map_or(Ok(true), |pattern| is_match(pattern, names))?;
        if is_tool && source.map_or(Ok(true), |pattern| is_match(pattern, &[item.source.as_str()]))? {
            return Ok(true);
        }
    }
    Ok(false)
}
