//! Finds the servers in a client's file. The language and the client are recognised by the content.

use std::path::{Path, PathBuf};

use jsonc_parser::{CollectOptions, ParseOptions, ast};
use serde_json::{Map, Value};

use super::ImportError;

/// JSON as editors write it: with comments and trailing commas, and otherwise strict.
const JSON: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// The keys under which clients keep a table of servers, at the top of their files.
const TABLES: [&str; 5] = ["mcpServers", "servers", "mcp.servers", "context_servers", "mcp_servers"];

/// The members by which a server is recognised if it is not under such a key.
const ENDPOINTS: [&str; 6] = ["command", "url", "serverUrl", "httpUrl", "cmd", "uri"];

/// A server as a client wrote it.
pub(super) struct FoundServer {
    pub name: String,
    pub members: Value,
    /// The folder of the project to which the client restricts it.
    pub project: Option<PathBuf>,
}

/// Returns the servers of a file in their order, and adds notes about ambiguities in it.
pub(super) fn servers(text: &str, notes: &mut Vec<String>) -> Result<Vec<FoundServer>, ImportError> {
    let file = parse(text.trim_start_matches('\u{feff}'), notes)?;
    let Some(top) = file.as_object() else { return Err(ImportError::NoServers) };
    let mut found = Vec::new();
    let direct = TABLES.iter().filter_map(|key| top.get(*key));
    let nested = top.get("mcp").and_then(|mcp| mcp.get("servers"));
    for table in direct.chain(nested).filter_map(Value::as_object) {
        add(&mut found, table, None);
    }
    // Goose keeps built-in extensions together with servers, each with its type.
    if let Some(table) = top.get("extensions").and_then(Value::as_object)
        && table.values().any(|extension| extension.get("type").is_some())
    {
        add(&mut found, table, None);
    }
    for (folder, project) in top.get("projects").and_then(Value::as_object).into_iter().flatten() {
        if let Some(table) = project.get("mcpServers").and_then(Value::as_object) {
            add(&mut found, table, Some(Path::new(folder)));
        }
    }
    let is_server = |value: &Value| ENDPOINTS.iter().any(|key| value.get(key).is_some());
    if found.is_empty() && !top.is_empty() && top.values().all(is_server) {
        add(&mut found, top, None);
    }
    if found.is_empty() { Err(ImportError::NoServers) } else { Ok(found) }
}

fn add(found: &mut Vec<FoundServer>, table: &Map<String, Value>, project: Option<&Path>) {
    found.extend(table.iter().map(|(name, members)| FoundServer {
        name: name.clone(),
        members: members.clone(),
        project: project.map(Path::to_owned),
    }));
}

/// Reads JSON, TOML or YAML as JSON.
fn parse(text: &str, notes: &mut Vec<String>) -> Result<Value, ImportError> {
    let collect = CollectOptions::default();
    let json = match jsonc_parser::parse_to_ast(text, &collect, &JSON) {
        Ok(read) => match read.value {
            Some(value) => return Ok(json_value(&value, notes)),
            None => return Err(ImportError::NoServers),
        },
        Err(error) => error.to_string(),
    };
    if text.trim_start().starts_with(['{', '[', '/']) && !text.trim_start().starts_with("[mcp_servers") {
        return Err(ImportError::Json(json));
    }
    let toml = match toml::from_str::<Value>(text) {
        Ok(value) => return Ok(value),
        Err(error) => error.message().to_owned(),
    };
    match serde_saphyr::from_str::<Value>(text) {
        Ok(value) if value.is_object() => Ok(value),
        _ => Err(ImportError::Unreadable { json, toml }),
    }
}

/// Returns a value of JSON; of members with the same name the last one counts, as in most clients.
fn json_value(value: &ast::Value<'_>, notes: &mut Vec<String>) -> Value {
    match value {
        ast::Value::StringLit(text) => text.value.as_ref().into(),
        ast::Value::NumberLit(number) => number.value.parse().map_or(Value::Null, Value::Number),
        ast::Value::BooleanLit(yes) => yes.value.into(),
        ast::Value::NullKeyword(_) => Value::Null,
        ast::Value::Array(items) => items.elements.iter().map(|item| json_value(item, notes)).collect(),
        ast::Value::Object(object) => {
            let mut members = Map::new();
            for member in &object.properties {
                let name = member.name.as_str().to_owned();
                let value = json_value(&member.value, notes);
                if members.insert(name.clone(), value).is_some() {
                    notes.push(format!(
                        "{name:?} is defined twice in one place of the file: only the last definition is used"
                    ));
                }
            }
            Value::Object(members)
        }
    }
}

/// Returns the members of a server under the names that most clients use.
pub(super) fn in_common_form(written: &Map<String, Value>) -> Map<String, Value> {
    let mut members = written.clone();
    for (own, common) in [("cmd", "command"), ("envs", "env"), ("uri", "url"), ("env_keys", "env_vars")] {
        if !members.contains_key(common)
            && let Some(value) = members.get(own).cloned()
        {
            members.insert(common.to_owned(), value);
        }
    }
    // Zed once had a table there, and others have the whole command as a list.
    match members.get("command").cloned() {
        Some(Value::Object(command)) => {
            members.remove("command");
            for (own, common) in [("path", "command"), ("args", "args"), ("env", "env")] {
                members.extend(command.get(own).map(|value| (common.to_owned(), value.clone())));
            }
        }
        Some(Value::Array(words)) => {
            let mut args: Vec<Value> = words.iter().skip(1).cloned().collect();
            args.extend(members.get("args").and_then(Value::as_array).into_iter().flatten().cloned());
            members.insert("args".to_owned(), Value::Array(args));
            members.insert("command".to_owned(), words.first().cloned().unwrap_or_default());
        }
        _ => {}
    }
    members
}
