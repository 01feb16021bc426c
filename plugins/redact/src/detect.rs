//! The search for the kinds that the plugin knows: one pass over the words of a text.
//!
//! A word is a run of letters, digits and `_`. By its first bytes, by what it consists of and by the byte behind it, a word is
//! handed to the few detectors that it can concern; most words concern none. What a detector reads beyond the word has a
//! limit, or is not read again, so that the time is proportional to the text. Everything that is found begins and ends at
//! ASCII, so that every range is a slice of the text.

mod assigned;
mod bank;
mod bytes;
mod checks;
mod contact;
mod formats;
mod keys;
mod national;
mod number;

use std::ops::Range;

use super::kind::{Kind, Kinds};
use bytes::{ANCHOR, DIGIT, LOWER, UPPER, WIDE, WORD, at, class, run_back};

/// What a detector saw: what it found, if anything, and where the search goes on.
struct Step {
    found: Option<(Kind, Range<usize>)>,
    past: usize,
}

impl Step {
    fn found(kind: Kind, range: Range<usize>) -> Self {
        Self { past: range.end, found: Some((kind, range)) }
    }

    /// Finds nothing before this place.
    fn past(past: usize) -> Self {
        Self { found: None, past }
    }
}

/// Passes to `found` the range of everything of these kinds in the text, from left to right. `name` is the key of the JSON
/// member whose value the text is.
pub(crate) fn find(text: &str, name: Option<&str>, kinds: Kinds, found: &mut dyn FnMut(Range<usize>, Kind)) {
    let bytes = text.as_bytes();
    let context = Context { text: bytes, name: name.unwrap_or_default() };
    if kinds.has(Kind::Secret)
        && let Some((kind, range)) = assigned::member(text, context.name)
    {
        found(range, kind);
    }
    let mut place = 0;
    while let Some(b) = bytes.get(place) {
        let own = class(*b);
        let step = if own & WORD != 0 {
            let (end, seen) = word_end(bytes, place);
            let word = place..end;
            place = end;
            in_word(text, &word, seen, kinds, &context)
        } else {
            place += 1;
            match own & ANCHOR {
                0 if *b == b'\\' => {
                    // An escaped line break in a text within a text is no letter of the word that follows.
                    place += usize::from(matches!(at(bytes, place), b'n' | b'r' | b't'));
                    None
                }
                0 => None,
                _ => at_anchor(text, place - 1, kinds),
            }
        };
        if let Some(step) = step {
            place = place.max(step.past);
            if let Some((kind, range)) = step.found.filter(|(kind, _)| kinds.has(*kind)) {
                found(range, kind);
            }
        }
    }
}

/// Returns where the word at `start` ends, and the classes of its bytes.
fn word_end(bytes: &[u8], start: usize) -> (usize, u8) {
    let (mut end, mut seen) = (start, 0);
    for b in bytes::from(bytes, start) {
        let own = class(*b);
        if own & WORD == 0 {
            break;
        }
        seen |= own;
        end += 1;
    }
    (end, seen)
}

/// Looks for what begins with a word. `seen` has the classes of its bytes.
fn in_word(text: &str, word: &Range<usize>, seen: u8, kinds: Kinds, context: &Context<'_>) -> Option<Step> {
    let bytes = text.as_bytes();
    let (first, next) = (at(bytes, word.start), at(bytes, word.end));
    if let Some(step) = keys::prefixed(bytes, word) {
        return Some(step);
    }
    if seen & DIGIT != 0 {
        if let Some(step) = keys::marked(bytes, word, next) {
            return Some(step);
        }
        if seen & (UPPER | LOWER) == 0 {
            let step = number::find(bytes, word, kinds, context);
            let step = step.or_else(|| national::number_with_letter(bytes, word, kinds));
            return step.or_else(|| kinds.has(Kind::Phone).then(|| contact::phone(bytes, word, context)).flatten());
        }
        if seen & UPPER != 0 {
            let step = bank::iban(bytes, word);
            return step.or_else(|| national::lettered(bytes, word, kinds, context)).or_else(|| keys::jwt(bytes, word));
        }
        return None;
    }
    match (first, word.len()) {
        (b'B', 5) if bytes.get(word.clone()) == Some(b"BEGIN") => keys::block(text, word),
        (b'P', 5) if bytes.get(word.clone()) == Some(b"PuTTY") => keys::putty(text, word),
        (b'A'..=b'Z', 2) => national::lettered(bytes, word, kinds, context),
        // A value may follow the name of an option after a space, or the verb of a sentence.
        _ if next == b' ' => assigned::spaced(text, word),
        _ => keys::jwt(bytes, word).or_else(|| keys::marked(bytes, word, next)),
    }
}

/// Looks for what is around a byte between words.
fn at_anchor(text: &str, place: usize, kinds: Kinds) -> Option<Step> {
    let bytes = text.as_bytes();
    match at(bytes, place) {
        b'@' => contact::email(bytes, place),
        b':' if at(bytes, place + 1) == b'/' && at(bytes, place + 2) == b'/' => assigned::url(text, place),
        b':' if kinds.has(Kind::Ipv6) => {
            contact::ipv6(text, place).or_else(|| assigned::assignment(text, place..place + 1, kinds))
        }
        b':' | b'=' => assigned::assignment(text, place..place + 1, kinds),
        // The colon of Chinese and Japanese.
        WIDE if bytes::from(bytes, place).starts_with("：".as_bytes()) => {
            assigned::assignment(text, place..place + "：".len(), kinds)
        }
        _ => None,
    }
}

/// What stands around a value: the text, and the key of the JSON member.
struct Context<'a> {
    text: &'a [u8],
    name: &'a str,
}

/// The bytes before a value, and behind it, in which a word can name it.
const BEFORE: usize = 40;
const BEHIND: usize = 16;

impl Context<'_> {
    /// Reports whether one of these words is near the value, or in the member's key. The words are in lower case.
    fn names(&self, value: &Range<usize>, words: &[&str]) -> bool {
        let start = value.start.saturating_sub(BEFORE);
        let end = value.end.saturating_add(BEHIND).min(self.text.len());
        let near = [self.name.as_bytes(), self.text.get(start..value.start).unwrap_or_default()];
        let behind = self.text.get(value.end..end).unwrap_or_default();
        near.iter().chain([&behind]).any(|text| {
            let text = text.to_ascii_lowercase();
            words.iter().any(|word| contains_word(&text, word.as_bytes()))
        })
    }
}

/// Reports whether a text has a word that begins with this.
fn contains_word(text: &[u8], word: &[u8]) -> bool {
    memchr::memmem::find_iter(text, word)
        .any(|place| run_back(bytes::before(text, place), 1, |b| class(b) & LOWER != 0) == 0)
}
