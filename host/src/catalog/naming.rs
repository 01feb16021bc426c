//! What the agent sees an item called. Names of tools and prompts are found again in the catalog; URIs lead back by
//! themselves, so that a resource which no list names can be read too.

use std::fmt::Write as _;

use crate::config::Naming;
use crate::digest::Digest;
use crate::item::ItemKind;
use crate::name::{SEPARATOR, SourceName};
use crate::visible::is_hidden;

/// The longest exposed name, in characters: the shortest limit among widely used clients and model interfaces.
pub const MAX_EXPOSED_BYTES: usize = 64;

/// The longest name a source may give a tool or a prompt, in characters (MCP, "Tool Names").
const MAX_TOOL_CHARS: usize = 128;

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
    /// Empty, or over the protocol's 128 characters.
    #[error("a tool name must have 1 to {MAX_TOOL_CHARS} characters, and this one has {0}")]
    Length(usize),
    /// Holds a character that cannot be seen, or that acts on its neighbours.
    #[error("its name holds the invisible character U+{0:04X}")]
    Hidden(u32),
    /// Of a prompt: empty, too long, or with characters that cannot be seen.
    #[error("a prompt name must have 1 to {MAX_TOOL_CHARS} visible characters")]
    Prompt,
    /// Of a resource: empty, too long, or with characters that cannot be seen.
    #[error("a URI must have 1 to {MAX_URI_BYTES} visible characters")]
    Uri,
}

/// The name of an item as agents see it.
#[derive(Debug)]
pub(super) struct Exposed {
    pub(super) name: String,
    /// The source's name in the configured style, before it was made safe.
    full: String,
}

impl Exposed {
    fn as_it_is(name: String) -> Self {
        Self { full: name.clone(), name }
    }

    /// Whether nothing had to be replaced.
    pub(super) fn is_exact(&self) -> bool {
        self.name == self.full
    }

    /// Whether characters were escaped that no client takes in a name.
    pub(super) fn is_escaped(&self) -> bool {
        !self.is_exact() && !self.full.chars().all(|c| is_safe(c) || matches!(c, '.' | '/'))
    }

    /// Another safe form of the same name, which no other name has.
    pub(super) fn apart(&self) -> String {
        shortened(&self.name, &self.full)
    }
}

/// The exposed name of an item.
pub(super) fn expose(kind: ItemKind, source: &SourceName, naming: &Naming, name: &str) -> Result<Exposed, NamingError> {
    match kind {
        ItemKind::Tool => expose_tool(source, naming, name),
        ItemKind::Prompt => expose_prompt(source, naming, name),
        ItemKind::Resource | ItemKind::Template => {
            if name.is_empty() || name.len() > MAX_URI_BYTES || name.contains(is_hidden) {
                return Err(NamingError::Uri);
            }
            Ok(Exposed::as_it_is(exposed_uri(source, naming, name)))
        }
        ItemKind::Source => Ok(Exposed::as_it_is(source.to_string())),
    }
}

/// The exposed form of a URI or URI template.
pub(crate) fn exposed_uri(source: &SourceName, naming: &Naming, uri: &str) -> String {
    if *naming == Naming::Plain { uri.to_owned() } else { format!("{URI_PREFIX}{source}/{uri}") }
}

/// Where an exposed URI leads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ResolvedUri<'a> {
    /// To this source, which knows it by this URI.
    Source(&'a str, &'a str),
    /// To a source that keeps its names as they are, if to any.
    Plain(&'a str),
}

/// Takes an exposed URI apart.
pub(crate) fn resolve_uri(exposed: &str) -> ResolvedUri<'_> {
    let parts = exposed.strip_prefix(URI_PREFIX).and_then(|rest| rest.split_once('/'));
    parts.map_or(ResolvedUri::Plain(exposed), |(source, uri)| ResolvedUri::Source(source, uri))
}

/// People pick prompts by name, in whatever language; clients show them and parse nothing.
fn expose_prompt(source: &SourceName, naming: &Naming, prompt: &str) -> Result<Exposed, NamingError> {
    if prompt.is_empty() || prompt.chars().count() > MAX_TOOL_CHARS || prompt.contains(is_hidden) {
        return Err(NamingError::Prompt);
    }
    Ok(Exposed::as_it_is(full_name(source, naming, prompt)))
}

fn full_name(source: &SourceName, naming: &Naming, name: &str) -> String {
    match naming {
        Naming::Plain => name.to_owned(),
        Naming::Source => format!("{source}{SEPARATOR}{name}"),
        Naming::Mcp => format!("mcp{SEPARATOR}{source}{SEPARATOR}{name}"),
        Naming::Prefix(prefix) => format!("{prefix}{name}"),
    }
}

/// The exposed name of a tool. Every result matches `^[a-zA-Z0-9_-]{1,64}$`; with [`Naming::Plain`] it may be as long as the
/// source's own, and have `.` and `/` in it. A look-alike is written out (`r_u435_ad` for a Cyrillic `е`), so that it
/// imitates nobody.
fn expose_tool(source: &SourceName, naming: &Naming, tool: &str) -> Result<Exposed, NamingError> {
    let count = tool.chars().count();
    if !(1..=MAX_TOOL_CHARS).contains(&count) {
        return Err(NamingError::Length(count));
    }
    if let Some(hidden) = tool.chars().find(|c| is_hidden(*c)) {
        return Err(NamingError::Hidden(hidden.into()));
    }
    let (full, plain) = (full_name(source, naming, tool), *naming == Naming::Plain);
    let safe = escaped(&full, plain);
    let fits = safe.len() <= MAX_EXPOSED_BYTES || plain && safe == full;
    Ok(Exposed { name: if fits { safe } else { shortened(&safe, &full) }, full })
}

/// A name in safe characters alone: separators become `_`, unless they are kept, and any other character `_u`, its code point
/// and `_`.
fn escaped(name: &str, keep_separators: bool) -> String {
    let mut safe = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            c if is_safe(c) => safe.push(c),
            '.' | '/' if keep_separators => safe.push(c),
            '.' | '/' => safe.push('_'),
            // Writing to a string cannot fail.
            c => write!(safe, "_u{:x}_", u32::from(c)).unwrap_or_default(),
        }
    }
    safe
}

fn is_safe(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// The beginning of a safe name and digits of the whole one.
fn shortened(safe: &str, full: &str) -> String {
    let digest = Digest::of(full.as_bytes()).to_string();
    let digits: String = digest.chars().skip("sha256:".len()).take(SHORT_DIGITS).collect();
    let kept: String = safe.chars().take(MAX_EXPOSED_BYTES - SHORT_DIGITS - 1).collect();
    format!("{kept}-{digits}")
}
