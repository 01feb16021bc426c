//! The packages that are being installed at the moment, so that callers waiting for a source can be informed.

use std::collections::BTreeMap;
use std::sync::Arc;
#[cfg(feature = "process")]
use std::sync::atomic::{AtomicBool, Ordering};

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

    /// Returns one installation of a source. It is not reported until its first step.
    #[cfg(feature = "process")]
    #[must_use]
    pub fn of(&self, source: &SourceName) -> Installation {
        Installation { all: self.clone(), source: source.clone(), is_reported: AtomicBool::new(false) }
    }
}

/// An installation of one source, which has ended when this is dropped. Several may be wanted at once; all but one
/// wait.
#[cfg(feature = "process")]
#[derive(Debug)]
pub struct Installation {
    all: Installations,
    source: SourceName,
    /// True if the present step of the source is this one's.
    is_reported: AtomicBool,
}

#[cfg(feature = "process")]
impl Installation {
    /// Reports the current step.
    pub fn step(&self, step: String) {
        self.is_reported.store(true, Ordering::Relaxed);
        self.all.0.send_modify(|steps| drop(steps.insert(self.source.clone(), step)));
    }

    /// Reports what the installation waits for, unless another one of the same source reports its own steps.
    pub(crate) fn waits_for(&self, what: &str) {
        self.all.0.send_if_modified(|steps| {
            let is_free = !steps.contains_key(&self.source);
            if is_free {
                self.is_reported.store(true, Ordering::Relaxed);
                steps.insert(self.source.clone(), format!("waiting for {what}"));
            }
            is_free
        });
    }
}

#[cfg(feature = "process")]
impl Drop for Installation {
    fn drop(&mut self) {
        if self.is_reported.load(Ordering::Relaxed) {
            self.all.0.send_if_modified(|steps| steps.remove(&self.source).is_some());
        }
    }
}

#[cfg(all(test, feature = "process"))]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_an_installation_hides_none_of_its_steps() -> Result<(), portcullis_core::name::NameError> {
        let (all, source) = (Installations::default(), "files".parse()?);
        let told = all.watch();
        let (installing, waiting) = (all.of(&source), all.of(&source));
        installing.step("installing".to_owned());
        waiting.waits_for("another broker");
        assert_eq!(told.borrow().get(&source).map(String::as_str), Some("installing"));
        drop(waiting);
        assert!(told.borrow().contains_key(&source), "it is still being installed");
        drop(installing);
        assert!(told.borrow().is_empty());
        all.of(&source).waits_for("another broker");
        assert!(told.borrow().is_empty(), "who waited has ended");
        Ok(())
    }
}
