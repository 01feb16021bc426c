//! Finds what in a definition tries to steer the model, hides something, or takes data. The scanner is a pure function
//! from one definition (a tool, a prompt or a resource) to graded findings. A definition without findings is not
//! thereby safe: the cell decides what a source can do.
//!
//! This crate is internal to the library `portcullis` and promises no stability; use the types that the library
//! exports.

mod broken;
mod decode;
mod hidden;
mod instruction;
mod parameter;
mod rules;
mod strings;
mod view;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::escape::{escape_hidden, is_hidden};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

pub use decode::leading_escape;
pub use instruction::Instruction;
pub use rules::Rule;
use rules::{Compiled, ENCODED, HIDDEN, MIXED, PARAMETER};
use strings::ScannedString;
use view::NormalizedText;

/// The version of the scanner: another text for each change of it. Another version may have other findings.
pub const VERSION: &str = env!("SCANNER_VERSION");

/// The number of findings that one scan returns at most; the gravest are kept.
pub const MAX_FINDINGS: usize = 256;
/// The number of characters of an excerpt, before hidden ones are written out.
const EXCERPT: usize = 160;

/// The longest part of a pointer that a finding keeps, in bytes.
const MAX_POINTER_BYTES: usize = 256;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Many honest definitions have it; it matters together with another finding.
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

/// A finding as stored: the name of its rule may be one that this version does not have.
#[derive(Deserialize)]
struct StoredFinding {
    rule: String,
    severity: Severity,
    pointer: String,
    excerpt: String,
}

impl<'de> Deserialize<'de> for Finding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let StoredFinding { rule, severity, pointer, excerpt } = StoredFinding::deserialize(deserializer)?;
        let known = rules::all().map(|known| known.name).find(|known| *known == rule);
        let rule = known.ok_or_else(|| D::Error::custom(format!("there is no rule `{rule}`")))?;
        Ok(Self { rule, severity, pointer, excerpt })
    }
}

/// The compiled rules. Compiling takes 50 ms and 20 MB of memory, so one scanner is kept and shared between threads.
#[derive(Debug)]
pub struct Scanner {
    rules: Vec<Compiled>,
    /// The rules for the results of tools, in addition to those above.
    for_results: Vec<Compiled>,
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
        Self { rules: rules::compile(), for_results: rules::compiled(rules::RESULTS.iter()) }
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
        let mut texts = Vec::new();
        strings::each(definition, &mut |text| texts.push(text));
        let views: Vec<_> = texts.iter().map(|text| text.is_prose().then(|| NormalizedText::of(&text.text))).collect();
        let joined: String = views.iter().flatten().flat_map(|view| [view.text.as_str(), "\n"]).collect();
        let rules: Vec<_> = self.rules.iter().filter(|rule| rule.concerns(&joined)).collect();
        let own = parameter::is_about_conversations(definition);
        for (text, view) in texts.iter().zip(&views) {
            if let Some((severity, at)) = hidden::find(&text.text) {
                findings.add(&HIDDEN, severity, &text.pointer, excerpt(&text.text, at));
            }
            // A name or a key is a word; only prose can give an order. Keys are also searched: prose can be a key.
            let Some(view) = view else { continue };
            apply(&rules, view, text, &mut findings, None);
            self.look_behind(view, text, &mut findings);
        }
        if own {
            findings.excuse(&["takes-conversation"]);
        }
        for (severity, pointer, excerpt) in parameter::asked_for(definition) {
            findings.add(&PARAMETER, severity, &pointer, excerpt);
        }
        findings.finish()
    }

    /// Looks for orders that are encoded, spelt with digits, or broken into pieces.
    fn look_behind(&self, view: &NormalizedText, text: &ScannedString<'_>, findings: &mut Findings) {
        if let Some(view) = NormalizedText::unspelled(&text.text) {
            apply(&self.rules, &view, text, findings, Some(Severity::Warning));
        }
        if broken::has_order(&view.text) {
            findings.add(&MIXED, Severity::Warning, &text.pointer, excerpt(&text.text, 0));
        }
        for (at, decoded) in decode::payloads(&text.text) {
            let mut inside = Findings::default();
            let decoded_text =
                ScannedString { text: decoded.as_str().into(), pointer: text.pointer.clone(), place: text.place };
            apply(&self.rules, &NormalizedText::of(&decoded), &decoded_text, &mut inside, None);
            // Text that can be read without decoding is found without it.
            let plain = |finding: &&Finding| findings.0.iter().any(|known| known.rule == finding.rule);
            let severity = match inside.0.iter().filter(|finding| !plain(finding)).map(|finding| finding.severity).max()
            {
                Some(Severity::Warning | Severity::Grave) => Severity::Grave,
                Some(Severity::Note) => Severity::Warning,
                None => Severity::Note,
            };
            if severity > Severity::Note || decode::is_prose(&decoded) {
                findings.add(
                    &ENCODED,
                    severity,
                    &text.pointer,
                    format!("{} = {}", excerpt(&text.text, at), excerpt(&decoded, 0)),
                );
            }
        }
    }
}

/// Applies rules to one view of a text. `at_least` raises the findings, for a text that was decoded from a spelled-out
/// form.
fn apply<R: std::borrow::Borrow<Compiled>>(
    rules: &[R],
    view: &NormalizedText,
    text: &ScannedString<'_>,
    findings: &mut Findings,
    at_least: Option<Severity>,
) {
    for rule in rules.iter().map(std::borrow::Borrow::borrow) {
        if let Some((severity, at)) = rule.find(view, &text.text) {
            let raised = at_least.filter(|_| severity > Severity::Note).map_or(severity, |least| severity.max(least));
            findings.add(rule.rule, raised, &text.pointer, excerpt(&text.text, at));
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

    /// Makes the warnings of some rules notes.
    fn excuse(&mut self, rules: &[&str]) {
        for finding in self.0.iter_mut().filter(|finding| rules.contains(&finding.rule)) {
            if finding.severity == Severity::Warning {
                finding.severity = Severity::Note;
            }
        }
    }

    /// Returns the findings. Two notes of different rules about one string together weigh as much as a warning.
    fn finish(mut self) -> Vec<Finding> {
        let adds: BTreeSet<_> = rules::all().filter(|rule| rule.adds).map(|rule| rule.name).collect();
        let adds = |finding: &Finding| finding.severity == Severity::Note && adds.contains(finding.rule);
        let mut rules: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for finding in self.0.iter().filter(|finding| adds(finding)) {
            rules.entry(finding.pointer.clone()).or_default().insert(finding.rule);
        }
        for finding in self.0.iter_mut().filter(|finding| adds(finding)) {
            if rules.get(&finding.pointer).is_some_and(|names| names.len() >= 2) {
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

/// Returns the part of a text around a byte offset, with hidden characters written out. White space before it means
/// nothing and could fill the excerpt.
fn excerpt(text: &str, at: usize) -> String {
    let start = text.floor_char_boundary(at);
    let is_blank = |c: char| matches!(c, '\n' | '\t' | '\r') || c.is_whitespace() && !is_hidden(c);
    let text = text.get(start..).unwrap_or_default().trim_start_matches(is_blank);
    let part: String = text.chars().take(EXCERPT).collect();
    escape_hidden(&part).into_owned()
}

#[cfg(test)]
mod tests;
