//! Keys of services, tokens and private keys: values that are recognised by their own form.

use std::ops::Range;

use super::super::kind::Kind;
use super::Step;
use super::bytes::{
    BASE64, DIGIT, HEX, JOINT, LOWER, WORD, at, before, class, from, is_varied, is_word, run, run_back,
};
use super::formats::{FORMATS, Format};

/// For each first byte, the second bytes with which a key continues, as bits.
static PAIRS: [[u64; 2]; 128] = pairs();

/// For each first byte, where its formats begin and end.
static PLACES: [(u8, u8); 128] = places();

#[allow(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn pairs() -> [[u64; 2]; 128] {
    let mut pairs = [[0; 2]; 128];
    let mut i = 0;
    while i < FORMATS.len() {
        let prefix = FORMATS[i].prefix.as_bytes();
        pairs[prefix[0] as usize][prefix[1] as usize / 64] |= 1 << (prefix[1] % 64);
        i += 1;
    }
    pairs
}

#[allow(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "evaluated by the compiler; 146 fits")]
const fn places() -> [(u8, u8); 128] {
    let mut places = [(0, 0); 128];
    let mut i = 0;
    while i < FORMATS.len() {
        let first = FORMATS[i].prefix.as_bytes()[0] as usize;
        if places[first].1 == 0 {
            places[first].0 = i as u8;
        }
        places[first].1 = i as u8 + 1;
        i += 1;
    }
    places
}

/// The runs of a text in which a key without a longest length was looked for and rejected: for each set of classes that joins
/// words in its own way, the last run. Such a key ends where its run ends. So one that begins later in a rejected run is rejected
/// too, and the run is not read again from each of its words.
#[derive(Default)]
pub(super) struct RejectedRuns([(u16, Range<usize>); 4]);

impl RejectedRuns {
    /// Returns the place of the last run of sets that join words as this one does, with the set that it is of.
    fn of(&mut self, set: u16) -> Option<&mut (u16, Range<usize>)> {
        self.0.get_mut(usize::from(set & JOINT != 0) + 2 * usize::from(set & BASE64 != 0))
    }

    /// Reports whether a key whose part behind the prefix begins here, of bytes of this set, is rejected.
    fn has(&mut self, set: u16, start: usize) -> bool {
        self.of(set).is_some_and(|(of, run)| *of == set && run.contains(&start))
    }

    fn add(&mut self, set: u16, run: Range<usize>) {
        if let Some(last) = self.of(set) {
            *last = (set, run);
        }
    }
}

/// Looks for a value with a known form that begins with this word, which `next` follows. `seen` has the classes of the
/// word, and `rejected` belongs to the text.
pub(super) fn find(text: &str, word: &Range<usize>, seen: u16, next: u8, rejected: &mut RejectedRuns) -> Option<Step> {
    let bytes = text.as_bytes();
    let step = prefixed(bytes, word, rejected).or_else(|| marked(bytes, word, next));
    match at(bytes, word.start) {
        b'e' => step.or_else(|| jwt(bytes, word)),
        b'P' if seen & DIGIT == 0 => step.or_else(|| putty(text, word)),
        _ => step,
    }
}

/// Looks for a key that begins with this word.
fn prefixed(text: &[u8], word: &Range<usize>, rejected: &mut RejectedRuns) -> Option<Step> {
    let first = usize::from(at(text, word.start));
    let second = at(text, word.start + 1);
    let [low, high] = PAIRS.get(first)?;
    let bits = if second < 64 { low } else { high };
    if bits >> (second & 63) & 1 == 0 {
        return None;
    }
    let (start, end) = *PLACES.get(first)?;
    let formats = FORMATS.get(usize::from(start)..usize::from(end))?;
    let found = |format: &Format| Some((format.kind, format.length(text, word.start, rejected)?));
    let (kind, length) = formats.iter().find_map(found)?;
    Some(Step::found(kind, word.start..word.start + length))
}

impl Format {
    /// Returns the length of the key that begins at `start`.
    fn length(&self, text: &[u8], start: usize, rejected: &mut RejectedRuns) -> Option<usize> {
        let body = from(text, start).strip_prefix(self.prefix.as_bytes())?;
        let start = start + self.prefix.len();
        let is_unlimited = self.max == usize::MAX;
        if is_unlimited && rejected.has(self.set, start) {
            return None;
        }
        let limit = self.max.saturating_add(1);
        let run_length = run(body, limit, |b| class(b) & self.set != 0);
        let mut length = run_length;
        if is_unlimited {
            length -= run_back(before(body, length), length, |b| matches!(b, b'.' | b'=' | b'/'));
        }
        if !(self.min..=self.max).contains(&length) {
            return None;
        }
        // A key that begins later in the run has the same end and no other characters, so it is rejected for the same reason.
        let is_key = !is_word(at(body, length)) && is_varied(before(body, length));
        if is_unlimited && !is_key {
            rejected.add(self.set, start..start + run_length);
        }
        is_key.then_some(self.prefix.len() + length)
    }
}

/// A run of this length is read once: the search continues behind it.
const LONG: usize = 64;

/// Looks for a JSON web token: header and payload are objects (`{"` is encoded as `eyJ`), then a signature follows.
fn jwt(text: &[u8], word: &Range<usize>) -> Option<Step> {
    if !from(text, word.start).starts_with(b"eyJ") {
        return None;
    }
    let part = |start: usize| run(from(text, start), usize::MAX, |b| is_word(b) || b == b'-');
    let header = part(word.start);
    let payload_start = word.start + header + 1;
    if at(text, payload_start - 1) == b'.' && header > 10 && from(text, payload_start).starts_with(b"eyJ") {
        let signature_start = payload_start + part(payload_start) + 1;
        let signature = part(signature_start);
        if at(text, signature_start - 1) == b'.' && signature > 10 {
            return Some(Step::found(Kind::Jwt, word.start..signature_start + signature));
        }
        return Some(Step::past(signature_start - 1));
    }
    (header > LONG).then(|| Step::past(word.start + header))
}

/// Looks for keys whose mark is not at their beginning: `word` is followed by `next`.
fn marked(text: &[u8], word: &Range<usize>, next: u8) -> Option<Step> {
    let (rest, length) = (from(text, word.end), word.len());
    let own = from(before(text, word.end), word.start);
    let dashed = |start: usize, limit: usize| run(from(text, start), limit, |b| is_word(b) || b == b'-');
    match next {
        // ID:SECRET of a bot, where the identifier is a number.
        b':' if (8..=10).contains(&length) && own.iter().all(u8::is_ascii_digit) => {
            let secret = dashed(word.end + 1, 36);
            let fits = secret == 35 && at(rest, 1) == b'A';
            fits.then(|| Step::found(Kind::TelegramToken, word.start..word.end + 36))
        }
        // The identifier of a user in base64, a time, a signature.
        b'.' if matches!(own.first(), Some(b'M' | b'N' | b'O')) && (23..=28).contains(&length) => {
            let time = dashed(word.end + 1, 8);
            let signature = dashed(word.end + 2 + time, 40);
            let fits = time == 6 && at(rest, 7) == b'.' && (27..=38).contains(&signature);
            fits.then(|| Step::found(Kind::DiscordToken, word.start..word.end + 2 + time + signature))
        }
        b'.' if length == 14 && rest.starts_with(b".atlasv1.") => {
            let secret = dashed(word.end + 9, 80);
            let fits = (60..=70).contains(&secret);
            fits.then(|| Step::found(Kind::TerraformToken, word.start..word.end + 9 + secret))
        }
        b'.' if length == 17 && own.starts_with(b"pat") => {
            let secret = run(from(rest, 1), 65, |b| class(b) & HEX != 0);
            (secret == 64).then(|| Step::found(Kind::AirtableToken, word.start..word.end + 65))
        }
        // Three characters, a digit, `Q~`, and the secret of an application.
        b'~' if length >= 5 && own.ends_with(b"Q") && own.iter().rev().nth(1).is_some_and(u8::is_ascii_digit) => {
            let start = word.end - 5;
            let secret = run(from(rest, 1), 40, |b| class(b) & (WORD | JOINT) != 0 || b == b'~');
            let fits = length == 5 && (31..=34).contains(&secret);
            fits.then(|| Step::found(Kind::AzureKey, start..word.end + 1 + secret))
        }
        b'-' if length == 32 && rest.starts_with(b"-us") && own.iter().all(|b| class(*b) & HEX != 0) => {
            let digits = run(from(rest, 3), 3, |b| b.is_ascii_digit());
            let fits = (1..=2).contains(&digits) && !is_word(at(rest, 3 + digits));
            fits.then(|| Step::found(Kind::MailchimpKey, word.start..word.end + 3 + digits))
        }
        _ if length == 40 && own.ends_with(b"NRAL") => {
            let hex = before(own, 36).iter().all(|b| class(*b) & HEX != 0);
            hex.then(|| Step::found(Kind::NewrelicKey, word.clone()))
        }
        _ => None,
    }
}

/// Looks for a private key in a block that begins with this word if it is `BEGIN`: up to its end, or else to the end of the text.
pub(super) fn block(text: &str, word: &Range<usize>) -> Option<Step> {
    if text.get(word.clone()) != Some("BEGIN") {
        return None;
    }
    let gap = usize::from(at(text.as_bytes(), word.start.saturating_sub(1)) == b' ');
    let dashes = run_back(before(text.as_bytes(), word.start.saturating_sub(gap)), 5, |b| b == b'-');
    let rest = text.get(word.end..)?.strip_prefix(' ')?;
    let label = rest.get(..run(rest.as_bytes(), 64, |b| class(b) & LOWER == 0 && (is_word(b) || b == b' ')))?;
    let label = label.trim_end();
    if dashes < 4 || !label.contains("PRIVATE KEY") {
        return None;
    }
    let body = word.end + 1 + label.len();
    let (end, tail) = (format!("END {label}"), text.get(body..)?);
    let length = tail.find(&end).map_or(tail.len(), |place| {
        let after = place + end.len() + gap;
        after + run(from(tail.as_bytes(), after), 5, |b| b == b'-')
    });
    Some(Step::found(Kind::PrivateKey, word.start - gap - dashes..(body + length).min(text.len())))
}

/// Looks for a private key in PuTTY's format, whose first word this is: up to its checksum, or else to the end of the text.
fn putty(text: &str, word: &Range<usize>) -> Option<Step> {
    const SUM: &str = "Private-MAC: ";
    let rest = text.get(word.start..)?.strip_prefix("PuTTY-User-Key-File-")?;
    let body = text.len() - rest.len();
    let length = rest.find(SUM).map_or(rest.len(), |at| {
        let sum = at + SUM.len();
        sum + run(from(rest.as_bytes(), sum), 128, |b| class(b) & HEX != 0)
    });
    Some(Step::found(Kind::PrivateKey, word.start..body + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the ranges of the keys that begin with a word of the text. `again` tells whether rejections are
    /// forgotten at each word.
    fn keys(text: &[u8], again: bool) -> Vec<Range<usize>> {
        let (mut found, mut rejected, mut place) = (Vec::new(), RejectedRuns::default(), 0);
        while place < text.len() {
            let end = place + run(from(text, place), usize::MAX, is_word).max(1);
            if again {
                rejected = RejectedRuns::default();
            }
            found.extend(prefixed(text, &(place..end), &mut rejected).and_then(|step| step.found).map(|(_, key)| key));
            place = end;
        }
        found
    }

    #[test]
    fn a_key_in_a_run_that_was_rejected_is_found_as_if_the_run_was_read_again() {
        let pieces = ["ABSK+", "sl.", "sl.u.", "fm2_", "hvs.", "_", "=", "a1B2c3", "AKIAIOSFODNN7EXAMPLE/", "+EAAa"];
        let pieces = pieces.map(|piece| piece.repeat(if piece.len() < 6 { 1 } else { 10 })).into_iter();
        let pieces: Vec<_> = pieces.chain(["ABSK+".repeat(25), "sl.".repeat(40), "x".repeat(30)]).collect();
        let (mut texts, mut keys_in_all) = (vec![String::new()], 0);
        for _ in 0..3 {
            texts = texts.iter().flat_map(|text| pieces.iter().map(move |piece| format!("{text}{piece}"))).collect();
            for text in &texts {
                let found = keys(text.as_bytes(), false);
                assert_eq!(found, keys(text.as_bytes(), true), "{text}");
                keys_in_all += found.len();
            }
        }
        assert!(keys_in_all > 0);
    }
}
