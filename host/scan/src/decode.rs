//! Text that is encoded in a text. Each payload is decoded once; its length is at most that of the text.

use base64::Engine as _;
use base64::engine::general_purpose::GeneralPurpose;
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig};

/// Shorter runs are identifiers and examples.
const SHORTEST: usize = 20;
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);

/// Returns the texts that runs of base64, hexadecimal digits, percent or backslash escapes, and HTML's numeric
/// references decode to, with their offsets.
pub(crate) fn payloads(text: &str) -> Vec<(usize, String)> {
    let standard = GeneralPurpose::new(&base64::alphabet::STANDARD, LENIENT);
    let url_safe = GeneralPurpose::new(&base64::alphabet::URL_SAFE, LENIENT);
    let mut found = Vec::new();
    let mut at = 0;
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '-' | '_' | '=');
    for run in text.split(|c: char| !inside(c)) {
        let (from, core) = (at, run.trim_end_matches('='));
        at += run.len() + text.get(at + run.len()..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
        if core.len() < SHORTEST {
            continue;
        }
        let bytes = hex(core)
            .filter(|bytes| readable(bytes))
            .or_else(|| standard.decode(core).ok().filter(|bytes| readable(bytes)))
            .or_else(|| url_safe.decode(core).ok());
        found.extend(bytes.and_then(|bytes| text_of(&bytes)).map(|decoded| (from, decoded)));
    }
    found.extend(unescaped(text).map(|decoded| (0, decoded)));
    found.extend(rotated(text).map(|decoded| (0, decoded)));
    found
}

/// Reports whether a decoded text is a sentence: words of letters between spaces.
pub(crate) fn is_prose(text: &str) -> bool {
    text.split_whitespace().filter(|word| word.len() > 1 && word.bytes().all(|b| b.is_ascii_alphabetic())).count() >= 3
}

fn readable(bytes: &[u8]) -> bool {
    text_of(bytes).is_some()
}

fn text_of(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let plain = text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t' | '\r'));
    (plain && text.len() >= 8).then(|| text.to_owned())
}

fn hex(run: &str) -> Option<Vec<u8>> {
    if !run.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| (byte as char).to_digit(16);
    run.as_bytes()
        .chunks_exact(2)
        .map(|pair| pair.iter().try_fold(0, |sum, b| Some(sum * 16 + digit(*b)?)))
        .map(|byte| byte.and_then(|byte: u32| u8::try_from(byte).ok()))
        .collect()
}

/// Rotates the letters by thirteen if a text says that some of them are rotated.
fn rotated(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let rotate = |c: char| match c {
        'a'..='m' | 'A'..='M' => char::from_u32(u32::from(c) + 13),
        'n'..='z' | 'N'..='Z' => char::from_u32(u32::from(c) - 13),
        _ => None,
    };
    ["rot13", "rot-13", "rot 13"]
        .iter()
        .any(|name| lower.contains(name))
        .then(|| text.chars().map(|c| rotate(c).unwrap_or(c)).collect())
}

/// Decodes `%41`, `\x41`, `\u0041` and `&#65;` if a text has at least eight of them.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let (mut rest, mut count) = (text, 0_usize);
    while let Some(next) = rest.chars().next() {
        if let Some((code, length)) = leading_escape(rest) {
            let mut buffer = [0; 4];
            match u8::try_from(code) {
                Ok(byte) => bytes.push(byte),
                Err(_) => bytes.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut buffer).as_bytes()),
            }
            rest = rest.get(length..).unwrap_or_default();
            count += 1;
        } else {
            bytes.extend_from_slice(next.encode_utf8(&mut [0; 4]).as_bytes());
            rest = rest.get(next.len_utf8()..).unwrap_or_default();
        }
    }
    (count >= 8).then(|| String::from_utf8(bytes).ok()).flatten()
}

/// Returns the number that an escape (`%41`, `\x41`, `\u0041`, `&#x41;`, `&#65;`) at the beginning of a text encodes,
/// and the length of the escape in bytes.
#[must_use]
pub fn leading_escape(text: &str) -> Option<(u32, usize)> {
    let forms: [(&str, usize, u32, &str); 4] =
        [("%", 2, 16, ""), ("\\x", 2, 16, ""), ("\\u", 4, 16, ""), ("&#x", 2, 16, ";")];
    for (prefix, digits, radix, suffix) in forms {
        let Some(rest) = text.strip_prefix(prefix) else { continue };
        if let Some(code) = rest.get(..digits).and_then(|digits| u32::from_str_radix(digits, radix).ok())
            && rest.get(digits..).is_some_and(|rest| rest.starts_with(suffix))
        {
            return Some((code, prefix.len() + digits + suffix.len()));
        }
    }
    let rest = text.strip_prefix("&#")?;
    let digits = rest.bytes().take(7).take_while(u8::is_ascii_digit).count();
    let code = rest.get(..digits)?.parse().ok()?;
    rest.get(digits..)?.starts_with(';').then_some((code, digits + 3))
}
