//! Two phases for `npx` and `uvx`, which fetch what they run.
//!
//! First the package is resolved and installed, in a cell whose only network is the registry, with install scripts off, into
//! a folder of that source alone. What was resolved is pinned in `portcullis.lock` by version and integrity, with all that it
//! depends on. Then the source runs read-only from that folder, under its own grant. The registry's address comes from the
//! user's own configuration of npm, uv or pip, or is what the installer itself says; credentials stay outside.

#[cfg(feature = "process")]
mod command;
#[cfg(feature = "process")]
mod index;
#[cfg(feature = "process")]
mod install;
#[cfg(feature = "process")]
mod npm;
#[cfg(feature = "process")]
mod registry;
mod resolved;
#[cfg(feature = "process")]
mod store;
#[cfg(feature = "process")]
mod uv;

#[cfg(feature = "process")]
use std::path::Path;

#[cfg(feature = "process")]
pub(crate) use command::{Kind, Package};
#[cfg(feature = "process")]
pub use install::Phase;
#[cfg(feature = "process")]
pub(crate) use install::{Installed, Installer};
pub(crate) use resolved::tree_of;
pub use resolved::{Resolved, Unit};

/// A program that really stands in a folder: a link that leads out of it would open what it leads to.
#[cfg(feature = "process")]
fn is_program_within(program: &Path, folder: &Path) -> bool {
    let inside = program.canonicalize().ok().zip(folder.canonicalize().ok());
    super::machine::is_program(program) && inside.is_some_and(|(program, folder)| program.starts_with(folder))
}
