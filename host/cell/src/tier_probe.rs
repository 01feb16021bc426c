//! The probe of the cells that this machine can build, for all sources.

use std::sync::Arc;

use portcullis_jail::Launcher;
use tokio::sync::Mutex;

use super::AvailableTiers;
use super::spawner::on_spawner;

/// A probe of the tiers that this machine can build. Clones share its result. If none could be built, the cause may be
/// temporary, such as too many processes of the user, so that the next source has it probed again.
#[derive(Debug, Clone)]
pub struct TierProbe {
    launcher: Launcher,
    found: Arc<Mutex<Option<AvailableTiers>>>,
}

impl TierProbe {
    /// Returns a probe with this launcher, which has not begun.
    pub fn new(launcher: Launcher) -> Self {
        Self { launcher, found: Arc::default() }
    }

    /// Begins the probe, so that the first source need not wait for all of it. It starts the launcher and builds a
    /// cell, which takes some milliseconds of another processor.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn begin(&self) {
        let probe = self.clone();
        tokio::spawn(async move {
            probe.found().await;
        });
    }

    /// Returns the tiers. Probes them unless that has begun. Cancellation safe.
    pub(crate) async fn found(&self) -> AvailableTiers {
        let mut found = self.found.lock().await;
        if let Some(tiers) = &*found {
            return tiers.clone();
        }
        let launcher = self.launcher.clone();
        let probe = on_spawner(move |launchers| launchers.probe(&launcher)).await;
        let tiers = AvailableTiers::new(probe.and_then(|probe| probe).map_err(|error| error.to_string()));
        *found = Some(tiers.clone()).filter(AvailableTiers::has_full);
        tiers
    }
}
