//! Findings about packages that need no run: names that are nearly those of others, scripts that run at the
//! installation, and records of a database of vulnerabilities (OSV).

use std::cmp::Ordering;

use serde_json::Value;

use crate::finding::{FindingList, INSTALL_SCRIPT, KNOWN_MALICIOUS, KNOWN_VULNERABLE, PACKAGE_NAME, Weight};

/// Names that many people type, one on a line.
const NPM_NAMES: &str = include_str!("supply/npm.txt");
const PYPI_NAMES: &str = include_str!("supply/pypi.txt");

/// A shorter name is near too many others.
const MIN_CHARS: usize = 4;

/// The ecosystem that a package comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ecosystem {
    /// npm.
    Npm,
    /// The Python Package Index.
    PyPi,
}

impl Ecosystem {
    /// Returns the name that OSV uses.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::PyPi => "PyPI",
        }
    }

    /// Returns a name as the ecosystem compares it.
    #[must_use]
    pub fn normal(self, name: &str) -> String {
        match self {
            Self::Npm => name.to_owned(),
            Self::PyPi => name.to_ascii_lowercase().replace(['_', '.'], "-"),
        }
    }
}

/// An installed package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupplyPackage {
    /// The ecosystem that it comes from.
    pub ecosystem: Ecosystem,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The scripts that it would run when it is installed.
    pub scripts: Vec<String>,
}

impl SupplyPackage {
    /// Judges the package by itself. `asked_for` is true for the one that a person typed.
    pub fn judge(&self, asked_for: bool, findings: &mut FindingList) {
        if let Some(known) = self.nearly().filter(|_| asked_for) {
            findings.add(PACKAGE_NAME, Weight::Warning, &self.name, None, &format!("a well-known package is {known}"));
        }
        for script in &self.scripts {
            let evidence = format!("{script}, which was not run: packages are installed without scripts");
            let weight = if asked_for { Weight::Warning } else { Weight::Note };
            findings.add(INSTALL_SCRIPT, weight, &format!("{} {}", self.name, self.version), None, &evidence);
        }
    }

    /// Judges the package by a record of OSV. Returns true if the record says that it is malicious.
    pub fn judge_by(&self, record: &Value, findings: &mut FindingList) -> bool {
        let affected = record.get("affected").and_then(Value::as_array);
        if record.get("withdrawn").is_some()
            || !affected.into_iter().flatten().any(|affected| self.is_affected(affected))
        {
            return false;
        }
        let text = |key: &str| record.get(key).and_then(Value::as_str).unwrap_or_default();
        let malicious = text("id").starts_with("MAL-");
        let (rule, weight) =
            if malicious { (KNOWN_MALICIOUS, Weight::Critical) } else { (KNOWN_VULNERABLE, Weight::Warning) };
        let subject = format!("{} {}", self.name, self.version);
        findings.add(rule, weight, &subject, None, &format!("{}: {}", text("id"), text("summary")));
        malicious
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

    fn is_affected(&self, affected: &Value) -> bool {
        let text = |place: &str| affected.pointer(place).and_then(Value::as_str).unwrap_or_default();
        if text("/package/ecosystem") != self.ecosystem.as_str()
            || self.ecosystem.normal(text("/package/name")) != self.ecosystem.normal(&self.name)
        {
            return false;
        }
        let list = |key: &str| affected.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let ranges = list("ranges").iter().filter(|range| range.get("type").and_then(Value::as_str) != Some("GIT"));
        let mut ranges = ranges.filter_map(|range| range.get("events")?.as_array()).peekable();
        if list("versions").is_empty() && ranges.peek().is_none() {
            // A record without versions is about all of them.
            return true;
        }
        list("versions").iter().any(|version| version == self.version.as_str())
            || ranges.any(|events| self.is_within(events))
    }

    /// Reports whether the version lies in a range: after an event that introduces, and before one that ends it.
    fn is_within(&self, events: &[Value]) -> bool {
        let mut within = false;
        for event in events {
            let at = |key: &str| event.get(key).and_then(Value::as_str);
            let reached = |version: &str| version == "0" || compared(&self.version, version) != Ordering::Less;
            if at("introduced").is_some_and(reached) {
                within = true;
            }
            let past = |version: &str| compared(&self.version, version) == Ordering::Greater;
            if at("fixed").is_some_and(reached) || at("last_affected").is_some_and(past) {
                within = false;
            }
        }
        within
    }
}

/// Compares two versions: numbers by value, and a preliminary version before the one that it precedes.
fn compared(one: &str, other: &str) -> Ordering {
    let split = |version: &str| -> (Vec<u64>, String) {
        let plain = version.split('+').next().unwrap_or_default();
        let end = plain.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(plain.len());
        let (numbers, rest) = plain.split_at(end);
        let mut numbers: Vec<u64> = numbers.split('.').filter_map(|number| number.parse().ok()).collect();
        while numbers.last() == Some(&0) {
            numbers.pop();
        }
        (numbers, rest.trim_start_matches(['-', '.']).to_owned())
    };
    let ((one, one_rest), (other, other_rest)) = (split(one), split(other));
    one.cmp(&other).then_with(|| match (one_rest.is_empty(), other_rest.is_empty()) {
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        _ => one_rest.cmp(&other_rest),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use serde_json::json;

    use super::*;

    fn package(ecosystem: Ecosystem, name: &str, version: &str) -> SupplyPackage {
        SupplyPackage { ecosystem, name: name.to_owned(), version: version.to_owned(), scripts: Vec::new() }
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
    fn a_record_is_about_the_versions_that_it_names() {
        let record = |affected: Value| json!({ "id": "GHSA-1", "summary": "bad", "affected": [affected] });
        let about = |version: &str, affected: Value| {
            let mut findings = FindingList::default();
            let malicious = package(Ecosystem::Npm, "thing", version).judge_by(&record(affected), &mut findings);
            assert!(!malicious);
            !findings.finish().is_empty()
        };
        let named = json!({ "name": "thing", "ecosystem": "npm" });
        let range = |events: Value| json!({ "package": named, "ranges": [{ "type": "SEMVER", "events": events }] });
        let events = json!([{ "introduced": "1.2.0" }, { "fixed": "1.10.0" }, { "introduced": "2.0.0" }, { "last_affected": "2.1" }]);
        for (version, affected) in [
            ("1.1.9", false),
            ("1.2.0", true),
            ("1.9.9", true),
            ("1.10.0-beta", true),
            ("1.10.0", false),
            ("2.0.0-rc.1", false),
            ("2.1.0", true),
            ("2.1.1", false),
        ] {
            assert_eq!(about(version, range(events.clone())), affected, "{version}");
        }
        assert!(about("3", json!({ "package": named, "versions": ["2", "3"] })));
        assert!(!about("4", json!({ "package": named, "versions": ["2", "3"] })));
        assert!(about("4", json!({ "package": named })), "all versions");
        assert!(!about("4", json!({ "package": { "name": "thing", "ecosystem": "PyPI" } })));
        let malicious = json!({ "id": "MAL-2026-1", "affected": [{ "package": named }] });
        assert!(package(Ecosystem::Npm, "thing", "1").judge_by(&malicious, &mut FindingList::default()));
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
