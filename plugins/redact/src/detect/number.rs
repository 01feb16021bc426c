//! Numbers: digits, possibly in groups. Cards, addresses, telephone numbers and identifiers consist of them.

use std::ops::Range;

use super::super::kind::{Kind, Kinds};
use super::bytes::{at, before, from, is_word, run};
use super::{Context, Step, checks, contact, national};

/// The most groups of a number, as in a French identifier.
const GROUPS: usize = 7;

/// The fewest digits of an identifier.
const MIN: usize = 8;

/// The most digits of a number.
const DIGITS: usize = 20;

/// A number as written, from the start of a word on.
#[derive(Default)]
pub(super) struct Number {
    digits: [u8; DIGITS],
    /// The length of each group, what separates it from the next, and where it ends in the text.
    lengths: [u8; GROUPS],
    separators: [u8; GROUPS],
    ends: [usize; GROUPS],
    /// The digits up to the end of each group.
    totals: [usize; GROUPS],
    groups: usize,
}

/// The first groups of a number.
pub(super) struct Written<'a> {
    pub digits: &'a [u8],
    pub lengths: &'a [u8],
    pub separators: &'a [u8],
}

impl Number {
    /// Reads the groups from `start` on.
    fn read(text: &[u8], start: usize) -> Self {
        let mut number = Self::default();
        let (mut place, mut total) = (start, 0);
        for group in 0..GROUPS {
            let length = run(from(text, place), DIGITS + 1, |b| b.is_ascii_digit());
            let end = place + length;
            let Some(room) = number.digits.get_mut(total..total + length) else { break };
            if length == 0 || is_word(at(text, end)) {
                break;
            }
            room.copy_from_slice(text.get(place..end).unwrap_or_default());
            total += length;
            let separator = at(text, end);
            number.set(group, (u8::try_from(length).unwrap_or_default(), separator, end, total));
            if !matches!(separator, b' ' | b'-' | b'.' | b'/') {
                break;
            }
            place = end + 1;
        }
        number
    }

    fn set(&mut self, group: usize, (length, separator, end, total): (u8, u8, usize, usize)) {
        self.lengths.get_mut(group).into_iter().for_each(|slot| *slot = length);
        self.separators.get_mut(group).into_iter().for_each(|slot| *slot = separator);
        self.ends.get_mut(group).into_iter().for_each(|slot| *slot = end);
        self.totals.get_mut(group).into_iter().for_each(|slot| *slot = total);
        self.groups = group + 1;
    }

    /// Returns the first `count` groups and where they end in the text.
    fn first(&self, count: usize) -> Option<(Written<'_>, usize)> {
        let last = count.checked_sub(1)?;
        let written = Written {
            digits: self.digits.get(..*self.totals.get(last)?)?,
            lengths: self.lengths.get(..count)?,
            separators: self.separators.get(..last)?,
        };
        Some((written, *self.ends.get(last)?))
    }
}

/// Looks for what a number from the start of this word on can be.
pub(super) fn find(text: &[u8], word: &Range<usize>, kinds: Kinds, context: &Context<'_>) -> Option<Step> {
    // Most numbers are short and isolated, and these are never looked for.
    let next = at(text, word.end);
    let goes_on =
        matches!(next, b' ' | b'-' | b'.' | b'/' | b'+' | b')') && (is_word(at(text, word.end + 1)) || next == b')');
    if word.len() < 8 && !goes_on && !kinds.has(Kind::Phone) {
        return None;
    }
    let enough = kinds.has(Kind::Ipv4) || has_digits(from(text, word.start), MIN);
    let step = enough.then(|| grouped(text, word, &Number::read(text, word.start), kinds, context)).flatten();
    let step = step.or_else(|| national::number_with_letter(text, word, kinds));
    step.or_else(|| kinds.has(Kind::Phone).then(|| contact::phone(text, word, context)).flatten())
}

/// Reports whether a number has at least this many digits, in groups or not.
fn has_digits(text: &[u8], least: usize) -> bool {
    let (mut digits, mut gap) = (0, false);
    for b in text.iter().take(2 * least) {
        match b {
            b'0'..=b'9' => (digits, gap) = (digits + 1, false),
            b' ' | b'-' | b'.' | b'/' if !gap => gap = true,
            _ => break,
        }
    }
    digits >= least
}

fn grouped(text: &[u8], word: &Range<usize>, number: &Number, kinds: Kinds, context: &Context<'_>) -> Option<Step> {
    let joined_before = word.start > 1
        && matches!(at(text, word.start - 1), b'-' | b'.' | b'/')
        && at(text, word.start - 2).is_ascii_digit();
    for count in (1..=number.groups).rev() {
        let Some((written, end)) = number.first(count) else { continue };
        if written.digits.len() < MIN && written.separators != b"..." {
            break;
        }
        let joined_after = matches!(at(text, end), b'-' | b'.' | b'/') && at(text, end + 1).is_ascii_digit();
        let range = word.start..end;
        // A network is written as its address and the length of its prefix.
        let network = at(text, end) == b'/' && written.separators == b"...";
        let kind = if joined_before || joined_after && !network {
            // A part of something longer, unless it is a whole card number in a path.
            let fraction = at(text, end) == b'.' || at(text, word.start.saturating_sub(1)) == b'.';
            (kinds.has(Kind::CreditCard) && !fraction && is_card(&written)).then_some(Kind::CreditCard)
        } else {
            recognized(&written, &range, kinds, context)
        };
        if let Some(kind) = kind {
            return Some(Step::found(kind, range));
        }
    }
    None
}

fn recognized(written: &Written<'_>, range: &Range<usize>, kinds: Kinds, context: &Context<'_>) -> Option<Kind> {
    if kinds.has(Kind::CreditCard) && is_card(written) {
        return Some(Kind::CreditCard);
    }
    if kinds.has(Kind::Ipv4) && is_address(written) {
        return Some(Kind::Ipv4);
    }
    national::number(written, range, context, kinds)
}

/// Reports whether the digits are those of a card: the numbers that issuers give out, in the lengths that they give out, with a
/// check digit. Groups are separated by a space or a dash.
fn is_card(written: &Written<'_>) -> bool {
    let digits = written.digits;
    if !(14..=19).contains(&digits.len()) {
        return false;
    }
    let grouped = |separators: &[u8]| match separators {
        [] => true,
        [first, rest @ ..] => matches!(first, b' ' | b'-') && rest.iter().all(|one| one == first),
    };
    let number = |length: usize| before(digits, length).iter().fold(0_u32, |sum, d| sum * 10 + u32::from(d - b'0'));
    let issued = match (number(4), digits.len()) {
        // Visa, Mastercard, Mir.
        (4000..=4999, 16 | 19) | (5100..=5599 | 2221..=2720 | 2200..=2204, 16) => true,
        // American Express.
        (3400..=3499 | 3700..=3799, 15) => true,
        // Diners Club, JCB.
        (3000..=3059 | 3095 | 3600..=3699 | 3800..=3999, 14..=19) | (3528..=3589, 16..=19) => true,
        // Discover, UnionPay, RuPay.
        (6011 | 6440..=6599 | 6200..=6299, 16..=19) | (6000..=6099 | 8100..=8299 | 5080..=5089, 16) => true,
        // Maestro, Troy.
        (5018 | 5020 | 5038 | 5893 | 6304 | 6759 | 6761..=6763, 16..=19) | (9792, 16) => true,
        _ => false,
    };
    let groups = written.lengths.len() == 1 || written.lengths.iter().all(|length| (2..=7).contains(length));
    issued && groups && grouped(written.separators) && checks::luhn(digits)
}

/// Reports whether this is an IPv4 address: four numbers up to 255, separated by dots.
fn is_address(written: &Written<'_>) -> bool {
    if written.separators != b"..." {
        return false;
    }
    let mut digits = written.digits;
    written.lengths.iter().all(|length| {
        let (octet, rest) = digits.split_at_checked(usize::from(*length)).unwrap_or_default();
        digits = rest;
        let padded = octet.len() > 1 && octet.starts_with(b"0");
        !padded && std::str::from_utf8(octet).is_ok_and(|octet| octet.parse::<u8>().is_ok())
    })
}
