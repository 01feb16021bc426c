//! The stand-in for the verifier of JWTs in a program without the feature `jwt`.

use super::FrontError;
use super::admission::AdmittedCaller;
use crate::config::JwtConfig;
use crate::name::ProfileName;

/// A verifier of the tokens of one issuer, which cannot be constructed.
pub(crate) enum JwtVerifier {}

/// The reason why a token is not accepted.
#[expect(dead_code, reason = "it stands for a type whose values are made elsewhere")]
pub(crate) enum TokenDenial {
    Invalid(&'static str),
    NoProfile,
    NoKeys,
}

impl JwtVerifier {
    /// Returns the error of a configuration that names an issuer.
    pub(crate) fn new(_: &JwtConfig) -> Result<Self, FrontError> {
        Err(FrontError::NoJwt)
    }

    /// Verifies a token and returns its caller.
    #[expect(clippy::unused_async, reason = "it stands for a function that waits")]
    pub(crate) async fn verify(&self, _: &[u8], _: &ProfileName) -> Result<AdmittedCaller, TokenDenial> {
        match *self {}
    }
}
