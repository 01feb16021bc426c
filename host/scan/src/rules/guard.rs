//! What excuses a match: a sentence that forbids or refuses what the rule looks for says it for good reasons.

use regex::{Match, Regex};

use super::Excuse;

/// The number of matches that are looked at in one text, which keeps the search linear.
const MATCHES: usize = 24;

/// A prohibition shortly before what is forbidden, without a comma between them.
const FORBIDDEN: &str = r"(?:{not}|\bno|\bnot|\bnicht|\bkeine?|не|不要|不得|请勿) ?(?:[^\n ,;:]+ ){0,6}$";
/// A prohibition at the beginning of the match: "must never send".
const BEGINS: &str = r"^(?:[a-z]+ ){0,2}(?:not|never)\b";
/// Something that refuses after the match: "access to ~/.ssh is denied".
const REFUSED: &str = r"\b(?:is|are|be|gets?|will be|and) (?:[a-z]+ )?(?:denied|blocked|rejected|forbidden|masked|redacted|refused|excluded|not (?:supported|allowed|permitted|returned|included|stored|sent|shared))\b";

/// The compiled excuse of a rule.
#[derive(Debug)]
pub(super) struct Guard {
    negation: Option<Negation>,
    words: Option<Regex>,
}

#[derive(Debug)]
struct Negation {
    forbidden: Regex,
    begins: Regex,
    refused: Regex,
}

impl Guard {
    /// Compiles an excuse; `expand` replaces the groups of words of a pattern.
    pub(super) fn new(excuse: Excuse, expand: impl Fn(&str) -> String) -> Self {
        let compile = |pattern: &str| Regex::new(&expand(pattern)).ok();
        let negation =
            || Some(Negation { forbidden: compile(FORBIDDEN)?, begins: compile(BEGINS)?, refused: compile(REFUSED)? });
        match excuse {
            Excuse::None => Self { negation: None, words: None },
            Excuse::Negation => Self { negation: negation(), words: None },
            Excuse::Words(words) => Self { negation: None, words: compile(words) },
            Excuse::NegationOrWords(words) => Self { negation: negation(), words: compile(words) },
        }
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

    /// Returns where the search goes on after a match that is excused. A prohibition is for one thing only, so what
    /// follows it in the same sentence is searched too.
    fn excused_until(&self, text: &str, found: Match<'_>) -> Option<usize> {
        let start = text.get(..found.start()).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
        let rest = text.get(found.end()..).unwrap_or_default();
        let end = found.end() + rest.find('\n').unwrap_or(rest.len());
        let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
        if self.words.as_ref().is_some_and(|words| words.is_match(part(start, end))) {
            return Some(end);
        }
        let negation = self.negation.as_ref()?;
        let forbidden = negation.forbidden.is_match(part(start, found.start()))
            || negation.begins.is_match(found.as_str())
            || negation.refused.is_match(part(found.start(), end));
        forbidden.then(|| text.ceil_char_boundary(found.start() + 1))
    }
}
