//! Reads one server from a client's JSON.

use std::collections::BTreeMap;

use portcullis_core::secret::ConfigValue;
use serde_json::Value;

use super::Import;
use crate::secret_values::{is_secret_name, looks_like_token, secret_arguments};
use crate::variable;

/// The settings that are imported from one server.
pub(super) struct ImportedServer {
    pub name: String,
    pub endpoint: ImportedEndpoint,
    pub cwd: Option<String>,
    pub env: BTreeMap<String, ConfigValue>,
    pub headers: BTreeMap<String, ConfigValue>,
}

pub(super) enum ImportedEndpoint {
    Command(Vec<String>),
    Url { url: String, sse: bool },
}

/// Keys that are ignored: they contain nothing that a source needs.
const SILENT: [&str; 5] = ["type", "transport", "transportType", "name", "description"];

/// Keys that are read below.
const READ: [&str; 10] =
    ["command", "args", "env", "cwd", "url", "serverUrl", "httpUrl", "headers", "disabled", "enabled"];

/// Keys for a client's own login. They do not name the issuer of the tokens, and without it a client id could go to any
/// server.
const LOGIN: [&str; 2] = ["oauth", "auth"];

/// Returns the server, or adds a note that says why it is left out.
pub(super) fn read(wanted: &str, json: &Value, import: &mut Import) -> Option<ImportedServer> {
    let text = |key: &str| json.get(key).and_then(Value::as_str);
    if json.get("disabled").and_then(Value::as_bool) == Some(true)
        || json.get("enabled").and_then(Value::as_bool) == Some(false)
    {
        import.note(wanted, "left out, since it is switched off");
        return None;
    }
    let kind = ["type", "transport", "transportType"].into_iter().find_map(text).unwrap_or_default();
    let url = ["url", "serverUrl", "httpUrl"].into_iter().find_map(text);
    let endpoint = match (text("command"), url) {
        (Some(command), _) => ImportedEndpoint::Command(argv(command, json, wanted, import)?),
        (None, Some(url)) => {
            ImportedEndpoint::Url { url: plain_url(url, wanted, import)?, sse: kind.eq_ignore_ascii_case("sse") }
        }
        (None, None) => {
            import.note(wanted, "left out, since it has neither `command` nor `url`");
            return None;
        }
    };
    let name = import.source_name(wanted);
    let is_command = matches!(endpoint, ImportedEndpoint::Command(_));
    let beside =
        matches!(&endpoint, ImportedEndpoint::Command(argv) if argv.iter().skip(1).any(|arg| is_relative(arg)));
    let env = if is_command { env(&name, json, import) } else { BTreeMap::new() };
    let headers = if is_command { BTreeMap::new() } else { headers(&name, json, import) };
    let cwd = text("cwd").filter(|_| is_command).and_then(|cwd| {
        let usable = !cwd.is_empty() && !cwd.starts_with(['~', '$']) && !cwd.contains(char::is_control);
        if !usable {
            import.note(&name, format_args!("`cwd` {cwd:?} is left out: write the whole path"));
        }
        usable.then(|| cwd.to_owned())
    });
    let cwd = cwd.or_else(|| {
        beside.then(|| {
            import.note(&name, "has an argument that is a relative path: it is looked for beside the new file");
            ".".to_owned()
        })
    });
    for key in json.as_object().into_iter().flat_map(|map| map.keys()) {
        if READ.contains(&key.as_str()) || SILENT.contains(&key.as_str()) {
            continue;
        }
        let hint = match LOGIN.contains(&key.as_str()) && !is_command {
            true => format!(
                ": log in by `portcullis login {name}`; a client that was registered by hand needs its issuer too, as \
                 `oauth = {{ client-id = \"…\", issuer = \"https://…\" }}`"
            ),
            false => String::new(),
        };
        import.note(&name, format_args!("`{key}` is not taken over{hint}"));
    }
    Some(ImportedServer { name, endpoint, cwd, env, headers })
}

fn argv(command: &str, json: &Value, wanted: &str, import: &mut Import) -> Option<Vec<String>> {
    let args = json.get("args").and_then(Value::as_array);
    let mut argv: Vec<String> = match args {
        None if !command.contains('/') => command.split_whitespace().map(str::to_owned).collect(),
        _ => vec![command.to_owned()],
    };
    argv.extend(args.into_iter().flatten().map(|arg| arg.as_str().map_or_else(|| arg.to_string(), str::to_owned)));
    let program = argv.first().map_or("", String::as_str);
    let unusable = program.trim().is_empty()
        || program.starts_with(['~', '$'])
        || (argv.len() == 1 && !program.contains('/') && program.contains(char::is_whitespace))
        || program.contains(char::is_control)
        || argv.iter().any(|arg| arg.contains('\0'));
    if unusable {
        import.note(wanted, format_args!("left out, since {program:?} is not a program that can be started"));
        return None;
    }
    for arg in argv.iter().skip(1) {
        if arg.contains("${") {
            import.note(
                wanted,
                format_args!(
                    "the argument {arg:?} has a variable in it, and nothing is expanded here: write its value"
                ),
            );
        }
    }
    for place in secret_arguments(&argv) {
        import.note(
            wanted,
            format_args!("the argument {place} looks like a secret: it stands in the file, and every process of the machine can read arguments"),
        );
    }
    Some(argv)
}

/// Reports whether an argument is visibly a relative path; a client resolves it in the folder where it was started.
fn is_relative(arg: &str) -> bool {
    matches!(arg, "." | "..") || arg.starts_with("./") || arg.starts_with("../")
}

fn plain_url(url: &str, wanted: &str, import: &mut Import) -> Option<String> {
    let good = url::Url::parse(url).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
            && url.fragment().is_none()
    });
    if good.is_none() {
        // The note does not show the URL, which may contain a password.
        import.note(
            wanted,
            "left out, since its `url` is not a plain http or https URL; credentials belong in `headers`",
        );
    }
    good.map(|_| url.to_owned())
}

fn env(source: &str, json: &Value, import: &mut Import) -> BTreeMap<String, ConfigValue> {
    let mut env = BTreeMap::new();
    for (key, value) in json.get("env").and_then(Value::as_object).into_iter().flatten() {
        if let Some((why, hint)) = variable::refusal(key) {
            import.note(source, format_args!("the variable {key:?} is left out: it {why}; {hint}"));
        } else if let Some(value) = value_of(source, "env", key, value, import) {
            env.insert(key.clone(), value);
        }
    }
    env
}

fn headers(source: &str, json: &Value, import: &mut Import) -> BTreeMap<String, ConfigValue> {
    let mut headers = BTreeMap::new();
    for (key, value) in json.get("headers").and_then(Value::as_object).into_iter().flatten() {
        let value = value_of(source, "header", key, value, import);
        let Some(value) = value else { continue };
        let plain = match &value {
            ConfigValue::Plain(text) => text.clone(),
            ConfigValue::Secret(_) => String::new(),
        };
        if crate::source::header_problem(key, &plain).is_some() || headers.contains_key(&key.to_ascii_lowercase()) {
            import.note(
                source,
                format_args!("the header {key:?} is left out: the broker makes it itself, or it is not valid"),
            );
        } else {
            headers.insert(key.to_ascii_lowercase(), value);
        }
    }
    headers
}

/// Returns the value as written, or a reference to a secret that the user must set: if it looks like a secret, or if
/// the client looked it up elsewhere.
fn value_of(source: &str, what: &str, key: &str, json: &Value, import: &mut Import) -> Option<ConfigValue> {
    let text = match json {
        Value::String(text) => text.clone(),
        Value::Number(_) | Value::Bool(_) => json.to_string(),
        _ => {
            import.note(source, format_args!("the {what} {key:?} is left out: its value is not text"));
            return None;
        }
    };
    if is_secret_name(key) || text.contains("${") || looks_like_token(&text) {
        let reference = text.starts_with("${") && text.find('}') == Some(text.len() - 1);
        let origin = match reference {
            true => format!("{what} {key} of {source}, which was {text}"),
            false => format!("{what} {key} of {source}"),
        };
        return Some(ConfigValue::Secret(import.secret(source, key, origin)));
    }
    if text.contains('\0') {
        import.note(source, format_args!("the {what} {key:?} is left out: it has a NUL character in it"));
        return None;
    }
    Some(ConfigValue::Plain(text))
}
