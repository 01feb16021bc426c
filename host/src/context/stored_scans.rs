//! Stores the scanner's findings in the definitions of a source, so that the next broker need not scan them again.
//!
//! The file is trusted like the lock file: the data folder is private to its user. It is valid for one version of the
//! scanner.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::stored_json;
use crate::digest::Digest;
use crate::name::SourceName;
use crate::scan::{self, Finding};

/// The folder of the files, in the data folder.
const FOLDER: &str = "scans";

/// The largest number of definitions that are stored. A source that changes its definitions all the time soon has more,
/// and its file is not written any more.
const MAX_STORED: usize = 4096;

/// The largest file that is read or written, in bytes: most definitions have no finding, and take 80 bytes.
const MAX_BYTES: u64 = 4 << 20;

/// The findings in the definitions that were scanned. `None` stands for those without a finding.
pub(super) type Known = HashMap<Digest, Option<Arc<[Finding]>>>;

/// The findings in the definitions of one source, in a file.
#[derive(Debug)]
pub(super) struct StoredScans {
    path: PathBuf,
}

/// The contents of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    /// The version of the scanner.
    scanner: String,
    /// The findings, by the digest of the definition.
    findings: HashMap<Digest, Vec<Finding>>,
}

impl StoredScans {
    pub(super) fn new(data_dir: &Path, source: &SourceName) -> Self {
        Self { path: data_dir.join(FOLDER).join(format!("{source}.json")) }
    }

    pub(super) fn exists(&self) -> bool {
        self.path.exists()
    }

    /// Returns the stored findings. A file that cannot be read, or that another version of the scanner made, counts as
    /// none: the definitions are scanned then.
    pub(super) fn read(&self) -> Known {
        let stored = stored_json::read::<Stored>(&self.path, MAX_BYTES);
        let findings = stored.filter(|stored| stored.scanner == scan::VERSION).map(|stored| stored.findings);
        let kept = |findings: Vec<Finding>| (!findings.is_empty()).then(|| Arc::from(findings));
        findings.unwrap_or_default().into_iter().map(|(digest, findings)| (digest, kept(findings))).collect()
    }

    /// Stores the findings, replacing the earlier ones. If it cannot be written, the next broker scans again.
    pub(super) fn write(&self, known: &Known) {
        if known.len() > MAX_STORED {
            return;
        }
        let findings =
            known.iter().map(|(digest, findings)| (*digest, findings.as_deref().unwrap_or_default().to_vec()));
        let stored = Stored { scanner: scan::VERSION.to_owned(), findings: findings.collect() };
        if let Err(error) = stored_json::write(&self.path, &stored, MAX_BYTES) {
            tracing::debug!(%error, "what was found in definitions is not kept for the next start");
        }
    }
}
