//! A client for one repository of a registry.

use std::time::Duration;

use portcullis_core::digest::Digest;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::manifest::{ComponentLayer, MEDIA_TYPES};
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
    /// The token that the registry's authorization server issued.
    bearer: Option<HeaderValue>,
}

impl OciRegistry {
    /// Creates the client for a reference. It does not connect yet.
    pub(super) fn of(reference: &ComponentReference) -> Result<Self, OciError> {
        let base = reference.base().ok_or(EgressError::Url { url: reference.to_string(), what: "it has no host" })?;
        let client = Egress::new().client_at(&base)?;
        Ok(Self { client, base, reference: reference.clone(), bearer: None })
    }

    /// Downloads the manifest with this digest, or else the one that the tag stands for now.
    pub(super) async fn manifest(&mut self, digest: Option<Digest>) -> Result<Vec<u8>, OciError> {
        let version = digest.map_or_else(|| self.reference.tag().to_owned(), |digest| digest.to_string());
        let (url, response) = self.get(&format!("manifests/{version}")).await?;
        let (bytes, found) = whole(&url, response, MAX_MANIFEST_BYTES).await?;
        verified(&url, bytes, found, digest.unwrap_or(found))
    }

    /// Downloads the bytes of a layer.
    pub(super) async fn layer(&mut self, layer: &ComponentLayer) -> Result<Vec<u8>, OciError> {
        let (url, response) = self.get(&format!("blobs/{}", layer.digest)).await?;
        let (bytes, found) = whole(&url, response, layer.size).await?;
        verified(&url, bytes, found, layer.digest)
    }

    /// Sends a request, and sends it again with a token if the registry requires one that it issues to anyone.
    async fn get(&mut self, what: &str) -> Result<(Url, Response), OciError> {
        let path = format!("{}/{what}", self.reference.name());
        let url = self.base.join(&path).map_err(|_| answer(&self.base, "is no base for a path"))?;
        let mut response = self.ask(&url, self.bearer.clone()).await?;
        if response.status() == StatusCode::UNAUTHORIZED && self.bearer.is_none() {
            let challenge = Challenge::of(response.headers());
            self.bearer = Some(self.token(&url, challenge).await?);
            response = self.ask(&url, self.bearer.clone()).await?;
        }
        match response.status() {
            StatusCode::OK => Ok((url, response)),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(OciError::Login { url: shown(&url) }),
            StatusCode::NOT_FOUND => Err(answer(&url, "does not exist")),
            status => Err(answer(&url, format!("answered with status {}", status.as_u16()))),
        }
    }

    /// Requests an anonymous token (distribution's "Token Authentication").
    async fn token(&self, url: &Url, challenge: Option<Challenge>) -> Result<HeaderValue, OciError> {
        #[derive(Deserialize)]
        struct Answer {
            #[serde(alias = "access_token")]
            token: Option<String>,
        }
        let wants_login = || OciError::Login { url: shown(url) };
        let challenge = challenge.ok_or_else(wants_login)?;
        let realm = challenge.realm.as_deref().and_then(|realm| Url::parse(realm).ok());
        let mut realm = realm.ok_or_else(wants_login)?;
        if self.base.scheme() == "https" && realm.scheme() != "https" {
            return Err(answer(url, format!("sends to `{}` for a token, which has no TLS", shown(&realm))));
        }
        let scope = challenge.scope.unwrap_or_else(|| format!("repository:{}:pull", self.reference.name()));
        let service = challenge.service.as_deref().map(|service| ("service", service));
        realm.query_pairs_mut().extend_pairs(service).append_pair("scope", &scope);
        let response = self.ask(&realm, None).await?;
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

    async fn ask(&self, url: &Url, bearer: Option<HeaderValue>) -> Result<Response, OciError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(MEDIA_TYPES));
        headers.append(ACCEPT, HeaderValue::from_static("*/*;q=0.1"));
        let secrets = bearer.map(|bearer| (AUTHORIZATION, bearer)).into_iter().collect();
        let request =
            OutgoingRequest { method: Method::GET, url: url.clone(), headers, secrets, body: None, on_body: None };
        Ok(patient(url, self.client.send(request)).await??)
    }
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
