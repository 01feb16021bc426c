//! The packages of `npx` and `uvx` sources: installed beforehand, compared with their registries, pinned again.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;

use super::Broker;
use crate::cell::{CellError, InstallReport, PackageUpdate, ProcessCell};
use crate::lockfile::{LockError, LockedPackage, Lockfile};
use crate::name::SourceName;

/// The results for each source, or why there is none. A source without a package is left out.
type BySource<T> = BTreeMap<SourceName, Result<T, CellError>>;

impl Broker {
    /// Installs the packages of these sources, or of all if none is named, as they are pinned, and starts none. A
    /// package without a pin is pinned to the version that its registry has now.
    #[doc(hidden)]
    pub async fn install_packages(&self, sources: &[SourceName]) -> BySource<InstallReport> {
        let mut installed = BTreeMap::new();
        for (name, cell) in self.process_cells(sources) {
            installed.extend(cell.install().await.transpose().map(|report| (name, report)));
        }
        installed
    }

    /// Returns how the pinned packages of these sources, or of all if none is named, differ from what their registries
    /// have now. Installs and pins nothing.
    #[doc(hidden)]
    pub async fn package_updates(&self, sources: &[SourceName]) -> BySource<PackageUpdate> {
        let asked = self.process_cells(sources).into_iter();
        let asked = join_all(asked.map(async |(name, cell)| (name, cell.newest().await.transpose()))).await;
        asked.into_iter().filter_map(|(name, update)| Some((name, update?))).collect()
    }

    /// Pins the packages of these sources, or of all if none is named, to what their registries have now, and installs
    /// them. Returns the old and the new pins; where renewing fails, the old pin stays.
    #[doc(hidden)]
    pub async fn renew_packages(&self, sources: &[SourceName]) -> BySource<(Option<LockedPackage>, InstallReport)> {
        let mut renewed = BTreeMap::new();
        for (name, cell) in self.process_cells(sources) {
            renewed.extend(cell.renew().await.transpose().map(|found| (name, found)));
        }
        renewed
    }

    /// Returns the packages to which these sources are pinned now.
    ///
    /// # Errors
    /// [`LockError`] if the lock file cannot be read.
    #[doc(hidden)]
    pub fn pinned_packages(
        &self,
        sources: &[SourceName],
    ) -> Result<Vec<(SourceName, Option<LockedPackage>)>, LockError> {
        let lock = Lockfile::load(&self.inner.context().config.data_dir)?;
        let pinned =
            |source: &SourceName| lock.packages().iter().find(|entry| entry.source == source.as_str()).cloned();
        Ok(sources.iter().map(|source| (source.clone(), pinned(source))).collect())
    }

    /// Pins the packages of sources as they were pinned before, such as after [`Broker::renew_packages`].
    ///
    /// # Errors
    /// [`LockError`] if the lock file cannot be read or written; then nothing is changed.
    #[doc(hidden)]
    pub fn restore_packages(&self, before: Vec<(SourceName, Option<LockedPackage>)>) -> Result<(), LockError> {
        Lockfile::change(&self.inner.context().config.data_dir, |lock| {
            for (source, pinned) in before {
                lock.restore_package(source.as_str(), pinned);
            }
        })
    }

    fn process_cells(&self, sources: &[SourceName]) -> Vec<(SourceName, Arc<ProcessCell>)> {
        let context = self.inner.context();
        let wanted = context.upstreams.iter().filter(|(name, _)| sources.is_empty() || sources.contains(name));
        wanted
            .filter_map(|(name, upstream)| Some((name.clone(), Arc::clone(upstream.process_cell.as_ref()?))))
            .collect()
    }
}
