//! The values to hide in a text: the findings of the detectors and the user's patterns, without overlaps.

use std::ops::Range;

use super::detect;
use super::kind::Kind;
use super::settings::Settings;

/// The most bytes between the brackets of a placeholder, and the closing ones: kind, colon, nonce.
const LONGEST: usize = 32 + 1 + 16 + 2;

/// A value to hide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    pub(crate) range: Range<usize>,
    pub(crate) kind: &'a str,
    /// Whether the value is not kept.
    pub(crate) one_way: bool,
}

impl Settings {
    /// Returns the values to hide in a text, from left to right, without overlaps. `name` is the key of the JSON member
    /// whose value the text is.
    pub(crate) fn find(&self, text: &str, name: Option<&str>) -> Vec<Found<'_>> {
        let mut all: Vec<Found<'_>> = Vec::new();
        let mut add = |range, kind| all.push(Found { range, kind, one_way: self.one_way.includes(kind) });
        detect::find(text, name, self.detect, &mut |range, kind| add(range, kind.name()));
        for pattern in &self.patterns {
            let matches = pattern.regex.find_iter(text).filter(|found| !found.is_empty());
            matches.for_each(|found| add(found.range(), pattern.kind.as_str()));
        }
        if !all.is_empty() {
            let placeholders = self.placeholders(text);
            all.retain(|found| {
                let before = placeholders.partition_point(|one| one.start <= found.range.start);
                let last = before.checked_sub(1).and_then(|last| placeholders.get(last));
                last.is_none_or(|last| last.end < found.range.end)
            });
        }
        joined(all)
    }
}

impl Settings {
    /// Returns the placeholders in a text: their content is not a value. Only their exact form counts: in anything else
    /// a value could be hidden from the search.
    fn placeholders(&self, text: &str) -> Vec<Range<usize>> {
        let is_kind = |name: &str| {
            Kind::ALL.iter().any(|kind| kind.name() == name) || self.patterns.iter().any(|pattern| pattern.kind == name)
        };
        let mut places = Vec::new();
        for open in memchr::memchr_iter(b'[', text.as_bytes()) {
            // Of `[[[`, the placeholder begins with the second bracket.
            let Some([b'[', rest @ ..]) = text.as_bytes().get(open + 1..) else { continue };
            if rest.first() == Some(&b'[') {
                continue;
            }
            let rest = rest.get(..LONGEST).unwrap_or(rest);
            let Some(length) = memchr::memmem::find(rest, b"]]") else { continue };
            let Some((kind, nonce)) = text.get(open + 2..open + 2 + length).and_then(|inside| inside.split_once(':'))
            else {
                continue;
            };
            let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
            // The vault begins with a letter, so that no number of 16 digits looks like it.
            let kept =
                nonce.len() == 16 && nonce.starts_with(|c: char| c.is_ascii_lowercase()) && nonce.bytes().all(hex);
            if (kept || nonce == "withheld") && is_kind(kind) {
                places.push(open..open + length + 4);
            }
        }
        places
    }
}

/// Joins values that overlap into one, so that no part of a value remains. It has the kind of the one that begins
/// first, or, of two that are equal, the more specific one; it is kept only if all of them may be kept.
fn joined(mut all: Vec<Found<'_>>) -> Vec<Found<'_>> {
    let vague = |kind: &str| kind == Kind::Secret.name();
    all.sort_by_key(|found| (found.range.start, std::cmp::Reverse(found.range.end), vague(found.kind)));
    all.dedup_by(|next, last| {
        let overlap = next.range.start < last.range.end;
        if overlap {
            last.range.end = last.range.end.max(next.range.end);
            last.one_way |= next.one_way;
        }
        overlap
    });
    all
}
