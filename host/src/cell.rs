//! The cell of a source that runs here: what it may touch, and what makes sure of that.
//!
//! A [`Grant`] is what the configuration names, checked against the disk; a fresh one opens nothing. A [`Profile`] is what
//! the program itself needs to run, found by looking at files. Both together are what the launcher builds, and a [`Report`]
//! says honestly what is enforced by what. A component has no process and needs nothing: what it may touch is a [`ComponentCell`](crate::plugin::ComponentCell).
//!
//! Inside a cell a path is what it is outside. What is not named does not exist.

mod cell_host;
#[cfg(feature = "process")]
mod child;
mod grant;
#[cfg(feature = "process")]
mod machine;
#[cfg(feature = "process")]
mod package;
#[cfg(feature = "process")]
mod plan;
#[cfg(feature = "process")]
mod process_cell;
#[cfg(feature = "process")]
mod profile;
mod report;
#[cfg(feature = "process")]
mod run;
#[cfg(feature = "process")]
mod system;
mod trace;

#[cfg(feature = "process")]
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
#[cfg(feature = "process")]
use std::path::Path;
use std::path::PathBuf;

pub(crate) use cell_host::CellHost;
#[cfg(feature = "process")]
pub(crate) use child::{Child, StartError, Streams};
pub use grant::Grant;
#[cfg(feature = "process")]
pub(crate) use machine::Machine;
#[cfg(feature = "process")]
pub use package::Phase;
#[cfg(feature = "process")]
pub(crate) use plan::{Plan, Platform};
pub use portcullis_jail::{Limits, Tier};
#[cfg(feature = "process")]
pub(crate) use process_cell::ProcessCell;
#[cfg(feature = "process")]
pub use process_cell::{Described, Forecast};
#[cfg(feature = "process")]
pub use profile::{Profile, Runtime};
pub(crate) use report::texts;
pub use report::{Aspect, Report, Strength, size};
#[cfg(feature = "process")]
pub(crate) use run::run_to_end;

/// Why there is no cell for a source, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CellError {
    /// A path that the configuration grants cannot be granted.
    #[error("`{key}` names {}, which {reason}; {way_out}", .path.display())]
    Path {
        /// `read`, `write` or `cwd`.
        key: &'static str,
        /// As configured.
        path: PathBuf,
        /// What speaks against it.
        reason: String,
        /// What to write instead.
        way_out: String,
    },
    /// The program, or something it needs, is not there or not fit for a cell.
    #[error("{0}")]
    Program(String),
    /// A package cannot be resolved, installed or trusted.
    #[error("{0}")]
    Package(String),
    /// It cannot be found out which configurations count, which a source that may write is kept from.
    #[error("which configurations are to be kept from the source cannot be found out: {0}")]
    Trust(String),
    /// This machine gives no cell that the source may run in.
    #[error("{0}")]
    Platform(String),
}

/// Makes a folder that only this user can enter.
#[cfg(feature = "process")]
fn private(folder: &Path) -> Result<(), CellError> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    // A folder that was there may have been wider.
    made.and_then(|()| std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)))
        .map_err(|error| CellError::Program(format!("cannot make the private folder {}: {error}", folder.display())))
}

#[cfg(all(test, feature = "process"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn private_folders_are_narrowed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("wide");
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        private(&folder).unwrap();
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
