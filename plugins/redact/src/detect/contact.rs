//! E-mail addresses, telephone numbers and addresses of machines.

use std::net::Ipv6Addr;
use std::ops::Range;

use super::super::kind::Kind;
use super::bytes::{HEX, at, before, class, from, is_word, run, run_back};
use super::{Context, Step};

/// The most bytes of the local part of an address (RFC 5321), and of a host (RFC 1035).
const LOCAL: usize = 64;
const HOST: usize = 253;

/// File name endings that look like a top-level domain, as in `logo@2x.png`.
const FILES: [&[u8]; 14] = [
    b"png", b"jpg", b"jpeg", b"gif", b"svg", b"webp", b"css", b"js", b"ts", b"json", b"html", b"scss", b"avif", b"pdf",
];

/// Looks for the address around an `@`.
pub(super) fn email(text: &[u8], place: usize) -> Option<Step> {
    let is_local = |b: u8| is_word(b) || matches!(b, b'.' | b'%' | b'+' | b'-' | b'\'');
    let local = run_back(before(text, place), LOCAL, is_local);
    let odd = run(from(text, place - local), local, |b| matches!(b, b'.' | b'\'' | b'-' | b'%' | b'+'));
    let host = run(from(text, place + 1), HOST, |b| is_word(b) && b != b'_' || b == b'.' || b == b'-');
    let written = before(from(text, place + 1), host);
    let host = host - run_back(written, host, |b| b == b'.' || b == b'-');
    let written = before(written, host);
    let top = run_back(written, host, |b| b != b'.');
    let top = from(written, host - top);
    let is_top = top.len() >= 2 && top.len() < host && top.iter().all(u8::is_ascii_alphabetic) && !FILES.contains(&top);
    let start = place - local + odd;
    // `git@` begins the address of a repository and names nobody.
    let is_git = before(text, place).get(start..) == Some(b"git");
    let found = is_top && start < place && !written.starts_with(b".") && !is_git;
    found.then(|| Step::found(Kind::Email, start..place + 1 + host))
}

/// The codes of countries and regions by their first digits, where these say how long they are; all others have three digits.
const TWO_DIGITS: &[u8] =
    b"20 27 30 31 32 33 34 36 39 40 41 43 44 45 46 47 48 49 51 52 53 54 55 56 57 58 60 61 62 63 64 65 66 \
81 82 84 86 90 91 92 93 94 95 98";

/// The words near a telephone number, in lower case.
const WORDS: [&str; 22] = [
    "phone",
    "tel:",
    "tel.",
    "tel ",
    "telef",
    "téléphone",
    "mobil",
    "cell:",
    "cell ",
    "fax",
    "call ",
    "dial ",
    "whatsapp",
    "sms",
    "handy",
    "anruf",
    "rückruf",
    "portable",
    "móvil",
    "电话",
    "手机",
    "телефон",
];

/// Looks for a telephone number whose first digits are this word: with `+`, or near a word that tells what it is.
pub(super) fn phone(text: &[u8], word: &Range<usize>, context: &Context<'_>) -> Option<Step> {
    let lead = at(text, word.start.saturating_sub(1));
    let opens = lead == b'(' && word.start > 0;
    let international = lead == b'+' && word.start > 0 && !is_word(at(text, word.start.saturating_sub(2)));
    let (mut digits, mut end, mut gap, mut gaps) = (Vec::new(), word.start, 0, 0);
    for (i, b) in from(text, word.start).iter().enumerate().take(32) {
        match b {
            b'0'..=b'9' => {
                gaps += usize::from(gap > 0);
                digits.push(*b);
                (end, gap) = (word.start + i + 1, 0);
            }
            b' ' | b'-' | b'.' | b'/' | b'(' | b')' if gap < 2 => gap += 1,
            _ => break,
        }
    }
    let closed = opens && text.get(word.start..end).is_some_and(|written| written.contains(&b')'));
    let start = word.start - usize::from(closed || international);
    if is_word(at(text, end)) || digits.len() > 15 {
        return None;
    }
    let found = if international {
        // One dot makes a decimal fraction.
        is_international(&digits) && (at(text, word.end) != b'.' || gaps != 1)
    } else {
        let national = (8..=13).contains(&digits.len()) && (gaps > 0 || digits.len() <= 11);
        let joined = matches!(lead, b'-' | b'.' | b'/') && word.start > 0;
        national && !joined && context.names(&(start..end), &WORDS) && !is_date(&digits, gaps)
    };
    found.then(|| Step::found(Kind::Phone, start..end))
}

/// Reports whether the digits are a number by E.164 in a region that exists.
fn is_international(digits: &[u8]) -> bool {
    let code = match digits {
        [b'1', area, _, _, exchange, ..] => {
            // In North America, area and exchange begin with 2 to 9.
            return digits.len() == 11 && *area >= b'2' && *exchange >= b'2';
        }
        [b'7', ..] => 1,
        [a, b, ..] if TWO_DIGITS.split(|b| *b == b' ').any(|code| code == [*a, *b]) => 2,
        [b'2' | b'3' | b'4' | b'5' | b'6' | b'8' | b'9', ..] => 3,
        _ => return false,
    };
    (code + 6..=15).contains(&digits.len())
}

/// Reports whether the digits are a date such as 2026-11-26.
fn is_date(digits: &[u8], gaps: usize) -> bool {
    gaps == 2 && digits.len() == 8 && (digits.starts_with(b"20") || digits.starts_with(b"19"))
}

/// The most bytes of an IPv6 address.
const IPV6: usize = 45;

/// Looks for the IPv6 address around the first `:` of it.
pub(super) fn ipv6(text: &str, place: usize) -> Option<Step> {
    let bytes = text.as_bytes();
    let next = at(bytes, place + 1);
    if !(next.is_ascii_hexdigit() || next == b':' && at(bytes, place + 2) != b':') {
        return None;
    }
    let head = run_back(before(bytes, place), 5, |b| class(b) & HEX != 0 || b.is_ascii_uppercase());
    let start = place - head;
    let length = run(from(bytes, start), IPV6 + 1, |b| b.is_ascii_hexdigit() || b == b':' || b == b'.');
    let written = text.get(start..start + length)?.trim_end_matches('.');
    let outside = |b: u8| !is_word(b) && b != b':';
    let whole = outside(at(bytes, start + length)) && (start == 0 || outside(at(bytes, start - 1)));
    let says = written.bytes().any(|b| b.is_ascii_digit()) && written.len() > 3;
    let found = whole && says && written.parse::<Ipv6Addr>().is_ok();
    found.then(|| Step::found(Kind::Ipv6, start..start + written.len()))
}
