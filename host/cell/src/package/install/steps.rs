//! The steps of an installation, each with its own folder, which is removed outside the threads of the runtime.

use std::path::Path;

use portcullis_core::escape::escape_hidden;
use portcullis_core::lockfile::ResolvedPackage;
use url::Url;

use super::super::store::{InstallLock, Stage};
use super::super::{PackageManager, npm, read_limited, uv};
use super::Installer;
use crate::CellError;

/// The largest lock file of an installer that is read, in bytes.
const MAX_LOCK_TEXT_BYTES: u64 = 16 << 20;

impl Installer<'_> {
    /// Asks the installer for its default registry, in a cell without a network.
    pub(super) async fn default_address(&self) -> Result<String, CellError> {
        let stage = self.stage()?;
        let address = self.default_address_in(stage.path()).await;
        stage.remove().await;
        address
    }

    async fn default_address_in(&self, stage: &Path) -> Result<String, CellError> {
        let command = match self.package.kind {
            PackageManager::Npm => npm::default_registry(&self.tool("npm")?),
            PackageManager::Uv => {
                std::fs::write(stage.join(uv::REQUIREMENTS_FILE), "")
                    .map_err(|error| self.failed(&error.to_string()))?;
                uv::default_index(&self.tool("uv")?, &self.python()?)
            }
        };
        let ended = self.run(&[command], stage, None, None).await?;
        let why = match ended {
            Ok(said) => match said.split_whitespace().find(|word| Url::parse(word).is_ok_and(|url| url.has_host())) {
                Some(address) => return Ok(address.to_owned()),
                None => said,
            },
            Err(why) => why,
        };
        let why = escape_hidden(why.trim());
        Err(self.failed(&format!("has no registry: none is configured, and its installer names none: {why}")))
    }

    /// Resolves the package. With the install lock, continues with what an interrupted installation has fetched.
    pub(super) async fn resolve(
        &self,
        specs: Vec<String>,
        install_lock: Option<&InstallLock>,
    ) -> Result<ResolvedPackage, CellError> {
        self.installation.step(format!("looking up {} and what it needs", escape_hidden(&specs.join(" "))));
        let stage = self.stage()?;
        let resolved = self.resolve_in(stage.path(), specs, install_lock).await;
        stage.remove().await;
        resolved
    }

    async fn resolve_in(
        &self,
        stage: &Path,
        specs: Vec<String>,
        install_lock: Option<&InstallLock>,
    ) -> Result<ResolvedPackage, CellError> {
        let (commands, lock) = match self.package.kind {
            PackageManager::Npm => (vec![npm::resolve(&self.tool("npm")?, &specs)], npm::LOCK),
            PackageManager::Uv => {
                std::fs::write(stage.join(uv::REQUIREMENTS_FILE), specs.join("\n") + "\n")
                    .map_err(|error| self.failed(&error.to_string()))?;
                (vec![uv::resolve(&self.tool("uv")?, &self.python()?)], uv::LOCK)
            }
        };
        self.reach("resolve", &commands, stage, install_lock).await?;
        let lock_text = read_limited(&stage.join(lock), MAX_LOCK_TEXT_BYTES)
            .map_err(|error| self.failed(&format!("left no usable {lock}: {error}")))?;
        let resolved = match self.package.kind {
            PackageManager::Npm => npm::resolved(self.package.name(), lock_text),
            PackageManager::Uv => uv::resolved(self.package.name(), lock_text),
        };
        resolved.map_err(|why| self.failed(&why))
    }

    pub(super) async fn install(
        &self,
        resolved: &ResolvedPackage,
        install_lock: &InstallLock,
    ) -> Result<(), CellError> {
        let (name, version) = (escape_hidden(&resolved.main.name), escape_hidden(&resolved.main.version));
        self.installation.step(format!("installing {name} {version}, {} packages in all", resolved.units.len()));
        let stage = self.stage()?;
        if let Err(error) = self.install_in(stage.path(), resolved, install_lock).await {
            stage.remove().await;
            return Err(error);
        }
        let kept = self.store.keep(stage, &resolved.tree);
        kept.map_err(|error| self.failed(&format!("cannot be put in place: {error}")))
    }

    async fn install_in(
        &self,
        stage: &Path,
        resolved: &ResolvedPackage,
        install_lock: &InstallLock,
    ) -> Result<(), CellError> {
        let write = |name: &str, text: &str| {
            std::fs::write(stage.join(name), text).map_err(|error| self.failed(&error.to_string()))
        };
        let commands = match self.package.kind {
            PackageManager::Npm => {
                write(npm::LOCK, &resolved.lock_text)?;
                write("package.json", &npm::manifest(&resolved.lock_text))?;
                vec![npm::install(&self.tool("npm")?)]
            }
            PackageManager::Uv => {
                write(uv::LOCK, &resolved.lock_text)?;
                uv::install(&self.tool("uv")?, &self.python()?).to_vec()
            }
        };
        self.reach("install", &commands, stage, Some(install_lock)).await?;
        if self.package.kind == PackageManager::Npm {
            let (folder, lock_text) = (stage.to_owned(), resolved.lock_text.clone());
            let checked = tokio::task::spawn_blocking(move || npm::check_names(&folder, &lock_text)).await;
            checked.map_err(|error| self.failed(&error.to_string()))?.map_err(|why| self.failed(&why))?;
        }
        Ok(())
    }

    /// Creates a folder for one step.
    fn stage(&self) -> Result<Stage, CellError> {
        self.store.stage().map_err(|error| self.failed(&format!("cannot be installed: {error}")))
    }
}
