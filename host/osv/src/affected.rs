//! The versions that a record is about, ordered as each ecosystem orders its versions.

use std::cmp::Ordering;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

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

    /// Returns a name as the ecosystem compares it: unchanged for npm; for Python in lower case, where each run of `-`,
    /// `_` and `.` is one `-`.
    #[must_use]
    pub fn normal(self, name: &str) -> String {
        match self {
            Self::Npm => name.to_owned(),
            Self::PyPi => {
                let parts: Vec<&str> = name.split(['-', '_', '.']).filter(|part| !part.is_empty()).collect();
                parts.join("-").to_ascii_lowercase()
            }
        }
    }
}

/// A package and its affected versions, as a record lists them.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct AffectedPackage {
    #[serde(default, skip_serializing)]
    pub(crate) package: Option<Package>,
    #[serde(default)]
    pub(crate) ranges: Vec<Range>,
    #[serde(default)]
    versions: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) ecosystem: String,
    pub(crate) name: String,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Range {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    events: Vec<Event>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Event {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    introduced: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fixed: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_affected: Option<String>,
}

impl AffectedPackage {
    /// Reports whether a version is one of the affected ones. A record without versions is about all of them.
    pub(crate) fn concerns(&self, ecosystem: Ecosystem, version: &str) -> bool {
        // A range of type GIT names commits.
        let mut ranges = self.ranges.iter().filter(|range| range.kind != "GIT").peekable();
        if self.versions.is_empty() && ranges.peek().is_none() {
            return true;
        }
        self.versions.iter().any(|known| known == version || compared(ecosystem, known, version).is_eq())
            || ranges.any(|range| range.contains(ecosystem, version))
    }
}

impl Range {
    /// Reports whether a version lies after an event that introduces, and before one that ends it.
    fn contains(&self, ecosystem: Ecosystem, version: &str) -> bool {
        let mut events: Vec<&Event> = self.events.iter().filter(|event| event.at().is_some()).collect();
        events.sort_by(|one, other| match (one.at(), other.at()) {
            (Some(one), Some(other)) => ordered(ecosystem, one, other),
            _ => Ordering::Equal,
        });
        let mut within = false;
        for event in events {
            let reached = |known: &String| ordered(ecosystem, version, known).is_ge();
            if event.introduced.as_ref().is_some_and(reached) {
                within = true;
            }
            let past = |known: &String| ordered(ecosystem, version, known).is_gt();
            if event.fixed.as_ref().is_some_and(reached) || event.last_affected.as_ref().is_some_and(past) {
                within = false;
            }
        }
        within
    }
}

impl Event {
    fn at(&self) -> Option<&str> {
        self.introduced.as_deref().or(self.fixed.as_deref()).or(self.last_affected.as_deref())
    }
}

/// Compares two versions of events, where `0` is before every version.
fn ordered(ecosystem: Ecosystem, one: &str, other: &str) -> Ordering {
    match (one == "0", other == "0") {
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (true, true) => Ordering::Equal,
        (false, false) => compared(ecosystem, one, other),
    }
}

/// Compares two versions by the rules of the ecosystem, or by their numbers if one does not follow these rules.
fn compared(ecosystem: Ecosystem, one: &str, other: &str) -> Ordering {
    fn by<V: FromStr + Ord>(one: &str, other: &str) -> Option<Ordering> {
        Some(one.parse::<V>().ok()?.cmp(&other.parse::<V>().ok()?))
    }
    let known = match ecosystem {
        Ecosystem::Npm => by::<SemanticVersion>(one, other),
        Ecosystem::PyPi => by::<pep440_rs::Version>(one, other),
    };
    known.unwrap_or_else(|| numbers(one).cmp(&numbers(other)).then_with(|| one.cmp(other)))
}

/// A version of npm, compared without its build metadata.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct SemanticVersion(semver::Version);

impl FromStr for SemanticVersion {
    type Err = semver::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut version = semver::Version::parse(text.trim_start_matches('v'))?;
        version.build = semver::BuildMetadata::EMPTY;
        Ok(Self(version))
    }
}

fn numbers(version: &str) -> Vec<u64> {
    let mut numbers: Vec<u64> = version
        .split(|c: char| !c.is_ascii_digit())
        .filter(|part| !part.is_empty())
        .map(|part| part.parse().unwrap_or(u64::MAX))
        .collect();
    while numbers.last() == Some(&0) {
        numbers.pop();
    }
    numbers
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    fn concerns(ecosystem: Ecosystem, affected: serde_json::Value, version: &str) -> bool {
        serde_json::from_value::<AffectedPackage>(affected).unwrap().concerns(ecosystem, version)
    }

    #[test]
    fn a_name_is_compared_as_its_ecosystem_does() {
        for name in ["typing-extensions", "Typing_Extensions", "typing.extensions", "typing-_.extensions"] {
            assert_eq!(Ecosystem::PyPi.normal(name), "typing-extensions");
        }
        assert_eq!(Ecosystem::Npm.normal("JSONStream"), "JSONStream");
    }

    #[test]
    fn a_record_is_about_the_versions_that_it_names() {
        // The events need not be in order.
        let events = json!([
            { "introduced": "2.0.0" }, { "last_affected": "2.1.0" }, { "introduced": "1.2.0" }, { "fixed": "1.10.0" }
        ]);
        let range = json!({ "ranges": [{ "type": "SEMVER", "events": events }] });
        for (version, affected) in [
            ("1.1.9", false),
            ("1.2.0", true),
            ("1.9.9", true),
            ("1.10.0-beta", true),
            ("1.10.0", false),
            ("2.0.0-rc.1", false),
            ("2.1.0", true),
            ("2.1.0+build", true),
            ("2.1.1", false),
        ] {
            assert_eq!(concerns(Ecosystem::Npm, range.clone(), version), affected, "{version}");
        }
        assert!(concerns(Ecosystem::Npm, json!({ "versions": ["2", "3"] }), "3"));
        assert!(!concerns(Ecosystem::Npm, json!({ "versions": ["2", "3"] }), "4"));
        assert!(concerns(Ecosystem::Npm, json!({}), "4"), "all versions");
        assert!(concerns(Ecosystem::Npm, json!({ "ranges": [{ "type": "GIT" }] }), "4"), "commits say nothing");
        let since = |fixed: &str| json!({ "ranges": [{ "type": "ECOSYSTEM", "events": [{ "introduced": "0" }, { "fixed": fixed }] }] });
        assert!(
            concerns(Ecosystem::PyPi, since("2.0"), "2.0rc1") && !concerns(Ecosystem::PyPi, since("2.0"), "2.0.post1")
        );
        assert!(concerns(Ecosystem::PyPi, json!({ "versions": ["1.0"] }), "1.0.0"), "both spell one version");
        assert!(concerns(Ecosystem::Npm, since("odd"), "odder") != concerns(Ecosystem::Npm, since("odder"), "odd"));
    }
}
