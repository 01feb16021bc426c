//! Validates the callers and the token issuer under `[serve]`.

use std::collections::BTreeMap;

use portcullis_core::name::ProfileName;

use super::build::ProblemCollector;
use super::error::{UnlocatedProblem, suggest};
use super::raw::{Located, RawJwt, RawServe, RawValue};
use super::{ConfigValue, ProfileConfig, oauth, value};

/// The longest name of a caller, in bytes. The name is part of the principal in the ledger.
const MAX_NAME_BYTES: usize = 64;

/// One caller: `[serve.callers.NAME]`.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct CallerConfig {
    /// The caller's bearer token.
    pub token: ConfigValue,
    /// The profile under which the caller calls.
    pub profile: ProfileName,
}

/// An issuer whose JWTs are accepted: `[serve.jwt]`.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct JwtConfig {
    /// The issuer, as in the `iss` claim of its tokens.
    pub issuer: String,
    /// The address under which callers know `/mcp`.
    #[serde(serialize_with = "super::digest::text")]
    pub resource: url::Url,
    /// The audience that tokens must name in their `aud` claim.
    pub audience: String,
    /// The address at which the issuer publishes its keys (JWKS).
    #[serde(serialize_with = "super::digest::text")]
    pub keys: url::Url,
    /// The claim that identifies the caller.
    pub principal: String,
    /// The claim whose values lead to profiles, and the profile for each value; a caller whose values lead to none is
    /// refused. `None` means one profile for all.
    pub profiles: Option<(String, BTreeMap<String, ProfileName>)>,
    /// True if the keys may be at a loopback or private address.
    pub dangerous_allow_private: bool,
}

type Profiles = BTreeMap<ProfileName, ProfileConfig>;

/// Validates the named callers and the issuer; every problem is added to `problems`.
pub(super) fn callers(
    raw: &RawServe,
    profiles: &Profiles,
    problems: &mut ProblemCollector,
) -> (BTreeMap<String, CallerConfig>, Option<JwtConfig>) {
    let open = raw.dangerous_no_token.as_ref().is_some_and(|at| **at);
    let named = raw.callers.keys().next().map(|at| (at.span(), "callers"));
    let issued = raw.jwt.as_ref().map(|at| (at.span(), "jwt"));
    let metrics = raw.metrics_token.as_ref().map(|at| (at.span(), "metrics-token"));
    let people = raw.people.keys().next().map(|at| (at.span(), "people"));
    for (span, what) in [named, issued, metrics, people].into_iter().flatten().filter(|_| open) {
        problems.0.push(
            UnlocatedProblem::new(span, format!("`{what}` and `dangerous-no-token` exclude each other"))
                .help("remove one of them"),
        );
    }
    let mut callers = BTreeMap::new();
    for (at, raw) in &raw.callers {
        let name = problems.keep(name(at));
        let token = problems.keep(token(&raw.token, "name a secret: `token = { secret = \"ci-token\" }`"));
        let profile = problems.keep(profile(&raw.profile, profiles));
        callers.extend(
            name.zip(token.zip(profile)).map(|(name, (token, profile))| (name, CallerConfig { token, profile })),
        );
    }
    (callers, raw.jwt.as_ref().and_then(|at| jwt(at, profiles, problems)))
}

/// Validates the people who may answer questions over HTTP; every problem is added to `problems`.
pub(super) fn people(raw: &RawServe, problems: &mut ProblemCollector) -> BTreeMap<String, ConfigValue> {
    let people = raw.people.iter().filter_map(|(at, raw)| {
        let token = problems.keep(token(&raw.token, "name a secret: `token = { secret = \"alice-token\" }`"));
        problems.keep(name(at)).zip(token)
    });
    people.collect()
}

fn name(at: &Located<String>) -> Result<String, UnlocatedProblem> {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let fits = (1..=MAX_NAME_BYTES).contains(&at.len()) && at.bytes().all(good);
    fits.then(|| at.to_string()).ok_or_else(|| {
        UnlocatedProblem::new(at.span(), format!("{:?} is not valid as a name", at.as_str()))
            .help(format!("1 to {MAX_NAME_BYTES} ASCII letters, digits, `-`, `_` and `.`"))
    })
}

/// Validates a bearer token. Messages do not repeat the token.
pub(super) fn token(at: &Located<RawValue>, help: &'static str) -> Result<ConfigValue, UnlocatedProblem> {
    match value::value(at)? {
        ConfigValue::Plain(text) if text.is_empty() || !text.bytes().all(|b| b.is_ascii_graphic()) => {
            Err(UnlocatedProblem::new(at.span(), "the token is empty or has other characters than visible ASCII")
                .help(help))
        }
        token => Ok(token),
    }
}

fn profile(at: &Located<String>, profiles: &Profiles) -> Result<ProfileName, UnlocatedProblem> {
    let known: Vec<&str> = profiles.keys().map(ProfileName::as_str).collect();
    let found = profiles.keys().find(|name| name.as_str() == at.as_str()).cloned();
    found.ok_or_else(|| {
        UnlocatedProblem::new(at.span(), format!("profile {:?} is not configured", at.as_str())).help(suggest(
            at,
            &known,
            "configured profiles",
        ))
    })
}

fn jwt(at: &Located<RawJwt>, profiles: &Profiles, problems: &mut ProblemCollector) -> Option<JwtConfig> {
    let raw = &**at;
    let issuer = problems.keep(oauth::issuer(&raw.issuer));
    let resource = problems.keep(web(&raw.resource, "https://broker.example.com/mcp"));
    let keys = problems.keep(web(&raw.keys, "https://login.example.com/keys"));
    let mapped = match (&raw.profile_claim, &raw.profiles) {
        (Some(claim), Some(map)) => {
            let pairs =
                map.iter().filter_map(|(value, at)| Some((value.to_string(), problems.keep(profile(at, profiles))?)));
            Some((claim.to_string(), pairs.collect()))
        }
        (None, None) => None,
        _ => {
            problems.0.push(
                UnlocatedProblem::new(at.span(), "`profile-claim` and `profiles` go together")
                    .help("name the claim, and the profile for each of its values, or leave both out"),
            );
            None
        }
    };
    let audience = raw.audience.as_ref().map_or_else(|| raw.resource.to_string(), |at| at.to_string());
    Some(JwtConfig {
        issuer: issuer?,
        resource: resource?,
        audience,
        keys: keys?,
        principal: raw.principal_claim.as_ref().map_or_else(|| "sub".to_owned(), |at| at.to_string()),
        profiles: mapped,
        dangerous_allow_private: raw.dangerous_allow_private.unwrap_or(false),
    })
}

pub(super) fn web(at: &Located<String>, example: &str) -> Result<url::Url, UnlocatedProblem> {
    let url = url::Url::parse(at).ok().filter(|url| matches!(url.scheme(), "https" | "http") && url.has_host());
    url.filter(|url| url.fragment().is_none() && url.username().is_empty() && url.password().is_none()).ok_or_else(
        || {
            UnlocatedProblem::new(at.span(), "this is not an http or https URL without credentials and fragment")
                .help(format!("write it like {example:?}"))
                .hidden_if(at.contains('@'))
        },
    )
}
