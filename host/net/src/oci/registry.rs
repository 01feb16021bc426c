//! A client for one repository of a registry.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use portcullis_core::digest::Digest;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use reqwest::{Method, Response, StatusCode};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::manifest::{ComponentLayer, MANIFEST_TYPE, MEDIA_TYPES};
use super::{ComponentReference, MAX_MANIFEST_BYTES, OciError};
use crate::egress::{Challenge, Egress, EgressError, HttpClient, OutgoingRequest, shown};

/// The longest time that a registry may send nothing.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest response that contains a token, in bytes; tokens have up to 12 KiB.
const MAX_TOKEN_BYTES: u64 = 64 << 10;

/// A client for one repository of a registry.
pub(super) struct OciRegistry {
    client: HttpClient,
    base: Url,
    reference: ComponentReference,
    /// The account to log in with, if there is one. Without it, only a token for anyone is requested.
    login: Option<RegistryLogin>,
    /// The actions that a token is requested for: `pull`, or `pull,push`.
    actions: &'static str,
    /// The token that the registry's authorization server issued, or the account itself.
    authorization: Option<HeaderValue>,
}

/// An account at a registry.
#[derive(Clone)]
pub struct RegistryLogin {
    /// The name of the account.
    pub username: String,
    /// The password, or an access token in its place.
    pub password: String,
}

impl fmt::Debug for RegistryLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryLogin").field("username", &self.username).finish_non_exhaustive()
    }
}

impl RegistryLogin {
    /// Returns the header of HTTP's Basic authentication.
    fn header(&self) -> Option<HeaderValue> {
        let text = STANDARD.encode(format!("{}:{}", self.username, self.password));
        let mut header = HeaderValue::try_from(format!("Basic {text}")).ok()?;
        header.set_sensitive(true);
        Some(header)
    }
}

impl OciRegistry {
    /// Creates the client for a reference. It does not connect yet.
    pub(super) fn of(reference: &ComponentReference) -> Result<Self, OciError> {
        let base = reference.base().ok_or(EgressError::Url { url: reference.to_string(), what: "it has no host" })?;
        let client = Egress::new().client_at(&base)?;
        let (reference, actions) = (reference.clone(), "pull");
        Ok(Self { client, base, reference, login: None, actions, authorization: None })
    }

    /// Returns the client with an account, for `actions`.
    pub(super) fn with_login(self, login: Option<RegistryLogin>, actions: &'static str) -> Self {
        Self { login, actions, ..self }
    }

    /// Downloads the manifest with this digest, or else the one that the tag now refers to.
    pub(super) async fn manifest(&mut self, digest: Option<Digest>) -> Result<Vec<u8>, OciError> {
        let version = digest.map_or_else(|| self.reference.tag().to_owned(), |digest| digest.to_string());
        let (url, response) = self.get(&format!("manifests/{version}")).await?;
        let (bytes, found) = whole(&url, response, MAX_MANIFEST_BYTES).await?;
        verified(&url, bytes, found, digest.unwrap_or(found))
    }

    /// Downloads the manifest that a tag refers to, or returns `None` if there is no such tag.
    pub(super) async fn manifest_if_any(&mut self, tag: &str) -> Result<Option<Vec<u8>>, OciError> {
        let url = self.url(&format!("manifests/{tag}"))?;
        let response = self.send(request(Method::GET, &url)).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let response = self.expected(&url, response, StatusCode::OK)?;
        whole(&url, response, MAX_MANIFEST_BYTES).await.map(|(bytes, _)| Some(bytes))
    }

    /// Downloads the bytes of a layer.
    pub(super) async fn layer(&mut self, layer: &ComponentLayer) -> Result<Vec<u8>, OciError> {
        let (url, response) = self.get(&format!("blobs/{}", layer.digest)).await?;
        let (bytes, found) = whole(&url, response, layer.size).await?;
        verified(&url, bytes, found, layer.digest)
    }

    /// Uploads a blob, unless the registry has it already (distribution-spec, "Pushing blobs").
    pub(super) async fn upload(&mut self, blob: &[u8]) -> Result<(), OciError> {
        let digest = Digest::of(blob).to_string();
        let known = self.url(&format!("blobs/{digest}"))?;
        if self.send(request(Method::HEAD, &known)).await?.status() == StatusCode::OK {
            return Ok(());
        }
        let begin = self.url("blobs/uploads/")?;
        let begun = self.send(OutgoingRequest { body: Some(Bytes::new()), ..request(Method::POST, &begin) }).await?;
        let begun = self.expected(&begin, begun, StatusCode::ACCEPTED)?;
        let location = begun.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        let to = location.and_then(|location| begin.join(location).ok());
        let mut to = to.ok_or_else(|| answer(&begin, "says nowhere to upload to"))?;
        if self.base.scheme() == "https" && to.scheme() != "https" {
            return Err(answer(&begin, format!("sends the upload to `{}`, which has no TLS", shown(&to))));
        }
        to.query_pairs_mut().append_pair("digest", &digest);
        self.put(&to, "application/octet-stream", blob).await
    }

    /// Uploads a manifest under this tag.
    pub(super) async fn put_manifest(&mut self, tag: &str, manifest: &[u8]) -> Result<(), OciError> {
        let url = self.url(&format!("manifests/{tag}"))?;
        self.put(&url, MANIFEST_TYPE, manifest).await
    }

    async fn put(&mut self, url: &Url, kind: &'static str, body: &[u8]) -> Result<(), OciError> {
        let mut put = OutgoingRequest { body: Some(Bytes::copy_from_slice(body)), ..request(Method::PUT, url) };
        put.headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        let response = self.send(put).await?;
        self.expected(url, response, StatusCode::CREATED).map(drop)
    }

    async fn get(&mut self, what: &str) -> Result<(Url, Response), OciError> {
        let url = self.url(what)?;
        let response = self.send(request(Method::GET, &url)).await?;
        self.expected(&url, response, StatusCode::OK).map(|response| (url, response))
    }

    /// Returns the URL of a part of the repository.
    fn url(&self, what: &str) -> Result<Url, OciError> {
        let path = format!("{}/{what}", self.reference.name());
        self.base.join(&path).map_err(|_| answer(&self.base, "is no base for a path"))
    }

    /// Returns a response that has this status, or what another status means.
    fn expected(&self, url: &Url, response: Response, status: StatusCode) -> Result<Response, OciError> {
        match response.status() {
            found if found == status => Ok(response),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.wants_login(url)),
            StatusCode::NOT_FOUND => Err(answer(url, "does not exist")),
            found => Err(answer(url, format!("answered with status {}", found.as_u16()))),
        }
    }

    fn wants_login(&self, url: &Url) -> OciError {
        let (url, registry) = (shown(url), self.reference.registry().to_owned());
        match (&self.login, self.actions) {
            (None, "pull") => OciError::Login { url },
            _ => OciError::NoAccount { url, registry },
        }
    }

    /// Sends a request, and sends it once more with new authorization if the registry requires it. A token can expire, or
    /// allow less than this request needs.
    async fn send(&mut self, request: OutgoingRequest) -> Result<Response, OciError> {
        let again = request.again();
        let response = self.ask(request).await?;
        // Only the registry may ask for the account, not a host to which it has led.
        let is_registry = response.url().origin() == self.base.origin();
        if response.status() != StatusCode::UNAUTHORIZED || !is_registry {
            return Ok(response);
        }
        let basic = response.headers().get_all(WWW_AUTHENTICATE).iter().any(is_basic);
        let authorization = match (Challenge::of(response.headers()), self.login.as_ref().filter(|_| basic)) {
            (None, Some(login)) => login.header(),
            (None, None) if self.authorization.is_some() => return Ok(response),
            (challenge, _) => Some(self.token(&again.url, challenge).await?),
        };
        if authorization == self.authorization {
            return Ok(response);
        }
        self.authorization = authorization;
        self.ask(again).await
    }

    /// Requests a token, for the account if there is one and otherwise for anyone (distribution's "Token
    /// Authentication").
    async fn token(&self, url: &Url, challenge: Option<Challenge>) -> Result<HeaderValue, OciError> {
        #[derive(Deserialize)]
        struct Answer {
            #[serde(alias = "access_token")]
            token: Option<String>,
        }
        let wants_login = || self.wants_login(url);
        let challenge = challenge.ok_or_else(wants_login)?;
        let realm = challenge.realm.as_deref().and_then(|realm| Url::parse(realm).ok());
        let mut realm = realm.ok_or_else(wants_login)?;
        if self.base.scheme() == "https" && realm.scheme() != "https" {
            return Err(answer(url, format!("sends to `{}` for a token, which has no TLS", shown(&realm))));
        }
        let scope = self.scope(&challenge);
        let service = challenge.service.as_deref().map(|service| ("service", service));
        realm.query_pairs_mut().extend_pairs(service).append_pair("scope", &scope);
        let mut request = request(Method::GET, &realm);
        let account = self.login.as_ref().and_then(RegistryLogin::header);
        request.secrets.extend(account.map(|account| (Some(AUTHORIZATION), account)));
        let response = patient(&realm, self.client.send(request)).await??;
        if response.status() != StatusCode::OK {
            return Err(wants_login());
        }
        let (text, _) = whole(&realm, response, MAX_TOKEN_BYTES).await?;
        let token = serde_json::from_slice::<Answer>(&text).ok().and_then(|answer| answer.token);
        let header = token.and_then(|token| HeaderValue::try_from(format!("Bearer {token}")).ok());
        let mut header = header.ok_or_else(|| answer(&realm, "answered with something that is not a token"))?;
        header.set_sensitive(true);
        Ok(header)
    }

    /// Returns the scope to request a token for: the actions of this client, and those that a challenge names for this
    /// repository. A challenge names what its one request needs, such as `pull` for the look before an upload.
    fn scope(&self, challenge: &Challenge) -> String {
        let mut scope = format!("repository:{}:", self.reference.name());
        let scopes = challenge.scopes();
        let required = scopes.iter().filter_map(|required| required.strip_prefix(&scope)).flat_map(|it| it.split(','));
        let mut actions: Vec<&str> = self.actions.split(',').collect();
        for action in required {
            if !actions.contains(&action) {
                actions.push(action);
            }
        }
        scope.push_str(&actions.join(","));
        scope
    }

    /// Sends a request unchanged. Only the registry itself gets the authorization, and what has a body is redirected
    /// nowhere.
    async fn ask(&self, mut request: OutgoingRequest) -> Result<Response, OciError> {
        let at_registry = request.url.origin() == self.base.origin();
        let authorization = self.authorization.clone().filter(|_| at_registry);
        request.secrets.extend(authorization.map(|authorization| (Some(AUTHORIZATION), authorization)));
        if request.body.is_some() {
            // The time for an upload is that for the whole push.
            return Ok(self.client.send_without_redirects(request).await?);
        }
        let url = request.url.clone();
        Ok(patient(&url, self.client.send(request)).await??)
    }
}

/// Returns a request without a body.
fn request(method: Method, url: &Url) -> OutgoingRequest {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static(MEDIA_TYPES));
    headers.append(ACCEPT, HeaderValue::from_static("*/*;q=0.1"));
    OutgoingRequest { method, url: url.clone(), headers, secrets: HeaderMap::new(), body: None, on_body: None }
}

/// Reports whether a challenge is one of HTTP's Basic authentication.
fn is_basic(challenge: &HeaderValue) -> bool {
    let scheme = challenge.to_str().unwrap_or_default().split_whitespace().next();
    scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("basic"))
}

/// Reads a body of up to `most` bytes to its end, and computes its digest meanwhile.
async fn whole(url: &Url, mut response: Response, most: u64) -> Result<(Vec<u8>, Digest), OciError> {
    let (mut bytes, mut sha) = (Vec::new(), Sha256::new());
    while let Some(chunk) =
        patient(url, response.chunk()).await?.map_err(|error| EgressError::from_client(url, &error))?
    {
        if (bytes.len() + chunk.len()) as u64 > most {
            return Err(answer(url, format!("answered with more than {most} bytes")));
        }
        sha.update(&chunk);
        bytes.extend_from_slice(&chunk);
    }
    Ok((bytes, Digest(sha.finalize().into())))
}

fn verified(url: &Url, bytes: Vec<u8>, found: Digest, wanted: Digest) -> Result<Vec<u8>, OciError> {
    if found == wanted { Ok(bytes) } else { Err(OciError::Digest { url: shown(url), found, wanted }) }
}

async fn patient<T>(url: &Url, work: impl Future<Output = T>) -> Result<T, OciError> {
    let silent = |_| answer(url, format!("was silent for {} s", RESPONSE_TIMEOUT.as_secs()));
    tokio::time::timeout(RESPONSE_TIMEOUT, work).await.map_err(silent)
}

fn answer(url: &Url, what: impl Into<String>) -> OciError {
    OciError::Answer { url: shown(url), what: what.into() }
}
