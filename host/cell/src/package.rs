//! The two phases of `npx` and `uvx`, which fetch the package that they run.
//!
//! First the package is resolved and installed with install scripts off, in a cell whose only network is the registry,
//! into a folder that only this source has. The resolved package and all its dependencies are pinned in
//! `portcullis.lock` by version and integrity. Then the source runs from that folder, read-only, under its own grant.
//! The registry's address comes from the user's own configuration of npm, uv or pip, or else from the installer itself;
//! credentials stay outside the cell.

mod command;
mod index;
mod install;
mod npm;
mod osv_lookup;
mod provenance;
mod registry;
mod store;
mod uv;

use std::io;
use std::path::Path;

use portcullis_core::private::regular_file::{self, Symlinks};

pub(crate) use command::{PackageCommand, PackageManager};
pub use install::{InstallReport, PackageUpdate};
pub(crate) use install::{Installer, ReadyPackage};
pub use provenance::Provenance;

/// Returns the package that an `npx` or `uvx` command runs, without a version and with its ecosystem: `npm:tavily-mcp`,
/// `pypi:mcp-server-git`. `None` for any other command.
#[must_use]
pub fn package_name(argv: &[String]) -> Option<String> {
    let package = PackageCommand::of(argv).ok()??;
    // Names on a Python index are compared without case and with one kind of separator (PEP 503).
    let name = match package.kind {
        PackageManager::Npm => package.name().to_owned(),
        PackageManager::Uv => package.name().to_ascii_lowercase().replace('_', "-"),
    };
    Some(format!("{}:{name}", package.kind.as_str()))
}

/// Reports whether a program really lies in a folder: a link out of it would open its target.
fn is_program_within(program: &Path, folder: &Path) -> bool {
    let inside = program.canonicalize().ok().zip(folder.canonicalize().ok());
    super::program_search::is_program(program) && inside.is_some_and(|(program, folder)| program.starts_with(folder))
}

/// Reads a file that an installer wrote. A symbolic link is refused, since it could lead anywhere, and so is a pipe, from
/// which nothing may ever come.
fn read_limited(file: &Path, max_bytes: u64) -> io::Result<String> {
    regular_file::read_text(file, Symlinks::Refuse, max_bytes)
}
