//! The file descriptors that components hold: a part of what the broker may have open, so that
//! components never use them up.

use std::sync::Arc;

use portcullis_core::limits::{SLOT_WAIT, WASI_HANDLES};
use rustix::process::{Resource, getrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::error::{FailureCode, PluginFailure};

/// The number of instances that share the descriptors, where few may be open.
const SHARES: usize = 16;

/// The handles that an instance needs to do anything.
const FEWEST: usize = 16;

/// The descriptors that all components together may have open. Clones share them.
#[derive(Clone)]
pub(crate) struct Descriptors {
    free: Arc<Semaphore>,
    all: usize,
    /// The descriptors of one instance.
    each: usize,
}

impl Descriptors {
    /// Returns half of what the process may have open now.
    pub(super) fn of_this_process() -> Self {
        let most = getrlimit(Resource::Nofile).current.and_then(|most| usize::try_from(most).ok());
        Self::of(most.unwrap_or(usize::MAX) / 2)
    }

    fn of(all: usize) -> Self {
        let all = all.clamp(FEWEST, Semaphore::MAX_PERMITS);
        let each = (all / SHARES).clamp(FEWEST, WASI_HANDLES);
        Self { free: Arc::new(Semaphore::new(all)), all, each }
    }

    /// Returns how many handles one instance may hold at once, which a low limit of the process lowers.
    pub(super) fn each(&self) -> usize {
        self.each
    }

    /// Reports whether enough descriptors are free to make instances in advance, before a call needs them.
    pub(super) fn are_plentiful(&self) -> bool {
        self.free.available_permits() > self.all / 2
    }

    /// Reserves the descriptors of one instance for as long as it lives. Cancellation safe.
    ///
    /// # Errors
    /// [`FailureCode::Busy`] if other instances hold all descriptors for too long.
    pub(super) async fn share(&self) -> Result<OwnedSemaphorePermit, PluginFailure> {
        let each = u32::try_from(self.each).unwrap_or(u32::MAX);
        let share = timeout(SLOT_WAIT, Arc::clone(&self.free).acquire_many_owned(each)).await;
        share.ok().and_then(Result::ok).ok_or_else(|| {
            let detail = format!(
                "other components hold all {} descriptors that there are for them; to have more, start the broker with a higher \
                 `ulimit -n`",
                self.all
            );
            PluginFailure::new(FailureCode::Busy, detail)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn components_share_a_limited_part_of_the_descriptors() {
        let few = Descriptors::of(512);
        assert_eq!(
            (few.each(), Descriptors::of(1 << 20).each(), Descriptors::of(0).each()),
            (32, WASI_HANDLES, FEWEST)
        );
        let mut shares = Vec::new();
        for _ in 0..SHARES {
            shares.push(few.share().await.unwrap());
        }
        assert!(!few.are_plentiful());
        let refused = few.share().await.unwrap_err();
        assert!(refused.code == FailureCode::Busy && refused.detail.contains("all 512 descriptors"), "{refused}");
        shares.pop();
        drop(few.share().await.unwrap());
    }
}
