//! A transform that replaces secrets and personal data with placeholders, in arguments and in results.
//!
//! ```toml
//! detect   = ["default", "phone"]         # by default ["default"]: all kinds but phone, ipv4 and ipv6
//! patterns = [{ kind = "ticket", regex = "TCK-[0-9]{6}" }]
//! restore  = "same-source"                # or globs over the exposed names of the tools that may get the values back
//! one-way  = ["private-key"]              # or "all": kinds whose values are not kept and that nobody gets back
//! ```
//!
//! Only strings in which something is found are rewritten; every other byte stays. Numbers are not searched: a card number
//! that is a JSON number is not found. Keys are searched in results only, as a key in arguments would not be put back.
//! Overlapping values become one placeholder, so that no part of a value remains.
//!
//! A regex has no look-around and no back-references. Searching takes time proportional to the length of the text times
//! the size of the regex. If the plugin exceeds its time, the call is denied.

mod detect;
mod find;
mod kind;
mod settings;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use portcullis_plugin::json::{Json, Value, quote};
use portcullis_plugin::{Call, Change, Phase, Transform, Vault};
use settings::Settings;

struct Redact(Settings);

impl Transform for Redact {
    fn configure(settings: &str) -> Result<Self, String> {
        Settings::parse(settings).map(Self)
    }

    fn rewrite(&self, call: &impl Call, vault: &impl Vault) -> Result<Change, String> {
        let (text, keys) = match call.phase() {
            Phase::Call => (call.arguments(), false),
            Phase::Result => (call.outcome().ok_or("a result without an outcome")?, true),
            Phase::List => return Ok(Change::Keep),
            Phase::Other => return Err("a phase that this version does not know".into()),
        };
        let mut rewriting = Rewriting { settings: &self.0, vault, text: &text, keys, edits: Vec::new() };
        rewriting.value(&Json::parse(&text)?, None);
        let edits = rewriting.edits;
        if edits.is_empty() { Ok(Change::Keep) } else { Ok(Change::Replace(splice(&text, &edits))) }
    }
}

/// The rewriting of one JSON text.
struct Rewriting<'a> {
    settings: &'a Settings,
    vault: &'a dyn Vault,
    text: &'a str,
    /// Whether keys are rewritten too.
    keys: bool,
    /// The replacements, in the order of the text.
    edits: Vec<(Range<usize>, String)>,
}

impl Rewriting<'_> {
    /// Collects what changes in a value. `name` is the key of the member that it belongs to.
    fn value(&mut self, json: &Json<'_>, name: Option<&str>) {
        match &json.value {
            Value::String(text) => {
                let new = self.redacted(text, name);
                self.edits.extend(new.map(|new| (json.span.clone(), quote(&new))));
            }
            Value::Array(items) => items.iter().for_each(|item| self.value(item, name)),
            Value::Object(members) => {
                let mut end = json.span.start;
                let mut taken = None;
                for (key, value) in members {
                    if self.keys
                        && let Some(new) = self.redacted(key, None)
                    {
                        let new = taken.get_or_insert_with(|| Keys::of(members)).distinct(new);
                        self.edits.extend(self.key(end..value.span.start).map(|span| (span, quote(&new))));
                    }
                    self.value(value, Some(key));
                    end = value.span.end;
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Returns the place of the key that is between a value and the next one.
    fn key(&self, between: Range<usize>) -> Option<Range<usize>> {
        let gap = self.text.get(between.clone())?;
        Some(between.start + gap.find('"')?..between.start + gap.rfind('"')? + 1)
    }

    /// Returns the text with placeholders, if anything is found in it.
    fn redacted(&self, text: &str, name: Option<&str>) -> Option<String> {
        let found = self.settings.find(text, name);
        let placeholder = |found: &find::Found<'_>| Some((found.range.clone(), self.placeholder(text, found)?));
        let placeholders: Vec<_> = found.iter().filter_map(placeholder).collect();
        (!placeholders.is_empty()).then(|| splice(text, &placeholders))
    }

    /// Returns the replacement for a value from now on. Of a value that nobody gets back the vault learns nothing, and
    /// its placeholder is the same for all values of its kind: one made from the value could be compared with guesses.
    fn placeholder(&self, text: &str, found: &find::Found<'_>) -> Option<String> {
        if found.one_way {
            return Some(format!("[[{}:withheld]]", found.kind));
        }
        Some(self.vault.protect(found.kind, text.get(found.range.clone())?, &self.settings.restore.0))
    }
}

/// The keys of an object, and how often each was to be given.
struct Keys {
    all: BTreeSet<String>,
    counts: BTreeMap<String, usize>,
}

impl Keys {
    fn of(members: &[(Cow<'_, str>, Json<'_>)]) -> Self {
        Self { all: members.iter().map(|(key, _)| key.to_string()).collect(), counts: BTreeMap::new() }
    }

    /// Returns the key, with a number behind it if the object already has it: keys may get the same placeholder, and a
    /// source may have written one.
    fn distinct(&mut self, key: String) -> String {
        let count = self.counts.entry(key.clone()).or_insert_with(|| usize::from(self.all.contains(&key)));
        loop {
            *count += 1;
            let numbered = if *count == 1 { key.clone() } else { format!("{key} {count}") };
            if self.all.insert(numbered.clone()) {
                return numbered;
            }
        }
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

portcullis_plugin::export_transform!(Redact);
portcullis_plugin::describe!(include_str!("../description.json"));

#[cfg(test)]
mod tests;
