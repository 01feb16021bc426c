//! Identities: the private keys that open sealed bodies.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use portcullis::age::Identity;
use portcullis::ledger::LedgerReader;

/// The largest file of identities that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The option that opens sealed bodies.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct IdentityArgs {
    /// Open bodies that were recorded with `record = "sealed"` with the identities in this file, as
    /// `portcullis audit keygen` and `age-keygen` write them; can be given several times
    #[arg(long = "identity", value_name = "FILE")]
    identities: Vec<PathBuf>,
}

impl IdentityArgs {
    /// Opens a ledger for reading; sealed bodies are opened if there is an identity.
    pub(crate) fn reader(&self, folder: &Path) -> anyhow::Result<LedgerReader> {
        let reader = LedgerReader::open(folder)?;
        if self.identities.is_empty() {
            return Ok(reader);
        }
        let mut identities = Vec::new();
        for file in &self.identities {
            identities.extend(identities_in(file)?);
        }
        Ok(reader.opening_bodies_with(identities))
    }
}

fn identities_in(path: &Path) -> anyhow::Result<Vec<Identity>> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text))
        .with_context(|| format!("cannot read {}", path.display()))?;
    let wanted = "is not an identity of age: a line is `AGE-SECRET-KEY-1…`, empty, or begins with `#`";
    let identities = Identity::in_file(&text).map_err(|line| anyhow::anyhow!("{}:{line} {wanted}", path.display()))?;
    if identities.is_empty() {
        anyhow::bail!("{}: it {wanted}", path.display());
    }
    Ok(identities)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::*;

    #[test]
    fn a_file_without_an_identity_is_refused_with_its_line_and_without_its_text() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("identity");
        for (text, expected) in
            [("# a comment\nAGE-SECRET-KEY-1WRONG\n", ":2 is not an identity"), ("# nothing\n", "is not an identity")]
        {
            fs::write(&file, text).unwrap();
            let error = identities_in(&file).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("WRONG"), "{error}");
        }
        assert!(identities_in(&dir.path().join("missing")).unwrap_err().to_string().contains("cannot read"));
    }
}
