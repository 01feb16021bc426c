//! The search for the kinds that the plugin knows: one pass over the words of a text.
//!
//! A word is a run of letters, digits and `_`. By its first bytes, by its kinds of bytes and by the byte behind it, a
//! word is handed to the few detectors that it can concern; most words concern none. Reading beyond the word is
//! limited, or never repeated, so that the time is proportional to the text. Everything that is found begins and ends
//! at ASCII, so that every range is a slice of the text.

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
use bytes::{ANCHOR, BASE64, DIGIT, JOINS, JOINT, LOWER, UPPER, WIDE, WORD, at, class, is_word};
use keys::RejectedRuns;

/// A detector's result: its finding, if any, and where the search continues.
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

/// The bytes after which the search checks again for a stretch without findings, and those before such a place that are
/// searched, as a verb may end there.
const CALM: usize = 16;

/// Passes to `found` the range of everything of these kinds in the text, from left to right. `name` is the key of the JSON
/// member whose value the text is.
pub(crate) fn find(text: &str, name: Option<&str>, kinds: Kinds, found: &mut dyn FnMut(Range<usize>, Kind)) {
    if kinds.is_empty() {
        return;
    }
    let bytes = text.as_bytes();
    let context = Context { text: bytes, name: name.unwrap_or_default() };
    if kinds.has(Kind::Secret)
        && let Some((kind, range)) = assigned::member(text, context.name)
    {
        found(range, kind);
    }
    if bytes::all_calm(bytes) {
        return;
    }
    // Where the last value behind a name ends: assignments within it are a part of it.
    let (mut place, mut covered, mut looked) = (0, 0, 0);
    let mut rejected = RejectedRuns::default();
    while let Some(b) = bytes.get(place) {
        if place >= looked {
            let calm = bytes::calm(bytes::from(bytes, place));
            looked = place + calm + CALM;
            if calm > CALM {
                // The last words may belong to what comes then. The search continues at the beginning of one.
                let next = place + calm - CALM;
                place = next - bytes::run_back(bytes::before(bytes, next), CALM, is_word);
                continue;
            }
        }
        let own = class(*b);
        let step = if own & WORD != 0 {
            let (end, seen) = word_end(bytes, place);
            let word = place..end;
            if is_plain(bytes, &word, seen) {
                place = end;
                continue;
            }
            place = end;
            in_word(text, &word, seen, kinds, &context, &mut rejected)
        } else {
            place += 1;
            match own & ANCHOR {
                0 => {
                    if matches!(b, b'\\' | b'%' | 0x1b) {
                        place += escape_length(*b, bytes, place);
                    }
                    None
                }
                _ => at_anchor(text, place - 1, kinds, place > covered),
            }
        };
        if let Some(step) = step {
            place = place.max(step.past);
            if let Some((Kind::Secret, range)) = &step.found {
                covered = range.end;
            }
            if let Some((kind, range)) = step.found.filter(|(kind, _)| kinds.has(*kind)) {
                found(range, kind);
            }
        }
    }
}

/// Returns how many bytes at `place` belong to an escape that the byte before them begins, so that they are not part of
/// the word that follows: of a text within a text, of a URL, of a terminal.
#[cold]
fn escape_length(begin: u8, bytes: &[u8], place: usize) -> usize {
    let code = |from: usize, count: usize| bytes::from(bytes, from).get(..count);
    let is_hex = |from, count| code(from, count).is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit));
    let is_escape = |from| code(from, 2).is_some_and(|code| code.eq_ignore_ascii_case(b"1b"));
    let (length, goes_on) = match (begin, at(bytes, place)) {
        (b'\\', b'n' | b'r' | b't' | b'b' | b'f') => (1, false),
        (b'\\', b'u') if is_hex(place + 1, 4) => (5, is_escape(place + 3)),
        (b'\\', b'x') if is_hex(place + 1, 2) => (3, is_escape(place + 1)),
        (b'%', _) if is_hex(place, 2) => (2, false),
        (0x1b, _) => (0, true),
        _ => (0, false),
    };
    if !goes_on || at(bytes, place + length) != b'[' {
        return length;
    }
    // Numbers, and the letter that says that they are a colour. Any other letter may begin a key.
    let numbers = bytes::from(bytes, place + length + 1).iter().take_while(|b| matches!(b, b'0'..=b'9' | b';'));
    let length = length + 1 + numbers.take(32).count();
    length + usize::from(at(bytes, place + length) == b'm')
}

/// Returns where the word at `start` ends, and the classes of its bytes.
#[inline]
fn word_end(bytes: &[u8], start: usize) -> (usize, u16) {
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

/// A key that is recognised by its form has at least this many bytes in its first word, or continues behind it.
const KEY_WORD: usize = 16;

/// Reports whether a word begins nothing for certain: it is short, consists of letters, ends here, and is not a verb,
/// initials or a part of an option. Most words are that.
#[inline]
fn is_plain(bytes: &[u8], word: &Range<usize>, seen: u16) -> bool {
    let next = at(bytes, word.end);
    if seen & (DIGIT | JOINS) != 0
        || word.len() >= KEY_WORD
        || class(next) & (JOINT | BASE64 | ANCHOR) != 0
        || next == b'~'
    {
        return false;
    }
    next != b' '
        || match at(bytes, word.start) {
            b'A'..=b'Z' => !matches!(word.len(), 2 | 5),
            b'i' | b'l' | b'e' | b'w' => word.len() > VERB,
            _ => at(bytes, word.start.wrapping_sub(1)) != b'-',
        }
}

/// The most bytes of a verb that introduces a password.
const VERB: usize = 6;

/// Looks for what begins with a word. `seen` has the classes of its bytes, and `rejected` belongs to the text.
fn in_word(
    text: &str,
    word: &Range<usize>,
    seen: u16,
    kinds: Kinds,
    context: &Context<'_>,
    rejected: &mut RejectedRuns,
) -> Option<Step> {
    let bytes = text.as_bytes();
    let next = at(bytes, word.end);
    // Most words are a few letters and end here: they begin nothing.
    let goes_on = word.len() >= KEY_WORD || class(next) & (JOINT | BASE64 | ANCHOR) != 0 || next == b'~';
    if goes_on && let Some(step) = keys::find(text, word, seen, next, rejected) {
        return Some(step);
    }
    if seen & DIGIT == 0 {
        return if next == b' ' { before_space(text, word, seen, kinds, context) } else { None };
    }
    if seen & (UPPER | LOWER) == 0 {
        return number::find(bytes, word, kinds, context);
    }
    if seen & UPPER == 0 {
        return None;
    }
    bank::iban(bytes, word).or_else(|| national::lettered(bytes, word, kinds, context))
}

/// Looks at a word of letters that a space follows.
fn before_space(text: &str, word: &Range<usize>, seen: u16, kinds: Kinds, context: &Context<'_>) -> Option<Step> {
    let bytes = text.as_bytes();
    match (at(bytes, word.start), word.len()) {
        (b'B', 5) => keys::block(text, word),
        (b'A'..=b'Z', 2) => national::lettered(bytes, word, kinds, context),
        // A value may follow the name of an option, or the verb of a sentence.
        (b'i' | b'l' | b'e' | b'w', 2..=VERB) => assigned::in_sentence(text, word),
        _ if seen & JOINS != 0 || at(bytes, word.start.wrapping_sub(1)) == b'-' => assigned::spaced(text, word),
        _ => None,
    }
}

/// Looks for values around a byte between words. `names` tells whether a name can be before it.
fn at_anchor(text: &str, place: usize, kinds: Kinds, names: bool) -> Option<Step> {
    let bytes = text.as_bytes();
    let assignment = |length: usize| names.then(|| assigned::assignment(text, place..place + length)).flatten();
    match at(bytes, place) {
        b'@' => contact::email(bytes, place),
        b':' if at(bytes, place + 1) == b'/' && at(bytes, place + 2) == b'/' => assigned::url(text, place),
        b':' if kinds.has(Kind::Ipv6) => contact::ipv6(text, place).or_else(|| assignment(1)),
        b':' | b'=' => assignment(1),
        // The colon of Chinese and Japanese.
        WIDE if bytes::from(bytes, place).starts_with("：".as_bytes()) => assignment("：".len()),
        _ => None,
    }
}

/// The surroundings of a value: the text, and the key of the JSON member.
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
        near.iter().chain([&behind]).any(|text| contains_word(text, words))
    }
}

/// Reports whether a text has a word that begins with one of these. They are in lower case, and the text may be in any.
fn contains_word(text: &[u8], words: &[&str]) -> bool {
    let begins = |place: usize| place == 0 || !at(text, place - 1).is_ascii_alphabetic();
    let is = |place: usize, word: &str| {
        text.get(place..place + word.len()).is_some_and(|here| here.eq_ignore_ascii_case(word.as_bytes()))
    };
    // A word of a name may also begin with a capital: `nhsNumber`, `customerSsn`.
    (0..text.len()).any(|place| {
        let first = at(text, place).to_ascii_lowercase();
        let starts = begins(place) || at(text, place).is_ascii_uppercase() && at(text, place - 1).is_ascii_lowercase();
        starts && words.iter().any(|word| at(word.as_bytes(), 0) == first && is(place, word))
    })
}
