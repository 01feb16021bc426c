//! The built-in detectors. Each first looks for something rare (an `@`, a prefix, a run of digits), and each takes time
//! proportional to the text. Everything that they find is ASCII, so every range is a slice of the text.

use std::ops::Range;

use serde::Deserialize;

/// A detector, by what it finds.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Detector {
    /// `name@host.tld`
    Email,
    /// A card number: 13 to 19 digits, possibly in groups, that pass the Luhn check.
    CreditCard,
    /// An international bank account number whose check digits are right, possibly in groups.
    Iban,
    /// The identifier of an AWS access key. Its secret half looks like any other text of 40 characters.
    AwsKey,
    /// A GitHub token.
    GithubToken,
    /// A private key in a PEM block, up to the end of the block or else of the text.
    PrivateKey,
    /// A signed JSON web token.
    Jwt,
    /// An IPv4 address. Off by default, because version numbers look the same.
    Ipv4,
}

/// Returns the detectors that are used unless `detect` lists others.
pub(crate) fn usual() -> Vec<Detector> {
    use Detector::{AwsKey, CreditCard, Email, GithubToken, Iban, Jwt, PrivateKey};
    vec![Email, CreditCard, Iban, AwsKey, GithubToken, PrivateKey, Jwt]
}

impl Detector {
    /// Returns the kind that a placeholder shows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::CreditCard => "credit-card",
            Self::Iban => "iban",
            Self::AwsKey => "aws-key",
            Self::GithubToken => "github-token",
            Self::PrivateKey => "private-key",
            Self::Jwt => "jwt",
            Self::Ipv4 => "ipv4",
        }
    }

    /// Passes to `found` the range of everything that the detector finds in the text.
    pub(crate) fn find(self, text: &str, found: &mut dyn FnMut(Range<usize>)) {
        match self {
            Self::Email => emails(text, found),
            Self::CreditCard => cards(text, found),
            Self::Iban => ibans(text, found),
            Self::AwsKey => {
                let length = |run: &str| (run.len() == 20).then_some(20);
                for prefix in ["AKIA", "ASIA"] {
                    prefixed(text, prefix, |b| b.is_ascii_uppercase() || b.is_ascii_digit(), length, found);
                }
            }
            Self::GithubToken => {
                let at_least = |min: usize| move |run: &str| (run.len() >= min).then_some(run.len());
                for prefix in ["ghp_", "gho_", "ghu_", "ghs_", "ghr_"] {
                    prefixed(text, prefix, is_word, at_least(40), found);
                }
                prefixed(text, "github_pat_", is_word, at_least(33), found);
            }
            Self::PrivateKey => private_keys(text, found),
            Self::Jwt => prefixed(text, "eyJ", |b| is_word(b) || b == b'-' || b == b'.', jwt, found),
            Self::Ipv4 => addresses(text, found),
        }
    }
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_'
}

/// Returns the length of the run of allowed bytes at the start.
fn run(text: &str, allowed: impl Fn(u8) -> bool) -> usize {
    text.bytes().take_while(|b| allowed(*b)).count()
}

/// Reports whether a word may begin at `at`.
fn begins(text: &str, at: usize) -> bool {
    at == 0 || !text.as_bytes().get(at - 1).copied().is_some_and(is_word)
}

/// Returns the position of the next `word` from `at` on.
fn next(text: &str, word: &str, at: usize) -> Option<usize> {
    memchr::memmem::find(text.as_bytes().get(at..)?, word.as_bytes()).map(|i| at + i)
}

/// Passes to `found` the values that begin with `prefix`. `length` returns how much of a run of `allowed` bytes is the
/// value.
fn prefixed(
    text: &str,
    prefix: &str,
    allowed: impl Fn(u8) -> bool,
    length: impl Fn(&str) -> Option<usize>,
    found: &mut dyn FnMut(Range<usize>),
) {
    let mut at = 0;
    while let Some(start) = next(text, prefix, at) {
        at = start + prefix.len();
        if begins(text, start) {
            let rest = text.get(start..).unwrap_or_default();
            let run = rest.get(..run(rest, &allowed)).unwrap_or_default();
            at = at.max(start + run.len());
            length(run).into_iter().for_each(|n| found(start..start + n));
        }
    }
}

/// Returns the length of a JSON web token: header and payload are objects (`{"` is encoded as `eyJ`), then
/// a signature follows.
fn jwt(run: &str) -> Option<usize> {
    let mut parts = run.split('.');
    let (header, payload, signature) = (parts.next()?, parts.next()?, parts.next()?);
    let fits = header.len() > 10 && payload.starts_with("eyJ") && signature.len() > 10;
    fits.then_some(header.len() + payload.len() + signature.len() + 2)
}

fn emails(text: &str, found: &mut dyn FnMut(Range<usize>)) {
    let is_local = |b: u8| b.is_ascii_alphanumeric() || b"._%+-'".contains(&b);
    let is_host = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'-';
    for (at, _) in text.match_indices('@') {
        let (before, after) = (text.get(..at).unwrap_or_default(), text.get(at + 1..).unwrap_or_default());
        let local = before.bytes().rev().take_while(|b| is_local(*b)).count();
        let host = after.get(..run(after, is_host)).unwrap_or_default().trim_end_matches(['.', '-']);
        let top = host.rsplit_once('.').map_or("", |(_, top)| top);
        if local > 0 && top.len() >= 2 && top.bytes().all(|b| b.is_ascii_alphabetic()) {
            found(at - local..at + 1 + host.len());
        }
    }
}

fn private_keys(text: &str, found: &mut dyn FnMut(Range<usize>)) {
    const BEGIN: &str = "-----BEGIN ";
    let mut at = 0;
    while let Some(start) = next(text, BEGIN, at) {
        let rest = text.get(start + BEGIN.len()..).unwrap_or_default();
        let label =
            rest.get(..run(rest, |b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b' ')).unwrap_or_default();
        at = start + BEGIN.len();
        if label.contains("PRIVATE KEY") {
            let end = format!("-----END {label}-----");
            let length = rest.find(&end).map_or(rest.len(), |i| i + end.len());
            at += length;
            found(start..at);
        }
    }
}

/// Returns the maximal runs of digits. Most text has few, so it is scanned in blocks, which become vector instructions.
fn digit_runs(text: &str) -> Vec<Range<usize>> {
    const BLOCK: usize = 16;
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (block, bytes) in text.as_bytes().chunks(BLOCK).enumerate() {
        if !bytes.iter().fold(false, |any, b| any | b.is_ascii_digit()) {
            continue;
        }
        let digits = bytes.iter().enumerate().filter(|(_, b)| b.is_ascii_digit());
        for at in digits.map(|(i, _)| block * BLOCK + i) {
            match runs.last_mut() {
                Some(last) if last.end == at => last.end += 1,
                _ => runs.push(at..at + 1),
            }
        }
    }
    runs
}

fn cards(text: &str, found: &mut dyn FnMut(Range<usize>)) {
    let runs = digit_runs(text);
    let mut skip_to = 0;
    for (i, first) in runs.iter().enumerate() {
        if first.start < skip_to || !begins(text, first.start) {
            continue;
        }
        // Numbers are written in at most five groups, such as 4-4-4-4-3.
        let mut digits = String::new();
        let mut last = first.start;
        for group in runs.iter().skip(i).take(5) {
            let gap = text.get(last..group.start);
            let grouped = (3..=6).contains(&group.len()) && matches!(gap, Some(" " | "-"));
            if group.start != first.start && !grouped {
                break;
            }
            digits.push_str(text.get(group.clone()).unwrap_or_default());
            last = group.end;
            let ends = !text.as_bytes().get(last).copied().is_some_and(is_word);
            if ends && is_card(&digits) {
                found(first.start..last);
                skip_to = last;
                break;
            }
        }
    }
}

/// Reports whether digits pass the Luhn check and begin with a digit that card networks use. A time in
/// milliseconds begins with 1.
fn is_card(digits: &str) -> bool {
    let doubled = |d: u32| if d > 4 { d * 2 - 9 } else { d * 2 };
    let digit = |(i, b): (usize, u8)| {
        let d = u32::from(b - b'0');
        if i % 2 == 1 { doubled(d) } else { d }
    };
    let sum: u32 = digits.bytes().rev().enumerate().map(digit).sum();
    (13..=19).contains(&digits.len()) && digits.starts_with(['2', '3', '4', '5', '6']) && sum.is_multiple_of(10)
}

fn ibans(text: &str, found: &mut dyn FnMut(Range<usize>)) {
    let mut skip_to = 0;
    for pair in digit_runs(text) {
        let Some(start) = pair.start.checked_sub(2).filter(|start| *start >= skip_to && begins(text, *start)) else {
            continue;
        };
        if let Some(length) = text.get(start..).and_then(iban) {
            found(start..start + length);
            skip_to = start + length;
        }
    }
}

/// Returns the length of the longest start of `rest` that is an IBAN: two letters, two check digits, 11 to 30 further
/// characters, and single spaces between groups.
fn iban(rest: &str) -> Option<usize> {
    let mut digits = String::new();
    let mut longest = None;
    for (at, b) in rest.bytes().enumerate() {
        let fits = match digits.len() {
            0 | 1 => b.is_ascii_uppercase(),
            2 | 3 => b.is_ascii_digit(),
            _ => b.is_ascii_uppercase() || b.is_ascii_digit(),
        };
        let next = rest.as_bytes().get(at + 1).copied();
        if fits {
            digits.push(char::from(b));
            if digits.len() >= 15 && !next.is_some_and(is_word) && remainder_97(&digits) == 1 {
                longest = Some(at + 1);
            }
        } else if b != b' ' || digits.len() < 4 || next == Some(b' ') {
            break;
        }
        if digits.len() == 34 {
            break;
        }
    }
    longest
}

/// Returns the remainder of ISO 7064: the first four characters are moved to the end, and a letter counts as a
/// number from 10 to 35.
fn remainder_97(iban: &str) -> u32 {
    let (head, tail) = iban.split_at_checked(4).unwrap_or_default();
    let digit = |sum: u32, c: char| {
        let value = c.to_digit(36).unwrap_or_default();
        (sum * if value > 9 { 100 } else { 10 } + value) % 97
    };
    tail.chars().chain(head.chars()).fold(0, digit)
}

fn addresses(text: &str, found: &mut dyn FnMut(Range<usize>)) {
    let runs = digit_runs(text);
    for four in runs.windows(4) {
        let [first, .., last] = four else { continue };
        let octet = |run: &Range<usize>| text.get(run.clone()).is_some_and(|digits| digits.parse::<u8>().is_ok());
        let dots = four.iter().zip(four.iter().skip(1)).all(|(a, b)| text.get(a.end..b.start) == Some("."));
        let before = text.get(..first.start).unwrap_or_default();
        let after = text.get(last.end..).unwrap_or_default();
        let longer = before.ends_with('.') && before.trim_end_matches('.').ends_with(|c: char| c.is_ascii_digit());
        let goes_on = after.strip_prefix('.').is_some_and(|more| more.starts_with(|c: char| c.is_ascii_digit()));
        let ends = !after.bytes().next().is_some_and(is_word);
        if dots && four.iter().all(octet) && begins(text, first.start) && ends && !longer && !goes_on {
            found(first.start..last.end);
        }
    }
}
