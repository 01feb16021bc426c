//! The schema of Cedar policies: how `builtin:cedar` represents a call, with the types that the tools' input schemas
//! give the arguments.
//!
//! Anything without a type in Cedar is left out, with a comment; a policy that reads it does not agree with the schema.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

use super::problems::Discovered;
use super::{Broker, BuildError, ServingProblem};
use crate::config::PluginRef;
use crate::item::ItemKind;
use crate::plugin::PluginError;

/// The built-in plugin that the schema is for.
const CEDAR: &str = "cedar";

/// The setting that takes a schema.
const SETTING: &str = "schema";

impl Broker {
    /// Returns the schema for policies about these tools, in Cedar's syntax.
    #[doc(hidden)]
    #[must_use]
    pub fn policy_schema(found: &Discovered) -> String {
        let mut tools = BTreeMap::new();
        for tool in found.values().filter_map(|offered| offered.as_ref().ok()).flat_map(|it| it.of_kind(ItemKind::Tool))
        {
            let definition = tool.definition.read::<Value>().unwrap_or_default();
            tools
                .entry(tool.exposed.to_string())
                .or_insert_with(|| definition.get("inputSchema").cloned().unwrap_or_default());
        }
        schema(&tools)
    }

    /// Returns the policies in Cedar that do not agree with a schema. Policies that are configured with their own
    /// schema have been checked against that one.
    ///
    /// # Errors
    /// [`PluginError`] if the plugin cannot be loaded.
    #[doc(hidden)]
    pub async fn ill_typed_policies(&self, schema: &str) -> Result<Vec<ServingProblem>, PluginError> {
        let context = self.inner.context();
        let mut problems = Vec::new();
        for (position, policy) in context.config.policies.iter().enumerate() {
            let mut policy = policy.clone();
            let Value::Object(settings) = &mut policy.settings else { continue };
            if policy.plugin != PluginRef::Builtin(CEDAR.to_owned()) || settings.contains_key(SETTING) {
                continue;
            }
            settings.insert(SETTING.to_owned(), schema.into());
            match context.plugins.policy(&policy).await {
                Ok(_) => {}
                Err(error @ PluginError::Settings { .. }) => {
                    let error = BuildError::of_listed(&context.config, "`[[policies]]`", position, error);
                    let message = format!("{error}; `portcullis policy schema` shows the types of the arguments");
                    problems.push(ServingProblem { fatal: true, message });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(problems)
    }
}

/// The types that do not depend on the tools.
const HEAD: &str = "\
entity Profile;
entity Client in [Profile] { trust: String };
entity Source { tags: Set<String> };
entity Tool in [Source] {
  name: String,
  tags: Set<String>,
  readOnly: Bool,
  destructive: Bool,
  idempotent: Bool,
  openWorld: Bool,
};
entity Prompt in [Source] { name: String, tags: Set<String> };
entity Resource in [Source] { uri: String, tags: Set<String> };
entity Json;

action call_tool;
action get_prompt appliesTo {
  principal: [Client], resource: [Prompt], context: { input: {}, method: String, risk: String },
};
action read_resource appliesTo {
  principal: [Client], resource: [Resource], context: { input: {}, method: String, risk: String },
};
action use_method appliesTo {
  principal: [Client], resource: [Source], context: { input: {}, method: String, risk: String },
};
";

/// The actions that are not named after a tool.
const ACTIONS: [&str; 4] = ["call_tool", "get_prompt", "read_resource", "use_method"];

/// Returns the schema for tools, by their exposed names, each with its input schema. A tool with the name of another
/// action is left out; all its calls are denied.
fn schema(tools: &BTreeMap<String, Value>) -> String {
    let mut text = HEAD.to_owned();
    for (name, input) in tools.iter().filter(|(name, _)| !ACTIONS.contains(&name.as_str())) {
        let name = quote(name);
        let input = record(input, 2);
        let _ = write!(
            text,
            "\naction {name} in [call_tool] appliesTo {{\n  principal: [Client],\n  resource: [Tool],\n  context: {{ input: {input}, \
             method: String, risk: String }},\n}};\n"
        );
    }
    text
}

/// Returns the type of an object with these properties.
fn record(schema: &Value, depth: usize) -> String {
    let required: BTreeSet<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let indent = "  ".repeat(depth);
    let mut text = "{".to_owned();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let optional = if required.contains(name.as_str()) { "" } else { "?" };
        let _ = match of(property, depth) {
            Some(kind) => write!(text, "\n{indent}{}{optional}: {kind},", quote(name)),
            None => write!(text, "\n{indent}// {}: no type in Cedar", quote(name)),
        };
    }
    if text.len() > 1 {
        let _ = write!(text, "\n{}", "  ".repeat(depth - 1));
    }
    text + "}"
}

/// Returns the type of a value, or `None` if Cedar has none. A `number` is a Long, because whole numbers are; a policy
/// that compares a fraction denies the call.
fn of(schema: &Value, depth: usize) -> Option<String> {
    Some(match schema["type"].as_str()? {
        "string" => "String".to_owned(),
        "boolean" => "Bool".to_owned(),
        "integer" | "number" => "Long".to_owned(),
        "array" => format!("Set<{}>", of(&schema["items"], depth)?),
        "object" => record(schema, depth + 1),
        _ => return None,
    })
}

/// Returns a name as a text of Cedar, whose escapes are those of Rust.
fn quote(name: &str) -> String {
    format!("\"{}\"", name.escape_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_have_the_types_of_the_input_schema() {
        let input = json!({
            "type": "object",
            "properties": {
                "path": { "type": "string" },
                "limit": { "type": "integer" },
                "deep": { "type": "object", "properties": { "on": { "type": "boolean" } }, "required": ["on"] },
                "list": { "type": "array", "items": { "type": "string" } },
                "any": { "anyOf": [{ "type": "string" }, { "type": "null" }] },
                "a\"b\n": { "type": "number" },
            },
            "required": ["path"],
        });
        let text = schema(&BTreeMap::from([("files__read".to_owned(), input)]));
        for line in [
            "action \"files__read\" in [call_tool] appliesTo {",
            "    \"path\": String,",
            "    \"limit\"?: Long,",
            "    \"deep\"?: {",
            "      \"on\": Bool,",
            "    \"list\"?: Set<String>,",
            "    // \"any\": no type in Cedar",
            "    \"a\\\"b\\n\"?: Long,",
        ] {
            assert!(text.lines().any(|written| written == line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_tool_without_properties_has_an_empty_record() {
        assert!(schema(&BTreeMap::from([("x".to_owned(), json!({}))])).contains("context: { input: {}, method"));
    }
}
