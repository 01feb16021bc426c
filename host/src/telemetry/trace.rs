//! A span's place in a trace, as written in `traceparent` (W3C Trace Context, version 00).

use std::fmt;

/// A span's place in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpanContext {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
    /// True if the program that began the trace wants it recorded.
    pub(super) sampled: bool,
}

impl SpanContext {
    /// Reads `00-TRACE-SPAN-FLAGS`, after which a later version may have more fields. Returns `None` for anything else,
    /// which counts as a missing `traceparent`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let [version] = bytes(parts.next()?)?;
        let place = Self { trace: bytes(parts.next()?)?, span: bytes(parts.next()?)?, sampled: false };
        let [flags] = bytes(parts.next()?)?;
        let whole = version != 0xff && (version != 0 || parts.next().is_none());
        let sampled = flags & 1 == 1;
        (whole && place.trace != [0; 16] && place.span != [0; 8]).then_some(Self { sampled, ..place })
    }

    /// Returns the place of a new span, in the parent's trace or in a new one. `None` if the system gives no random
    /// numbers.
    pub(super) fn after(parent: Option<Self>) -> Option<Self> {
        let mut place = Self { trace: [0; 16], span: [0; 8], sampled: true };
        getrandom::fill(&mut place.span).ok()?;
        match parent {
            Some(parent) => place.trace = parent.trace,
            None => getrandom::fill(&mut place.trace).ok()?,
        }
        Some(place)
    }
}

impl fmt::Display for SpanContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |f: &mut fmt::Formatter<'_>, bytes: &[u8]| bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"));
        f.write_str("00-")?;
        hex(f, &self.trace)?;
        f.write_str("-")?;
        hex(f, &self.span)?;
        write!(f, "-{:02x}", u8::from(self.sampled))
    }
}

/// Reads exactly `N` bytes in lower-case hexadecimal digits.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 * N || !text.bytes().all(digit) {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_place_is_read_and_written_as_the_standard_has_it() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let place = SpanContext::parse(text).unwrap();
        assert!(place.sampled && place.to_string() == text);
        assert!(!SpanContext::parse(&text.replace("-01", "-00")).unwrap().sampled);
        assert!(
            SpanContext::parse(&text.replace("00-0", "01-0").replace("-01", "-01-more")).is_some(),
            "a later version"
        );
        for bad in [
            text.replace("0af7", "0AF7"),
            text.replace("-01", "-01-more"),
            text.replace("00-0", "ff-0"),
            text.replace("b7ad6b7169203331", "0000000000000000"),
            text.replace("0af7651916cd43dd8448eb211c80319c", "00000000000000000000000000000000"),
            text.replace("b7ad", "b7a\u{e9}"),
            text.replace("-01", ""),
            String::new(),
        ] {
            assert_eq!(SpanContext::parse(&bad), None, "{bad}");
        }
        let (child, fresh) = (SpanContext::after(Some(place)).unwrap(), SpanContext::after(None).unwrap());
        assert!(child.trace == place.trace && child.span != place.span && fresh.trace != place.trace);
    }
}
