//! `portcullis import`: converts the `mcpServers` JSON of other clients to a `portcullis.toml`.
//!
//! It reads the files of Claude Desktop, Claude Code and Cursor (`mcpServers`), of VS Code (`servers`, or `mcp.servers`
//! in its settings, with `inputs`) and `mcp_servers.json`. Values that look like secrets are not written to the new
//! file.

mod jsonc;
mod server;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use server::ImportedServer;

/// The largest file, in bytes: more than any client writes, and small enough to parse twice.
const MAX_FILE_BYTES: usize = 1 << 20;

/// An error that says why nothing could be imported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file is larger than 1 MiB.
    #[error("the file is longer than {MAX_FILE_BYTES} bytes: is it the right one?")]
    TooLong,
    /// The file is not JSON, even if comments and trailing commas are allowed.
    #[error("the file is not JSON: {0}")]
    Json(String),
    /// The file has no key under which clients keep their servers.
    #[error("the file has no servers: looked for `mcpServers`, `servers` and `mcp.servers`")]
    NoServers,
    /// Every server was left out.
    #[error("none of the servers can be taken over:\n{}", .0.join("\n"))]
    NothingLeft(Vec<String>),
}

/// The result of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// A configuration that `Config::parse` accepts, unless an argument is the bare name of a file that exists beside
    /// it.
    pub toml: String,
    /// The secrets that the configuration names, which must be set before it runs.
    pub secrets: Vec<WantedSecret>,
    /// Notes for people on what was changed or left out or needs a look, one line each.
    pub notes: Vec<String>,
}

/// A secret that the new configuration names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedSecret {
    /// The NAME for `portcullis secret set NAME`.
    pub name: String,
    /// The place of the value in the old file, such as "env GITHUB_TOKEN of github".
    pub origin: String,
}

/// Converts a client's JSON to a `portcullis.toml`. Opens no file and starts nothing.
///
/// # Errors
/// [`ImportError`]
pub fn import(text: &str) -> Result<Imported, ImportError> {
    if text.len() > MAX_FILE_BYTES {
        return Err(ImportError::TooLong);
    }
    let json: Value =
        serde_json::from_str(&jsonc::to_json(text)).map_err(|error| ImportError::Json(error.to_string()))?;
    let servers = servers(&json).ok_or(ImportError::NoServers)?;
    let mut import = Import::default();
    let mut toml = String::from(HEAD);
    let mut taken = 0_usize;
    for (name, server) in servers {
        if let Some(server) = server::read(name, server, &mut import) {
            write(&mut toml, &server);
            taken += 1;
        }
    }
    toml.push_str(TAIL);
    match taken {
        0 if servers.is_empty() => Err(ImportError::NoServers),
        0 => Err(ImportError::NothingLeft(import.notes)),
        _ => Ok(Imported { toml, secrets: import.secrets, notes: import.notes }),
    }
}

const HEAD: &str = "\
# Made by `portcullis import`. Next: `portcullis check`.
# A source sees no variable that is not named here. Give each the `cell` it needs: without
# one it sees no file of yours and reaches no network.
";

const TAIL: &str = "
[[approvals]]
plugin = \"builtin:approval-memory\"
";

/// The names, secrets and notes that are collected during an import.
#[derive(Debug, Default)]
struct Import {
    names: BTreeSet<String>,
    secrets: Vec<WantedSecret>,
    notes: Vec<String>,
}

impl Import {
    fn note(&mut self, server: &str, what: impl std::fmt::Display) {
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
            self.note(wanted, format_args!("is called `{name}` here"));
        }
        name
    }

    /// Returns the name of a secret that the user sets by hand; the value in the old file is not imported.
    fn secret(&mut self, source: &str, key: &str, origin: String) -> String {
        let key: String =
            key.to_ascii_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let mut name = format!("{source}-{}", key.trim_matches('-'));
        name.truncate(portcullis_core::secret::MAX_NAME_BYTES);
        if !self.secrets.iter().any(|secret| secret.name == name) {
            self.secrets.push(WantedSecret {
                name: name.clone(),
                origin: portcullis_core::escape::escape_hidden(&origin).into_owned(),
            });
        }
        name
    }
}

/// Returns the table of servers, wherever this client keeps it.
fn servers(json: &Value) -> Option<&Map<String, Value>> {
    let direct = ["mcpServers", "servers", "mcp.servers"].iter().find_map(|key| json.get(key)?.as_object());
    let nested = || json.get("mcp")?.get("servers")?.as_object();
    direct.or_else(nested)
}

fn write(toml: &mut String, server: &ImportedServer) {
    // Writing to a string cannot fail.
    let _ = write!(toml, "\n[sources.{}]\n", server.name);
    match &server.endpoint {
        server::ImportedEndpoint::Command(argv) => {
            let words: Vec<String> = argv.iter().map(|word| quoted(word)).collect();
            let _ = writeln!(toml, "command = [{}]", words.join(", "));
        }
        server::ImportedEndpoint::Url { url, sse } => {
            let _ = writeln!(toml, "url = {}", quoted(url));
            if *sse {
                let _ = writeln!(toml, "transport = \"sse\"");
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
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn key_of(name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    if bare { name.to_owned() } else { quoted(name) }
}

fn value_of(value: &super::ConfigValue) -> String {
    match value {
        super::ConfigValue::Plain(text) => quoted(text),
        super::ConfigValue::Secret(name) => format!("{{ secret = {} }}", quoted(name)),
    }
}
