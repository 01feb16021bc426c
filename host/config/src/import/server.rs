//! Reads one server from a client's file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use portcullis_core::private::regular_file::{self, Symlinks};
use portcullis_core::secret::ConfigValue;
use serde_json::{Map, Value};

use super::expand::{ExpansionContext, env_file};
use super::{Import, formats, values};
use crate::secret_values::{is_secret_name, is_variable, looks_secret, secret_arguments};

/// The settings that are imported from one server.
pub(super) struct ImportedServer {
    pub name: String,
    pub endpoint: ImportedEndpoint,
    pub enabled: bool,
    pub cwd: Option<String>,
    pub env: BTreeMap<String, ConfigValue>,
    pub headers: BTreeMap<String, ConfigValue>,
    /// Exposed names of tools.
    pub allow: Option<Vec<String>>,
    pub deny: Option<Vec<String>>,
    /// In seconds.
    pub timeout: Option<u64>,
}

pub(super) enum ImportedEndpoint {
    Command(Vec<String>),
    Url { url: String, sse: bool },
}

/// Keys that are ignored: they contain nothing that a source needs.
const SILENT: [&str; 10] = [
    "type",
    "transport",
    "transportType",
    "name",
    "display_name",
    "description",
    "source",
    "bundled",
    "gallery",
    "version",
];

/// Keys that are read, here and in `values`.
const READ: [&str; 25] = [
    "command",
    "args",
    "env",
    "envFile",
    "env_vars",
    "cwd",
    "url",
    "serverUrl",
    "httpUrl",
    "headers",
    "http_headers",
    "env_http_headers",
    "bearer_token_env_var",
    "disabled",
    "enabled",
    "includeTools",
    "enabled_tools",
    "excludeTools",
    "disabledTools",
    "disabled_tools",
    "tool_timeout_sec",
    "cmd",
    "envs",
    "env_keys",
    "uri",
];

/// Keys for a client's own login. They do not name the issuer of the tokens, and without it a client id could go to any
/// server.
const LOGIN: [&str; 2] = ["oauth", "auth"];

/// Kinds of extensions that Goose brings itself.
const BUILT_IN: [&str; 4] = ["builtin", "platform", "frontend", "inline_python"];

/// The names of container runtimes.
const CONTAINERS: [&str; 3] = ["docker", "podman", "nerdctl"];

/// The most that is read of a file of variables, in bytes.
const MAX_VARIABLES_BYTES: u64 = 256 * 1024;

/// The longest timeout of a call that the configuration takes, in seconds.
const MAX_TIMEOUT: u64 = 3600;

/// Returns the server, or adds a note that says why it is left out.
pub(super) fn read(
    wanted: &str,
    written: &Value,
    around: &ExpansionContext<'_>,
    file: &Path,
    import: &mut Import,
) -> Option<ImportedServer> {
    let Some(written) = written.as_object() else {
        import.add_note(wanted, "left out, since it is not a table of settings");
        return None;
    };
    let json = &Value::Object(formats::in_common_form(written));
    let text = |key: &str| json.get(key).and_then(Value::as_str);
    let kind = ["type", "transport", "transportType"].into_iter().find_map(text).unwrap_or_default();
    if BUILT_IN.contains(&kind) {
        import.add_note(wanted, "left out, since it is a part of the client and no server");
        return None;
    }
    let mut kept = BTreeSet::new();
    let endpoint = endpoint(wanted, json, kind, around, &mut kept, import)?;
    let name = import.source_name(wanted);
    let is_command = matches!(endpoint, ImportedEndpoint::Command(_));
    let (mut env, mut headers) = (BTreeMap::new(), BTreeMap::new());
    match &endpoint {
        ImportedEndpoint::Command(argv) => env = self::env(&name, json, argv, &kept, around, import),
        ImportedEndpoint::Url { .. } => headers = values::headers(&name, json, around, import),
    }
    let cwd = directory(&name, text("cwd"), &endpoint, around, file, import);
    note_unread_keys(&name, written, is_command, import);
    let is_off = |key: &str, off: bool| json.get(key).and_then(Value::as_bool) == Some(off);
    let enabled = !is_off("disabled", true) && !is_off("enabled", false);
    if !enabled {
        import.add_note(&name, format_args!("is switched off, here too: `portcullis enable {name}` uses it"));
    }
    let timeout = json.get("tool_timeout_sec").and_then(Value::as_f64).map(|seconds| seconds.ceil());
    Some(ImportedServer {
        allow: tools(&name, json, &["includeTools", "enabled_tools"], import),
        deny: tools(&name, json, &["excludeTools", "disabledTools", "disabled_tools"], import),
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
        timeout: timeout.filter(|seconds| (1.0..=MAX_TIMEOUT as f64).contains(seconds)).map(|seconds| seconds as u64),
        name,
        endpoint,
        enabled,
        cwd,
        env,
        headers,
    })
}

/// Returns how the server is reached, or adds a note that says why it is left out. `kept` gets the variables of the
/// environment that stay in the command.
fn endpoint(
    wanted: &str,
    json: &Value,
    kind: &str,
    around: &ExpansionContext<'_>,
    kept: &mut BTreeSet<String>,
    import: &mut Import,
) -> Option<ImportedEndpoint> {
    let url = ["url", "serverUrl", "httpUrl"].into_iter().find_map(|key| json.get(key)?.as_str());
    match (json.get("command"), url) {
        (Some(command), _) => Some(ImportedEndpoint::Command(argv(command, json, wanted, around, kept, import)?)),
        (None, Some(url)) => {
            let expanded = around.expand_for_file(url);
            for missing in &expanded.missing {
                import.add_note(
                    wanted,
                    format_args!("nothing is known for the variable {missing:?} in its `url`: write its value"),
                );
            }
            values::note_url_variables(wanted, &expanded.from_environment, import);
            let url = plain_url(&expanded.text, wanted, import)?;
            let sse = kind.eq_ignore_ascii_case("sse") || (kind.is_empty() && url.ends_with("/sse"));
            Some(ImportedEndpoint::Url { url, sse })
        }
        (None, None) => {
            import.add_note(wanted, "left out, since it has neither `command` nor `url`");
            None
        }
    }
}

/// Adds a note for each key of the server that is not taken over.
fn note_unread_keys(name: &str, written: &Map<String, Value>, is_command: bool, import: &mut Import) {
    for key in written.keys() {
        if READ.contains(&key.as_str()) || SILENT.contains(&key.as_str()) {
            continue;
        }
        if LOGIN.contains(&key.as_str()) && !is_command {
            import.add_note(
                name,
                format_args!(
                    "`{key}` is not taken over: a client that was registered by hand needs its issuer too, as `oauth = \
                     {{ client-id = \"…\", issuer = \"https://…\" }}`"
                ),
            );
            import.to_do.push(format!("portcullis login {name}"));
        } else {
            import.add_note(name, format_args!("`{key}` is not taken over"));
        }
    }
}

fn argv(
    command: &Value,
    json: &Value,
    wanted: &str,
    around: &ExpansionContext<'_>,
    kept: &mut BTreeSet<String>,
    import: &mut Import,
) -> Option<Vec<String>> {
    let Some(command) = command.as_str() else {
        import.add_note(wanted, "left out, since its `command` is not text");
        return None;
    };
    let args = json.get("args").and_then(Value::as_array);
    let mut argv: Vec<String> = match args {
        None if !command.contains('/') => command.split_whitespace().map(str::to_owned).collect(),
        _ => vec![command.to_owned()],
    };
    argv.extend(args.into_iter().flatten().map(|arg| arg.as_str().map_or_else(|| arg.to_string(), str::to_owned)));
    for word in &mut argv {
        let expanded = around.expand_for_file(word);
        for missing in &expanded.missing {
            import.add_note(
                wanted,
                format_args!("nothing is known for the variable {missing:?} in its command: write its value"),
            );
        }
        kept.extend(expanded.from_environment);
        *word = expanded.text;
    }
    let program = argv.first().map_or("", String::as_str);
    let unusable = program.trim().is_empty()
        || program.starts_with(['~', '$'])
        || (argv.len() == 1 && !program.contains('/') && program.contains(char::is_whitespace))
        || program.contains(char::is_control)
        || argv.iter().any(|arg| arg.contains('\0'));
    if unusable {
        import.add_note(wanted, format_args!("left out, since {program:?} is not a program that can be started"));
        return None;
    }
    let program = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let has = |word: &str| argv.iter().skip(1).any(|arg| arg == word);
    if program == "portcullis" && (has("serve") || has("wrap")) {
        import.add_note(wanted, "left out, since it starts this broker");
        return None;
    }
    if CONTAINERS.contains(&program.as_str()) && has("run") {
        import.add_note(
            wanted,
            format_args!(
                "`{program} run` does not work in a cell, which has no socket of {program}, and a container would be \
                 outside of the cell: name the program that the image starts"
            ),
        );
    }
    for place in secret_arguments(&argv) {
        import.add_note(
            wanted,
            format_args!("the argument {place} looks like a secret: it stands in the file, and every process of the machine can read arguments"),
        );
    }
    Some(argv)
}

/// Returns the working directory of a program: the one that is written, or the project's if an argument is a relative
/// path.
fn directory(
    name: &str,
    written: Option<&str>,
    endpoint: &ImportedEndpoint,
    around: &ExpansionContext<'_>,
    file: &Path,
    import: &mut Import,
) -> Option<String> {
    let ImportedEndpoint::Command(argv) = endpoint else { return None };
    if let Some(cwd) = written {
        let expanded = around.expand(cwd);
        let path = around.path(&expanded.text);
        let cwd = path.to_str().filter(|_| expanded.missing.is_empty()).unwrap_or_default();
        if !cwd.is_empty() && !cwd.starts_with(['~', '$']) && !cwd.contains(char::is_control) {
            return Some(cwd.to_owned());
        }
        import.add_note(name, format_args!("`cwd` {written:?} is left out: write the whole path"));
    }
    let is_relative =
        |arg: &String| matches!(arg.as_str(), "." | "..") || arg.starts_with("./") || arg.starts_with("../");
    if !argv.iter().skip(1).any(is_relative) {
        return None;
    }
    let elsewhere = around.workspace.filter(|folder| file.parent() != Some(folder)).and_then(Path::to_str);
    let cwd = elsewhere.filter(|folder| !folder.contains(char::is_control)).unwrap_or(".");
    let place = if cwd == "." { "beside the new file" } else { cwd };
    import.add_note(name, format_args!("has an argument that is a relative path: it is looked for {place}"));
    Some(cwd.to_owned())
}

fn plain_url(url: &str, wanted: &str, import: &mut Import) -> Option<String> {
    let good = url::Url::parse(url).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
            && url.fragment().is_none()
    });
    let Some(parsed) = good else {
        // The note does not show the URL, which may contain a password.
        import.add_note(
            wanted,
            "left out, since its `url` is not a plain http or https URL; credentials belong in `headers`",
        );
        return None;
    };
    for (name, value) in parsed.query_pairs() {
        if looks_secret(&name, &value) && !is_variable(&value) {
            import.add_note(
                wanted,
                format_args!("the parameter `{name}` of its `url` looks like a secret: it stands in the file"),
            );
        }
    }
    Some(url.to_owned())
}

/// Returns the variables of a program: those of its file of variables, those that are written with it, which win, and
/// those that its command keeps.
fn env(
    name: &str,
    json: &Value,
    argv: &[String],
    kept: &BTreeSet<String>,
    around: &ExpansionContext<'_>,
    import: &mut Import,
) -> BTreeMap<String, ConfigValue> {
    let mut all = Map::new();
    if let Some(written) = json.get("envFile").and_then(Value::as_str) {
        let path = around.path(&around.expand(written).text);
        match read_variables(&path, around) {
            Ok(text) => {
                let found = env_file(&text);
                import.add_note(name, format_args!("{} variables are taken from `envFile` {path:?}", found.len()));
                all.extend(found.into_iter().map(|(key, value)| (key, Value::String(value))));
            }
            Err(error) => import.add_note(name, format_args!("`envFile` {path:?} cannot be read: {error}")),
        }
    }
    for key in json.get("env_vars").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        if (around.variable)(key).is_none() && !is_secret_name(key) {
            import.add_note(name, format_args!("the variable {key:?} is left out: no value is known for it here"));
            continue;
        }
        all.insert(key.to_owned(), Value::String(format!("${{{key}}}")));
    }
    all.extend(json.get("env").and_then(Value::as_object).cloned().unwrap_or_default());
    let mut env = values::env(name, &all, around, import);
    values::add_of_command(name, argv, kept, &mut env, around, import);
    env
}

/// Reads a file of variables, which is a short text.
fn read_variables(path: &Path, around: &ExpansionContext<'_>) -> std::io::Result<String> {
    if !(around.may_read)(path) {
        return Err(std::io::Error::other(
            "it is outside of the project of a file that somebody else may have written",
        ));
    }
    regular_file::read_text(path, Symlinks::Follow, MAX_VARIABLES_BYTES)
}

/// Returns exposed names of tools for a list of their own names.
fn tools(name: &str, json: &Value, keys: &[&str], import: &mut Import) -> Option<Vec<String>> {
    let list = keys.iter().find_map(|key| json.get(*key)?.as_array())?;
    let is_plain = |tool: &&str| {
        !tool.is_empty() && tool.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    let tools: Vec<String> =
        list.iter().filter_map(Value::as_str).filter(is_plain).map(|tool| format!("{name}__{tool}")).collect();
    if tools.len() < list.len() {
        import.add_note(
            name,
            format_args!("{} names in its lists of tools are not taken over", list.len() - tools.len()),
        );
    }
    Some(tools)
}
