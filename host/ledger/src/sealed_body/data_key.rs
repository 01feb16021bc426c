//! A data key: it encrypts the bodies of one day, each with its own nonce (ChaCha20-Poly1305, RFC 8439).

use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use data_encoding::BASE32_NOPAD;
use secrecy::zeroize::Zeroizing;

use super::crypto_failed;
use crate::LedgerError;

/// The length of a key, and of the nonce before each body, in bytes.
pub(super) const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;

/// A data key.
pub(super) struct DataKey {
    key: LessSafeKey,
    /// The number of bodies that were sealed: the nonce of the next one. The key belongs to one process, so none is
    /// used twice.
    sealed: AtomicU64,
}

impl DataKey {
    /// Makes a random key, and returns its bytes too.
    pub(super) fn generate() -> Result<(Self, Zeroizing<[u8; KEY_BYTES]>), LedgerError> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        getrandom::fill(&mut *bytes).map_err(|error| LedgerError::Body(format!("no random bytes: {error}")))?;
        Ok((Self::of(&*bytes).ok_or_else(crypto_failed)?, bytes))
    }

    /// Takes the bytes of a key; `None` if they are of another length.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, bytes).ok()?;
        Some(Self { key: LessSafeKey::new(key), sealed: AtomicU64::new(0) })
    }

    /// Seals a body for the payload that has this hash.
    pub(super) fn seal(&self, hash: &str, body: &[u8]) -> Result<String, LedgerError> {
        let mut nonce = [0; NONCE_BYTES];
        nonce[NONCE_BYTES - 8..].copy_from_slice(&self.sealed.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        let mut sealed = Vec::with_capacity(NONCE_BYTES + body.len() + CHACHA20_POLY1305.tag_len());
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(body);
        let content = sealed.get_mut(NONCE_BYTES..).unwrap_or_default();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(hash), content).map_err(|_| crypto_failed())?;
        sealed.extend_from_slice(tag.as_ref());
        Ok(BASE32_NOPAD.encode(&sealed))
    }

    /// Opens a body; `None` if it was not sealed with this key for the payload with this hash.
    pub(super) fn open(&self, hash: &str, sealed: &str) -> Option<Vec<u8>> {
        let mut bytes = BASE32_NOPAD.decode(sealed.as_bytes()).ok()?;
        let nonce: [u8; NONCE_BYTES] = *bytes.first_chunk()?;
        let content = bytes.get_mut(NONCE_BYTES..)?;
        let body = self.key.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(hash), content).ok()?;
        Some(body.to_vec())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
    use super::*;

    #[test]
    fn a_body_opens_with_its_key_for_its_payload_and_as_it_was() {
        let (key, bytes) = DataKey::generate().unwrap();
        let sealed: Vec<_> = (0..3).map(|_| key.seal("hash", b"body").unwrap()).collect();
        assert!(sealed.windows(2).all(|two| two.first() != two.get(1)), "no nonce is used twice");
        let sealed = sealed.first().unwrap();
        let again = DataKey::of(&*bytes).unwrap();
        assert_eq!(again.open("hash", sealed).unwrap(), b"body");
        assert_eq!(again.open("another hash", sealed), None);
        assert_eq!(DataKey::generate().unwrap().0.open("hash", sealed), None);
        for at in 0..sealed.len() - 1 {
            let mut changed = sealed.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(again.open("hash", &String::from_utf8(changed).unwrap()), None, "at {at}");
        }
        for short in ["", "A", "AAAA"] {
            assert_eq!(again.open("hash", short), None);
        }
    }
}
