//! The policies, sinks and sources that the program which embeds the broker brings along.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::BuildError;
use crate::config::{Config, Endpoint, PluginConfig, PluginRef};
use crate::plugin::NativePlugins;
use crate::source::NativeSource;

/// The policies, sinks and sources of a program, by name.
#[derive(Clone, Default)]
pub(super) struct NativeParts {
    pub(super) plugins: NativePlugins,
    pub(super) sources: BTreeMap<String, Arc<dyn NativeSource>>,
}

impl NativeParts {
    /// Checks that a configuration uses all parts: one that is forgotten would do nothing, and a policy would protect
    /// nothing.
    pub(super) fn check_all_are_used(&self, config: &Config) -> Result<(), BuildError> {
        let named = |list: &[PluginConfig], name: &str| {
            list.iter().any(|entry| matches!(&entry.plugin, PluginRef::Native(named) if named == name))
        };
        let source = |name: &str| {
            let mut sources = config.sources.values().chain(config.disabled.values());
            sources.any(|source| matches!(&source.endpoint, Endpoint::Native { name: named } if named == name))
        };
        let policies = self.plugins.policies.keys().map(|name| ("policy", name, named(&config.policies, name)));
        let sinks = self.plugins.sinks.keys().map(|name| ("sink", name, named(&config.sinks, name)));
        let sources = self.sources.keys().map(|name| ("source", name, source(name)));
        match policies.chain(sinks).chain(sources).find(|(.., used)| !used) {
            None => Ok(()),
            Some((role, name, _)) => {
                let line = match role {
                    "policy" => format!("`plugin = \"native:{name}\"` to `[[policies]]`"),
                    "sink" => format!("`plugin = \"native:{name}\"` to `[[sinks]]`"),
                    _ => format!("`native = \"{name}\"` to a source"),
                };
                Err(BuildError::NativeUnused { role, name: name.clone(), line })
            }
        }
    }
}

impl fmt::Debug for NativeParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeParts").field("plugins", &self.plugins).field("sources", &self.sources.keys()).finish()
    }
}
