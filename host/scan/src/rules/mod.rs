//! The rules: patterns over the text, most of them over the normalised one, and some that are code.

mod conduct;
mod take;
mod trace;

use regex::Regex;

use crate::Severity;
use crate::view::NormalizedText;
use crate::words::WORDS;
pub(crate) use trace::{ENCODED, HIDDEN, MIXED, PARAMETER};

/// A rule: what is looked for, and why.
#[derive(Debug)]
pub struct Rule {
    /// The name that findings carry.
    pub name: &'static str,
    /// The reason why an honest definition rarely does this, in one sentence.
    pub reason: &'static str,
    /// True if a note of this rule weighs more beside a note of another.
    pub(crate) adds: bool,
    /// True if the patterns read the original text; otherwise they read the normalised one.
    pub(crate) original: bool,
    pub(crate) patterns: &'static [(Severity, &'static str)],
    /// A description in which the rule finds something.
    #[cfg_attr(not(test), expect(dead_code, reason = "the tests read the examples"))]
    pub(crate) found: &'static str,
    /// A description in which it finds nothing.
    #[cfg_attr(not(test), expect(dead_code, reason = "the tests read the examples"))]
    pub(crate) passed: &'static str,
}

/// One rule with its compiled patterns.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) rule: &'static Rule,
    patterns: Vec<(Severity, Regex)>,
}

impl Compiled {
    /// Returns the gravest match in a view, and its offset in the original.
    pub(crate) fn find(&self, view: &NormalizedText, original: &str) -> Option<(Severity, usize)> {
        let text = if self.rule.original { original } else { &view.text };
        let found =
            self.patterns.iter().filter_map(|(severity, pattern)| Some((*severity, pattern.find(text)?.start())));
        let (severity, at) = found.max_by_key(|(severity, _)| *severity)?;
        Some((severity, if self.rule.original { at } else { view.origin(at) }))
    }
}

/// Returns every rule.
pub(crate) fn all() -> impl Iterator<Item = &'static Rule> {
    conduct::RULES.iter().chain(take::RULES).chain([&HIDDEN, &ENCODED, &MIXED, &PARAMETER])
}

/// Compiles the rules. The tests check that every pattern compiles.
pub(crate) fn compile() -> Vec<Compiled> {
    let words = words();
    let compile =
        |(severity, pattern): &(Severity, &str)| Some((*severity, Regex::new(&expand(pattern, &words)).ok()?));
    all().map(|rule| Compiled { rule, patterns: rule.patterns.iter().filter_map(compile).collect() }).collect()
}

/// Replaces the names in braces by their words.
fn expand(pattern: &str, words: &[(String, String)]) -> String {
    words.iter().fold(pattern.to_owned(), |text, (name, words)| text.replace(name, words))
}

fn words() -> Vec<(String, String)> {
    WORDS.iter().map(|(name, words)| (format!("{{{name}}}"), (*words).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        let words = words();
        for (_, pattern) in all().flat_map(|rule| rule.patterns) {
            let expanded = expand(pattern, &words);
            assert!(Regex::new(&expanded).is_ok(), "{pattern}: {:?}", Regex::new(&expanded).err());
        }
    }
}
