//! Fetches the database of known vulnerabilities and malicious packages, or takes a copy of it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use portcullis::config::{no_home, user_state_dir};
use portcullis_osv::{OsvDatabase, OsvEdition};
use url::Url;

use crate::output::{self, escape_hidden};
use crate::runtime;

/// Returns the file of the user's database, whether it exists or not.
pub(super) fn file() -> Option<PathBuf> {
    user_state_dir().map(|folder| portcullis_osv::file_in(&folder))
}

/// Replaces the user's database by the one at an address, or in a folder or archive.
pub(super) fn update(from: &str) -> anyhow::Result<()> {
    let file = file()
        .with_context(|| format!("{}, so there is no place for the database: set HOME or XDG_STATE_HOME", no_home()))?;
    let edition = if Path::new(from).exists() {
        OsvDatabase::build(&file, &inputs(Path::new(from)))?
    } else {
        let Ok(address) = Url::parse(from) else {
            bail!("--update-osv={} names no URL, folder or archive", escape_hidden(from));
        };
        output::message(&format!("fetching the records of npm and PyPI from {}", escape_hidden(from)));
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        runtime::block_on(async {
            let archives = portcullis_osv::fetch(&address, folder.path()).await?;
            let build = move || OsvDatabase::build(&file, &archives);
            Ok::<OsvEdition, anyhow::Error>(tokio::task::spawn_blocking(build).await??)
        })?
    };
    output::message(&format!(
        "packages are checked against {edition} from now on, before they are installed or started"
    ));
    Ok(())
}

/// Builds a database of a folder or archive for one evaluation.
pub(super) fn build_for(evaluation: &Path, from: &Path) -> anyhow::Result<PathBuf> {
    let file = portcullis_osv::file_in(&evaluation.join("osv"));
    OsvDatabase::build(&file, &inputs(from))?;
    Ok(file)
}

/// Returns what holds the records: a copy of what OSV publishes has an archive for each ecosystem.
fn inputs(from: &Path) -> Vec<PathBuf> {
    let archives = ["npm", "PyPI"].map(|ecosystem| from.join(ecosystem).join("all.zip"));
    if archives.iter().all(|archive| archive.is_file()) { archives.to_vec() } else { vec![from.to_owned()] }
}
