//! References to plugins and components, and what their bytes must be.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use portcullis_core::call::Phase;
use portcullis_core::digest::Digest;
use portcullis_net::oci::{ComponentReference, ReferenceError};

use super::error::UnlocatedProblem;
use super::raw::Located;
use super::{Config, Endpoint, value};

/// A reference to a plugin or component. It is displayed as written, with an absolute path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub enum PluginRef {
    /// A plugin or component that is built into the broker: `builtin:NAME`.
    Builtin(String),
    /// A policy, a sink or a source that is part of the program which embeds the broker: `native:NAME`.
    Native(String),
    /// A `.wasm` file, or a `.cwasm` file that the lock file pins.
    Path(#[serde(serialize_with = "super::digest::path")] PathBuf),
    /// A file with exactly these bytes: `PATH@sha256:…`.
    Pinned(#[serde(serialize_with = "super::digest::path")] PathBuf, Digest),
    /// A component in a registry: `oci://REGISTRY/NAME@sha256:…`, or with a tag that the lock file pins.
    Oci(#[serde(serialize_with = "super::digest::text")] ComponentReference),
}

impl fmt::Display for PluginRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(name) => write!(f, "builtin:{name}"),
            Self::Native(name) => write!(f, "native:{name}"),
            Self::Path(path) => path.display().fmt(f),
            Self::Oci(reference) => reference.fmt(f),
            Self::Pinned(path, digest) => write!(f, "{}@{digest}", path.display()),
        }
    }
}

impl PluginRef {
    /// Returns the name by which a lock file pins the plugin: a path within the folder of the configuration is relative
    /// to it, so that the pin holds wherever that folder is.
    #[doc(hidden)]
    #[must_use]
    pub fn locked_name(&self, folder: Option<&Path>) -> String {
        match self {
            Self::Path(path) => match folder.and_then(|folder| path.strip_prefix(folder).ok()) {
                Some(below) => format!("./{}", below.display()),
                None => self.to_string(),
            },
            Self::Builtin(_) | Self::Native(_) | Self::Pinned(..) | Self::Oci(_) => self.to_string(),
        }
    }

    /// Returns the names by which a lock file may pin the plugin: [`locked_name`](Self::locked_name), and the absolute
    /// path, which somebody may have written.
    #[doc(hidden)]
    #[must_use]
    pub fn locked_names(&self, folder: Option<&Path>) -> [String; 2] {
        [self.locked_name(folder), self.to_string()]
    }
}

impl Config {
    /// Returns the plugins and components that the configuration names, each once.
    #[doc(hidden)]
    #[must_use]
    pub fn plugins(&self) -> BTreeSet<&PluginRef> {
        let lists = [&self.policies, &self.transforms, &self.approvals, &self.sinks];
        let plugins = lists.into_iter().flatten().map(|entry| &entry.plugin);
        let components = self.sources.values().filter_map(|source| match &source.endpoint {
            Endpoint::Component { component, .. } => Some(component),
            _ => None,
        });
        plugins.chain(components).collect()
    }
}

/// One entry of `[[policies]]`, `[[transforms]]`, `[[approvals]]` or `[[sinks]]`.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct PluginConfig {
    /// The reference to the plugin.
    pub plugin: PluginRef,
    /// The settings that its `configure` receives, an object.
    pub settings: serde_json::Value,
    /// The phases in which the plugin is asked.
    pub on: Vec<Phase>,
    /// True if its verdicts are recorded and never applied.
    pub shadow: bool,
    /// Capabilities that it may import in addition to those of its WIT world.
    pub grant: Vec<String>,
    /// The file to which a sink's lines are written, or `None` for a file in the data folder.
    #[serde(serialize_with = "super::digest::paths")]
    pub file: Option<PathBuf>,
}

/// Parses `builtin:NAME`, `oci://…`, or the path of a `.wasm` or `.cwasm` file with or without the digest of its
/// content.
pub(super) fn parse(at: &Located<String>, base: &Path) -> Result<PluginRef, UnlocatedProblem> {
    let refuse =
        |help: String| UnlocatedProblem::new(at.span(), format!("{:?} names no plugin", at.as_str())).help(help);
    if at.starts_with("oci:") {
        return at.parse().map(PluginRef::Oci).map_err(|error: ReferenceError| refuse(error.to_string()));
    }
    let (text, digest) = match at.rsplit_once('@') {
        Some((text, digest)) if digest.starts_with("sha256:") => (text, Some(digest)),
        _ => (at.as_str(), None),
    };
    let word =
        |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    let digest = digest.map(str::parse::<Digest>).transpose();
    let digest = digest.map_err(|error| refuse(format!("{error}: this one is cut off or misspelt")))?;
    if let Some(name) = text.strip_prefix("builtin:") {
        return match word(name) {
            _ if digest.is_some() => Err(refuse("built-in plugins come with the broker: leave the digest out".into())),
            true => Ok(PluginRef::Builtin(name.to_owned())),
            false => Err(refuse("write it like \"builtin:rules\"".into())),
        };
    }
    if let Some(name) = text.strip_prefix("native:") {
        return match word(name) {
            _ if digest.is_some() => Err(refuse("what is native is part of the program: leave the digest out".into())),
            true => Ok(PluginRef::Native(name.to_owned())),
            false => Err(refuse("write it like \"native:name\", with letters, digits, dashes and underscores".into())),
        };
    }
    if text.contains("://") {
        return Err(refuse("only \"oci://…\" is fetched: download the .wasm and name its path".into()));
    }
    if !text.ends_with(".wasm") && !text.ends_with(".cwasm") {
        return Err(match word(text) {
            true => refuse(format!("write \"builtin:{text}\", or the path of a .wasm file")),
            false => refuse("write \"builtin:NAME\", or the path of a .wasm file".into()),
        });
    }
    let path = value::path(&at.part(text), base)?;
    Ok(match digest {
        Some(digest) => PluginRef::Pinned(path, digest),
        None => PluginRef::Path(path),
    })
}
