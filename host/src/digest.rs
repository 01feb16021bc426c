//! SHA-256 digests, and the canonical form of JSON that definitions and arguments are digested in.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::message::{Json, Members};

/// A SHA-256 digest; shown as `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of the canonical form of a JSON value.
    ///
    /// # Errors
    /// See [`canonical`].
    pub fn of_json(json: &Json) -> Result<Self, CanonicalError> {
        canonical(json).map(|text| Self::of(text.as_bytes()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let hex = text.strip_prefix("sha256:").filter(|hex| hex.len() == 64 && hex.is_ascii()).ok_or(DigestError)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| DigestError)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| DigestError)?;
        }
        Ok(Self(bytes))
    }
}

impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <Cow<'de, str>>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Not a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a digest is `sha256:` and 64 hexadecimal digits")]
pub struct DigestError;

/// Why a JSON value has no canonical form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CanonicalError {
    /// An object holds the same key twice: readers disagree about which one counts.
    #[error("key {0:?} stands twice in one object")]
    DuplicateKey(String),
    /// A string with an unpaired surrogate, or nested beyond the parser's limit.
    #[error("not canonical JSON: {0}")]
    Json(String),
}

/// The canonical form: RFC 8785 (no white space, keys sorted by UTF-16 code units, minimal escapes), with two repairs.
/// Duplicate keys are refused; and numbers keep their exact spelling, because RFC 8785 rounds integers beyond 2^53, so that
/// two different arguments could share a grant.
///
/// # Errors
/// [`CanonicalError`] where no unambiguous form exists.
pub fn canonical(json: &Json) -> Result<String, CanonicalError> {
    let mut out = String::with_capacity(json.as_bytes().len());
    write_canonical(json.as_str(), &mut out)?;
    Ok(out)
}

// Recursion is bounded: `Json` is never nested deeper than `MAX_NESTING`.
fn write_canonical(text: &str, out: &mut String) -> Result<(), CanonicalError> {
    match text.as_bytes().first() {
        Some(b'{') => {
            let Members(members) = read(text)?;
            let mut members: Vec<(Vec<u16>, _, _)> =
                members.into_iter().map(|(key, raw)| (key.encode_utf16().collect(), key, raw)).collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            if let Some(pair) = members.windows(2).find(|pair| matches!(pair, [a, b] if a.0 == b.0)) {
                return Err(CanonicalError::DuplicateKey(pair.first().map(|m| m.1.to_string()).unwrap_or_default()));
            }
            out.push('{');
            for (i, (_, key, raw)) in members.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_string(key, out)?;
                out.push(':');
                write_canonical(raw.get(), out)?;
            }
            out.push('}');
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = read(text)?;
            out.push('[');
            for (i, raw) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_canonical(raw.get(), out)?;
            }
            out.push(']');
        }
        Some(b'"') => write_string(&read::<Text<'_>>(text)?.0, out)?,
        _ => out.push_str(text),
    }
    Ok(())
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, CanonicalError> {
    serde_json::from_str(text).map_err(|error| CanonicalError::Json(error.to_string()))
}

// serde_json escapes exactly as RFC 8785 section 3.2.2.2 asks: short forms, \u00xx for other controls, nothing else.
fn write_string(text: &str, out: &mut String) -> Result<(), CanonicalError> {
    out.push_str(&serde_json::to_string(text).map_err(|error| CanonicalError::Json(error.to_string()))?);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn form(text: &'static str) -> Result<String, CanonicalError> {
        canonical(&Json::parse(text).unwrap())
    }

    #[test]
    fn keys_sort_by_utf16_and_space_goes() {
        // U+1F600 is a surrogate pair (D83D…) and sorts before U+FB33, unlike by code point. From RFC 8785, 3.2.3.
        let sorted = form("{ \"\u{fb33}\":1, \"\u{1f600}\" : [ 1 , {} ], \"a\\u0062\":null}").unwrap();
        assert_eq!(sorted, "{\"ab\":null,\"\u{1f600}\":[1,{}],\"\u{fb33}\":1}");
    }

    #[test]
    fn strings_are_escaped_minimally() {
        assert_eq!(form(r#""\u20ac\/\u000a\u0001""#).unwrap(), "\"€/\\n\\u0001\"");
    }

    #[test]
    fn numbers_keep_their_spelling() {
        assert_ne!(form("9007199254740993"), form("9007199254740992"));
        assert_eq!(form("[1.0,1e2]").unwrap(), "[1.0,1e2]");
    }

    #[test]
    fn duplicate_keys_are_refused_even_if_spelled_differently() {
        assert_eq!(form(r#"{"a":1,"\u0061":2}"#), Err(CanonicalError::DuplicateKey("a".into())));
    }

    #[test]
    fn digests_read_back() {
        let digest = Digest::of(b"x");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert!("sha256:é".parse::<Digest>().is_err());
    }
}
