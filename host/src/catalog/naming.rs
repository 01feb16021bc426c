//! What the agent sees an item called. Names of tools and prompts are found again in the catalog; URIs lead back by
//! themselves, so that a resource which no list names can be read too.

use super::Kind;
use crate::config::Naming;
use crate::digest::Digest;
use crate::name::{SEPARATOR, SourceName};
use crate::visible::is_hidden;

/// The longest exposed name, in characters: the shortest limit among widely used clients and model interfaces.
pub const MAX_EXPOSED_BYTES: usize = 64;

/// The longest name a source may give a tool, in bytes (MCP, "Tool Names").
const MAX_TOOL_BYTES: usize = 128;

/// The longest URI of a resource or template, in bytes: what web servers and proxies commonly take.
pub const MAX_URI_BYTES: usize = 8 * 1024;

/// What exposed URIs begin with: `portcullis://SOURCE/` and the source's own URI, whole.
const URI_PREFIX: &str = "portcullis://";

/// Hexadecimal digits of the name's digest that a shortened name ends with: 32 bits keep 1,000 tools of one source apart,
/// and a collision is refused, never confused.
const SHORT_DIGITS: usize = 8;

/// Why a name cannot be exposed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NamingError {
    /// Empty, or over the protocol's 128 bytes.
    #[error("tool name {0:?} must have 1 to {MAX_TOOL_BYTES} characters")]
    Length(String),
    /// Holds something else than printable ASCII without space: a look-alike, an invisible or a control character.
    #[error(
        "tool name {name:?} holds {character:?} (U+{code:04X}); only ASCII letters, digits and `_ - . /` are accepted, since \
         others can imitate them"
    )]
    Character {
        /// The name.
        name: String,
        /// The first bad character.
        character: char,
        /// Its code point.
        code: u32,
    },
    /// Of a prompt: empty, too long, or with characters that cannot be seen.
    #[error("prompt name {0:?} must have 1 to {MAX_TOOL_BYTES} visible characters")]
    Prompt(String),
    /// Of a resource: empty, too long, or with characters that cannot be seen.
    #[error("URI {0:?} must have 1 to {MAX_URI_BYTES} visible characters")]
    Uri(String),
}

/// The exposed name of an item.
pub(super) fn expose(kind: Kind, source: &SourceName, naming: &Naming, name: &str) -> Result<String, NamingError> {
    match kind {
        Kind::Tool => expose_tool(source, naming, name),
        Kind::Prompt => expose_prompt(source, naming, name),
        Kind::Resource | Kind::Template => {
            if name.is_empty() || name.len() > MAX_URI_BYTES || name.contains(is_hidden) {
                return Err(NamingError::Uri(name.chars().take(MAX_TOOL_BYTES).collect()));
            }
            Ok(exposed_uri(source, naming, name))
        }
        Kind::Source => Ok(source.to_string()),
    }
}

/// The exposed form of a URI or URI template.
pub(crate) fn exposed_uri(source: &SourceName, naming: &Naming, uri: &str) -> String {
    if *naming == Naming::Plain { uri.to_owned() } else { format!("{URI_PREFIX}{source}/{uri}") }
}

/// Where an exposed URI leads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Resolved<'a> {
    /// To this source, which knows it by this URI.
    Source(&'a str, &'a str),
    /// To a source that keeps its names as they are, if to any.
    Plain(&'a str),
}

/// Takes an exposed URI apart.
pub(crate) fn resolve_uri(exposed: &str) -> Resolved<'_> {
    let parts = exposed.strip_prefix(URI_PREFIX).and_then(|rest| rest.split_once('/'));
    parts.map_or(Resolved::Plain(exposed), |(source, uri)| Resolved::Source(source, uri))
}

/// People pick prompts by name, in whatever language; clients show them and parse nothing.
fn expose_prompt(source: &SourceName, naming: &Naming, prompt: &str) -> Result<String, NamingError> {
    if prompt.is_empty() || prompt.len() > MAX_TOOL_BYTES || prompt.contains(is_hidden) {
        return Err(NamingError::Prompt(prompt.chars().take(MAX_TOOL_BYTES).collect()));
    }
    Ok(full_name(source, naming, prompt))
}

fn full_name(source: &SourceName, naming: &Naming, name: &str) -> String {
    match naming {
        Naming::Plain => name.to_owned(),
        Naming::Source => format!("{source}{SEPARATOR}{name}"),
        Naming::Mcp => format!("mcp{SEPARATOR}{source}{SEPARATOR}{name}"),
        Naming::Prefix(prefix) => format!("{prefix}{name}"),
    }
}

/// The exposed name of a tool. Every result matches `^[a-zA-Z0-9_-]{1,64}$`, but for [`Naming::Plain`], which keeps the
/// source's name as it is. Unique names stay unique or collide visibly: the catalog refuses a collision.
fn expose_tool(source: &SourceName, naming: &Naming, tool: &str) -> Result<String, NamingError> {
    let shown = || tool.chars().take(MAX_TOOL_BYTES).collect::<String>();
    if let Some(character) = tool.chars().find(|c| !(c.is_ascii_alphanumeric() || "_-./".contains(*c))) {
        return Err(NamingError::Character { name: shown(), character, code: character as u32 });
    }
    if tool.is_empty() || tool.len() > MAX_TOOL_BYTES {
        return Err(NamingError::Length(shown()));
    }
    if *naming == Naming::Plain {
        return Ok(tool.to_owned());
    }
    let full = full_name(source, naming, tool);
    let safe = full.replace(['.', '/'], "_");
    if safe.len() <= MAX_EXPOSED_BYTES {
        return Ok(safe);
    }
    let digest = Digest::of(full.as_bytes()).to_string();
    let digits: String = digest.chars().skip("sha256:".len()).take(SHORT_DIGITS).collect();
    let kept: String = safe.chars().take(MAX_EXPOSED_BYTES - SHORT_DIGITS - 1).collect();
    Ok(format!("{kept}-{digits}"))
}
