//! The cell of a source that runs on this machine: the access of the source, and its enforcement.
//!
//! A [`CellGrant`] is what the configuration names, checked against the disk; a fresh grant opens nothing. A
//! [`ProgramNeeds`] is what the program itself needs to run, found by looking at files. The launcher builds a cell from
//! both, and a [`IsolationReport`] states honestly which mechanism enforces what. A component has no process and needs
//! no files to run: its confinement is a `ComponentCell` of the crate `portcullis-wasm`.
//!
//! A path inside a cell is the same as outside. A path that is not named does not exist.

mod cell_factory;
#[cfg(feature = "process")]
mod child;
#[cfg(feature = "process")]
mod credentials;
#[cfg(feature = "process")]
mod disk_quota;
mod grant;
mod installations;
#[cfg(feature = "process")]
mod installer_process;
#[cfg(all(feature = "process", target_os = "linux"))]
mod local_path;
#[cfg(feature = "process")]
mod missing_access;
#[cfg(feature = "process")]
mod named_paths;
#[cfg(feature = "process")]
mod package;
#[cfg(feature = "process")]
mod plan;
#[cfg(feature = "process")]
mod process_cell;
#[cfg(feature = "process")]
mod program_needs;
#[cfg(feature = "process")]
mod program_search;
#[cfg(feature = "process")]
mod recorder;
mod report;
#[cfg(feature = "process")]
mod spawner;
mod symlinks;
#[cfg(feature = "process")]
mod system_mounts;
#[cfg(feature = "process")]
mod tier_probe;

#[cfg(feature = "process")]
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
#[cfg(feature = "process")]
use std::path::Path;
use std::path::PathBuf;

pub use cell_factory::CellFactory;
#[cfg(feature = "process")]
pub use child::{CellProcess, CellStartError, ChildStreams};
#[cfg(feature = "process")]
pub use credentials::{decides_what_starts, is_credential, is_key_file};
#[cfg(feature = "process")]
pub use disk_quota::DiskQuota;
pub use grant::CellGrant;
#[cfg(feature = "process")]
pub use installations::Installation;
pub use installations::{InstallSteps, Installations};
#[cfg(feature = "process")]
pub(crate) use installer_process::run_to_end;
#[cfg(feature = "process")]
pub use missing_access::{MissingAccess, variables_in};
#[cfg(feature = "process")]
pub use package::{InstallReport, PackageUpdate, Provenance, package_name};
#[cfg(feature = "process")]
pub use plan::{AvailableTiers, Plan};
#[cfg(feature = "process")]
use portcullis_core::escape::escape_hidden;
pub use portcullis_jail::{CellLimits, Tier, folded_name};
#[cfg(feature = "process")]
pub use process_cell::ProcessCell;
#[cfg(feature = "process")]
pub use process_cell::{CellPreview, PreparedSource};
#[cfg(feature = "process")]
pub use program_needs::{ProgramNeeds, Runtime};
#[cfg(feature = "process")]
pub use program_search::ProgramSearch;
#[cfg(feature = "process")]
pub use recorder::{AttemptAction, AttemptAvailability, AttemptSubject, CellUsage, RecordedAttempt, Recording};
pub use report::paths_as_text;
pub use report::{IsolationAspect, IsolationReport, Strength, display_size};
#[cfg(feature = "process")]
pub use tier_probe::TierProbe;

/// An error that says why a source gets no cell, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CellError {
    /// A path that the configuration names cannot be granted.
    #[error("`{key}` names {}, which {reason}; {hint}", .path.display())]
    Path {
        /// The configuration key that names the path: `read`, `write` or `cwd`.
        key: &'static str,
        /// The path as configured.
        path: PathBuf,
        /// The reason why the path cannot be granted.
        reason: String,
        /// The advice on what to write instead.
        hint: String,
    },
    /// The program, or something it needs, is missing or does not work in a cell.
    #[error("{0}")]
    Program(String),
    /// A package cannot be resolved, installed or trusted.
    #[error("{0}")]
    Package(String),
    /// A package, or one that it needs, is known to be malicious. It is neither installed nor started.
    #[cfg(feature = "process")]
    #[error(
        "package {requested} is neither installed nor started: {record} calls {package} {version} malicious; remove the \
         source, or ask for a version of {requested} that does not need it ({database}; `portcullis evaluate \
         --update-osv` fetches a newer database)",
        requested = escape_hidden(requested),
        record = escape_hidden(&record.id),
        package = escape_hidden(&record.package),
        version = escape_hidden(&record.version)
    )]
    Malicious {
        /// The package as the command asks for it.
        requested: String,
        /// The record, with the malicious package and its version.
        record: Box<portcullis_osv::OsvMatch>,
        /// The edition of the database.
        database: portcullis_osv::OsvEdition,
    },
    /// The broker cannot find out which configurations are trusted, so it cannot protect them from a source that may
    /// write.
    #[error("cannot find out which configurations to protect from the source: {0}")]
    Trust(String),
    /// This machine offers no cell that the source may run in.
    #[error("{0}")]
    NoTier(String),
}

/// Makes a folder that only this user can enter.
#[cfg(feature = "process")]
fn make_private_folder(folder: &Path) -> Result<(), CellError> {
    // The files for a source or an installer would be elsewhere, and the folder there would be closed to others.
    for folder in folder.ancestors().take(2) {
        portcullis_core::private::refuse_link(folder).map_err(|error| CellError::Program(error.to_string()))?;
    }
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    // A folder that already existed may have had wider permissions.
    made.and_then(|()| std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)))
        .map_err(|error| CellError::Program(format!("cannot make the private folder {}: {error}", folder.display())))
}

#[cfg(all(test, feature = "process"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_private_folder_is_made_behind_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = dir.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::set_permissions(&elsewhere, std::fs::Permissions::from_mode(0o755)).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
        for folder in [link.clone(), link.join("home")] {
            let refused = make_private_folder(&folder).unwrap_err().to_string();
            assert!(refused.contains(&format!("run `rm '{}'`", link.display())), "{refused}");
        }
        assert_eq!(std::fs::metadata(&elsewhere).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
    }

    #[test]
    fn private_folders_are_narrowed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("wide");
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        make_private_folder(&folder).unwrap();
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
