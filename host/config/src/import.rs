//! `portcullis import`: converts the files in which MCP clients keep their servers to sources of a `portcullis.toml`.
//!
//! It reads what Claude Code, Claude Desktop, Cursor, VS Code, Gemini CLI, Zed, Windsurf (JSON), Codex (TOML) and Goose
//! (YAML) write, and recognises each by its content. Values that look like secrets are not written to the new file.

mod expand;
mod formats;
mod server;
#[cfg(test)]
mod tests;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use portcullis_core::escape::{is_hidden, toml_string};
use secrecy::SecretString;

pub use expand::ExpansionContext;
use formats::FoundServer;
use server::{ImportedEndpoint, ImportedServer};

use super::build::MAX_SOURCES;
use super::{Config, ConfigValue, Endpoint};

/// The largest file, in bytes. Claude Code keeps its history in the same file, which reaches some megabytes.
pub const MAX_FILE_BYTES: usize = 32 << 20;

/// An error that says why nothing could be imported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file is larger than [`MAX_FILE_BYTES`].
    #[error("the file is longer than {MAX_FILE_BYTES} bytes: is it the right one?")]
    TooLong,
    /// The file looks like JSON and is not, even if comments and trailing commas are allowed.
    #[error("the file is not JSON: {0}")]
    Json(String),
    /// The file is in no language that clients write.
    #[error("the file is neither JSON ({json}) nor TOML ({toml}) nor YAML")]
    Unreadable {
        /// The reason why it is not JSON.
        json: String,
        /// The reason why it is not TOML.
        toml: String,
    },
    /// The file has no key under which clients keep their servers.
    #[error(
        "the file has no servers: looked for `mcpServers`, `servers`, `mcp.servers`, `context_servers`, `mcp_servers`, \
         `extensions` and `projects.*.mcpServers`"
    )]
    NoServers,
    /// The file has more servers than a configuration may have sources.
    #[error(
        "the file has {0} servers, and a configuration has at most {MAX_SOURCES} sources: is it the right one? Otherwise split \
         it, and run a broker for each part"
    )]
    TooMany(usize),
}

/// The result of an import.
#[derive(Debug)]
pub struct ImportResult {
    /// The tables of the new sources, each of which [`Config::parse`] accepts. Empty if there is none to add.
    pub sources: String,
    /// The secrets that the sources name.
    pub secrets: Vec<WantedSecret>,
    /// Notes for people on changes, omissions and things to check, one line each.
    pub notes: Vec<String>,
    /// The commands that remain to be run.
    pub to_do: Vec<String>,
    /// The number of servers that were left out because their source is there already.
    pub present: usize,
}

/// A secret that a new source names.
#[derive(Debug)]
pub struct WantedSecret {
    /// The NAME for `portcullis secret set NAME`.
    pub name: String,
    /// The place of the value in the client's file, such as "env GITHUB_TOKEN of github".
    pub origin: String,
    /// The value, or `None` if it is elsewhere.
    pub value: Option<SecretString>,
}

/// The first lines of a configuration that an import makes.
pub const HEAD: &str = "\
# Made by `portcullis import`. Next: `portcullis check`.
# A source sees no variable that is not named here, and no file and no host that its `cell` does not open.
";

/// The last lines of a configuration that an import makes.
pub const TAIL: &str = "
# The servers were in use before, so the tools that they call destructive stay on, and a person is asked about each call
# of them.
[profiles.default]
destructive = \"ask\"

[[approvals]]
plugin = \"builtin:approval-memory\"
";

/// Converts a client's file to sources for the configuration `file`, in addition to those of `present`. A server that
/// is there already is left out. Starts nothing, and reads no file but those of variables that servers name.
///
/// # Errors
/// [`ImportError`]
pub fn import(
    text: &str,
    around: &ExpansionContext<'_>,
    file: &Path,
    present: Option<&Config>,
) -> Result<ImportResult, ImportError> {
    if text.len() > MAX_FILE_BYTES {
        return Err(ImportError::TooLong);
    }
    let mut import = Import::default();
    let servers = formats::servers(text, &mut import.notes)?;
    // Before they are used: each is compared with those before it.
    if servers.len() > MAX_SOURCES {
        return Err(ImportError::TooMany(servers.len()));
    }
    let sources = present.into_iter().flat_map(|config| config.sources.values().chain(config.disabled.values()));
    let mut known: Vec<(String, Endpoint)> =
        sources.map(|source| (source.name.as_str().to_owned(), source.endpoint.clone())).collect();
    import.names.extend(known.iter().map(|(name, _)| name.to_lowercase()));
    let mut sources = String::new();
    for found in servers {
        let (secrets, to_do) = (import.secrets.len(), import.to_do.len());
        let Some((name, toml, endpoint)) = source(&found, around, file, &known, &mut import) else {
            // The notes about it stay, and nothing is left to do for it.
            import.secrets.truncate(secrets);
            import.to_do.truncate(to_do);
            continue;
        };
        sources.push_str(&toml);
        known.push((name, endpoint));
    }
    Ok(ImportResult {
        sources,
        secrets: import.secrets,
        notes: import.notes,
        to_do: import.to_do,
        present: import.present,
    })
}

/// Returns a source with its table and endpoint, or adds a note that says why it is left out.
fn source(
    found: &FoundServer,
    around: &ExpansionContext<'_>,
    file: &Path,
    known: &[(String, Endpoint)],
    import: &mut Import,
) -> Option<(String, String, Endpoint)> {
    let around = ExpansionContext { workspace: found.project.as_deref().or(around.workspace), ..*around };
    let server = server::read(&found.name, &found.members, &around, file, import)?;
    let mut toml = String::new();
    write(&mut toml, &server);
    // A server that the configuration itself refuses must not take the other servers along.
    let parsed = Config::parse(&toml, file);
    let config = match parsed {
        Ok(config) => config,
        Err(error) => {
            import.add_note(&server.name, format_args!("left out, since it would not be valid: {error}"));
            return None;
        }
    };
    let endpoint = config.sources.values().chain(config.disabled.values()).next()?.endpoint.clone();
    if let Some((name, _)) = known.iter().find(|(name, other)| is_named(name, &found.name) && is_same(other, &endpoint))
    {
        import.present += 1;
        import.names.remove(&server.name.to_lowercase());
        import.add_note(&found.name, format_args!("left out, since the source `{name}` is the same"));
        return None;
    }
    Some((server.name, toml, endpoint))
}

/// Reports whether a name is the one that a server of this name got here, perhaps with a number.
fn is_named(known: &str, wanted: &str) -> bool {
    let base = super::value::sanitised_name(wanted, "source");
    known.strip_prefix(&base).is_some_and(|rest| {
        rest.is_empty() || rest.strip_prefix('-').is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// Reports whether two endpoints are the same server, whatever their secrets are called.
fn is_same(a: &Endpoint, b: &Endpoint) -> bool {
    match (a, b) {
        (
            Endpoint::Command { argv: a, cwd: here, env: given },
            Endpoint::Command { argv: b, cwd: there, env: taken },
        ) => a == b && here == there && plain(given) == plain(taken),
        (Endpoint::Url { url: a, headers: sent, .. }, Endpoint::Url { url: b, headers: taken, .. }) => {
            a == b && plain(sent) == plain(taken)
        }
        _ => false,
    }
}

/// Returns values without the names of secrets.
fn plain(values: &BTreeMap<String, ConfigValue>) -> Vec<(&str, Option<&str>)> {
    let values = values.iter().map(|(name, value)| match value {
        ConfigValue::Plain(text) => (name.as_str(), Some(text.as_str())),
        ConfigValue::Secret(_) => (name.as_str(), None),
    });
    values.collect()
}

/// The names, secrets and notes that are collected during an import.
#[derive(Debug, Default)]
struct Import {
    names: BTreeSet<String>,
    secrets: Vec<WantedSecret>,
    notes: Vec<String>,
    to_do: Vec<String>,
    present: usize,
}

impl Import {
    fn add_note(&mut self, server: &str, what: impl std::fmt::Display) {
        self.notes.push(portcullis_core::escape::escape_hidden(&format!("{server}: {what}")).into_owned());
    }

    /// Returns a source name that is not in use yet.
    fn source_name(&mut self, wanted: &str) -> String {
        let base = super::value::sanitised_name(wanted, "source");
        let short = |extra: &str| {
            let room = portcullis_core::name::MAX_NAME_BYTES.saturating_sub(extra.len());
            base.get(..room.min(base.len())).unwrap_or(&base).trim_end_matches(['-', '_']).to_owned() + extra
        };
        let mut numbers = 2..;
        let mut name = base.clone();
        while !self.names.insert(name.to_lowercase()) {
            name = short(&format!("-{}", numbers.next().unwrap_or(u32::MAX)));
        }
        if name != wanted {
            self.add_note(wanted, format_args!("is called `{name}` here"));
        }
        name
    }

    /// Returns the name of a new secret, which holds the value if it is known. Names are made of texts that the file
    /// chooses, so one that exists already is never meant.
    fn secret(
        &mut self,
        is_taken: &dyn Fn(&str) -> bool,
        source: &str,
        key: &str,
        origin: String,
        value: Option<String>,
    ) -> String {
        let key: String =
            key.to_ascii_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let base = format!("{source}-{}", key.trim_matches('-'));
        let short = |extra: &str| {
            let room = portcullis_core::secret::MAX_NAME_BYTES.saturating_sub(extra.len());
            base.get(..room.min(base.len())).unwrap_or(&base).to_owned() + extra
        };
        let mut name = short("");
        let mut numbers = 2..;
        while is_taken(&name) || self.secrets.iter().any(|secret| secret.name == name) {
            name = short(&format!("-{}", numbers.next().unwrap_or(u32::MAX)));
        }
        let origin = portcullis_core::escape::escape_hidden(&origin).into_owned();
        self.secrets.push(WantedSecret { name: name.clone(), origin, value: value.map(SecretString::from) });
        name
    }
}

fn write(toml: &mut String, server: &ImportedServer) {
    // Writing to a string cannot fail.
    let _ = write!(toml, "\n[sources.{}]\n", server.name);
    if !server.enabled {
        let _ = writeln!(toml, "enabled = false");
    }
    match &server.endpoint {
        ImportedEndpoint::Command(argv) => {
            let _ = writeln!(toml, "command = {}", list(argv));
        }
        ImportedEndpoint::Url { url, sse } => {
            let _ = writeln!(toml, "url = {}", quoted(url));
            if *sse {
                let _ = writeln!(toml, "transport = \"sse\"");
            }
            if url::Url::parse(url).is_ok_and(|url| portcullis_net::egress::is_private(&url)) {
                let _ = writeln!(toml, "dangerous-allow-private = true");
            }
        }
    }
    if let Some(cwd) = &server.cwd {
        let _ = writeln!(toml, "cwd = {}", quoted(cwd));
    }
    for (key, table) in [("env", &server.env), ("headers", &server.headers)] {
        let entries: Vec<String> =
            table.iter().map(|(name, value)| format!("{} = {}", key_of(name), value_of(value))).collect();
        if !entries.is_empty() {
            let _ = writeln!(toml, "{key} = {{ {} }}", entries.join(", "));
        }
    }
    for (key, tools) in [("allow", &server.allow), ("deny", &server.deny)] {
        if let Some(tools) = tools {
            let _ = writeln!(toml, "{key} = {}", list(tools));
        }
    }
    if let Some(seconds) = server.timeout {
        let _ = writeln!(toml, "timeout = \"{seconds}s\"");
    }
}

fn list(words: &[String]) -> String {
    format!("[{}]", words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(", "))
}

/// Returns a text as a string of TOML. Characters that act on a terminal, and line breaks, are written as escapes.
fn quoted(text: &str) -> String {
    if text.contains(is_hidden) { toml_string(text) } else { toml::Value::String(text.to_owned()).to_string() }
}

fn key_of(name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    if bare { name.to_owned() } else { quoted(name) }
}

fn value_of(value: &ConfigValue) -> String {
    match value {
        ConfigValue::Plain(text) => quoted(text),
        ConfigValue::Secret(name) => format!("{{ secret = {} }}", quoted(name)),
    }
}
