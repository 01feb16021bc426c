//! Operations of commands on a configuration's ledger without a broker: pinning plugins and components, and forgetting
//! bodies.

use serde_json::json;

use super::{Broker, BuildError, started};
use crate::config::Config;
use crate::digest::Digest;
use crate::ledger::{Event, EventKind, Ledger, LedgerError};
use crate::lockfile::Lockfile;
use crate::plugin::PluginReader;

/// A plugin or component whose current digest was pinned.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct AcceptedComponent {
    /// The name in the lock file: a path is relative to the folder of the configuration if it is within.
    pub component: String,
    /// The digest that was pinned before.
    pub before: Option<Digest>,
    /// The digest that is pinned now.
    pub now: Digest,
}

impl Broker {
    /// Deletes the data keys of the days (UTC) before `day` in the data folder of a configuration, and returns how many
    /// there were. The bodies that were sealed with them cannot be opened any more. The deletion is recorded; a broker
    /// may be running.
    ///
    /// # Errors
    /// [`LedgerError`]: keys may be left.
    #[doc(hidden)]
    pub async fn forget_bodies_before(config: &Config, day: jiff::civil::Date) -> Result<usize, LedgerError> {
        let ledger = Ledger::open(&config.data_dir, started(config)).await?;
        let forgotten = ledger.forget_bodies_before(day).await;
        ledger.close().await;
        forgotten
    }

    /// Pins the plugins and components of a configuration to their current digests in the lock of the data folder, and
    /// records each. Those that come with the broker, or have their digest in the configuration, need no pin. No broker
    /// is built, as it would refuse what has changed.
    ///
    /// # Errors
    /// [`BuildError`] if a plugin or component cannot be read, or the lock or the ledger cannot be written; then
    /// nothing is pinned.
    #[doc(hidden)]
    pub async fn accept_components(config: &Config, by: &str) -> Result<Vec<AcceptedComponent>, BuildError> {
        let reader = PluginReader::new(&config.data_dir, config.folder(), &Lockfile::load(&config.data_dir)?);
        let mut found = Vec::new();
        for plugin in config.plugins() {
            if let Some(digest) = reader.resolve(plugin).await? {
                found.push((plugin, plugin.locked_name(config.folder()), digest));
            }
        }
        let ledger = Ledger::open(&config.data_dir, started(config)).await?;
        let recorded = async {
            for (_, component, digest) in &found {
                let body = json!({ "component": component, "digest": digest, "by": by });
                ledger.append(Event::new(EventKind::LockAccepted, body)).await?;
            }
            Ok::<_, BuildError>(())
        };
        let recorded = recorded.await;
        ledger.close().await;
        recorded?;
        let mut accepted = Vec::new();
        Lockfile::change(&config.data_dir, |lock| {
            for (plugin, component, now) in found {
                let absolute = plugin.to_string();
                let before = if absolute == component { None } else { lock.unpin_component(&absolute) };
                let before = lock.pin_component(&component, now).or(before);
                accepted.push(AcceptedComponent { component, before, now });
            }
        })?;
        Ok(accepted)
    }
}
