//! Excuses for a match: a sentence that forbids or refuses the thing that the rule looks for is legitimate.

use std::sync::{LazyLock, OnceLock};

use regex::{Match, Regex};

use super::{Excuse, expand, words};

/// The number of matches that are examined in one text, which keeps the search linear.
const MATCHES: usize = 24;

/// A prohibition shortly before the forbidden words, without a comma between them.
const FORBIDDEN: &str = r"(?:{not}|\bno|\bnot|\bnicht|\bkeine?|не|不要|不得|请勿) ?(?:[^\n ,;:]+ ){0,6}$";
/// A prohibition at the beginning of the match: "must never send".
const BEGINS: &str = r"^(?:[a-z]+ ){0,2}(?:not|never)\b";
/// Something that refuses after the match: "access to ~/.ssh is denied".
const REFUSED: &str = r"\b(?:is|are|be|gets?|will be|and) (?:[a-z]+ )?(?:denied|blocked|rejected|forbidden|masked|redacted|refused|excluded|not (?:supported|allowed|permitted|returned|included|stored|sent|shared))\b";

/// The excuse of a rule. Most definitions match no rule, so that it is compiled when it is first needed.
#[derive(Debug)]
pub(super) struct Guard {
    excuse: Excuse,
    words: OnceLock<Option<Regex>>,
}

/// The patterns that excuse a match by forbidding or refusing it. All rules share them.
static NEGATION: LazyLock<Option<Negation>> = LazyLock::new(Negation::compile);

#[derive(Debug)]
struct Negation {
    forbidden: Regex,
    begins: Regex,
    refused: Regex,
}

impl Negation {
    fn compile() -> Option<Self> {
        Some(Self { forbidden: compile(FORBIDDEN)?, begins: compile(BEGINS)?, refused: compile(REFUSED)? })
    }

    /// Reports whether a match is forbidden or refused, by what is before it and after its beginning in its sentence.
    fn excuses(&self, before: &str, found: &str, from: &str) -> bool {
        self.forbidden.is_match(before) || self.begins.is_match(found) || self.refused.is_match(from)
    }
}

fn compile(pattern: &str) -> Option<Regex> {
    Regex::new(&expand(pattern, &words())).ok()
}

impl Guard {
    pub(super) fn new(excuse: Excuse) -> Self {
        Self { excuse, words: OnceLock::new() }
    }

    /// Returns the words that excuse a match, if there are any.
    fn words(&self) -> Option<&Regex> {
        let (Excuse::Words(words) | Excuse::NegationOrWords(words)) = self.excuse else { return None };
        self.words.get_or_init(|| compile(words)).as_ref()
    }

    fn negation(&self) -> Option<&'static Negation> {
        let is_negation = matches!(self.excuse, Excuse::Negation | Excuse::NegationOrWords(_));
        is_negation.then(|| NEGATION.as_ref()).flatten()
    }

    /// Returns where the first match without an excuse begins.
    pub(super) fn search(&self, pattern: &Regex, text: &str) -> Option<usize> {
        let mut from = 0;
        for _ in 0..MATCHES {
            let found = pattern.find_at(text, from)?;
            let Some(next) = self.excused_until(text, found) else { return Some(found.start()) };
            from = next;
        }
        // So many excuses in one text are a way to get past the rule.
        Some(from)
    }

    /// Returns where the search continues after an excused match. A prohibition is for one thing only, so what follows
    /// it in the same sentence is searched too.
    fn excused_until(&self, text: &str, found: Match<'_>) -> Option<usize> {
        let start = text.get(..found.start()).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
        let rest = text.get(found.end()..).unwrap_or_default();
        let end = found.end() + rest.find('\n').unwrap_or(rest.len());
        let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
        if self.words().is_some_and(|words| words.is_match(part(start, end))) {
            return Some(end);
        }
        let is_excused = self.negation()?.excuses(part(start, found.start()), found.as_str(), part(found.start(), end));
        is_excused.then(|| text.ceil_char_boundary(found.start() + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::all;

    #[test]
    fn every_excuse_compiles() {
        assert!(Negation::compile().is_some());
        for rule in all() {
            if let Excuse::Words(words) | Excuse::NegationOrWords(words) = rule.excuse {
                assert!(compile(words).is_some(), "{words}");
            }
        }
    }
}
