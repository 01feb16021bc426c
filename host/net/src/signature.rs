//! Signatures of plugins with a key: ECDSA over P-256 with SHA-256, as cosign and `openssl dgst -sha256` make them.

use std::fmt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The reason why a key cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeyError(&'static str);

const NO_PUBLIC_KEY: KeyError = KeyError(
    "it is no public key of ECDSA over P-256 in PEM, which begins with `-----BEGIN PUBLIC KEY-----`; cosign writes it to \
     cosign.pub, and `openssl pkey -in KEY.pem -pubout` prints it",
);

const NO_PRIVATE_KEY: KeyError = KeyError(
    "it is no private key of ECDSA over P-256 in PEM without a password; \
     `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out KEY.pem` makes one",
);

const ENCRYPTED: KeyError =
    KeyError("it has a password, which is not asked for here: sign with the program that made the key, such as cosign");

/// A key whose signatures count.
#[derive(Clone, PartialEq, Eq)]
pub struct TrustedKey {
    /// The key as DER (`SubjectPublicKeyInfo`).
    der: Vec<u8>,
}

impl fmt::Debug for TrustedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TrustedKey").field(&STANDARD.encode(&self.der)).finish()
    }
}

impl TrustedKey {
    /// Reads a public key in PEM.
    ///
    /// # Errors
    /// [`KeyError`] if it is not such a key.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let (label, der) = pem(text).ok_or(NO_PUBLIC_KEY)?;
        let parsed = aws_lc_rs::signature::ParsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, der.as_slice());
        if label != "PUBLIC KEY" || parsed.is_err() {
            return Err(NO_PUBLIC_KEY);
        }
        Ok(Self { der })
    }

    /// Returns the key as DER (`SubjectPublicKeyInfo`).
    #[must_use]
    pub fn as_der(&self) -> &[u8] {
        &self.der
    }

    /// Reports whether this key made a signature of these bytes. The signature is in DER.
    #[must_use]
    pub fn made(&self, signature: &[u8], bytes: &[u8]) -> bool {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.der).verify(bytes, signature).is_ok()
    }
}

/// A key that signs.
#[derive(Debug)]
pub struct SigningKey(EcdsaKeyPair);

impl SigningKey {
    /// Reads a private key in PEM (PKCS #8).
    ///
    /// # Errors
    /// [`KeyError`] if it is not such a key, or has a password.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        if text.contains("ENCRYPTED") {
            return Err(ENCRYPTED);
        }
        let (label, der) = pem(text).ok_or(NO_PRIVATE_KEY)?;
        if label != "PRIVATE KEY" {
            return Err(NO_PRIVATE_KEY);
        }
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &der);
        pair.map(Self).map_err(|_| NO_PRIVATE_KEY)
    }

    /// Returns the signature of these bytes, in DER.
    ///
    /// # Errors
    /// [`KeyError`] if the system has no random numbers.
    pub fn sign(&self, bytes: &[u8]) -> Result<Vec<u8>, KeyError> {
        let signed = self.0.sign(&SystemRandom::new(), bytes);
        signed.map(|signature| signature.as_ref().to_vec()).map_err(|_| KeyError("the system has no random numbers"))
    }
}

/// Returns the label and the content of the first block of PEM (RFC 7468).
fn pem(text: &str) -> Option<(&str, Vec<u8>)> {
    let (_, rest) = text.split_once("-----BEGIN ")?;
    let (label, rest) = rest.split_once("-----")?;
    let (body, _) = rest.split_once("-----END ")?;
    let body: String = body.split_ascii_whitespace().collect();
    Some((label, STANDARD.decode(body).ok()?))
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
    use aws_lc_rs::signature::KeyPair as _;

    use super::*;

    /// Returns a new key: the private one and the public one in PEM.
    pub(crate) fn key_pair() -> (String, String) {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
        let block =
            |label, der: &[u8]| format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der));
        let public = AsDer::<PublicKeyX509Der<'_>>::as_der(pair.public_key()).unwrap();
        (block("PRIVATE KEY", pair.to_pkcs8v1().unwrap().as_ref()), block("PUBLIC KEY", public.as_ref()))
    }

    /// A key that `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256` made for this test.
    const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\n\
        MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEMcYr2qd9mdFTzsOVQyAZH2ZfNrCe\n\
        TLqy8SQWd40mHOC/2D+ivfJBsjH3VkCvUJIZOXUXKXAZ2l3yvLU2tSlqVg==\n\
        -----END PUBLIC KEY-----\n";

    /// The signature that `openssl dgst -sha256 -sign` made of [`SIGNED`] with the key.
    const SIGNATURE: &str =
        "MEUCIQCuPl8q6K9857KbascjKSnJpGFwdcdl3ItEXEB3kbxjYwIgShiHXuIZH9sCMyWN6u9Z32n08DZzYGSnx0aplIkyWoo=";

    const SIGNED: &[u8] = b"a plugin";

    #[test]
    fn a_signature_of_openssl_counts_and_one_of_other_bytes_or_another_key_does_not() {
        let key = TrustedKey::from_pem(PUBLIC).unwrap();
        let signature = STANDARD.decode(SIGNATURE).unwrap();
        assert!(key.made(&signature, SIGNED));
        assert!(!key.made(&signature, b"another plugin"));
        assert!(!key.made(b"", SIGNED));
        let (private, public) = key_pair();
        let ours = SigningKey::from_pem(&private).unwrap().sign(SIGNED).unwrap();
        assert!(TrustedKey::from_pem(&public).unwrap().made(&ours, SIGNED));
        assert!(!key.made(&ours, SIGNED));
    }

    #[test]
    fn what_is_no_key_is_refused_with_the_way_to_make_one() {
        for text in ["", &key_pair().0, "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"] {
            assert_eq!(TrustedKey::from_pem(text), Err(NO_PUBLIC_KEY), "{text}");
        }
        assert_eq!(SigningKey::from_pem(PUBLIC).unwrap_err(), NO_PRIVATE_KEY);
        let encrypted =
            "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n";
        assert_eq!(SigningKey::from_pem(encrypted).unwrap_err(), ENCRYPTED);
    }
}
