//! Keys of age, a format for encrypted files, as people write them down: Bech32 texts of X25519 keys
//! (`age-encryption.org/v1`, section "The X25519 recipient type").

use std::fmt;
use std::str::FromStr;

use bech32::primitives::decode::CheckedHrpstring;
use bech32::{Bech32, Hrp};
use secrecy::{ExposeSecret as _, SecretBox, SecretString};

/// The prefixes of the texts, before the `1`.
const RECIPIENT: Hrp = Hrp::parse_unchecked("age");
const IDENTITY: Hrp = Hrp::parse_unchecked("age-secret-key-");

/// A recipient: a public key to which something is encrypted, such as
/// `age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Recipient([u8; 32]);

/// An identity: the private key of a recipient, which begins with `AGE-SECRET-KEY-1`. Its bytes are not shown by
/// `Debug`, and are overwritten when it is dropped.
#[derive(Debug)]
pub struct Identity(SecretBox<[u8; 32]>);

/// The text is not a key of age, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAnAgeKey {
    /// It is an identity, where a recipient is expected. It must not be where it was found.
    #[error(
        "this is a private key; name its public one, which `portcullis audit keygen` printed and begins with `age1`"
    )]
    Identity,
    /// It is a key of a kind that is not supported.
    #[error("only X25519 recipients are supported: `age1` and 58 letters and digits")]
    OtherKind,
    /// It is something else, or was mistyped.
    #[error("this is not a recipient of age (`age1` and 58 letters and digits), or it was mistyped")]
    Mistyped,
}

impl Recipient {
    /// Takes the 32 bytes of a public X25519 key.
    #[must_use]
    pub fn of_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 bytes of the public X25519 key.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for Recipient {
    type Err = NotAnAgeKey;

    fn from_str(text: &str) -> Result<Self, NotAnAgeKey> {
        if text.to_ascii_uppercase().starts_with("AGE-SECRET-KEY-") {
            return Err(NotAnAgeKey::Identity);
        }
        match key(text, RECIPIENT) {
            Some(bytes) => Ok(Self(bytes)),
            None if text.starts_with("age1pq1") || text.starts_with("ssh-") => Err(NotAnAgeKey::OtherKind),
            None => Err(NotAnAgeKey::Mistyped),
        }
    }
}

/// Writes the text that `FromStr` reads.
impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&bech32::encode::<Bech32>(RECIPIENT, &self.0).map_err(|_| fmt::Error)?)
    }
}

impl Identity {
    /// Takes the 32 bytes of a private X25519 key.
    #[must_use]
    pub fn of_bytes(bytes: [u8; 32]) -> Self {
        Self(SecretBox::new(Box::new(bytes)))
    }

    /// Returns the 32 bytes of the private X25519 key.
    #[must_use]
    pub fn expose(&self) -> &[u8; 32] {
        self.0.expose_secret()
    }

    /// Returns the text, for a file that only its owner can read.
    #[must_use]
    pub fn to_text(&self) -> SecretString {
        // A key of 32 bytes is never too long.
        let text = bech32::encode_upper::<Bech32>(IDENTITY, self.expose()).unwrap_or_default();
        text.into()
    }

    /// Reads the identities of a file: one in each line; empty lines and those that begin with `#` are left out.
    ///
    /// # Errors
    /// The number of the first line, from 1, that is something else.
    pub fn in_file(text: &str) -> Result<Vec<Self>, usize> {
        let lines = text.lines().map(str::trim).enumerate();
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        lines.map(|(at, line)| key(line, IDENTITY).map(Self::of_bytes).ok_or(at + 1)).collect()
    }
}

fn key(text: &str, prefix: Hrp) -> Option<[u8; 32]> {
    let checked = CheckedHrpstring::new::<Bech32>(text).ok()?;
    let bytes: Vec<u8> = checked.byte_iter().collect();
    (checked.hrp() == prefix).then_some(bytes)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// The example of the format's specification.
    const EXAMPLE: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
    const ITS_IDENTITY: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";

    #[test]
    fn keys_are_read_and_written_as_the_format_has_them() {
        let recipient: Recipient = EXAMPLE.parse().unwrap();
        assert_eq!(recipient.to_string(), EXAMPLE);
        let identities = Identity::in_file(&format!("# created: today\n\n{ITS_IDENTITY}\n")).unwrap();
        let bytes: Vec<_> = identities.iter().map(|identity| *identity.expose()).collect();
        assert_eq!(bytes, [[0x42; 32]]);
        assert_eq!(identities.first().unwrap().to_text().expose_secret(), ITS_IDENTITY);
        assert!(!format!("{identities:?}").contains("66"), "the bytes are not shown");
    }

    #[test]
    fn anything_else_is_refused_and_said_what_it_is() {
        let mistyped = EXAMPLE.replace("age1zv", "age1vz");
        for (text, expected) in [
            (ITS_IDENTITY, NotAnAgeKey::Identity),
            ("ssh-ed25519 AAAA", NotAnAgeKey::OtherKind),
            ("age1pq1xyz", NotAnAgeKey::OtherKind),
            (&*mistyped, NotAnAgeKey::Mistyped),
            ("", NotAnAgeKey::Mistyped),
        ] {
            assert_eq!(text.parse::<Recipient>(), Err(expected), "{text}");
        }
        assert_eq!(Identity::in_file(&format!("#\n{EXAMPLE}\n")).unwrap_err(), 2);
    }
}
