//! Searching records for a text, and the grams of texts that the index's filters have.
//!
//! A text is found if it is a part of one string, key or number of a record, ignoring case. A *long word*, such as a
//! hash or an identifier, is found by its beginning: its inside would only be found by accident, and would fill the
//! filters.

use std::borrow::Cow;
use std::iter::Peekable;

use memchr::memmem::Finder;
use portcullis_core::protocol::string_end;

/// The length from which an unbroken run of letters and digits, with at least one digit, is a long word: an identifier
/// has 26 characters, a hash 64.
const LONG_WORD: usize = 26;

/// The number of characters of a long word that must be searched for to find it.
const BEGINNING: usize = 8;

/// The lengths of grams, in bytes. The longer ones tell words apart; the shorter ones find short words.
const GRAMS: [usize; 2] = [3, 5];

/// The length that marks the beginning of a long word among the lengths of grams.
const BEGINNING_TAG: usize = 0;

/// A text to be searched for.
#[derive(Debug, Clone)]
pub struct TextQuery {
    /// The text in lower case and as JSON writes it.
    folded: String,
    finder: Finder<'static>,
    /// The grams that records with the text have; each list is one way in which they can have it.
    ways: Vec<Vec<u64>>,
}

impl TextQuery {
    /// Prepares a text. Every record has the empty one.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let folded = escaped(text);
        let mut ways = vec![grams_of_query(&folded, None)];
        // The last word may be the beginning of a long one.
        let last = folded.len() - folded.bytes().rev().take_while(u8::is_ascii_alphanumeric).count();
        if folded.len() - last >= BEGINNING {
            ways.push(grams_of_query(&folded, Some(last)));
        }
        let finder = Finder::new(folded.as_bytes()).into_owned();
        Self { folded, finder, ways }
    }

    /// Reports whether a record, as the ledger has its text, has the searched text.
    #[must_use]
    pub fn is_in(&self, record: &str) -> bool {
        let text = folded(searchable(record));
        self.finder.find(text.as_bytes()).is_some() && scalars(&text).any(|scalar| self.is_in_scalar(scalar))
    }

    /// Reports whether a name has the searched text.
    pub(super) fn is_in_name(&self, name: &str) -> bool {
        self.is_in_scalar(&escaped(name))
    }

    /// Returns the ways in which records can have the text: the grams that they have in each.
    pub(super) fn ways(&self) -> &[Vec<u64>] {
        &self.ways
    }

    /// Reports whether texts whose grams a filter has may have the searched text.
    pub(super) fn may_be_in(&self, has: impl Fn(u64) -> bool) -> bool {
        self.ways.iter().any(|grams| grams.iter().all(|gram| has(*gram)))
    }

    fn is_in_scalar(&self, scalar: &str) -> bool {
        // The starts and the ends of occurrences ascend, as long words do: all words are passed once for each, not for
        // every occurrence.
        let (mut at_start, mut at_end) = (long_words(scalar).peekable(), long_words(scalar).peekable());
        let mut from = 0;
        while let Some(found) = scalar.as_bytes().get(from..).and_then(|rest| self.finder.find(rest)) {
            let (start, end) = (from + found, from + found + self.folded.len());
            let inside = word_that_ends_after(&mut at_start, start).filter(|(first, _)| start > *first);
            if let Some((_, last)) = inside {
                // An occurrence that begins before the end of this word is inside it, too.
                from = last;
                continue;
            }
            let cut = word_that_ends_after(&mut at_end, end).filter(|(first, _)| start <= *first && end > *first);
            if cut.is_none_or(|(first, _)| end - first >= BEGINNING) {
                return true;
            }
            from = start + 1;
        }
        false
    }
}

/// Passes the words that end at this place or before it, and returns the next one.
fn word_that_ends_after(
    words: &mut Peekable<impl Iterator<Item = (usize, usize)>>,
    place: usize,
) -> Option<(usize, usize)> {
    while words.next_if(|(_, last)| *last <= place).is_some() {}
    words.peek().copied()
}

/// Returns the grams that a text has if it has this query; `long` is where its last word begins, if that is the
/// beginning of a long one.
fn grams_of_query(query: &str, long: Option<usize>) -> Vec<u64> {
    let (before, beginning) = query.split_at_checked(long.unwrap_or(query.len())).unwrap_or((query, ""));
    let mut all = Vec::new();
    grams(before, |gram| all.push(gram));
    all.extend(beginning.as_bytes().first_chunk::<BEGINNING>().map(|word| gram(BEGINNING_TAG, word)));
    all
}

/// Calls `take` with the grams of a string, key or number, which is in lower case.
pub(super) fn grams(scalar: &str, mut take: impl FnMut(u64)) {
    let bytes = scalar.as_bytes();
    let mut windows = |piece: &[u8]| {
        for length in GRAMS {
            piece.windows(length).for_each(|window| take(gram(length, window)));
        }
    };
    let (mut from, mut beginnings) = (0, Vec::new());
    for (first, last) in long_words(scalar) {
        windows(bytes.get(from..first).unwrap_or_default());
        beginnings.extend(bytes.get(first..first + BEGINNING));
        from = last;
    }
    windows(bytes.get(from..).unwrap_or_default());
    beginnings.into_iter().for_each(|word| take(gram(BEGINNING_TAG, word)));
}

/// Returns a gram of at most eight bytes as a number whose bits are spread evenly.
fn gram(length: usize, bytes: &[u8]) -> u64 {
    let mut hash = bytes.iter().fold(length as u64, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    // The finaliser of MurmurHash 3.
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    hash ^ (hash >> 33)
}

/// Returns where the long words of a text begin and end.
fn long_words(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let bytes = text.as_bytes();
    let mut from = 0;
    std::iter::from_fn(move || {
        // A text that is shorter has none.
        while bytes.len() >= from + LONG_WORD {
            let rest = bytes.get(from..)?;
            let first = from + rest.iter().position(u8::is_ascii_alphanumeric)?;
            let word = bytes.get(first..)?;
            let length = word.iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(word.len());
            from = first + length;
            if length >= LONG_WORD && word.iter().take(length).any(u8::is_ascii_digit) {
                return Some((first, from));
            }
        }
        None
    })
}

/// Returns the strings, keys and numbers of JSON, as it writes them.
pub(super) fn scalars(json: &str) -> impl Iterator<Item = &str> {
    let mut rest = json;
    std::iter::from_fn(move || {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
        let start = rest.bytes().position(|byte| byte == b'"' || is_word(&byte))?;
        let text = rest.get(start..)?;
        let is_string = text.starts_with('"');
        let end = if is_string {
            string_end(text)
        } else {
            text.bytes().position(|byte| !is_word(&byte)).unwrap_or(text.len())
        };
        rest = text.get(end..)?;
        // A string without an end is in no record.
        if is_string { text.get(1..end - 1) } else { text.get(..end) }
    })
}

/// Returns the part of a record's text that searches consider: not its time, its number and its version.
pub(super) fn searchable(record: &str) -> &str {
    let start = record.find(',').filter(|_| record.starts_with("{\"at\":")).unwrap_or(0);
    let end = record.rfind(",\"seq\":").unwrap_or(record.len());
    record.get(start..end).unwrap_or(record)
}

/// Returns a text in lower case.
pub(super) fn folded(text: &str) -> Cow<'_, str> {
    // A check that stopped at the first one would look at the bytes one by one.
    let has_uppercase = text.bytes().fold(false, |has, byte| has | byte.is_ascii_uppercase());
    match (text.is_ascii(), has_uppercase) {
        (true, false) => text.into(),
        (true, true) => text.to_ascii_lowercase().into(),
        (false, _) => text.to_lowercase().into(),
    }
}

/// Returns a text as written in a string of a record, in lower case.
fn escaped(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    folded(json.get(1..json.len() - 1).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn record(body: &str) -> String {
        format!(
            r#"{{"at":1795000000123,"body":{body},"chain":"01M7WN5Q1GEFB10ZKY19G6B2W8","kind":"source.log","seq":77,"v":1}}"#
        )
    }

    fn all_grams(scalar: &str, all: &mut HashSet<u64>) {
        grams(scalar, |gram| {
            all.insert(gram);
        });
    }

    #[test]
    fn a_text_is_a_part_of_one_string_key_or_number_ignoring_case() {
        let record = record(r#"{"code":"Rule \"Ä\"","micros":4711,"path":["etc/passwd"]}"#);
        for (text, expected) in [
            ("rule", true),
            ("RULE \"ä", true),
            ("471", true),
            ("path", true),
            ("c/p", true),
            ("source.LOG", true),
            ("", true),
            ("rules", false),
            ("path etc", false),
            ("code\":\"rule", false),
            ("1795", false),
            ("77", false),
        ] {
            assert_eq!(TextQuery::new(text).is_in(&record), expected, "{text}");
        }
    }

    #[test]
    fn a_long_word_is_found_by_its_beginning() {
        let hash = "3fa9c2d1facade00112233445566778899aabbccddeeff001122334455667788";
        let record = record(&format!(r#"{{"hash":"blake3:{hash}"}}"#));
        for (text, expected) in [
            (hash, true),
            ("3FA9C2D1", true),
            ("blake3:3fa9c2d1f", true),
            ("01m7wn5q1gefb10zky19g6b2w8", true),
            ("3fa9c2d", false),
            ("facade", false),
            ("c2d1facade00", false),
        ] {
            assert_eq!(TextQuery::new(text).is_in(&record), expected, "{text}");
        }
    }

    /// A search that examined all long words for every occurrence would take minutes.
    #[test]
    fn a_text_that_occurs_often_within_a_long_word_is_searched_in_one_pass() {
        let scalar = format!("x{} password1", "password1".repeat(110_000));
        assert!(TextQuery::new("password1").is_in_scalar(&scalar));
        assert!(!TextQuery::new("password1").is_in_scalar(scalar.trim_end_matches(" password1")));
        let cut = "a0b ".repeat(7) + &"a0b0".repeat(7);
        assert!(!TextQuery::new("a0b a0b0a").is_in_scalar(&format!("{cut} ").repeat(20_000)));
    }

    /// Reports what `is_in_scalar` must report, by looking at all long words for every occurrence.
    fn is_in_scalar_by_definition(query: &TextQuery, scalar: &str) -> bool {
        let words: Vec<_> = long_words(scalar).collect();
        let occurs = |start: &usize| {
            scalar.as_bytes().get(*start..).is_some_and(|rest| rest.starts_with(query.folded.as_bytes()))
        };
        (0..=scalar.len()).filter(occurs).any(|start| {
            let end = start + query.folded.len();
            words.iter().all(|&(first, last)| {
                let is_inside = start > first && start < last;
                let is_too_short = start <= first && end > first && end < last && end - first < BEGINNING;
                !is_inside && !is_too_short
            })
        })
    }

    /// Otherwise each sealed body would fill the filter of its block.
    #[test]
    fn a_sealed_body_is_one_long_word() {
        let sealed = data_encoding::BASE32_NOPAD.encode(&[0x5a; 10_000]).to_lowercase();
        let mut all = HashSet::new();
        all_grams(&format!("2026-11-25.1:{sealed}"), &mut all);
        assert!(all.len() < 30, "{}", all.len());
    }

    proptest! {
        #[test]
        fn a_scalar_has_a_text_where_the_rule_for_long_words_says_so(
            words in proptest::collection::vec("[ab0]{0,40}|(ab0){7,12}|[ab0]{1,5}|[ä \\-]{0,3}", 0..8),
            joint in "[- ]?",
            from in 0usize..80,
            length in 0usize..40,
        ) {
            let scalar = words.join(&joint);
            let query: String = scalar.chars().skip(from).take(length).collect();
            let query = TextQuery::new(&query);
            let expected = is_in_scalar_by_definition(&query, &scalar);
            prop_assert_eq!(query.is_in_scalar(&scalar), expected, "{:?} in {}", query, scalar);
        }

        /// A filter that misses a gram would hide a call.
        #[test]
        fn a_text_that_is_found_has_all_grams_of_a_query(
            words in proptest::collection::vec("[a-f0-9]{0,40}|[A-Za-zÄ\"\\\\\n ]{0,9}", 1..6),
            joint in "[-: /]?",
            from in 0usize..60,
            length in 0usize..60,
        ) {
            let text = words.join(&joint);
            let query: String = text.chars().skip(from).take(length).collect();
            let record = record(&serde_json::json!({ "text": text }).to_string());
            let mut all = HashSet::new();
            scalars(&folded(searchable(&record))).for_each(|scalar| all_grams(scalar, &mut all));
            let query = TextQuery::new(&query);
            if query.is_in(&record) {
                prop_assert!(query.may_be_in(|gram| all.contains(&gram)), "{query:?} in {record}");
            }
        }
    }
}
