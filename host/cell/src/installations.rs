//! The packages that are being installed at the moment, so that those who wait for a source can be told.

use std::collections::BTreeMap;
use std::sync::Arc;

use portcullis_core::name::SourceName;
use tokio::sync::watch;

/// The installations of one broker. Clones share them.
#[derive(Debug, Clone)]
pub struct Installations(Arc<watch::Sender<InstallSteps>>);

/// The sources whose package is being installed, each with the present step in words.
pub type InstallSteps = BTreeMap<SourceName, String>;

impl Default for Installations {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(InstallSteps::new())))
    }
}

impl Installations {
    /// Returns a receiver that sees each change of the steps. It may skip one that lasts only a moment.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<InstallSteps> {
        self.0.subscribe()
    }

    /// Returns what is told of the installation of one source. Nothing is told until its first step.
    #[cfg(feature = "process")]
    pub(crate) fn of(&self, source: &SourceName) -> Installation {
        Installation { all: self.clone(), source: source.clone() }
    }
}

/// The installation of one source, which has ended when this is dropped.
#[cfg(feature = "process")]
#[derive(Debug)]
pub(crate) struct Installation {
    all: Installations,
    source: SourceName,
}

#[cfg(feature = "process")]
impl Installation {
    /// Says what is done now.
    pub(crate) fn step(&self, step: String) {
        self.all.0.send_modify(|steps| drop(steps.insert(self.source.clone(), step)));
    }
}

#[cfg(feature = "process")]
impl Drop for Installation {
    fn drop(&mut self) {
        self.all.0.send_if_modified(|steps| steps.remove(&self.source).is_some());
    }
}
