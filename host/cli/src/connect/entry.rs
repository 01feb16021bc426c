//! The entry with which a client reaches this broker.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context as _, ensure};
use portcullis::config::Config;
use portcullis::front::http::{MCP_PATH, token};
use portcullis::secret::SecretStore;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use super::client::{Client, FileSyntax};

/// The name of the program in entries that are recognised as ours.
const PROGRAM: &str = "portcullis";

/// The way in which a client reaches the broker.
pub(crate) enum BrokerAccess {
    /// The client starts the broker.
    Stdio { command: String, args: Vec<String> },
    /// The broker is running.
    Http { url: String, token: Option<SecretString> },
}

impl BrokerAccess {
    /// Returns the access by which the client starts this very program.
    ///
    /// # Errors
    /// If a path is not known, or is not UTF-8, as a client's file is.
    pub(crate) fn stdio(config: &Config) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("the path of this program is not known")?;
        let file = config.file.as_deref().context("the configuration has no file")?;
        let file = std::path::absolute(file).context("the working directory is not known")?;
        let args = ["--config", text(&file)?, "serve", "--stdio"].map(str::to_owned).to_vec();
        Ok(Self::Stdio { command: text(&program)?.to_owned(), args })
    }

    /// Returns the access at the address of `[serve]`, with its token, which is made if there is none yet.
    ///
    /// # Errors
    /// If the address cannot be known before the broker runs, or the token cannot be read.
    pub(crate) fn http(config: &Config) -> anyhow::Result<Self> {
        let mut address = config.serve.listen;
        ensure!(
            address.port() != 0,
            "`listen` under [serve] is {address}, so the port is not known before the broker runs: write a port, or add --stdio"
        );
        if address.ip().is_unspecified() {
            let loopback: IpAddr =
                if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
            address = SocketAddr::new(loopback, address.port());
        }
        let url = format!("http://{address}{MCP_PATH}");
        let token = if config.serve.dangerous_no_token { None } else { Some(bearer(config)?) };
        Ok(Self::Http { url, token })
    }

    /// Returns the entry as this client writes it.
    pub(crate) fn entry(&self, client: Client) -> Value {
        match self {
            Self::Stdio { command, args } => match client {
                Client::ClaudeCode | Client::Vscode => json!({ "type": "stdio", "command": command, "args": args }),
                Client::Goose => json!({
                    "name": PROGRAM, "type": "stdio", "cmd": command, "args": args, "enabled": true, "timeout": 300,
                }),
                _ => json!({ "command": command, "args": args }),
            },
            Self::Http { url, token } => {
                let bearer = token.as_ref().map(|token| format!("Bearer {}", token.expose_secret()));
                let (kind, address, headers) = match client {
                    Client::ClaudeCode | Client::Vscode => (Some("http"), "url", "headers"),
                    Client::Gemini => (None, "httpUrl", "headers"),
                    Client::Windsurf => (None, "serverUrl", "headers"),
                    Client::Codex => (None, "url", "http_headers"),
                    Client::Goose => (Some("streamable_http"), "uri", "headers"),
                    Client::Cursor | Client::Zed | Client::ClaudeDesktop => (None, "url", "headers"),
                };
                let mut entry = serde_json::Map::new();
                if client == Client::Goose {
                    entry.insert("name".to_owned(), PROGRAM.into());
                    entry.insert("enabled".to_owned(), true.into());
                    entry.insert("timeout".to_owned(), 300.into());
                }
                entry.extend(kind.map(|kind| ("type".to_owned(), Value::from(kind))));
                entry.insert(address.to_owned(), url.as_str().into());
                entry.extend(bearer.map(|bearer| (headers.to_owned(), json!({ "Authorization": bearer }))));
                Value::Object(entry)
            }
        }
    }

    /// Reports whether the entry holds a token.
    pub(crate) fn has_token(&self) -> bool {
        matches!(self, Self::Http { token: Some(_), .. })
    }

    /// Returns a text without the token, to be shown.
    pub(crate) fn hide_token(&self, text: &str) -> String {
        match self {
            Self::Http { token: Some(token), .. } => text.replace(token.expose_secret(), "…"),
            _ => text.to_owned(),
        }
    }
}

/// Returns only the entry, in the language of the client's file, to be pasted.
pub(crate) fn snippet(client: Client, name: &str, entry: &Value) -> anyhow::Result<String> {
    match client.syntax() {
        FileSyntax::Json | FileSyntax::Toml => super::edit::with_entry("", client, name, entry),
        FileSyntax::Yaml => {
            // A JSON string is also valid YAML, and so is a list.
            let lines = entry.as_object().into_iter().flatten().map(|(key, value)| format!("    {key}: {value}\n"));
            Ok(format!("{}:\n  {name}:\n{}", client.servers_key(), lines.collect::<String>()))
        }
    }
}

/// Reports whether an entry was written by `connect`: it starts this program to serve, or it is the address of a broker
/// on this machine with a token.
pub(crate) fn is_ours(entry: &Value) -> bool {
    let text = |key: &str| entry.get(key).and_then(Value::as_str);
    if let Some(command) = text("command") {
        let own = std::env::current_exe().is_ok_and(|own| own == Path::new(command));
        let named = Path::new(command).file_name().is_some_and(|name| name == PROGRAM);
        let args = entry.get("args").and_then(Value::as_array);
        return (own || named) && args.is_some_and(|args| args.iter().any(|arg| arg == "serve"));
    }
    let url = ["url", "httpUrl", "serverUrl"].into_iter().find_map(text).and_then(|url| url::Url::parse(url).ok());
    url.is_some_and(|url| {
        let local = match url.host() {
            Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
            Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
            Some(url::Host::Domain(_)) | None => false,
        };
        local && url.path() == MCP_PATH
    })
}

/// Returns the token of callers that have none of their own.
fn bearer(config: &Config) -> anyhow::Result<SecretString> {
    match &config.serve.token {
        Some(value) => Ok(SecretStore::open(&config.data_dir)?.resolve(value)?),
        None => {
            token::of(config)?;
            let file = token::file(&config.data_dir);
            let token = std::fs::read_to_string(&file).with_context(|| format!("{} cannot be read", file.display()))?;
            Ok(token.trim().into())
        }
    }
}

fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().with_context(|| format!("{path:?} is not UTF-8, as a client's file is"))
}
