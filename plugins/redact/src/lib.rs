//! A transform that replaces secrets and personal data with placeholders, in arguments and in results.
//!
//! ```toml
//! detect   = ["email", "credit-card"]     # by default email, credit-card, iban, aws-key,
//!                                         # github-token, private-key, jwt; also available: ipv4
//! patterns = [{ kind = "ticket", regex = "TCK-[0-9]{6}" }]
//! restore  = "same-source"                # or globs over the exposed names of the tools that may get the values back
//! ```
//!
//! Only strings in which something is found are rewritten; every other byte stays. Keys and numbers are not
//! searched: a card number that is a JSON number is not found. Overlapping values become one placeholder, so that no
//! part of a value remains.
//!
//! A regex has no look-around and no back-references. Searching takes time proportional to the length of the text times
//! the size of the regex. If the plugin exceeds its time, the call is denied.

mod detect;

use std::ops::Range;

use detect::Detector;
use portcullis_plugin::json::{Json, Value, quote};
use portcullis_plugin::{Call, Change, NameGlob, Phase, Transform, Vault, settings};
use regex_lite::Regex;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Redact {
    #[serde(default = "detect::usual")]
    detect: Vec<Detector>,
    #[serde(default)]
    patterns: Vec<Pattern>,
    #[serde(default)]
    restore: Restore,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pattern {
    #[serde(deserialize_with = "kind")]
    kind: String,
    #[serde(deserialize_with = "regex")]
    regex: Regex,
}

/// Globs over the exposed names of the tools that may get values back. If empty, only the source that a
/// value came from gets it.
#[derive(Default)]
struct Restore(Vec<String>);

impl Transform for Redact {
    fn configure(settings: &str) -> Result<Self, String> {
        settings::parse(settings)
    }

    fn rewrite(&self, call: &dyn Call, vault: &dyn Vault) -> Result<Change, String> {
        let text = match call.phase() {
            Phase::Call => call.arguments(),
            Phase::Result => call.outcome().ok_or("a result without an outcome")?,
            Phase::List => return Ok(Change::Keep),
            Phase::Other => return Err("a phase that this version does not know".into()),
        };
        let mut edits = Vec::new();
        self.edits(&Json::parse(&text)?, vault, &mut edits);
        if edits.is_empty() { Ok(Change::Keep) } else { Ok(Change::Replace(splice(&text, &edits))) }
    }
}

impl Redact {
    /// Collects the strings that change, in the order of the text.
    fn edits(&self, json: &Json<'_>, vault: &dyn Vault, edits: &mut Vec<(Range<usize>, String)>) {
        match &json.value {
            Value::String(text) => edits.extend(self.redacted(text, vault).map(|new| (json.span.clone(), quote(&new)))),
            Value::Array(items) => items.iter().for_each(|item| self.edits(item, vault, edits)),
            Value::Object(members) => members.iter().for_each(|(_, value)| self.edits(value, vault, edits)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn redacted(&self, text: &str, vault: &dyn Vault) -> Option<String> {
        let found = self.find(text);
        if found.is_empty() {
            return None;
        }
        let placeholder = |(range, kind): &(Range<usize>, &str)| {
            let value = text.get(range.clone())?;
            Some((range.clone(), vault.protect(kind, value, &self.restore.0)))
        };
        let placeholders: Vec<_> = found.iter().filter_map(placeholder).collect();
        Some(splice(text, &placeholders))
    }

    /// Returns the ranges to hide, from left to right. They do not overlap.
    fn find(&self, text: &str) -> Vec<(Range<usize>, &str)> {
        let mut found: Vec<(Range<usize>, &str)> = Vec::new();
        for detector in &self.detect {
            detector.find(text, &mut |range| found.push((range, detector.name())));
        }
        for pattern in &self.patterns {
            let matches = pattern.regex.find_iter(text).filter(|m| !m.is_empty());
            found.extend(matches.map(|m| (m.range(), pattern.kind.as_str())));
        }
        found.sort_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)));
        found.dedup_by(|next, last| {
            let overlap = next.0.start < last.0.end;
            if overlap {
                last.0.end = last.0.end.max(next.0.end);
            }
            overlap
        });
        found
    }
}

/// Returns `text` with these ranges replaced. The ranges must be in order.
fn splice(text: &str, edits: &[(Range<usize>, String)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for (range, new) in edits {
        out.push_str(text.get(at..range.start).unwrap_or_default());
        out.push_str(new);
        at = range.end;
    }
    out.push_str(text.get(at..).unwrap_or_default());
    out
}

fn kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let kind = String::deserialize(deserializer)?;
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if (1..=32).contains(&kind.len()) && kind.bytes().all(plain) {
        return Ok(kind);
    }
    Err(D::Error::custom(format!("{kind:?} is not a kind; use up to 32 lower-case letters, digits and dashes")))
}

fn regex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Regex, D::Error> {
    let regex = Regex::new(&String::deserialize(deserializer)?).map_err(D::Error::custom)?;
    if regex.is_match("") {
        return Err(D::Error::custom(format!("`{regex}` matches the empty text, so it cannot identify a value")));
    }
    Ok(regex)
}

impl<'de> Deserialize<'de> for Restore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected \"same-source\" or a list of globs over exposed names")]
        enum Either {
            Word(String),
            Globs(Vec<String>),
        }
        match Either::deserialize(deserializer)? {
            Either::Word(word) if word == "same-source" => Ok(Self::default()),
            Either::Word(word) => {
                Err(D::Error::custom(format!("{word:?} is not \"same-source\"; globs are given as a list")))
            }
            Either::Globs(globs) if globs.is_empty() => {
                Err(D::Error::custom("an empty list; leave it out, or name tools"))
            }
            Either::Globs(globs) => {
                globs.iter().try_for_each(|glob| NameGlob::new(glob).map(drop)).map_err(D::Error::custom)?;
                Ok(Self(globs))
            }
        }
    }
}

portcullis_plugin::export_transform!(Redact);

#[cfg(test)]
mod tests;
