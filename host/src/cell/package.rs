//! Two phases for `npx` and `uvx`, which fetch what they run.
//!
//! First the package is resolved and installed, in a cell whose only network is the registry, with install scripts off, into
//! a folder of that source alone. What was resolved is pinned in `portcullis.lock` by version and integrity, with all that it
//! depends on. Then the source runs read-only from that folder, under its own grant. The registry's address comes from the
//! user's own configuration of npm, uv or pip, or is what the installer itself says; credentials stay outside.

mod command;
mod index;
mod install;
mod npm;
mod registry;
mod store;
mod uv;

use std::path::Path;

pub(crate) use command::{Kind, Package};
pub use install::Phase;
pub(crate) use install::{Installed, Installer};

/// A program that really stands in a folder: a link that leads out of it would open what it leads to.
fn is_program_within(program: &Path, folder: &Path) -> bool {
    let inside = program.canonicalize().ok().zip(folder.canonicalize().ok());
    super::machine::is_program(program) && inside.is_some_and(|(program, folder)| program.starts_with(folder))
}
