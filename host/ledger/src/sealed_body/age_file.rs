//! Files in the format of age, version 1 (`age-encryption.org/v1`), for X25519 recipients and contents of at most 64
//! KiB. Written from the specification: the crate that has the whole format brings a second set of cryptographic
//! libraries.

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::{hkdf, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use portcullis_core::age::{Identity, Recipient};
use secrecy::zeroize::Zeroizing;

/// The first line of a file.
const VERSION: &str = "age-encryption.org/v1";

/// The beginning of a stanza for an X25519 recipient, and the domain separator of its key.
const STANZA: &str = "-> X25519 ";
const STANZA_INFO: &[u8] = b"age-encryption.org/v1/X25519";

/// The length of the key that a file is encrypted with, and of the nonce before its content, in bytes.
const FILE_KEY: usize = 16;
const PAYLOAD_NONCE: usize = 16;

/// The nonce of the first chunk of a content, which is also the last.
const ONLY_CHUNK: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// Makes a new identity, and returns its recipient too; `None` if the machine has no random bytes.
#[must_use]
pub fn new_identity() -> Option<(Identity, Recipient)> {
    let mut bytes = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *bytes).ok()?;
    let identity = Identity::of_bytes(*bytes);
    let recipient = recipient_of(&identity)?;
    Some((identity, recipient))
}

/// Encrypts a content of at most 64 KiB for some recipients; `None` if one of them is not a usable key.
pub(super) fn encrypted(content: &[u8], recipients: &[Recipient]) -> Option<Vec<u8>> {
    let mut file_key = Zeroizing::new([0; FILE_KEY]);
    getrandom::fill(&mut *file_key).ok()?;
    let mut header = format!("{VERSION}\n");
    for recipient in recipients {
        let (ephemeral, share) = new_identity()?;
        let key = wrapping_key(&ephemeral, share.as_bytes(), recipient)?;
        let mut wrapped = file_key.to_vec();
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key([0; 12]), Aad::empty(), &mut wrapped).ok()?;
        let (share, wrapped) = (STANDARD_NO_PAD.encode(share.as_bytes()), STANDARD_NO_PAD.encode(&wrapped));
        header += &format!("{STANZA}{share}\n{wrapped}\n");
    }
    header += "---";
    let mac = hmac::sign(&header_key(&*file_key)?, header.as_bytes());
    let mut nonce = [0; PAYLOAD_NONCE];
    getrandom::fill(&mut nonce).ok()?;
    let mut file = format!("{header} {}\n", STANDARD_NO_PAD.encode(mac)).into_bytes();
    file.extend_from_slice(&nonce);
    let mut content = content.to_vec();
    payload_key(&*file_key, &nonce)?
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(ONLY_CHUNK), Aad::empty(), &mut content)
        .ok()?;
    file.extend_from_slice(&content);
    Some(file)
}

/// Decrypts a file with an identity; `None` if it is for others, or damaged.
pub(super) fn decrypted(file: &[u8], identity: &Identity) -> Option<Zeroizing<Vec<u8>>> {
    let end = file.windows(5).position(|part| part == b"\n--- ")? + 4;
    let header = std::str::from_utf8(file.get(..end)?).ok()?;
    let rest = file.get(end..)?.strip_prefix(b" ")?;
    let line = rest.iter().position(|byte| *byte == b'\n')?;
    let mac = STANDARD_NO_PAD.decode(rest.get(..line)?).ok()?;
    let (nonce, content) = rest.get(line + 1..)?.split_first_chunk::<PAYLOAD_NONCE>()?;
    let mut lines = header.lines();
    if lines.next()? != VERSION {
        return None;
    }
    let recipient = recipient_of(identity)?;
    let file_key =
        std::iter::from_fn(|| lines.next().map(|line| (line, lines.clone()))).find_map(|(line, mut after)| {
            let share: [u8; 32] = STANDARD_NO_PAD.decode(line.strip_prefix(STANZA)?).ok()?.try_into().ok()?;
            let mut wrapped = Zeroizing::new(STANDARD_NO_PAD.decode(after.next()?).ok()?);
            let key = unwrapping_key(identity, &share, &recipient)?;
            let opened = key.open_in_place(Nonce::assume_unique_for_key([0; 12]), Aad::empty(), &mut wrapped).ok()?;
            <[u8; FILE_KEY]>::try_from(&*opened).ok().map(Zeroizing::new)
        })?;
    hmac::verify(&header_key(&*file_key)?, header.as_bytes(), &mac).ok()?;
    let mut content = Zeroizing::new(content.to_vec());
    let key = payload_key(&*file_key, nonce)?;
    let opened = key.open_in_place(Nonce::assume_unique_for_key(ONLY_CHUNK), Aad::empty(), &mut content).ok()?;
    Some(Zeroizing::new(opened.to_vec()))
}

fn recipient_of(identity: &Identity) -> Option<Recipient> {
    let public = PrivateKey::from_private_key(&X25519, identity.expose()).ok()?.compute_public_key().ok()?;
    public.as_ref().try_into().ok().map(Recipient::of_bytes)
}

/// Returns the key that wraps the file's key for a recipient. `share` is the public key of the ephemeral identity.
fn wrapping_key(ephemeral: &Identity, share: &[u8; 32], recipient: &Recipient) -> Option<LessSafeKey> {
    agreed_key(ephemeral, recipient.as_bytes(), share, recipient)
}

/// Returns the same key on the side of the recipient.
fn unwrapping_key(identity: &Identity, share: &[u8; 32], recipient: &Recipient) -> Option<LessSafeKey> {
    agreed_key(identity, share, share, recipient)
}

fn agreed_key(own: &Identity, other: &[u8; 32], share: &[u8; 32], recipient: &Recipient) -> Option<LessSafeKey> {
    let own = PrivateKey::from_private_key(&X25519, own.expose()).ok()?;
    let salt: Vec<u8> = share.iter().chain(recipient.as_bytes()).copied().collect();
    // A secret of zeros, as a key of low order gives it, is an error here.
    agree(&own, UnparsedPublicKey::new(&X25519, other), (), |secret| aead_key(&salt, secret, STANZA_INFO).ok_or(()))
        .ok()
}

fn payload_key(file_key: &[u8], nonce: &[u8]) -> Option<LessSafeKey> {
    aead_key(nonce, file_key, b"payload")
}

fn aead_key(salt: &[u8], secret: &[u8], info: &[u8]) -> Option<LessSafeKey> {
    let key = derived(salt, secret, info)?;
    UnboundKey::new(&CHACHA20_POLY1305, &*key).ok().map(LessSafeKey::new)
}

fn header_key(file_key: &[u8]) -> Option<hmac::Key> {
    derived(&[], file_key, b"header").map(|key| hmac::Key::new(hmac::HMAC_SHA256, &*key))
}

fn derived(salt: &[u8], secret: &[u8], info: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
    let mut key = Zeroizing::new([0; 32]);
    let derived = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret);
    derived.expand(&[info], hkdf::HKDF_SHA256).ok()?.fill(&mut *key).ok()?;
    Some(key)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
    use super::*;

    /// A file that age 1.1 made for the identity of 32 bytes 0x42, and for another one.
    const MADE_BY_AGE: &str = "YWdlLWVuY3J5cHRpb24ub3JnL3YxCi0+IFgyNTUxOSBoeE9FbUdFd0d6eWVSYUp0ZE5NYzUySDRhbk5PNnhTZDVEY1lXRFJlOVI4CjRjV2Q1T1RsUkIxVnYzUk5BdG9QWFArd0ttc3pBTmdXS3JmWFN2WG5Kc2sKLT4gWDI1NTE5IDRmTkd2NVBjdkh4b2hEWnNBV1prN3ptcGE3TU5sbHZhY1RtZW9zdkNGa3cKTUpjZC9lVkx1bGpEVmxURHNKL1d6Zk1MaWFFZENqMThwQnY5SE9jMUs0YwotLS0gd1lvaHJkQjZWQTE2TWtuYk0wc1ZqODBCd1dLWWVHZGtKZXJ0NjJWVzg2awoRC5W64V0TlOCpmESrdx9AtwyQuO+nULKEgl2yKO+iG0K6KvEjjmEfJ/oi";

    #[test]
    fn a_file_opens_for_each_recipient_and_nobody_else_and_only_as_it_was() {
        let (one, to_one) = new_identity().unwrap();
        let (two, to_two) = new_identity().unwrap();
        let (other, _) = new_identity().unwrap();
        let file = encrypted(b"a key", &[to_one, to_two]).unwrap();
        for identity in [&one, &two] {
            assert_eq!(&**decrypted(&file, identity).unwrap(), b"a key");
        }
        assert!(decrypted(&file, &other).is_none());
        for at in 0..file.len() {
            let mut changed = file.clone();
            changed[at] ^= 1;
            assert!(decrypted(&changed, &one).is_none(), "byte {at}");
            assert!(decrypted(file.get(..at).unwrap(), &one).is_none(), "the first {at} bytes");
        }
    }

    #[test]
    fn a_recipient_of_low_order_is_refused() {
        assert!(encrypted(b"a key", &[Recipient::of_bytes([0; 32])]).is_none());
    }

    #[test]
    fn a_file_that_age_made_is_opened() {
        let file = base64::engine::general_purpose::STANDARD.decode(MADE_BY_AGE).unwrap();
        assert_eq!(&**decrypted(&file, &Identity::of_bytes([0x42; 32])).unwrap(), b"made by age");
    }

    #[test]
    fn the_recipient_of_an_identity_is_that_of_age() {
        let recipient = recipient_of(&Identity::of_bytes([0x42; 32])).unwrap();
        assert_eq!(recipient.to_string(), "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj");
    }
}
