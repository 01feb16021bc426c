//! The cells of the sources that run on this machine, as far as they are known.

#[cfg(feature = "process")]
use std::collections::BTreeMap;
#[cfg(feature = "process")]
use std::sync::Arc;

use super::Broker;
use crate::cell::Installations;
#[cfg(feature = "process")]
use crate::cell::{CellError, CellPreview, PreparedSource, Recording};
use crate::name::SourceName;

impl Broker {
    /// Returns the packages that are being installed, for people who wait.
    #[doc(hidden)]
    #[must_use]
    pub fn installations(&self) -> Installations {
        self.inner.core.installations().clone()
    }
}

#[cfg(feature = "process")]
impl Broker {
    /// Returns what a process source was last given, or `None` before its first start.
    #[doc(hidden)]
    #[must_use]
    pub fn described(&self, source: &SourceName) -> Option<Arc<PreparedSource>> {
        self.inner.context().upstreams.get(source)?.process_cell.as_ref()?.described()
    }

    /// Returns the attempts of a process source, if its cell is recorded
    /// ([`CellConfig::recorded`](crate::config::CellConfig::recorded)).
    #[doc(hidden)]
    #[must_use]
    pub fn recording(&self, source: &SourceName) -> Option<Arc<Recording>> {
        self.inner.context().upstreams.get(source)?.process_cell.as_ref()?.recording().cloned()
    }

    /// Returns what each process source will be given and what will be enforced, before anything is installed or
    /// started.
    #[doc(hidden)]
    pub async fn cell_previews(&self) -> BTreeMap<SourceName, Result<CellPreview, CellError>> {
        let mut previews = BTreeMap::new();
        for (name, upstream) in &self.inner.context().upstreams {
            if let Some(process_cell) = &upstream.process_cell {
                previews.insert(name.clone(), process_cell.preview().await);
            }
        }
        previews
    }
}

impl Broker {
    /// Returns a source's access and the mechanism that enforces each limit, for programs. `None` for a source that
    /// runs elsewhere, and for a process before its first start.
    #[doc(hidden)]
    #[must_use]
    pub fn cell(&self, source: &SourceName) -> Option<serde_json::Value> {
        self.inner.context().upstreams.get(source)?.cell()
    }
}
