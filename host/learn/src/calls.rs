//! Calls that show what a server needs: tools that its own description calls harmless, with arguments that its own
//! schemas accept.

use std::cell::Cell;
use std::path::Path;

use serde_json::{Map, Value, json};

/// The host in made addresses. A source that asks for it was told to.
pub const EXAMPLE_HOST: &str = "example.com";

/// The deepest level to which arguments are made. Schemas may refer to themselves.
const MAX_DEPTH: usize = 6;

/// The largest size of the arguments of one call, in bytes, and the least that a value counts for. Each level of a
/// schema may refer to many others.
const MAX_BYTES: usize = 256 * 1024;
const VALUE_BYTES: usize = 16;

/// Verbs in the names of tools that change something.
const CHANGING: [&str; 73] = [
    "add",
    "append",
    "apply",
    "approve",
    "archive",
    "book",
    "buy",
    "cancel",
    "clear",
    "close",
    "commit",
    "create",
    "delete",
    "deploy",
    "destroy",
    "disable",
    "dismiss",
    "drop",
    "edit",
    "enable",
    "erase",
    "execute",
    "fork",
    "insert",
    "install",
    "invite",
    "kill",
    "merge",
    "migrate",
    "modify",
    "move",
    "order",
    "overwrite",
    "pause",
    "pay",
    "post",
    "publish",
    "purge",
    "push",
    "put",
    "reboot",
    "register",
    "reject",
    "remove",
    "rename",
    "replace",
    "reset",
    "restart",
    "restore",
    "resume",
    "revoke",
    "rotate",
    "run",
    "save",
    "send",
    "set",
    "shutdown",
    "stop",
    "submit",
    "subscribe",
    "sync",
    "terminate",
    "transfer",
    "trash",
    "trigger",
    "truncate",
    "uninstall",
    "unlock",
    "update",
    "upload",
    "upsert",
    "wipe",
    "write",
];

/// Words that are such a verb at the beginning of a name, and something else further on: `comment_on_issue` changes an
/// issue, `get_comment` does not.
const CHANGING_FIRST: [&str; 16] = [
    "assign",
    "comment",
    "copy",
    "download",
    "grant",
    "import",
    "label",
    "lock",
    "mark",
    "reply",
    "schedule",
    "share",
    "star",
    "start",
    "store",
    "transition",
];

/// Reports whether a tool is harmless by its own description: it states that it only reads, or states nothing of that and
/// is not named after a change. A tool that states that it does not only read, or that it is destructive, is not.
#[must_use]
pub fn is_harmless(tool: &Value) -> bool {
    let hint = |name: &str| tool.get("annotations").and_then(|hints| hints.get(name)).and_then(Value::as_bool);
    match (hint("readOnlyHint"), hint("destructiveHint")) {
        (Some(true), _) => true,
        (Some(false), _) | (_, Some(true)) => false,
        (None, _) => {
            let name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
            let words: Vec<_> = name.split(|c: char| !c.is_ascii_alphanumeric()).flat_map(camel_words).collect();
            let begins = words.first().is_some_and(|word| CHANGING_FIRST.contains(&word.as_str()));
            !begins && !words.iter().any(|word| CHANGING.contains(&word.as_str()))
        }
    }
}

/// Returns the words of a name in camel case, in lower case.
fn camel_words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut after_lower = false;
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && after_lower || words.is_empty() {
            words.push(String::new());
        }
        after_lower = letter.is_ascii_lowercase();
        if let Some(word) = words.last_mut() {
            word.push(letter.to_ascii_lowercase());
        }
    }
    words
}

/// Returns arguments for a tool: its required properties, each with a value that the schema names (a default, an
/// example, the first of an enumeration) or one of its type. A text that means a path becomes `path`, if there is one.
#[must_use]
pub fn arguments(tool: &Value, path: Option<&Path>) -> Value {
    let schema = tool.get("inputSchema").unwrap_or(&Value::Null);
    let made = Maker { root: schema, path, left: Cell::new(MAX_BYTES) }.value("", schema, 0);
    if made.is_object() { made } else { json!({}) }
}

struct Maker<'a> {
    /// The whole schema, in which references are looked up.
    root: &'a Value,
    path: Option<&'a Path>,
    /// The bytes that the values may still have.
    left: Cell<usize>,
}

impl Maker<'_> {
    fn value(&self, name: &str, schema: &Value, depth: usize) -> Value {
        if !self.has_room_for(name.len() + VALUE_BYTES) || depth > MAX_DEPTH {
            return Value::Null;
        }
        for key in ["const", "default"] {
            if let Some(value) = schema.get(key) {
                return self.named(value);
            }
        }
        for key in ["examples", "enum"] {
            if let Some(value) = schema.get(key).and_then(|list| list.get(0)) {
                return self.named(value);
            }
        }
        if let Some(target) = schema.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix('#')) {
            return self.root.pointer(target).map_or(Value::Null, |schema| self.value(name, schema, depth + 1));
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            let some = schema
                .get(key)
                .and_then(Value::as_array)
                .and_then(|list| list.iter().find(|choice| choice.get("type").and_then(Value::as_str) != Some("null")));
            if let Some(choice) = some {
                return self.value(name, choice, depth + 1);
            }
        }
        let kind = match schema.get("type") {
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
            Some(kind) => kind.as_str(),
            None if schema.get("properties").is_some() => Some("object"),
            None => Some("string"),
        };
        match kind {
            Some("object") => self.object(schema, depth),
            Some("array") => {
                let count = schema.get("minItems").and_then(Value::as_u64).unwrap_or(1).min(3);
                let item = schema.get("items").map_or_else(|| json!("a"), |item| self.value(name, item, depth + 1));
                // The first of them is counted already.
                (0..count).map(|at| if at == 0 { item.clone() } else { self.named(&item) }).collect()
            }
            Some("integer" | "number") => number(schema),
            Some("boolean") => json!(false),
            Some("null") => Value::Null,
            _ => self.named(&json!(self.text(name, schema))),
        }
    }

    /// Returns a value that the schema names, if there is room for it.
    fn named(&self, value: &Value) -> Value {
        if self.has_room_for(value.to_string().len()) { value.clone() } else { Value::Null }
    }

    /// Takes up room, or returns false, from then on for everything.
    fn has_room_for(&self, bytes: usize) -> bool {
        let left = self.left.get().saturating_sub(bytes);
        self.left.set(left);
        left > 0
    }

    fn object(&self, schema: &Value, depth: usize) -> Value {
        let properties = schema.get("properties").and_then(Value::as_object);
        let required = schema.get("required").and_then(Value::as_array);
        let mut made = Map::new();
        let has_room = |_: &&str| self.left.get() > 0;
        for name in required.into_iter().flatten().filter_map(Value::as_str).take_while(has_room) {
            let property = properties.and_then(|properties| properties.get(name)).unwrap_or(&Value::Null);
            made.insert(name.to_owned(), self.value(name, property, depth + 1));
        }
        // A path that may be left out still shows which files are meant.
        if let (Some(_), Some(properties)) = (self.path, properties) {
            for (name, property) in properties.iter().filter(|(name, _)| means_path(name) && self.left.get() > 0) {
                let text = property.get("type").is_none_or(|kind| kind == "string");
                if text && !made.contains_key(name) {
                    made.insert(name.clone(), self.value(name, property, depth + 1));
                }
            }
        }
        Value::Object(made)
    }

    fn text(&self, name: &str, schema: &Value) -> String {
        let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
        let lower = name.to_ascii_lowercase();
        let text = match (format, self.path) {
            ("date-time", _) => "2026-01-02T03:04:05Z".to_owned(),
            ("date", _) => "2026-01-02".to_owned(),
            ("time", _) => "03:04:05".to_owned(),
            ("email", _) => format!("somebody@{EXAMPLE_HOST}"),
            ("uuid", _) => "00000000-0000-4000-8000-000000000000".to_owned(),
            ("uri" | "url", _) => format!("https://{EXAMPLE_HOST}/"),
            (_, Some(path)) if means_path(&lower) => path.to_string_lossy().into_owned(),
            _ if lower.contains("url") || lower.contains("uri") => format!("https://{EXAMPLE_HOST}/"),
            _ if lower.contains("time") && lower.contains("zone") => "UTC".to_owned(),
            _ => "test".to_owned(),
        };
        let least = schema.get("minLength").and_then(Value::as_u64).and_then(|least| usize::try_from(least).ok());
        let short = least.unwrap_or(0).saturating_sub(text.chars().count()).min(1000);
        text + &"x".repeat(short)
    }
}

/// Reports whether a property of this name holds a path.
fn means_path(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["path", "file", "filename", "directory", "folder", "dir", "repo_path"].iter().any(|word| name == *word)
        || ["_path", "path", "_file", "_dir"].iter().any(|end| name.ends_with(end))
}

fn number(schema: &Value) -> Value {
    let bound = |key: &str| schema.get(key).filter(|bound| bound.is_number());
    if let Some(least) = bound("minimum") {
        return least.clone();
    }
    if let Some(above) = bound("exclusiveMinimum").and_then(Value::as_i64) {
        return json!(above.saturating_add(1));
    }
    match bound("maximum").and_then(Value::as_i64) {
        Some(most) if most < 1 => json!(most),
        _ => json!(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_what_the_schema_accepts() {
        let tool = json!({ "name": "search", "inputSchema": {
            "type": "object",
            "required": ["query", "kind", "limit", "where", "tags", "choice", "flag"],
            "properties": {
                "query": { "type": "string", "minLength": 6 },
                "kind": { "enum": ["files", "folders"] },
                "limit": { "type": "integer", "minimum": 5 },
                "where": { "$ref": "#/$defs/where" },
                "tags": { "type": "array", "items": { "type": "string" }, "minItems": 2 },
                "choice": { "anyOf": [{ "type": "null" }, { "type": "boolean" }] },
                "flag": { "type": ["null", "boolean"], "default": true },
                "path": { "type": "string" },
                "other": { "type": "string" },
            },
            "$defs": { "where": { "type": "object", "required": ["url"], "properties": { "url": { "type": "string" } } } },
        } });
        let expected = json!({
            "query": "testxx", "kind": "files", "limit": 5, "where": { "url": "https://example.com/" },
            "tags": ["test", "test"], "choice": false, "flag": true,
        });
        assert_eq!(arguments(&tool, None), expected);
        let with_path = arguments(&tool, Some(Path::new("/data")));
        assert_eq!(with_path.get("path"), Some(&json!("/data")));
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let tool = json!({ "inputSchema": { "type": "object", "required": ["next"],
            "properties": { "next": { "$ref": "#" } } } });
        assert!(arguments(&tool, None).is_object());
    }

    #[test]
    fn a_schema_that_multiplies_itself_makes_no_endless_arguments() {
        let names: Vec<String> = (0..2000).map(|at| format!("p{at}")).collect();
        let to = |target: &str| -> Map<String, Value> {
            names.iter().map(|name| (name.clone(), json!({ "$ref": target }))).collect()
        };
        let long = json!({ "default": "x".repeat(MAX_BYTES / 2) });
        for (target, defs) in [("#", json!({})), ("#/$defs/long", json!({ "long": long }))] {
            let schema = json!({ "type": "object", "required": names, "properties": to(target), "$defs": defs });
            assert!(arguments(&json!({ "inputSchema": schema }), None).to_string().len() <= MAX_BYTES, "{target}");
        }
    }

    #[test]
    fn tools_that_change_something_are_not_harmless() {
        let named = |name: &str| is_harmless(&json!({ "name": name }));
        assert!(named("read_file") && named("getWeather") && named("offset_list"));
        assert!(!named("delete_file") && !named("fileWrite") && !named("sendMessage"));
        assert!(named("get_comment") && !named("comment_on_issue"));
        for changing in ["mark_all_notifications_read", "fork_repository", "terminate_instance", "upload_file"] {
            assert!(!named(changing), "{changing}");
        }
        let hinted = |hints: Value| is_harmless(&json!({ "name": "delete", "annotations": hints }));
        assert!(hinted(json!({ "readOnlyHint": true })) && !hinted(json!({ "destructiveHint": true })));
        assert!(!is_harmless(&json!({ "name": "read", "annotations": { "destructiveHint": true } })));
        let writes = json!({ "readOnlyHint": false, "destructiveHint": false });
        assert!(!is_harmless(&json!({ "name": "peek", "annotations": writes })), "it says that it does not only read");
    }
}
