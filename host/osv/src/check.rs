//! The result of a look-up, for people and programs.

use portcullis_core::escape::escape_hidden;
use serde::{Deserialize, Serialize};

/// The records that packages were looked up in, and the matches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsvCheck {
    /// The database, or `None` if there is none: nothing was checked then.
    pub database: Option<OsvEdition>,
    /// The number of packages that were looked up.
    pub packages: usize,
    /// The records about these packages, those that call one malicious first.
    pub matches: Vec<OsvMatch>,
}

/// The edition of a database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsvEdition {
    /// The time of the latest change of a record, in RFC 3339. Empty if no record has one.
    pub date: String,
    /// The number of records.
    pub records: u64,
}

/// A record about an installed package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsvMatch {
    /// The name of the package.
    pub package: String,
    /// The installed version.
    pub version: String,
    /// The identifier of the record.
    pub id: String,
    /// The first words of the record.
    pub summary: String,
}

impl OsvMatch {
    /// Reports whether the record calls the package malicious.
    #[must_use]
    pub fn is_malicious(&self) -> bool {
        self.id.starts_with("MAL-")
    }
}

impl OsvCheck {
    /// Returns the first record that calls a package malicious.
    #[must_use]
    pub fn malicious(&self) -> Option<&OsvMatch> {
        self.matches.iter().find(|found| found.is_malicious())
    }

    /// Returns one line on what was checked, or that nothing was.
    #[must_use]
    pub fn summary(&self) -> String {
        match &self.database {
            None => "known vulnerabilities and malicious packages: not checked; \
                     `portcullis evaluate --update-osv` fetches the database"
                .to_owned(),
            Some(edition) => format!(
                "{} packages looked up in {edition}: {}",
                self.packages,
                match self.matches.len() {
                    0 => "no record".to_owned(),
                    1 => "1 record".to_owned(),
                    more => format!("{more} records"),
                }
            ),
        }
    }
}

impl std::fmt::Display for OsvEdition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let date = if self.date.is_empty() { "an unknown date" } else { &self.date };
        write!(f, "OSV of {} ({} entries)", escape_hidden(date), self.records)
    }
}

impl std::fmt::Display for OsvMatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { package, version, id, summary } = self;
        write!(f, "{} {}: {}", escape_hidden(package), escape_hidden(version), escape_hidden(id))?;
        if summary.is_empty() { Ok(()) } else { write!(f, " ({})", escape_hidden(summary)) }
    }
}
