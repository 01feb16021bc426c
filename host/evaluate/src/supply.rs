//! Findings about packages that need no run: names that are nearly those of others, scripts that run at the
//! installation, and records of a database of vulnerabilities (OSV).

use portcullis_osv::{Ecosystem, OsvMatch};

use crate::finding::{
    FindingLevel, FindingList, INSTALL_SCRIPT, KNOWN_MALICIOUS, KNOWN_VULNERABLE, PACKAGE_NAME, PINNED,
};

/// Names that many people type, one on a line.
const NPM_NAMES: &str = include_str!("supply/npm.txt");
const PYPI_NAMES: &str = include_str!("supply/pypi.txt");

/// A shorter name is near too many others.
const MIN_CHARS: usize = 4;

/// An installed package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedPackage {
    /// The ecosystem that it comes from.
    pub ecosystem: Ecosystem,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The scripts that it would run when it is installed.
    pub scripts: Vec<String>,
}

impl AuditedPackage {
    /// Judges the package on its own. `asked_for` is true for the one that a person typed.
    pub fn judge(&self, asked_for: bool, findings: &mut FindingList) {
        if let Some(known) = self.nearly().filter(|_| asked_for) {
            findings.add(
                PACKAGE_NAME,
                FindingLevel::Warning,
                &self.name,
                None,
                &format!("a well-known package is {known}"),
            );
        }
        for script in &self.scripts {
            let evidence = format!("{script}, which was not run: packages are installed without scripts");
            let level = if asked_for { FindingLevel::Warning } else { FindingLevel::Note };
            findings.add(INSTALL_SCRIPT, level, &format!("{} {}", self.name, self.version), None, &evidence);
        }
    }

    /// Returns the well-known name that this one is one typing error away from.
    fn nearly(&self) -> Option<&'static str> {
        let names = match self.ecosystem {
            Ecosystem::Npm => NPM_NAMES,
            Ecosystem::PyPi => PYPI_NAMES,
        };
        let name = self.ecosystem.normal(&self.name);
        if names.lines().any(|known| known == name) {
            return None;
        }
        let letters = |name: &str| name.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
        let near = |known: &&str| {
            let (own, other) = (letters(&name), letters(known));
            other.chars().count() >= MIN_CHARS && strsim::damerau_levenshtein(&own, &other) <= 1
        };
        names.lines().find(near)
    }
}

/// The version and the hash that a lock file pins a package to, for a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedVersion {
    /// The source.
    pub source: String,
    /// The pinned version.
    pub version: String,
    /// The hash that the package's bytes must have.
    pub integrity: String,
}

impl PinnedVersion {
    /// Compares the pin with what the registry has now. Returns the result in a sentence.
    #[must_use]
    pub fn compare(&self, name: &str, version: &str, integrity: &str, findings: &mut FindingList) -> String {
        let Self { source, version: pinned, integrity: known } = self;
        let source = format!("portcullis.lock (source {source})");
        match (pinned == version, known == integrity) {
            (true, true) => format!("{name} {version} is what {source} pins: the same version and the same bytes"),
            (false, _) => format!("{source} pins {name} {pinned}; the registry has {version} now"),
            (true, false) => {
                let evidence = format!("{source} pins {known}; the registry has {integrity}");
                findings.add(PINNED, FindingLevel::High, &format!("{name} {version}"), None, &evidence);
                format!("{name} {version} has other bytes than the ones that {source} pins")
            }
        }
    }
}

/// Adds what a database knows of installed packages.
pub fn judge_by_records(records: &[OsvMatch], findings: &mut FindingList) {
    for record in records {
        let (rule, level) = match record.is_malicious() {
            true => (KNOWN_MALICIOUS, FindingLevel::Critical),
            false => (KNOWN_VULNERABLE, FindingLevel::Warning),
        };
        let subject = format!("{} {}", record.package, record.version);
        findings.add(rule, level, &subject, None, &format!("{}: {}", record.id, record.summary));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn package(ecosystem: Ecosystem, name: &str, version: &str) -> AuditedPackage {
        AuditedPackage { ecosystem, name: name.to_owned(), version: version.to_owned(), scripts: Vec::new() }
    }

    #[test]
    fn a_name_that_is_a_typing_error_away_from_a_well_known_one_is_found() {
        let near = |ecosystem, name: &str| package(ecosystem, name, "1").nearly();
        assert_eq!(near(Ecosystem::Npm, "lodahs"), Some("lodash"));
        assert_eq!(
            near(Ecosystem::Npm, "modelcontextprotocol-server-github"),
            Some("@modelcontextprotocol/server-github")
        );
        assert_eq!(near(Ecosystem::PyPi, "reqeusts"), Some("requests"));
        assert_eq!(near(Ecosystem::PyPi, "Typing_Extensions"), None);
        assert_eq!(near(Ecosystem::Npm, "express"), None);
        assert_eq!(near(Ecosystem::Npm, "a-server-of-my-own"), None);
        assert_eq!(near(Ecosystem::Npm, "d4"), None, "short names are near each other");
    }

    #[test]
    fn the_same_version_with_other_bytes_than_were_pinned_is_found() {
        let pin = PinnedVersion { source: "far".to_owned(), version: "1".to_owned(), integrity: "sha512-a".to_owned() };
        for (version, integrity, said, found) in [
            ("1", "sha512-a", "the same bytes", 0),
            ("1", "sha512-b", "other bytes", 1),
            ("2", "sha512-b", "has 2 now", 0),
        ] {
            let mut findings = FindingList::default();
            let text = pin.compare("thing", version, integrity, &mut findings);
            assert!(text.contains(said) && text.contains("source far"), "{text}");
            assert_eq!(findings.finish(&[]).len(), found, "{text}");
        }
    }

    #[test]
    fn the_lists_of_names_are_in_order_and_as_they_are_compared() {
        for (ecosystem, names) in [(Ecosystem::Npm, NPM_NAMES), (Ecosystem::PyPi, PYPI_NAMES)] {
            let names: Vec<&str> = names.lines().collect();
            assert!(names.len() > 100 && names.iter().all(|name| ecosystem.normal(name) == *name));
            let mut unique = names.clone();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!(unique.len(), names.len(), "no name is there twice");
        }
    }
}
