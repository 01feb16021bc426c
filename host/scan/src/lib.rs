//! Finds what in a definition tries to steer the model, hides something, or takes data. The scanner is a pure function
//! from one definition (a tool, a prompt or a resource) to graded findings. A definition without findings is not
//! thereby safe: what a source does is decided by its cell.
//!
//! This crate is internal to the library `portcullis` and promises no stability; use the types that the library
//! exports.

mod decode;
mod hidden;
mod parameter;
mod rules;
mod strings;
mod view;
mod words;

use portcullis_core::escape::escape_hidden;
use serde::Serialize;
use serde_json::Value;

pub use rules::Rule;
use rules::{Compiled, ENCODED, HIDDEN, MIXED, PARAMETER};
use strings::{ScannedString, StringPlace};
use view::NormalizedText;

/// The number of findings that one scan returns at most; the gravest are kept.
pub const MAX_FINDINGS: usize = 256;
/// The number of characters of an excerpt, before hidden ones are written out.
const EXCERPT: usize = 160;

/// The longest part of a pointer that a finding keeps, in bytes.
const MAX_POINTER_BYTES: usize = 256;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Many honest definitions have it; it matters beside another finding.
    Note,
    /// Few honest definitions have it; a person should read the place.
    Warning,
    /// An honest definition has no use for it.
    Grave,
}

/// One place of a definition to which a rule applies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The name of the rule, as in [`Scanner::rules`].
    pub rule: &'static str,
    /// The severity of the finding.
    pub severity: Severity,
    /// The JSON pointer of the string, or of the member whose key it is. A hostile key appears in it with its hidden
    /// characters written out.
    pub pointer: String,
    /// A part of the text, of at most 160 characters, with hidden characters written out.
    pub excerpt: String,
}

/// The compiled rules. Compiling takes some milliseconds, so one scanner is kept and shared between threads.
#[derive(Debug)]
pub struct Scanner {
    rules: Vec<Compiled>,
}

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

impl Scanner {
    /// Compiles the rules.
    #[must_use]
    pub fn new() -> Self {
        Self { rules: rules::compile() }
    }

    /// Returns all rules.
    pub fn rules(&self) -> impl Iterator<Item = &'static Rule> {
        rules::all()
    }

    /// Scans every string of a definition, including keys. The time is linear in the length of the text. The findings
    /// are sorted, the gravest first, and are at most [`MAX_FINDINGS`].
    #[must_use]
    pub fn scan(&self, definition: &Value) -> Vec<Finding> {
        let mut findings = Findings::default();
        strings::each(definition, &mut |text| self.scan_text(&text, &mut findings));
        for (severity, pointer, excerpt) in parameter::asked_for(definition) {
            findings.add(&PARAMETER, severity, &pointer, excerpt);
        }
        findings.finish()
    }

    fn scan_text(&self, text: &ScannedString<'_>, findings: &mut Findings) {
        if let Some((severity, at)) = hidden::find(text.text) {
            findings.add(&HIDDEN, severity, text.pointer, cut(text.text, at));
        }
        // A name or a key is a word; only prose can give an order. Keys are also searched, because prose can be a key.
        if text.place == StringPlace::Word {
            return;
        }
        let view = NormalizedText::of(text.text);
        self.apply(&view, text, findings, None);
        if let Some(view) = NormalizedText::unspelled(text.text) {
            self.apply(&view, text, findings, Some(Severity::Warning));
        }
        if view::hides_order_in_spacing(&view) {
            findings.add(&MIXED, Severity::Warning, text.pointer, cut(text.text, 0));
        }
        for (at, decoded) in decode::payloads(text.text) {
            let mut inside = Findings::default();
            let decoded_text = ScannedString { text: &decoded, ..*text };
            self.apply(&NormalizedText::of(&decoded), &decoded_text, &mut inside, None);
            let worst = inside.0.iter().map(|finding| finding.severity).max();
            let severity = if worst >= Some(Severity::Note) { Severity::Grave } else { Severity::Note };
            if severity == Severity::Grave || decode::is_prose(&decoded) {
                findings.add(
                    &ENCODED,
                    severity,
                    text.pointer,
                    format!("{} = {}", cut(text.text, at), cut(&decoded, 0)),
                );
            }
        }
    }

    /// Applies all rules to one view of a text. `at_least` raises what is found, for a text that had to be unspelled.
    fn apply(
        &self,
        view: &NormalizedText,
        text: &ScannedString<'_>,
        findings: &mut Findings,
        at_least: Option<Severity>,
    ) {
        for rule in &self.rules {
            if let Some((severity, at)) = rule.find(view, text.text) {
                let raised =
                    at_least.filter(|_| severity > Severity::Note).map_or(severity, |least| severity.max(least));
                findings.add(rule.rule, raised, text.pointer, cut(text.text, at));
            }
        }
    }
}

/// The findings so far, kept within twice the limit.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, rule: &'static Rule, severity: Severity, pointer: &str, excerpt: String) {
        let pointer = shown(pointer);
        let same = self.0.iter_mut().rev().take(64).find(|known| known.rule == rule.name && known.pointer == pointer);
        match same {
            Some(known) => known.severity = known.severity.max(severity),
            None => self.0.push(Finding { rule: rule.name, severity, pointer, excerpt }),
        }
        if self.0.len() >= 2 * MAX_FINDINGS {
            self.keep_the_gravest();
        }
    }

    fn keep_the_gravest(&mut self) {
        self.0.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        self.0.truncate(MAX_FINDINGS);
    }

    /// Two notes of different rules about orders weigh as much as a warning together.
    fn finish(mut self) -> Vec<Finding> {
        let adds = |finding: &Finding| {
            finding.severity == Severity::Note && rules::all().any(|rule| rule.name == finding.rule && rule.adds)
        };
        let mut names: Vec<_> = self.0.iter().filter(|finding| adds(finding)).map(|finding| finding.rule).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() >= 2 {
            for finding in self.0.iter_mut().filter(|finding| adds(finding)) {
                finding.severity = Severity::Warning;
            }
        }
        self.keep_the_gravest();
        self.0
    }
}

/// Returns the beginning of a pointer, with hidden characters written out: a hostile key can be as long as the
/// definition.
fn shown(pointer: &str) -> String {
    let part = pointer.get(..pointer.floor_char_boundary(MAX_POINTER_BYTES)).unwrap_or_default();
    let more = if part.len() < pointer.len() { "…" } else { "" };
    format!("{}{more}", escape_hidden(part))
}

/// Returns the part of a text around a byte offset, with hidden characters written out.
fn cut(text: &str, at: usize) -> String {
    let start = text.floor_char_boundary(at);
    let part: String = text.get(start..).unwrap_or_default().chars().take(EXCERPT).collect();
    escape_hidden(&part).into_owned()
}

#[cfg(test)]
mod tests;
