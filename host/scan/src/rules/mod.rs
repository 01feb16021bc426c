//! The rules: patterns over the text, most of them over the normalised one, and some that are code.

mod conduct;
mod exfiltration;
mod guard;
mod languages;
mod orders;
mod origin;
mod results;
mod share;
mod trace;

use regex::{Regex, RegexBuilder};

use crate::Severity;
use crate::view::NormalizedText;
use crate::words::WORDS;
use guard::Guard;
pub(crate) use results::RULES as RESULTS;
pub(crate) use trace::{ENCODED, HIDDEN, MIXED, PARAMETER};

/// The most memory that the search for one pattern keeps, in bytes; with less, its states are built again and again.
const DFA_BYTES: usize = 16 << 20;

/// A rule: the pattern to look for, and the reason.
#[derive(Debug)]
pub struct Rule {
    /// The name that findings carry.
    pub name: &'static str,
    /// The reason why an honest definition rarely does this, in one sentence.
    pub reason: &'static str,
    /// True if a note of this rule weighs more together with a note of another.
    pub(crate) adds: bool,
    /// True if the patterns read the original text; otherwise they read the normalised one.
    pub(crate) original: bool,
    pub(crate) excuse: Excuse,
    pub(crate) patterns: &'static [(Severity, &'static str)],
    /// A description in which the rule finds something.
    #[cfg_attr(not(test), expect(dead_code, reason = "the tests read the examples"))]
    pub(crate) found: &'static str,
    /// A description in which it finds nothing.
    #[cfg_attr(not(test), expect(dead_code, reason = "the tests read the examples"))]
    pub(crate) passed: &'static str,
}

/// An excuse for a match of a rule, because an honest definition says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Excuse {
    /// Nothing does.
    None,
    /// The sentence forbids or refuses the thing: "never send a password", "access to ~/.ssh is denied".
    Negation,
    /// The sentence has one of these words.
    Words(&'static str),
    /// Either of both.
    NegationOrWords(&'static str),
}

/// One rule with its compiled patterns.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) rule: &'static Rule,
    patterns: Vec<(Severity, Regex)>,
    guard: Guard,
}

impl Compiled {
    /// Reports whether the rule can find something in one of many views. Most definitions match few rules, and a search
    /// of all views at once is cheaper than a search of each.
    pub(crate) fn concerns(&self, views: &str) -> bool {
        self.rule.original || self.patterns.iter().any(|(_, pattern)| pattern.is_match(views))
    }

    /// Returns the offset in the original of the first match that is at least as grave as `least`.
    pub(crate) fn first(&self, view: &NormalizedText, original: &str, least: Severity) -> Option<usize> {
        let text = if self.rule.original { original } else { &view.text };
        let patterns = self.patterns.iter().filter(|(severity, _)| *severity >= least);
        let at = patterns.filter_map(|(_, pattern)| self.guard.search(pattern, text)).min()?;
        Some(if self.rule.original { at } else { view.origin(at) })
    }

    /// Returns the gravest match in a view, and its offset in the original.
    pub(crate) fn find(&self, view: &NormalizedText, original: &str) -> Option<(Severity, usize)> {
        let text = if self.rule.original { original } else { &view.text };
        let found =
            self.patterns.iter().filter_map(|(severity, pattern)| Some((*severity, self.guard.search(pattern, text)?)));
        let (severity, at) = found.max_by_key(|(severity, _)| *severity)?;
        Some((severity, if self.rule.original { at } else { view.origin(at) }))
    }
}

/// Returns every rule.
pub(crate) fn all() -> impl Iterator<Item = &'static Rule> {
    let prose = [conduct::RULES, orders::RULES, origin::RULES, exfiltration::RULES, share::RULES, languages::RULES];
    prose.into_iter().flatten().chain([&HIDDEN, &ENCODED, &MIXED, &PARAMETER])
}

/// Compiles the rules. The tests check that every pattern compiles.
pub(crate) fn compile() -> Vec<Compiled> {
    compiled(all())
}

/// Compiles some rules.
pub(crate) fn compiled(rules: impl Iterator<Item = &'static Rule>) -> Vec<Compiled> {
    let words = words();
    let compile = |(severity, pattern): &(Severity, &str)| {
        Some((*severity, RegexBuilder::new(&expand(pattern, &words)).dfa_size_limit(DFA_BYTES).build().ok()?))
    };
    rules
        .map(|rule| Compiled {
            rule,
            patterns: rule.patterns.iter().filter_map(compile).collect(),
            guard: Guard::new(rule.excuse),
        })
        .collect()
}

/// Replaces the names in braces by their words.
fn expand(pattern: &str, words: &[(String, String)]) -> String {
    // The boundaries of ASCII words: those of Unicode are slow in a text with a single other letter.
    replace(pattern, words).replace(r"\b", r"(?-u:\b)")
}

fn replace(pattern: &str, words: &[(String, String)]) -> String {
    words.iter().fold(pattern.to_owned(), |text, (name, words)| text.replace(name, words))
}

/// Returns the groups of words, with the earlier ones that they name replaced.
fn words() -> Vec<(String, String)> {
    WORDS.iter().fold(Vec::new(), |mut known, (name, words)| {
        known.push((format!("{{{name}}}"), replace(words, &known)));
        known
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        let words = words();
        for (_, pattern) in all().chain(RESULTS).flat_map(|rule| rule.patterns) {
            let expanded = expand(pattern, &words);
            assert!(Regex::new(&expanded).is_ok(), "{pattern}: {:?}", Regex::new(&expanded).err());
        }
    }
}
