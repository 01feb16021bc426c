//! Tokens of an external issuer: JWTs (RFC 7519, RFC 9068) with a valid issuer, audience, lifetime and signature.
//!
//! Keys come from one configured address, through [`crate::egress`]. Algorithms are asymmetric ones and are bound to
//! the key, so that a token cannot choose how it is checked (RFC 8725, section 3.1).

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::FrontError;
use super::admission::AdmittedCaller;
use crate::config::JwtConfig;
use crate::egress::Reach;
use crate::escape::is_hidden;
use crate::name::ProfileName;
use crate::oauth::OAuthHttp;
use crate::principal::Principal;
use crate::protocol::{Json, canonical};
use crate::sync::{Mutex, MutexGuard};

/// The algorithms with which a token may be signed. None uses a secret that both sides know.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::EdDSA,
];

/// The largest accepted difference between the issuer's clock and this one, in seconds.
const LEEWAY: u64 = 30;

/// The time for which an issuer's keys are used before they are requested again, and thus for which a withdrawn key may
/// still be accepted.
const FRESH: Duration = Duration::from_secs(5 * 60);

/// The longest time for which an issuer's keys are used while their server does not answer.
const STALE: Duration = Duration::from_secs(60 * 60);

/// The least time between two requests for keys, whatever keys tokens name: any caller can name an unknown one.
const PAUSE: Duration = Duration::from_secs(15);

/// The largest number of an issuer's keys that are read. Issuers have two or three.
const MAX_KEYS: usize = 64;

/// The longest principal, in characters.
const MAX_PRINCIPAL: usize = 256;

/// A verifier of the tokens of one issuer.
pub(crate) struct JwtVerifier {
    config: JwtConfig,
    http: OAuthHttp,
    keys: Mutex<Keys>,
    /// Held by the task that requests keys.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Keys {
    all: Arc<[(Jwk, DecodingKey)]>,
    /// The time at which the keys arrived; `asked` is when they were last requested.
    came: Option<Instant>,
    asked: Option<Instant>,
}

/// The reason why a token is not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TokenDenial {
    /// The token is not valid; the text says why.
    Invalid(&'static str),
    /// The token is valid, but its claims name no profile, or several.
    NoProfile,
    /// There are no keys to check it with.
    NoKeys,
}

#[derive(Deserialize)]
struct RawKeys {
    keys: Vec<Value>,
}

impl JwtVerifier {
    /// Returns a verifier, which requests no keys before the first token comes.
    ///
    /// # Errors
    /// If the address of the keys may not be reached, or the system has no certificates to trust.
    pub(crate) fn new(config: &JwtConfig) -> Result<Self, FrontError> {
        // Otherwise the library chooses a provider by its features, which other crates of a program could change.
        let _ = jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default();
        let reach = if config.dangerous_allow_private { Reach::Private } else { Reach::Public };
        let http = OAuthHttp::new(&config.keys, reach).map_err(FrontError::Keys)?;
        Ok(Self { config: config.clone(), http, keys: Mutex::default(), turn: tokio::sync::Mutex::default() })
    }

    /// Verifies a token and returns its caller. The caller's profile is `profile` unless the configuration maps claims
    /// to profiles.
    pub(crate) async fn verify(&self, token: &[u8], profile: &ProfileName) -> Result<AdmittedCaller, TokenDenial> {
        let header =
            decode_header(token).map_err(|_| TokenDenial::Invalid("it is not a JWT with a known algorithm"))?;
        check_header(&header)?;
        let key = self.key(&header).await?;
        let mut validation = Validation::new(header.alg);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.config.issuer]);
        validation.set_audience(&[&self.config.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        let decoded = decode::<Map<String, Value>>(token, &key, &validation);
        let claims = decoded.map_err(|error| TokenDenial::Invalid(why(&error)))?.claims;
        if !is_unambiguous(token) {
            return Err(TokenDenial::Invalid("one of its claims is given twice"));
        }
        // The library also accepts a list of issuers, which does not say which of them issued this token.
        if claims.get("iss").and_then(Value::as_str) != Some(&*self.config.issuer) {
            return Err(TokenDenial::Invalid("it is from another issuer, or from several"));
        }
        if claims.contains_key("cnf") {
            return Err(TokenDenial::Invalid("it is bound to a key of its holder, which this server does not check"));
        }
        let principal = claims.get(&self.config.principal).and_then(Value::as_str);
        let fits = |name: &&str| (1..=MAX_PRINCIPAL).contains(&name.chars().count()) && !name.contains(is_hidden);
        let principal =
            principal.filter(fits).ok_or(TokenDenial::Invalid("it does not name its holder in a usable way"))?;
        let profile = self.profile(&claims, profile)?;
        // The prefix keeps it apart from every principal that is not the issuer's.
        Ok(AdmittedCaller { principal: Principal::established(format!("jwt:{principal}")), profile, token: None })
    }

    /// Returns the one profile that the claims lead to.
    fn profile(&self, claims: &Map<String, Value>, default: &ProfileName) -> Result<ProfileName, TokenDenial> {
        let Some((claim, profiles)) = &self.config.profiles else { return Ok(default.clone()) };
        let given: Vec<&str> = match claims.get(claim) {
            // Scopes are one string with spaces.
            Some(Value::String(text)) => text.split_ascii_whitespace().collect(),
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let mut named = given.iter().filter_map(|value| profiles.get(*value));
        let first = named.next().ok_or(TokenDenial::NoProfile)?;
        if named.all(|other| other == first) { Ok(first.clone()) } else { Err(TokenDenial::NoProfile) }
    }

    /// Returns the key that the header names. Requests the keys again if it is not among them or they are old.
    async fn key(&self, header: &Header) -> Result<DecodingKey, TokenDenial> {
        if let Some(key) = self.keys().find(header, FRESH) {
            return Ok(key);
        }
        let turn = self.turn.try_lock().ok();
        let stale = self.keys().find(header, STALE);
        let _turn = match (turn, stale) {
            (Some(turn), _) => turn,
            // Another task requests them, and the issuer may take long to answer, or never answer.
            (None, Some(key)) => return Ok(key),
            (None, None) => self.turn.lock().await,
        };
        let (fresh, rested) = {
            let keys = self.keys();
            (keys.find(header, FRESH), keys.asked.is_none_or(|asked| asked.elapsed() >= PAUSE))
        };
        if let Some(key) = fresh {
            return Ok(key);
        }
        if rested {
            // Noted before the request too, for the case that its caller gives up, and after it, as it may have taken
            // longer than the pause.
            self.keys().asked = Some(Instant::now());
            // Boxed: it is rare, and every request of an agent would have its size.
            let answer = Box::pin(self.http.get::<RawKeys>(&self.config.keys)).await;
            self.keys().asked = Some(Instant::now());
            match answer {
                Ok(Some(raw)) => {
                    let mut keys = self.keys();
                    (keys.all, keys.came) = (usable(raw), Some(Instant::now()));
                }
                Ok(None) => tracing::error!(url = %self.config.keys, "there are no keys at `keys` under [serve.jwt]"),
                Err(error) => tracing::error!(%error, "the `keys` under [serve.jwt] cannot be fetched"),
            }
        }
        let keys = self.keys();
        match keys.came.is_some_and(|came| came.elapsed() < STALE) {
            true => keys.find(header, STALE).ok_or(TokenDenial::Invalid("it names no key of its issuer")),
            false => Err(TokenDenial::NoKeys),
        }
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock()
    }
}

impl Keys {
    /// Returns the key that a token names, if the keys are not older than `age`.
    fn find(&self, header: &Header, age: Duration) -> Option<DecodingKey> {
        self.came.filter(|came| came.elapsed() < age)?;
        let fits = |(jwk, _): &&(Jwk, DecodingKey)| match &header.kid {
            Some(kid) => jwk.common.key_id.as_ref() == Some(kid),
            // A token that names no key is accepted only if there is a single key.
            None => self.all.len() == 1,
        };
        let (jwk, key) = self.all.iter().find(fits)?;
        // The algorithm that the key declares counts, not the one that the token declares.
        let named = jwk.common.key_algorithm.map(|algorithm| algorithm.to_string());
        let agrees = named.is_none_or(|named| named == format!("{:?}", header.alg));
        (agrees && key.family() == header.alg.family()).then(|| key.clone())
    }
}

fn check_header(header: &Header) -> Result<(), TokenDenial> {
    if !ALGORITHMS.contains(&header.alg) {
        return Err(TokenDenial::Invalid("its algorithm is not an asymmetric one"));
    }
    let kind = header.typ.as_deref().unwrap_or("JWT").to_ascii_lowercase();
    if !matches!(kind.strip_prefix("application/").unwrap_or(&kind), "jwt" | "at+jwt") {
        return Err(TokenDenial::Invalid("its `typ` is that of another kind of token"));
    }
    if header.crit.is_some() {
        return Err(TokenDenial::Invalid("its `crit` header asks for extensions that this server does not have"));
    }
    Ok(())
}

/// Reports whether every claim is given once (RFC 7519, section 4): another reader of the token may take the other
/// value.
fn is_unambiguous(token: &[u8]) -> bool {
    let payload = token.split(|byte| *byte == b'.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    let claims = payload.and_then(|payload| Json::parse(payload).ok());
    claims.is_some_and(|claims| canonical(&claims).is_ok())
}

/// Returns the public keys for signatures. A key that cannot be read does not spoil the others.
fn usable(raw: RawKeys) -> Arc<[(Jwk, DecodingKey)]> {
    let keys = raw.keys.into_iter().take(MAX_KEYS).filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
    let keys = keys.filter(|key| key.common.public_key_use.as_ref().is_none_or(|is| *is == PublicKeyUse::Signature));
    let verifies = |of: &Vec<KeyOperations>| of.contains(&KeyOperations::Verify);
    let keys = keys.filter(|key| key.common.key_operations.as_ref().is_none_or(verifies));
    let keys = keys.filter_map(|key| DecodingKey::from_jwk(&key).ok().map(|decoding| (key, decoding)));
    keys.filter(|(_, decoding)| decoding.family() != jsonwebtoken::AlgorithmFamily::Hmac).collect()
}

fn why(error: &jsonwebtoken::errors::Error) -> &'static str {
    use jsonwebtoken::errors::ErrorKind;
    match error.kind() {
        ErrorKind::ExpiredSignature => "it has expired",
        ErrorKind::ImmatureSignature => "it is not valid yet",
        ErrorKind::InvalidIssuer => "it is from another issuer",
        ErrorKind::InvalidAudience => "it is for another audience",
        ErrorKind::Json(_) => "its claims cannot be read, or one is given twice",
        ErrorKind::MissingRequiredClaim(_) => "it lacks one of `exp`, `iss` and `aud`",
        _ => "its signature is not valid",
    }
}
