//! The client's identity at an authorization server: configured, described by a published document, or newly registered
//! (RFC 7591).

use reqwest::StatusCode;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use url::Url;

use super::http::parse;
use super::metadata::AuthorizationServerMetadata;
use super::store::exposed;
use super::token::refused;
use super::{OAuthError, OAuthHttp};

/// The name of the client, which a person sees when asked for consent.
const CLIENT_NAME: &str = "Portcullis";

/// A client's identity at one authorization server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct OAuthIdentity {
    pub(crate) id: String,
    #[serde(serialize_with = "exposed")]
    pub(crate) secret: Option<SecretString>,
    pub(crate) method: TokenEndpointAuth,
}

/// The method by which a client authenticates at the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TokenEndpointAuth {
    /// The client does not authenticate.
    #[serde(rename = "none")]
    None,
    /// The client authenticates with an `Authorization` header.
    #[serde(rename = "client_secret_basic")]
    Basic,
    /// The client authenticates with parameters in the request body.
    #[serde(rename = "client_secret_post")]
    Post,
}

impl TokenEndpointAuth {
    const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Basic => "client_secret_basic",
            Self::Post => "client_secret_post",
        }
    }

    /// Returns the first of `wanted` that the server supports. A server that does not list its methods supports all.
    fn choose(server: &AuthorizationServerMetadata, wanted: &[Self]) -> Result<Self, OAuthError> {
        let takes = |method: &&Self| match &server.methods {
            Some(methods) => methods.iter().any(|name| name == method.name()),
            None => true,
        };
        wanted.iter().find(takes).copied().ok_or_else(|| OAuthError::Answer {
            url: server.issuer.clone(),
            what: "requires clients to authenticate in ways that this one does not support".to_owned(),
        })
    }
}

/// The configured parts of a client's identity.
#[derive(Debug, Default)]
pub(crate) struct ConfiguredIdentity {
    /// The client, if it was registered by hand.
    pub(crate) client: Option<RegisteredClient>,
    /// The URL of a published client ID metadata document.
    pub(crate) document: Option<Url>,
}

/// A client that was registered by hand.
#[derive(Debug)]
pub(crate) struct RegisteredClient {
    /// The client's id.
    pub(crate) id: String,
    /// The client's secret, if it has one.
    pub(crate) secret: Option<SecretString>,
}

/// Returns the identity to use at `server`, chosen in the order of MCP's "Client Registration Approaches".
pub(crate) async fn identity(
    http: &OAuthHttp,
    server: &AuthorizationServerMetadata,
    known: ConfiguredIdentity,
    redirect: &str,
    scopes: &[String],
) -> Result<OAuthIdentity, OAuthError> {
    if let Some(RegisteredClient { id, secret }) = known.client {
        let wanted: &[_] = if secret.is_some() {
            &[TokenEndpointAuth::Basic, TokenEndpointAuth::Post]
        } else {
            &[TokenEndpointAuth::None]
        };
        // A server that knows the client accepts it without a secret, whatever its metadata says about other clients.
        let method = TokenEndpointAuth::choose(server, wanted)
            .or_else(|error| secret.is_none().then_some(TokenEndpointAuth::None).ok_or(error));
        return Ok(OAuthIdentity { id, secret, method: method? });
    }
    if let Some(document) = known.document.filter(|_| server.takes_documents) {
        return Ok(OAuthIdentity { id: document.into(), secret: None, method: TokenEndpointAuth::None });
    }
    match &server.registration {
        Some(endpoint) => register(http, server, endpoint, redirect, scopes).await,
        None => Err(OAuthError::Answer {
            url: server.issuer.clone(),
            what: "registers no clients by itself: register one there, with a loopback redirect, and configure it as \
                   `oauth = { client-id = \"…\", issuer = \"…\" }` of the source"
                .to_owned(),
        }),
    }
}

async fn register(
    http: &OAuthHttp,
    server: &AuthorizationServerMetadata,
    endpoint: &Url,
    redirect: &str,
    scopes: &[String],
) -> Result<OAuthIdentity, OAuthError> {
    #[derive(Serialize)]
    struct Request<'a> {
        client_name: &'a str,
        application_type: &'a str,
        redirect_uris: [&'a str; 1],
        grant_types: [&'a str; 2],
        response_types: [&'a str; 1],
        token_endpoint_auth_method: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        scope: Option<String>,
    }
    #[derive(Deserialize)]
    struct Registered {
        client_id: String,
        client_secret: Option<SecretString>,
        token_endpoint_auth_method: Option<String>,
    }
    let method = TokenEndpointAuth::choose(
        server,
        &[TokenEndpointAuth::None, TokenEndpointAuth::Basic, TokenEndpointAuth::Post],
    )?;
    let request = Request {
        client_name: CLIENT_NAME,
        application_type: "native",
        redirect_uris: [redirect],
        grant_types: ["authorization_code", "refresh_token"],
        response_types: ["code"],
        token_endpoint_auth_method: method.name(),
        scope: (!scopes.is_empty()).then(|| scopes.join(" ")),
    };
    let request = serde_json::json!(request).to_string();
    let (status, text) = http.post(endpoint, "application/json", request, None).await?;
    if !matches!(status, StatusCode::CREATED | StatusCode::OK) {
        return Err(refused(endpoint, status, &text, &[]));
    }
    let registered: Registered = parse(endpoint, &text)?;
    // Some servers send an empty secret to a client that has none.
    let secret = registered.client_secret.filter(|secret| !secrecy::ExposeSecret::expose_secret(secret).is_empty());
    let given = [TokenEndpointAuth::None, TokenEndpointAuth::Basic, TokenEndpointAuth::Post];
    let given =
        given.into_iter().find(|method| registered.token_endpoint_auth_method.as_deref() == Some(method.name()));
    // The method that the server decided on counts, but a method that needs a secret becomes `None` without one.
    let method = given.unwrap_or(method);
    let method = if secret.is_none() { TokenEndpointAuth::None } else { method };
    Ok(OAuthIdentity { id: registered.client_id, secret, method })
}
