//! Variables and headers of an imported server: which values are taken over, and which go into the store of secrets.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::secret::ConfigValue;
use serde_json::{Map, Value};

use super::Import;
use super::expand::ExpansionContext;
use crate::secret_values::{is_secret_name, looks_like_token};
use crate::variable;

/// Returns the variables that a source may be given.
pub(super) fn env(
    source: &str,
    written: &Map<String, Value>,
    around: &ExpansionContext<'_>,
    import: &mut Import,
) -> BTreeMap<String, ConfigValue> {
    let mut env = BTreeMap::new();
    for (key, value) in written {
        if let Some((why, hint)) = variable::refusal(key) {
            import.add_note(source, format_args!("the variable {key:?} is left out: it {why}; {hint}"));
        } else if let Some(value) = value_of(source, "env", key, value, around, import) {
            env.insert(key.clone(), value);
        }
    }
    env
}

/// Gives a program the variables that stay in its command as `${NAME}`: their values may be secrets, and every process
/// of the machine can read arguments.
pub(super) fn add_of_command(
    source: &str,
    argv: &[String],
    names: &BTreeSet<String>,
    env: &mut BTreeMap<String, ConfigValue>,
    around: &ExpansionContext<'_>,
    import: &mut Import,
) {
    let replaces = argv.iter().any(|word| word == "mcp-remote" || word.starts_with("mcp-remote@"));
    for name in names {
        import.add_note(
            source,
            format_args!("`${{{name}}}` in its command stays as it is, since its value may be a secret"),
        );
        // What the file itself says of the variable counts.
        if !env.contains_key(name) {
            let written = Map::from_iter([(name.clone(), Value::String(format!("${{{name}}}")))]);
            env.extend(self::env(source, &written, around, import));
        }
        if !replaces || !env.contains_key(name) {
            import.to_do.push(format!(
                "look whether {source} itself replaces `${{{name}}}` in its arguments by its variable, as mcp-remote does    # \
                 otherwise write the value into its `command`"
            ));
        }
    }
}

/// Says which variables stay in the URL of a server. Nothing replaces them, and a URL is shown and recorded.
pub(super) fn note_url_variables(server: &str, names: &BTreeSet<String>, import: &mut Import) {
    for name in names {
        import.add_note(
            server,
            format_args!("`${{{name}}}` in its `url` stays as it is, since its value may be a secret"),
        );
        import.to_do.push(format!(
            "write the value of `${{{name}}}` into the `url` of {server}    # a secret belongs in a header instead: \
             `headers = {{ NAME = {{ secret = \"…\" }} }}`"
        ));
    }
}

/// Returns the headers that a source may be sent. A bearer token becomes one.
pub(super) fn headers(
    source: &str,
    json: &Value,
    around: &ExpansionContext<'_>,
    import: &mut Import,
) -> BTreeMap<String, ConfigValue> {
    let table = |key: &str| json.get(key).and_then(Value::as_object).cloned().unwrap_or_default();
    let mut all = table("headers");
    all.extend(table("http_headers"));
    let from_variable = |name: &str, before: &str| Value::String(format!("{before}${{{name}}}"));
    for (header, name) in table("env_http_headers") {
        all.insert(header, from_variable(name.as_str().unwrap_or_default(), ""));
    }
    if let Some(name) = json.get("bearer_token_env_var").and_then(Value::as_str) {
        all.insert("Authorization".to_owned(), from_variable(name, "Bearer "));
    }
    let mut headers = BTreeMap::new();
    for (key, value) in &all {
        let secrets = import.secrets.len();
        let Some(value) = value_of(source, "header", key, value, around, import) else { continue };
        let plain = match &value {
            ConfigValue::Plain(text) => text.clone(),
            ConfigValue::Secret(_) => String::new(),
        };
        if crate::source::header_problem(key, &plain).is_some() || headers.contains_key(&key.to_ascii_lowercase()) {
            import.secrets.truncate(secrets);
            import.add_note(
                source,
                format_args!("the header {key:?} is left out: the broker makes it itself, or it is not valid"),
            );
        } else {
            headers.insert(key.to_ascii_lowercase(), value);
        }
    }
    headers
}

/// Returns the value as the client would use it, or a reference to a secret: if it looks like one, or if it is not
/// known here.
fn value_of(
    source: &str,
    what: &str,
    key: &str,
    json: &Value,
    around: &ExpansionContext<'_>,
    import: &mut Import,
) -> Option<ConfigValue> {
    let written = match json {
        Value::String(text) => text.clone(),
        Value::Number(_) | Value::Bool(_) => json.to_string(),
        _ => {
            import.add_note(source, format_args!("the {what} {key:?} is left out: its value is not text"));
            return None;
        }
    };
    let expanded = around.expand(&written);
    if !expanded.missing.is_empty() {
        let origin = format!("{what} {key} of {source}, where {} is not known", expanded.missing.join(" and "));
        return Some(ConfigValue::Secret(import.secret(around.is_taken, source, key, origin, None)));
    }
    let text = expanded.text;
    if text.contains('\0') {
        import.add_note(source, format_args!("the {what} {key:?} is left out: it has a NUL character in it"));
        return None;
    }
    // A value of the environment is in no file yet, whatever it is.
    if is_secret_name(key) || looks_like_token(&text) || !expanded.from_environment.is_empty() {
        let origin = format!("{what} {key} of {source}");
        let value = Some(text).filter(|text| !text.is_empty());
        return Some(ConfigValue::Secret(import.secret(around.is_taken, source, key, origin, value)));
    }
    Some(ConfigValue::Plain(text))
}
