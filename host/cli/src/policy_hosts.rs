//! The plugin hosts for commands that let policies judge without a broker.

use std::path::PathBuf;

use portcullis::broker::user_plugin_host;
use portcullis::config::{Config, PluginConfig, PluginRef};
use portcullis::lockfile::Lockfile;
use portcullis::plugin::{PluginHost, PluginReader, Policy};

/// Loads the policies of a configuration as its broker does: with the pins of its lock file, and signed by its
/// `plugin-keys`. A policy that the configuration does not have is a candidate, and nobody has pinned or signed it yet.
pub(crate) struct PolicyHosts {
    configured: PluginHost,
    candidates: PluginHost,
    plugins: Vec<PluginRef>,
}

impl PolicyHosts {
    /// Makes the hosts for the policies of this configuration, and for candidates.
    ///
    /// # Errors
    /// The lock file or a key cannot be read, or the engine cannot start.
    pub(crate) fn of(config: &Config) -> anyhow::Result<Self> {
        let lock = Lockfile::load(&config.data_dir)?;
        let reader = PluginReader::new(&config.data_dir, config.folder(), &lock).trusting(&config.plugin_keys)?;
        let candidates = user_plugin_host()?;
        let configured = candidates.with_other_pins(reader);
        let plugins = config.policies.iter().map(|policy| policy.plugin.clone()).collect();
        Ok(Self { configured, candidates, plugins })
    }

    /// Loads a policy.
    ///
    /// # Errors
    /// It cannot be read, is not the one that is pinned, or refuses its settings.
    pub(crate) async fn policy(&self, policy: &PluginConfig) -> anyhow::Result<Policy> {
        let is_configured = self.plugins.iter().any(|plugin| is_same(plugin, &policy.plugin));
        let host = if is_configured { &self.configured } else { &self.candidates };
        Ok(host.policy(policy).await?)
    }
}

/// Reports whether two names mean the same plugin. The path of one may be relative.
fn is_same(one: &PluginRef, other: &PluginRef) -> bool {
    let real = |plugin: &PluginRef| -> Option<PathBuf> {
        match plugin {
            PluginRef::Path(path) | PluginRef::Pinned(path, _) => path.canonicalize().ok(),
            PluginRef::Builtin(_) | PluginRef::Native(_) | PluginRef::Oci(_) => None,
        }
    };
    one == other || real(one).is_some_and(|path| real(other) == Some(path))
}
