//! A login to a source, from the source's challenge to the tokens in the data folder.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use url::Url;

use crate::config::{Config, Endpoint, OAuthConfig, SourceConfig};
use crate::egress::{Challenge, Reach, shown};
use crate::escape::escape_hidden;
use crate::name::SourceName;
use crate::oauth::callback::{Callback, CallbackParameters};
use crate::oauth::identity::{self, ConfiguredIdentity};
use crate::oauth::metadata::{self, AuthorizationServerMetadata, Resource};
use crate::oauth::store::{Login, LoginRecord, Logins};
use crate::oauth::{OAuthError, OAuthHttp, token};
use crate::secret::SecretStore;
use crate::source::{GivenValues, HttpSource, NoClient, Source as _};

/// The number of random bytes in a `state` and in a PKCE verifier.
const RANDOM_BYTES: usize = 32;

/// The scope that asks an authorization server for a refresh token, if the server supports it.
const OFFLINE: &str = "offline_access";

/// The result of a login.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LoginOutcome {
    /// The issuer of the token.
    pub issuer: String,
    /// The scopes of the token, as far as the server states them.
    pub scopes: Vec<String>,
    /// The time for which the token lasts, if the server says so.
    pub lasts: Option<Duration>,
    /// True if the token is renewed without a person.
    pub renews: bool,
}

/// Lets a person log in to a source. `show` receives the address that the person opens in a browser on this machine.
/// The browser returns to 127.0.0.1 at `port`, or at a port that the system chooses. A running broker uses the new
/// login from its next request on.
///
/// Dropping the future abandons the login; an earlier login stays.
///
/// # Errors
/// [`OAuthError`]: the source needs no login, a server does not behave as the specifications say, or the person refused
/// or did not return within ten minutes.
pub async fn login(
    config: &Config,
    source: &SourceName,
    port: Option<u16>,
    show: impl FnOnce(&str),
) -> Result<LoginOutcome, OAuthError> {
    let target = Target::of(config, source)?;
    let logins = Logins::new(&config.data_dir);
    let (open, met) = target.probe(config).await?;
    let record = logins.read(source, target.url).unwrap_or_else(|_| LoginRecord::new(source, target.url));
    let challenge = met.or(record.challenge).unwrap_or_default();
    let resource = target.resource(&challenge, open && record.login.is_none()).await?;
    let server = metadata::server(&target.http, &resource.issuer, target.oauth.issuer.is_some()).await?;
    let before = record.login.filter(|login| login.issuer == server.issuer);
    let scopes = scopes(target.oauth, &challenge, &resource, &server, before.as_ref());

    let callback = Callback::bind(port).await?;
    let redirect = callback.redirect();
    let known = target.known(config)?;
    let client = identity::identity(&target.http, &server, known, &redirect, &scopes).await?;
    let (state, verifier) = (random()?, random()?);
    let mut address = server.authorization.clone();
    address
        .query_pairs_mut()
        .append_pair("response_type", "code")
        .append_pair("client_id", &client.id)
        .append_pair("redirect_uri", &redirect)
        .append_pair("state", &state)
        .append_pair("code_challenge", &BASE64.encode(Sha256::digest(verifier.as_bytes())))
        .append_pair("code_challenge_method", "S256")
        .append_pair("resource", &resource.id)
        .extend_pairs((!scopes.is_empty()).then(|| ("scope", scopes.join(" "))));
    show(address.as_str());
    let code = code(callback.wait(&state).await?, &server)?;

    let form = [
        ("grant_type", "authorization_code"),
        ("code", &code),
        ("redirect_uri", &redirect),
        ("code_verifier", &verifier),
        ("resource", &resource.id),
    ];
    let tokens = token::ask(&target.http, &server.token, &client, &form).await?;
    let login = Login {
        issuer: server.issuer,
        endpoint: server.token.into(),
        revocation: server.revocation.map(Into::into),
        client,
        resource: resource.id,
        scopes: tokens.scopes.clone().unwrap_or(scopes),
        access: tokens.access,
        refresh: tokens.refresh,
        expires_at: tokens.expires_at,
    };
    let now = Timestamp::now().as_second();
    let logged_in = LoginOutcome {
        issuer: login.issuer.clone(),
        scopes: login.scopes.clone(),
        lasts: login.expires_at.and_then(|at| u64::try_from(at - now).ok()).map(Duration::from_secs),
        renews: login.refresh.is_some(),
    };
    keep(logins, source.clone(), target.url.clone(), login).await?;
    Ok(logged_in)
}

/// The source of a login, and the HTTP client for the servers that it names.
struct Target<'a> {
    source: &'a SourceConfig,
    url: &'a Url,
    oauth: &'a OAuthConfig,
    http: OAuthHttp,
}

impl<'a> Target<'a> {
    fn of(config: &'a Config, name: &SourceName) -> Result<Self, OAuthError> {
        let refuse = |why: &str| OAuthError::Source(format!("source `{name}` {why}"));
        let source = config.sources.get(name).ok_or_else(|| refuse("is not configured"))?;
        let Endpoint::Url { url, headers, oauth, dangerous_allow_private, .. } = &source.endpoint else {
            return Err(refuse("has no `url`: there is no server to log in to"));
        };
        if headers.contains_key("authorization") {
            return Err(refuse("has an `Authorization` among its `headers`; remove it to log in"));
        }
        let reach = if *dangerous_allow_private { Reach::Private } else { Reach::Public };
        Ok(Self { source, url, oauth, http: OAuthHttp::new(url, reach)? })
    }

    /// Discovers the source, so that it sends its challenge. Returns whether that works without a further login, and the
    /// challenge.
    async fn probe(&self, config: &Config) -> Result<(bool, Option<Challenge>), OAuthError> {
        let secrets = SecretStore::open(&config.data_dir)?;
        let Endpoint::Url { headers, .. } = &self.source.endpoint else { return Ok((false, None)) };
        let given = GivenValues::new(headers, &secrets);
        given.read()?;
        let source = HttpSource::new(self.source, given, &config.data_dir, Arc::new(|_| {}));
        let source = source.map_err(|error| OAuthError::Source(error.to_string()))?;
        let met = source.discover(&(std::sync::Arc::new(NoClient) as _)).await;
        source.close().await;
        Ok((met.is_ok(), source.challenge()))
    }

    /// Returns the source's description of itself. A source without one is its own authorization server (MCP
    /// 2025-03-26).
    async fn resource(&self, challenge: &Challenge, open: bool) -> Result<Resource, OAuthError> {
        let issuer = self.oauth.issuer.as_deref();
        let named = challenge.resource_metadata.as_deref();
        if let Some(resource) = metadata::resource(&self.http, self.url, named, issuer).await? {
            return Ok(resource);
        }
        if open && *challenge == Challenge::default() {
            return Err(OAuthError::Source(format!("source `{}` asks for no login", self.source.name)));
        }
        let issuer = issuer.map_or_else(|| self.url.origin().ascii_serialization(), str::to_owned);
        Ok(Resource { id: shown(self.url), issuer, scopes: Vec::new() })
    }

    fn known(&self, config: &Config) -> Result<ConfiguredIdentity, OAuthError> {
        let client = match &self.oauth.client {
            Some((id, secret)) => {
                let secrets = SecretStore::open(&config.data_dir)?;
                Some((id.clone(), secret.as_ref().map(|secret| secrets.resolve(secret)).transpose()?))
            }
            None => None,
        };
        Ok(ConfiguredIdentity { client, document: self.oauth.document.clone() })
    }
}

/// Returns the scopes by MCP's "Scope Selection Strategy": those that the source asked for, or else those that it
/// lists; those that were granted before, so that a further scope does not cost one of them; and the one for a refresh
/// token.
fn scopes(
    configured: &OAuthConfig,
    challenge: &Challenge,
    resource: &Resource,
    server: &AuthorizationServerMetadata,
    before: Option<&Login>,
) -> Vec<String> {
    let asked = challenge.scopes();
    let mut scopes = match &configured.scopes {
        Some(configured) => [configured.as_slice(), &asked].concat(),
        None if asked.is_empty() => resource.scopes.clone(),
        None => asked,
    };
    scopes.extend(before.into_iter().flat_map(|login| login.scopes.iter().cloned()));
    if server.scopes.iter().any(|scope| scope == OFFLINE) {
        scopes.push(OFFLINE.to_owned());
    }
    let mut seen = std::collections::HashSet::new();
    scopes.retain(|scope| seen.insert(scope.clone()));
    scopes
}

/// Returns the authorization code if the answer comes from the server that was asked (RFC 9207, section 2.4: compared
/// as text).
fn code(parameters: CallbackParameters, server: &AuthorizationServerMetadata) -> Result<String, OAuthError> {
    let issuer = escape_hidden(&server.issuer).into_owned();
    match parameters.iss {
        Some(iss) if iss != server.issuer => {
            return Err(OAuthError::Callback(format!(
                "the answer says that it comes from `{}`, but `{issuer}` was asked",
                escape_hidden(&iss)
            )));
        }
        None if server.names_itself => {
            return Err(OAuthError::Callback(format!("the answer does not say that it comes from `{issuer}`")));
        }
        _ => {}
    }
    if let Some(code) = parameters.error {
        let why = parameters.error_description.map(|why| escape_hidden(&why).into_owned());
        return Err(OAuthError::Refused { code: escape_hidden(&code).into_owned(), why });
    }
    parameters.code.ok_or_else(|| OAuthError::Callback("the answer holds neither a code nor an error".to_owned()))
}

async fn keep(logins: Logins, source: SourceName, url: Url, login: Login) -> Result<(), OAuthError> {
    let kept = tokio::task::spawn_blocking(move || {
        let _lock = logins.lock(&source)?;
        let mut record = LoginRecord::new(&source, &url);
        record.login = Some(login);
        logins.write(&source, &record)
    });
    // Only a panic or the shutdown of the runtime ends the task early.
    Ok(kept.await.map_err(|error| OAuthError::Source(error.to_string()))??)
}

fn random() -> Result<String, OAuthError> {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| OAuthError::Source(format!("the system gives no random numbers: {error}")))?;
    Ok(BASE64.encode(bytes))
}
