//! What the agent sees a tool called.

use crate::config::Naming;
use crate::digest::Digest;
use crate::name::{SEPARATOR, SourceName};

/// The longest exposed name, in characters: the shortest limit among widely used clients and model interfaces.
pub const MAX_EXPOSED_BYTES: usize = 64;

/// The longest name a source may give a tool, in bytes (MCP, "Tool Names").
const MAX_TOOL_BYTES: usize = 128;

/// Hexadecimal digits of the name's digest that a shortened name ends with: 32 bits keep 1,000 tools of one source apart,
/// and a collision is refused, never confused.
const SHORT_DIGITS: usize = 8;

/// Why a tool's name cannot be exposed.
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
}

/// The exposed name of a tool. Every result matches `^[a-zA-Z0-9_-]{1,64}$`, but for [`Naming::Plain`], which keeps the
/// source's name as it is. Unique names stay unique or collide visibly: the catalog refuses a collision.
pub(super) fn expose(source: &SourceName, naming: &Naming, tool: &str) -> Result<String, NamingError> {
    let shown = || tool.chars().take(MAX_TOOL_BYTES).collect::<String>();
    if let Some(character) = tool.chars().find(|c| !(c.is_ascii_alphanumeric() || "_-./".contains(*c))) {
        return Err(NamingError::Character { name: shown(), character, code: character as u32 });
    }
    if tool.is_empty() || tool.len() > MAX_TOOL_BYTES {
        return Err(NamingError::Length(shown()));
    }
    let full = match naming {
        Naming::Plain => return Ok(tool.to_owned()),
        Naming::Source => format!("{source}{SEPARATOR}{tool}"),
        Naming::Mcp => format!("mcp{SEPARATOR}{source}{SEPARATOR}{tool}"),
        Naming::Prefix(prefix) => format!("{prefix}{tool}"),
    };
    let safe = full.replace(['.', '/'], "_");
    if safe.len() <= MAX_EXPOSED_BYTES {
        return Ok(safe);
    }
    let digest = Digest::of(full.as_bytes()).to_string();
    let digits: String = digest.chars().skip("sha256:".len()).take(SHORT_DIGITS).collect();
    let kept: String = safe.chars().take(MAX_EXPOSED_BYTES - SHORT_DIGITS - 1).collect();
    Ok(format!("{kept}-{digits}"))
}
