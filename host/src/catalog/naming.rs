//! The exposed names of items. The catalog maps names of tools and prompts back to their source; an exposed URI itself
//! names its source, so that a resource that is in no list can be read too.

use std::fmt::Write as _;

use crate::config::Naming;
use crate::digest::Digest;
use crate::escape::is_hidden;
use crate::item::ItemKind;
use crate::name::{SEPARATOR, SourceName};

/// The longest exposed name of a tool, in ASCII characters: the shortest limit among widely used clients and model
/// interfaces.
pub const MAX_EXPOSED_BYTES: usize = 64;

/// The longest name that a source may give a tool or a prompt, in characters (MCP, "Tool Names").
const MAX_TOOL_CHARS: usize = 128;

/// The longest URI of a resource or template, in bytes: the length that web servers and proxies commonly accept.
pub const MAX_URI_BYTES: usize = 8 * 1024;

/// The beginning of exposed URIs, which are `portcullis://SOURCE/` followed by the whole URI of the source.
const URI_PREFIX: &str = "portcullis://";

/// The number of hexadecimal digits of the name's digest that a shortened name ends with: 32 bits keep 1,000 tools of
/// one source apart, and of two tools whose names still collide only the first is offered.
const SHORT_DIGITS: usize = 8;

/// The reason why a name cannot be exposed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NamingError {
    /// The name of a tool is empty, or longer than the protocol's 128 characters.
    #[error("a tool name must have 1 to {MAX_TOOL_CHARS} characters, and this one has {0}")]
    Length(usize),
    /// The name of a tool holds a character that is invisible, or that changes how its neighbours are displayed.
    #[error("its name holds the invisible character U+{0:04X}")]
    Hidden(u32),
    /// The name of a prompt is empty, too long, or holds invisible characters.
    #[error("a prompt name must have 1 to {MAX_TOOL_CHARS} visible characters")]
    Prompt,
    /// The URI of a resource or template is empty, too long, or holds invisible characters.
    #[error("a URI must have 1 to {MAX_URI_BYTES} visible characters")]
    Uri,
}

/// The name of an item as agents see it.
#[derive(Debug)]
pub(super) struct ExposedName {
    pub(super) name: String,
    /// The source's name in the configured style, before it was made safe.
    full: String,
}

impl ExposedName {
    fn as_it_is(name: String) -> Self {
        Self { full: name.clone(), name }
    }

    /// Reports whether no character was replaced.
    pub(super) fn is_exact(&self) -> bool {
        self.name == self.full
    }

    /// Reports whether characters other than separators were escaped.
    pub(super) fn is_escaped(&self) -> bool {
        !self.is_exact() && !self.full.chars().all(|c| is_safe(c) || matches!(c, '.' | '/'))
    }

    /// Returns another safe form of the name, which ends with digits of its digest and so differs from all others.
    pub(super) fn disambiguated(&self) -> String {
        shortened(&self.name, &self.full)
    }
}

/// Returns the exposed name of an item.
pub(super) fn expose(
    kind: ItemKind,
    source: &SourceName,
    naming: &Naming,
    name: &str,
) -> Result<ExposedName, NamingError> {
    match kind {
        ItemKind::Tool => expose_tool(source, naming, name),
        ItemKind::Prompt => expose_prompt(source, naming, name),
        ItemKind::Resource | ItemKind::Template => {
            if name.is_empty() || name.len() > MAX_URI_BYTES || name.contains(is_hidden) {
                return Err(NamingError::Uri);
            }
            Ok(ExposedName::as_it_is(exposed_uri(source, naming, name)))
        }
        ItemKind::Source => Ok(ExposedName::as_it_is(source.to_string())),
    }
}

/// Returns the exposed form of a URI or URI template.
pub(crate) fn exposed_uri(source: &SourceName, naming: &Naming, uri: &str) -> String {
    if *naming == Naming::Plain { uri.to_owned() } else { format!("{URI_PREFIX}{source}/{uri}") }
}

/// The source and the URI that an exposed URI stands for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ResolvedUri<'a> {
    /// The name of a source, and the URI by which that source knows the resource.
    Source(&'a str, &'a str),
    /// A URI without the name of a source. It belongs to a source whose names are exposed unchanged, if to any.
    Plain(&'a str),
}

/// Splits an exposed URI into the name of the source and the source's own URI.
pub(crate) fn resolve_uri(exposed: &str) -> ResolvedUri<'_> {
    let parts = exposed.strip_prefix(URI_PREFIX).and_then(|rest| rest.split_once('/'));
    parts.map_or(ResolvedUri::Plain(exposed), |(source, uri)| ResolvedUri::Source(source, uri))
}

/// Returns the exposed name of a prompt. It is not escaped: people pick prompts by name, in any language, and clients
/// show the names without parsing them.
fn expose_prompt(source: &SourceName, naming: &Naming, prompt: &str) -> Result<ExposedName, NamingError> {
    if prompt.is_empty() || prompt.chars().count() > MAX_TOOL_CHARS || prompt.contains(is_hidden) {
        return Err(NamingError::Prompt);
    }
    Ok(ExposedName::as_it_is(full_name(source, naming, prompt)))
}

fn full_name(source: &SourceName, naming: &Naming, name: &str) -> String {
    match naming {
        Naming::Plain => name.to_owned(),
        Naming::Source => format!("{source}{SEPARATOR}{name}"),
        Naming::Mcp => format!("mcp{SEPARATOR}{source}{SEPARATOR}{name}"),
        Naming::Prefix(prefix) => format!("{prefix}{name}"),
    }
}

/// Returns the exposed name of a tool. It matches `^[a-zA-Z0-9_-]{1,64}$`; with [`Naming::Plain`] it may be as long as
/// the source's own name and may hold `.` and `/`. A look-alike is written as its code point (`r_u435_ad` for a
/// Cyrillic `е`), so that it cannot imitate another name.
fn expose_tool(source: &SourceName, naming: &Naming, tool: &str) -> Result<ExposedName, NamingError> {
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
    Ok(ExposedName { name: if fits { safe } else { shortened(&safe, &full) }, full })
}

/// Returns a name in safe characters only: separators become `_` unless they are kept, and every other character
/// becomes `_u`, its code point in hexadecimal, and `_`.
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

/// Returns the beginning of a safe name, followed by digits of the digest of the full name.
fn shortened(safe: &str, full: &str) -> String {
    let digest = Digest::of(full.as_bytes()).to_string();
    let digits: String = digest.chars().skip("sha256:".len()).take(SHORT_DIGITS).collect();
    let kept: String = safe.chars().take(MAX_EXPOSED_BYTES - SHORT_DIGITS - 1).collect();
    format!("{kept}-{digits}")
}
