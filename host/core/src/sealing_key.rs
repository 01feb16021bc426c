//! Authenticated encryption of state that an agent carries, or that is kept in a file.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

const NONCE_BYTES: usize = 24;

/// A key for authenticated encryption, bound to one purpose. No other process can open data sealed under a fresh key: a
/// restarted broker asks again.
pub struct SealingKey {
    cipher: Option<XChaCha20Poly1305>,
    purpose: &'static str,
}

impl std::fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Seal({})", self.purpose)
    }
}

impl SealingKey {
    /// Returns a seal with a fresh key. A text that was sealed for one `purpose` cannot be opened for another.
    pub fn new(purpose: &'static str) -> Self {
        let mut key = [0; 32];
        let cipher = getrandom::fill(&mut key).is_ok().then(|| XChaCha20Poly1305::new(&key.into()));
        Self { cipher, purpose }
    }

    /// Returns a seal with a key that is kept elsewhere.
    pub fn with_key(key: &[u8; 32], purpose: &'static str) -> Self {
        Self { cipher: Some(XChaCha20Poly1305::new(key.into())), purpose }
    }

    /// Returns the sealed form as URL-safe text; an empty text, which never opens, if the system has no randomness.
    pub fn seal(&self, plain: &[u8]) -> String {
        let mut nonce = [0; NONCE_BYTES];
        let sealed = getrandom::fill(&mut nonce).ok().and_then(|()| {
            let payload = Payload { msg: plain, aad: self.purpose.as_bytes() };
            self.cipher.as_ref()?.encrypt(&XNonce::from(nonce), payload).ok()
        });
        sealed.map(|sealed| URL_SAFE_NO_PAD.encode([nonce.as_slice(), &sealed].concat())).unwrap_or_default()
    }

    /// Returns the plain bytes, or `None` if the text was changed, or was sealed under another key or for another
    /// purpose.
    pub fn open(&self, text: &str) -> Option<Vec<u8>> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_BYTES>()?;
        let payload = Payload { msg: sealed, aad: self.purpose.as_bytes() };
        self.cipher.as_ref()?.decrypt(&XNonce::from(*nonce), payload).ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "tests")]

    use super::SealingKey;

    #[test]
    fn only_the_same_purpose_in_the_same_process_opens() {
        let seal = SealingKey::new("a");
        let text = seal.seal(b"state");
        assert_eq!(seal.open(&text).as_deref(), Some(b"state".as_slice()));
        assert_eq!(SealingKey::new("a").open(&text), None);
        for at in 0..text.len() {
            let mut forged = text.clone();
            let other = if text[at..].starts_with('A') { "B" } else { "A" };
            forged.replace_range(at..=at, other);
            assert_eq!(seal.open(&forged), None);
        }
        let other = SealingKey { purpose: "b", cipher: seal.cipher.clone() };
        assert_eq!(other.open(&text), None);
        assert_eq!(seal.open(""), None);
    }
}
