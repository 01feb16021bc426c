//! Resolves, pins and installs a package, each step in its own cell.

mod run;
mod steps;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portcullis_core::digest::Digest;
use portcullis_core::lockfile::{LockError, LockedPackage, Lockfile, PackageVersion, ResolvedPackage};
use portcullis_core::name::SourceName;
use portcullis_osv::OsvCheck;
use serde::{Serialize, Serializer};
use serde_json::json;
use tokio::sync::OnceCell;
use url::Url;

use super::super::{CellError, CellFactory, Installation, ProgramSearch};
use super::osv_lookup::look_up;
use super::provenance::PackageRelease;
use super::registry::{PackageRegistry, RegistryConfig};
use super::store::{InstallLock, PackageStore};
use super::{PackageCommand, PackageManager, index, npm, uv};

/// The largest number of changed packages that an error message names.
const MAX_SHOWN_CHANGES: usize = 6;

/// The report on the installation of a source's package, as shown to people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InstallReport {
    /// The package as the command asks for it.
    pub requested: String,
    /// The package's name.
    pub name: String,
    /// The version that the package is pinned to.
    pub version: String,
    /// The hash that the package's bytes must have.
    pub integrity: String,
    /// The number of packages, dependencies included.
    pub packages: usize,
    /// The digest of the names, versions and hashes of all packages.
    pub tree: Digest,
    /// The only hosts that the installer could reach.
    pub registry: Vec<String>,
    /// The records of OSV about these packages.
    pub osv: OsvCheck,
    /// The folder that the package is installed in, and read from.
    #[serde(serialize_with = "as_text")]
    pub folder: PathBuf,
}

/// The difference between the pinned form of a package and the one that its registry has now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PackageUpdate {
    /// The package as the command asks for it.
    pub requested: String,
    /// The package's name.
    pub name: String,
    /// The version that is pinned, if one is.
    pub pinned: Option<String>,
    /// The version that the registry has now for what the command asks for.
    pub newest: String,
    /// The packages that an upgrade would add, remove or change, dependencies included, one line each.
    pub changes: Vec<String>,
    /// Sentences that tell whether the registry names attestations of the pinned version and of the newest one, if they
    /// differ.
    pub provenance: Vec<String>,
}

impl InstallReport {
    /// Returns the version that is installed.
    pub(crate) fn released(&self) -> PackageRelease<'_> {
        PackageRelease { name: &self.name, version: &self.version, integrity: &self.integrity }
    }
}

fn as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// An installed package, ready to run.
#[derive(Debug)]
pub(crate) struct ReadyPackage {
    /// The program and its arguments.
    pub argv: Vec<String>,
    pub report: InstallReport,
    /// A lock on the installed folder, which is not removed while this is open.
    pub held: File,
}

/// An installer for the package of one source.
pub(crate) struct Installer<'a> {
    cells: &'a Arc<CellFactory>,
    source: &'a SourceName,
    package: &'a PackageCommand,
    /// The user's configuration of the registry, or the reason why it cannot be used.
    configured: Result<RegistryConfig, String>,
    registry: OnceCell<PackageRegistry>,
    programs: ProgramSearch,
    store: PackageStore,
    installation: Arc<Installation>,
}

impl<'a> Installer<'a> {
    /// Returns an installer. Nothing is read from a registry and nothing is installed yet.
    pub(crate) fn new(cells: &'a Arc<CellFactory>, source: &'a SourceName, package: &'a PackageCommand) -> Self {
        let programs = cells.programs();
        let configured = RegistryConfig::of(package.kind, &programs);
        let store = PackageStore::new(&cells.data_dir, source);
        let installation = Arc::new(cells.installations().of(source));
        Self { cells, source, package, configured, registry: OnceCell::new(), programs, store, installation }
    }

    /// Returns the package that the source's command names.
    pub(super) fn package(&self) -> &PackageCommand {
        self.package
    }

    /// Returns the package that will be installed, and the registry that it will come from.
    pub(crate) fn announced(&self) -> (String, String) {
        let from = match self.configured.as_ref().map(|configured| &configured.address) {
            Ok(Some(address)) => Url::parse(address).ok().and_then(|url| url.host_str().map(str::to_owned)),
            Ok(None) => None,
            Err(_) => Some("no registry, because the one that is configured cannot be used".to_owned()),
        };
        let installer = match self.package.kind {
            PackageManager::Npm => "npm",
            PackageManager::Uv => "uv",
        };
        (self.package.lock_key(), from.unwrap_or_else(|| format!("the default registry of {installer}")))
    }

    /// Returns the package, installed as pinned. Without a pin, resolves it and pins what the registry has now.
    ///
    /// # Errors
    /// [`CellError::Package`] if the registry's package differs from the pinned one, or a step fails.
    pub(crate) async fn ready(&self) -> Result<ReadyPackage, CellError> {
        let install_lock = self.install_lock().await?;
        let lock = self.lock_file(Lockfile::load).await?;
        let requested = self.package.lock_key();
        if let Some(pin) = lock.package(self.source.as_str(), &requested) {
            let osv = self.check_for_malware(&pin.units, &install_lock).await?;
            if !self.store.place(&pin.tree).is_dir() {
                let resolved = self.resolve(self.pinned_specs(pin), Some(&install_lock)).await?;
                self.require_pinned(pin, &resolved)?;
                self.install(&resolved, &install_lock).await?;
            }
            return self.installed(pin, osv, &install_lock).await;
        }
        self.renew_locked(&install_lock).await
    }

    /// Resolves the package again, ignoring its pin, and pins the result. Also returns the earlier pin.
    ///
    /// # Errors
    /// [`CellError::Package`] if a step fails.
    pub(crate) async fn renew(&self) -> Result<(Option<LockedPackage>, ReadyPackage), CellError> {
        let install_lock = self.install_lock().await?;
        let lock = self.lock_file(Lockfile::load).await?;
        let before = lock.package(self.source.as_str(), &self.package.lock_key()).cloned();
        Ok((before, self.renew_locked(&install_lock).await?))
    }

    /// Returns the package that [`Installer::renew`] would pin now, and the pinned one. Installs and pins nothing.
    ///
    /// # Errors
    /// [`CellError::Package`] if the registry cannot be asked.
    pub(crate) async fn newest(&self) -> Result<PackageUpdate, CellError> {
        let lock = self.lock_file(Lockfile::load).await?;
        let requested = self.package.lock_key();
        let pinned = lock.package(self.source.as_str(), &requested);
        let newest = self.resolve(self.package.specs.clone(), None).await?;
        let ResolvedPackage { main, .. } = &newest;
        let mut provenance = Vec::new();
        if pinned.is_none_or(|pin| pin.version != main.version) {
            let before = pinned.map(|pin| (&pin.name, &pin.version, &pin.integrity));
            for (name, version, integrity) in before.into_iter().chain([(&main.name, &main.version, &main.integrity)]) {
                let found = self.provenance(PackageRelease { name, version, integrity }).await?;
                provenance.push(format!("{version} {found}"));
            }
        }
        Ok(PackageUpdate {
            provenance,
            pinned: pinned.map(|pin| pin.version.clone()),
            changes: pinned.map_or_else(Vec::new, |pin| pin.differences(&newest)),
            name: newest.main.name,
            newest: newest.main.version,
            requested,
        })
    }

    async fn renew_locked(&self, install_lock: &InstallLock) -> Result<ReadyPackage, CellError> {
        let resolved = self.resolve(self.package.specs.clone(), Some(install_lock)).await?;
        let osv = self.check_for_malware(&resolved.units, install_lock).await?;
        if !self.store.place(&resolved.tree).is_dir() {
            self.install(&resolved, install_lock).await?;
        }
        let (source, requested) = (self.source.as_str(), self.package.lock_key());
        let hosts = self.registry().await?.hosts.clone();
        let body = json!({
            "source": source, "requested": requested, "name": resolved.main.name, "version": resolved.main.version,
            "integrity": resolved.main.integrity, "tree": resolved.tree, "packages": resolved.units.len(),
        });
        let (of, key) = (self.source.clone(), requested.clone());
        let pin = move |lock: &mut Lockfile| lock.pin(of.as_str(), &key, &resolved, &hosts);
        self.lock_file(move |folder| Lockfile::change(folder, pin)).await?;
        self.cells.record_event(portcullis_ledger::EventKind::PackagePinned, body);
        let lock = self.lock_file(Lockfile::load).await?;
        let pin = lock.package(source, &requested).ok_or_else(|| self.failed("was not pinned"))?;
        self.installed(pin, osv, install_lock).await
    }

    /// Reads or changes the lock file, where that may wait for the disk and for other processes.
    async fn lock_file<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> Result<T, LockError> + Send + 'static,
    ) -> Result<T, CellError> {
        let folder = self.cells.data_dir.clone();
        let done = tokio::task::spawn_blocking(move || work(&folder)).await;
        done.map_err(|error| self.failed(&error.to_string()))?.map_err(|error| CellError::Package(error.to_string()))
    }

    /// Looks up the package and its dependencies among the known malicious packages. If one is refused, discards the
    /// fetched files.
    async fn check_for_malware(
        &self,
        units: &[PackageVersion],
        install_lock: &InstallLock,
    ) -> Result<OsvCheck, CellError> {
        let found = look_up(self.cells, self.package, units).await;
        if found.is_err() {
            self.store.discard_cache(install_lock).await;
        }
        found
    }

    async fn install_lock(&self) -> Result<InstallLock, CellError> {
        let installation = Arc::clone(&self.installation);
        let waits = move || installation.waits_for("another broker that installs it");
        self.store.install_lock(waits).await.map_err(|error| self.failed(&format!("cannot be installed: {error}")))
    }

    /// Returns the specifications to resolve: the main package at its pinned version, and the others as the command
    /// names them.
    fn pinned_specs(&self, pin: &LockedPackage) -> Vec<String> {
        let separator = if self.package.kind == PackageManager::Npm { "@" } else { "==" };
        let extras = self.package.specs.first().and_then(|spec| spec.split_once('[')?.1.split_once(']'));
        let extras = extras.map(|(extras, _)| format!("[{extras}]")).unwrap_or_default();
        let main = format!("{}{extras}{separator}{}", pin.name, pin.version);
        std::iter::once(main).chain(self.package.specs.iter().skip(1).cloned()).collect()
    }

    fn require_pinned(&self, pin: &LockedPackage, resolved: &ResolvedPackage) -> Result<(), CellError> {
        if resolved.tree == pin.tree {
            return Ok(());
        }
        let changes = pin.differences(resolved);
        let more = changes.len().saturating_sub(MAX_SHOWN_CHANGES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let shown: Vec<_> = changes.into_iter().take(MAX_SHOWN_CHANGES).collect();
        Err(self.failed(&format!(
            "is not what was pinned: {}{more}; `portcullis lock accept --packages` pins it as it is now",
            shown.join(", ")
        )))
    }

    /// Returns the registry: the one in the user's configuration, or else the installer's own default.
    pub(super) async fn registry(&self) -> Result<&PackageRegistry, CellError> {
        let find = || async {
            let configured =
                self.configured.clone().map_err(|why| self.failed(&format!("cannot be installed: {why}")))?;
            let default = match &configured.address {
                Some(_) => String::new(),
                None => self.default_address().await?,
            };
            let mut registry = configured.with_default(default)?;
            if self.package.kind == PackageManager::Uv {
                let package = uv::normal(self.package.name());
                let found = index::file_hosts(&registry.address, &package, index::DEADLINE).await;
                registry.links_to(found.map_err(|why| self.failed(&why))?);
            }
            Ok(registry)
        };
        self.registry.get_or_try_init(find).await
    }

    async fn installed(
        &self,
        pin: &LockedPackage,
        osv: OsvCheck,
        install_lock: &InstallLock,
    ) -> Result<ReadyPackage, CellError> {
        let held =
            self.store.hold(&pin.tree).map_err(|error| self.failed(&format!("is not where it was put: {error}")))?;
        self.store.remove_unused(&pin.tree, install_lock).await;
        self.store.discard_cache(install_lock).await;
        let folder = self.store.place(&pin.tree);
        let wanted = self.package.program.as_deref();
        let words = match self.package.kind {
            PackageManager::Npm => npm::program(&folder, &pin.name, wanted).map(|program| vec![program]),
            PackageManager::Uv => uv::program(&folder, wanted.unwrap_or(&pin.name)).map(Vec::from),
        };
        let words = words.map_err(|why| self.failed(&why))?;
        let words = words.into_iter().map(|word| word.to_string_lossy().into_owned());
        let report = InstallReport {
            requested: pin.requested.clone(),
            name: pin.name.clone(),
            version: pin.version.clone(),
            integrity: pin.integrity.clone(),
            packages: pin.units.len(),
            tree: pin.tree,
            registry: pin.registry.clone(),
            osv,
            folder,
        };
        Ok(ReadyPackage { argv: words.chain(self.package.arguments.iter().cloned()).collect(), report, held })
    }

    fn failed(&self, why: &str) -> CellError {
        CellError::Package(format!("package {} {why}", self.package.lock_key()))
    }
}
