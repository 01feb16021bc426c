//! Signed notes: a text with its signatures, in the form of C2SP's `signed-note`. Signatures are Ed25519's.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// The name of every key of a ledger, as signatures give it. The identifier next to it tells keys apart.
const KEY_NAME: &str = "portcullis";

/// The type of Ed25519 signatures in signed notes.
const ED25519_TYPE: u8 = 1;

const KEY_BYTES: usize = 32;
const ID_BYTES: usize = 4;

/// The beginning of a signature's line.
const SIGNATURE_MARK: &str = "\u{2014} ";

/// The public key with which the checkpoints of a ledger are checked. Its text is C2SP's: `portcullis`, a plus sign, 8
/// hexadecimal digits, a plus sign, and base64.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    bytes: [u8; KEY_BYTES],
}

impl PublicKey {
    /// Returns the identifier of the key in signatures.
    fn id(&self) -> [u8; ID_BYTES] {
        let hash = Sha256::new()
            .chain_update(KEY_NAME)
            .chain_update(b"\n")
            .chain_update([ED25519_TYPE])
            .chain_update(self.bytes)
            .finalize();
        let mut id = [0; ID_BYTES];
        id.iter_mut().zip(hash).for_each(|(id, byte)| *id = byte);
        id
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let typed: Vec<u8> = [ED25519_TYPE].into_iter().chain(self.bytes).collect();
        write!(f, "{KEY_NAME}+{:08x}+{}", u32::from_be_bytes(self.id()), STANDARD.encode(typed))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A text is not a public key of a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is not a public key of a ledger: expected `portcullis+`, 8 hexadecimal digits, `+` and base64, as `portcullis \
     audit key` prints it"
)]
pub struct NotAPublicKey;

impl FromStr for PublicKey {
    type Err = NotAPublicKey;

    fn from_str(text: &str) -> Result<Self, NotAPublicKey> {
        let mut parts = text.trim().splitn(3, '+');
        let (Some(KEY_NAME), Some(_), Some(typed)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(NotAPublicKey);
        };
        let typed = STANDARD.decode(typed).map_err(|_| NotAPublicKey)?;
        let Some((&ED25519_TYPE, bytes)) = typed.split_first() else { return Err(NotAPublicKey) };
        let key = Self { bytes: bytes.try_into().map_err(|_| NotAPublicKey)? };
        // The digits in the middle are a checksum of the rest.
        (key.to_string() == text.trim()).then_some(key).ok_or(NotAPublicKey)
    }
}

/// A key pair that signs notes.
pub(super) struct NoteSigner {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

impl NoteSigner {
    /// Makes the key pair of 32 random bytes; `None` if the library refuses them.
    pub(super) fn of(seed: &[u8; KEY_BYTES]) -> Option<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).ok()?;
        let public = PublicKey { bytes: pair.public_key().as_ref().try_into().ok()? };
        Some(Self { pair, public })
    }

    pub(super) fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs a text, which ends with a line feed and has no empty line.
    pub(super) fn sign(&self, text: &str) -> String {
        let signature = self.pair.sign(text.as_bytes());
        let signed: Vec<u8> = self.public.id().into_iter().chain(signature.as_ref().iter().copied()).collect();
        format!("{text}\n{SIGNATURE_MARK}{KEY_NAME} {}\n", STANDARD.encode(signed))
    }
}

/// The reason why a note is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoteProblem {
    /// It is not a text, an empty line, and signatures.
    Malformed,
    /// None of the keys signed it.
    UnknownKey,
    /// One of the keys is named, and did not sign this text.
    WrongSignature,
}

/// Returns the text of a note that one of these keys signed. Signatures of other keys are ignored, as C2SP demands.
pub(super) fn open<'a>(note: &'a str, keys: &[PublicKey]) -> Result<&'a str, NoteProblem> {
    let (body, signatures) = note.rsplit_once("\n\n").ok_or(NoteProblem::Malformed)?;
    let text = note.get(..=body.len()).ok_or(NoteProblem::Malformed)?;
    if signatures.is_empty() || note.chars().any(|char| char.is_ascii_control() && char != '\n') {
        return Err(NoteProblem::Malformed);
    }
    let mut result = Err(NoteProblem::UnknownKey);
    for line in signatures.lines() {
        let (name, signed) =
            line.strip_prefix(SIGNATURE_MARK).and_then(|line| line.split_once(' ')).ok_or(NoteProblem::Malformed)?;
        let signed = STANDARD.decode(signed).map_err(|_| NoteProblem::Malformed)?;
        let (id, signature) = signed.split_at_checked(ID_BYTES).ok_or(NoteProblem::Malformed)?;
        for key in keys.iter().filter(|key| name == KEY_NAME && key.id() == id) {
            if UnparsedPublicKey::new(&ED25519, key.bytes).verify(text.as_bytes(), signature).is_err() {
                return Err(NoteProblem::WrongSignature);
            }
            result = Ok(text);
        }
    }
    result
}

/// Splits a file of several notes, one after the other, with empty lines between them or without.
pub(super) fn split(file: &str) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let mut ended = true;
    for line in file.lines() {
        let is_signature = line.starts_with(SIGNATURE_MARK);
        if ended && !is_signature {
            if line.is_empty() {
                continue;
            }
            notes.push(String::new());
        }
        if let Some(note) = notes.last_mut() {
            note.push_str(line);
            note.push('\n');
        }
        ended = is_signature;
    }
    notes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_note_is_opened_by_its_key_and_by_no_other() {
        let (ours, others) = (NoteSigner::of(&[7; 32]).unwrap(), NoteSigner::of(&[8; 32]).unwrap());
        let note = ours.sign("a\nb\n");
        let keys = [others.public().clone(), ours.public().clone()];
        assert_eq!(open(&note, &keys), Ok("a\nb\n"));
        assert_eq!(open(&note, &keys[..1]), Err(NoteProblem::UnknownKey));
        assert_eq!(open(&note.replace("b\n", "c\n"), &keys), Err(NoteProblem::WrongSignature));
        assert_eq!(open("a\nb\n", &keys), Err(NoteProblem::Malformed));
        assert_eq!(open("a\n\nb\n", &keys), Err(NoteProblem::Malformed));
        // A witness may add its signature.
        let witnessed = format!("{note}\u{2014} witness.example {}\n", STANDARD.encode([0; 76]));
        assert_eq!(open(&witnessed, &keys), Ok("a\nb\n"));
        assert_eq!(split(&format!("{witnessed}\n{note}{note}")), [witnessed.clone(), note.clone(), note]);
    }

    #[test]
    fn a_public_key_is_read_as_it_is_written_and_a_changed_one_is_refused() {
        let key = NoteSigner::of(&[7; 32]).unwrap().public().clone();
        assert_eq!(format!(" {key}\n").parse(), Ok(key.clone()));
        let text = key.to_string();
        for at in 0..text.len() {
            let other = if text.as_bytes().get(at) == Some(&b'A') { "B" } else { "A" };
            let mut changed = text.clone();
            changed.replace_range(at..=at, other);
            assert_eq!(changed.parse::<PublicKey>(), Err(NotAPublicKey), "{changed}");
        }
    }

    #[test]
    fn the_key_pair_of_a_seed_is_that_of_rfc_8032() {
        let seed = [
            0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec, 0x2c, 0xc4, 0x44, 0x49,
            0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae, 0x7f, 0x60,
        ];
        let signer = NoteSigner::of(&seed).unwrap();
        let hex: String = signer.public().bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
    }
}
