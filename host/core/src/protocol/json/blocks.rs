//! Finds the end of a JSON string and checks its content, 64 bytes at a time.

use wide::u8x16;

/// The bytes that are processed together: one bit for each in a word.
const BLOCK: usize = 64;

/// The end of a valid string, and facts about its escapes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StringFacts {
    /// The position of the closing quote.
    pub(super) end: usize,
    /// The bytes by which the escapes are longer than the characters that they encode.
    pub(super) surplus: usize,
    /// True if an escape encodes an unpaired surrogate.
    pub(super) unpaired: bool,
}

/// Passes over the string whose opening quote is just before `start`. Returns `None` if it has no end, an invalid
/// escape or a control character.
pub(super) fn string(bytes: &[u8], start: usize) -> Option<StringFacts> {
    let (mut at, mut continued) = (start, 0);
    let mut surrogates = Surrogates::default();
    let mut surplus = 0;
    loop {
        let mut padded = [0; BLOCK];
        let rest = bytes.get(at..)?;
        let block = match rest.first_chunk() {
            Some(block) => block,
            // The padding of the last block is a control character, so that a string without an end is refused.
            None if rest.is_empty() => return None,
            None => {
                padded.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
                &padded
            }
        };
        let found = Special::of(block);
        let escaped = escaped(found.backslashes, &mut continued);
        let ends = found.quotes & !escaped;
        // The bits of the bytes before the end of the string.
        let inside = if ends == 0 { u64::MAX } else { (1 << ends.trailing_zeros()) - 1 };
        if found.controls & inside != 0 {
            return None;
        }
        let escaped = escaped & inside;
        if escaped != 0 {
            let names = EscapeNames::of(block);
            if escaped & !names.allowed != 0 {
                return None;
            }
            surplus += escaped.count_ones() as usize;
            for offset in bits(escaped & names.unicode) {
                surplus += surrogates.unicode(bytes, at + offset)?;
            }
        }
        if ends != 0 {
            let end = at + ends.trailing_zeros() as usize;
            return Some(StringFacts { end, surplus, unpaired: surrogates.unpaired() });
        }
        at += BLOCK;
    }
}

/// The bytes of a block that matter in a string, each as a mask with one bit for each byte.
struct Special {
    quotes: u64,
    backslashes: u64,
    controls: u64,
}

impl Special {
    fn of(block: &[u8; BLOCK]) -> Self {
        let last_control = u8x16::splat(0x1f);
        Self {
            quotes: equal(block, b'"'),
            backslashes: equal(block, b'\\'),
            controls: mask(block, |part| part.min(last_control).simd_eq(part)),
        }
    }
}

/// The bytes of a block that may follow a backslash.
struct EscapeNames {
    allowed: u64,
    unicode: u64,
}

impl EscapeNames {
    fn of(block: &[u8; BLOCK]) -> Self {
        let unicode = equal(block, b'u');
        let allowed = mask(block, |part| {
            let is = |byte| part.simd_eq(u8x16::splat(byte));
            is(b'"') | is(b'\\') | is(b'/') | is(b'b') | is(b'f') | is(b'n') | is(b'r') | is(b't')
        });
        Self { allowed: allowed | unicode, unicode }
    }
}

fn equal(block: &[u8; BLOCK], byte: u8) -> u64 {
    let byte = u8x16::splat(byte);
    mask(block, |part| part.simd_eq(byte))
}

/// Returns the mask of the bytes for which the test sets all bits.
fn mask(block: &[u8; BLOCK], test: impl Fn(u8x16) -> u8x16) -> u64 {
    let (parts, _) = block.as_chunks::<16>();
    let masks = parts.iter().map(|part| u64::from(test(u8x16::new(*part)).to_bitmask()));
    masks.rev().fold(0, |all, part| all << 16 | part)
}

/// Returns the mask of the bytes that follow a backslash which is not itself escaped. `continued` is 1 if the first
/// byte does, and is set for the next block.
fn escaped(backslashes: u64, continued: &mut u64) -> u64 {
    if backslashes == 0 {
        return std::mem::take(continued);
    }
    // The carry of a subtraction finds where a run of backslashes ends, and whether its length is odd: the method of
    // simdjson ("Parsing Gigabytes of JSON per Second", section 3.1.1).
    const ODD: u64 = 0xaaaa_aaaa_aaaa_aaaa;
    let starts = backslashes & !*continued;
    let ends = ((starts << 1) | ODD).wrapping_sub(starts) ^ ODD;
    let escaped = ends ^ (backslashes | *continued);
    *continued = (ends & backslashes) >> 63;
    escaped
}

/// Returns the positions of the bits that are set.
fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(at)
    })
}

/// Checks that the escapes of surrogates come in pairs.
#[derive(Default)]
struct Surrogates {
    /// The position at which the `u` of the second half must be.
    wanted: Option<usize>,
    unpaired: bool,
}

impl Surrogates {
    /// Takes the escape whose `u` is at this position. Returns the bytes by which it is longer than its character,
    /// apart from the backslash, or `None` if it has no four digits.
    fn unicode(&mut self, bytes: &[u8], at: usize) -> Option<usize> {
        let digits = bytes.get(at + 1..at + 5)?;
        let mut unit = 0;
        for digit in digits {
            unit = unit << 4 | char::from(*digit).to_digit(16)?;
        }
        let wanted = self.wanted.take();
        let low = (0xdc00..0xe000).contains(&unit);
        self.unpaired |= low != (wanted == Some(at));
        self.unpaired |= wanted.is_some_and(|wanted| wanted != at);
        if (0xd800..0xdc00).contains(&unit) {
            self.wanted = Some(at + 6);
        }
        // The second half of a pair is not a separate character.
        Some(if low { 5 } else { 4 })
    }

    fn unpaired(&self) -> bool {
        self.unpaired || self.wanted.is_some()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    /// Returns the facts that a byte-by-byte parser finds. The text begins after the opening quote.
    fn expected(text: &str) -> Option<StringFacts> {
        let whole = format!("\"{text}");
        let mut values = serde_json::Deserializer::from_str(&whole).into_iter::<&serde_json::value::RawValue>();
        let raw = values.next()?.ok()?.get();
        let unpaired = serde_json::from_str::<String>(raw).is_err();
        let inside = &raw[1..raw.len() - 1];
        let surplus = if unpaired {
            string(text.as_bytes(), 0)?.surplus
        } else {
            inside.chars().count() - serde_json::from_str::<String>(raw).unwrap().chars().count()
        };
        Some(StringFacts { end: inside.len(), surplus, unpaired })
    }

    fn check(text: &str) {
        assert_eq!(string(text.as_bytes(), 0), expected(text), "{text:?}");
    }

    #[test]
    fn a_string_ends_where_a_parser_ends_it_wherever_its_escapes_are() {
        let escapes = [
            r"\n",
            r"\\",
            r"\\\\",
            r#"\""#,
            r#"\\\""#,
            r"\u00e9",
            r"\ud83d\ude00",
            r"\ud83d",
            r"\ude00",
            "é",
            "\u{1}",
            r"\x",
            r"\u00g0",
            "\\",
        ];
        for before in 0..140 {
            for escape in escapes {
                let start = format!("{}{escape}", "x".repeat(before));
                check(&start);
                for after in ["\"", "x\", \"y\"", r#"\\","#, r#"\ude00""#, &format!("{}\"", "y".repeat(70))] {
                    check(&format!("{start}{after}"));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_judged_as_a_parser_judges_it(text in proptest::collection::vec(prop_oneof![
            Just("\\"), Just("\""), Just("n"), Just("u"), Just("d83d"), Just("\\ude00"), Just("é"), Just("0"), Just("\u{7}"), Just("xxxxxxxxxxxxxxxx"),
        ], 0..60)) {
            let text = text.concat();
            prop_assert_eq!(string(text.as_bytes(), 0), expected(&text), "{:?}", text);
        }
    }
}
