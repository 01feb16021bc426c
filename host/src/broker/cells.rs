//! What is known of the cells of sources that run here.

#[cfg(feature = "process")]
use std::collections::BTreeMap;

use super::Broker;
#[cfg(feature = "process")]
use crate::cell::{CellError, Forecast, Phase};
#[cfg(feature = "process")]
use crate::lockfile::LockedPackage;
use crate::name::SourceName;

#[cfg(feature = "process")]
impl Broker {
    /// What each process source will be given and what will be enforced, before anything is installed or started.
    pub async fn forecast(&self) -> BTreeMap<SourceName, Result<Forecast, CellError>> {
        let mut forecasts = BTreeMap::new();
        for (name, upstream) in &self.inner.upstreams {
            if let Some(process_cell) = &upstream.process_cell {
                forecasts.insert(name.clone(), process_cell.forecast().await);
            }
        }
        forecasts
    }

    /// Resolves the packages of all `npx` and `uvx` sources anew and pins what was found: by source, what was pinned before
    /// and what is now.
    ///
    /// # Errors
    /// The first source whose package cannot be installed; those before it are pinned.
    pub async fn renew_packages(&self) -> Result<BTreeMap<SourceName, (Option<LockedPackage>, Phase)>, CellError> {
        let mut renewed = BTreeMap::new();
        for (name, upstream) in &self.inner.upstreams {
            let Some(process_cell) = &upstream.process_cell else { continue };
            if let Some(found) = process_cell.renew().await? {
                renewed.insert(name.clone(), found);
            }
        }
        Ok(renewed)
    }
}

impl Broker {
    /// What a source may touch and what is enforced by what, for programs. None for what runs elsewhere, and for a process
    /// before its first start.
    #[must_use]
    pub fn cell(&self, source: &SourceName) -> Option<serde_json::Value> {
        self.inner.upstreams.get(source)?.cell()
    }
}
