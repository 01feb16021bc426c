//! Validates the `oauth` of a source.

use super::build::ProblemCollector;
use super::error::UnlocatedProblem;
use super::raw::{Located, RawOAuth};
use super::{ConfigValue, value};

/// The `oauth` of a source with a `url`: the settings that a login cannot discover on its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct OAuthConfig {
    /// The issuer identifier of the only authorization server that is trusted. Always set if `client` is.
    pub issuer: Option<String>,
    /// The client that was registered there by hand.
    pub client: Option<OAuthClient>,
    /// The address at which a client ID metadata document of ours is published: an `https` URL with a path.
    #[serde(serialize_with = "super::digest::texts")]
    pub document: Option<url::Url>,
    /// The scopes to request instead of those that the source suggests.
    pub scopes: Option<Vec<String>>,
}

/// A client that was registered at an authorization server by hand.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct OAuthClient {
    /// The client's id.
    pub id: String,
    /// The client's secret, if it has one.
    pub secret: Option<ConfigValue>,
}

/// Validates the login settings; every problem is added to `problems`.
pub(super) fn oauth(at: &Located<RawOAuth>, has_header: bool, problems: &mut ProblemCollector) -> OAuthConfig {
    if has_header {
        problems.0.push(
            UnlocatedProblem::new(at.span(), "`oauth` and an `Authorization` among `headers` exclude each other")
                .help("remove one of them"),
        );
    }
    let raw = &**at;
    let issuer = raw.issuer.as_ref().and_then(|at| problems.keep(issuer(at)));
    let secret = raw.client_secret.as_ref().and_then(|at| problems.keep(value::value(at)));
    if let (Some(at), None) = (&raw.client_secret, &raw.client_id) {
        problems.0.push(
            UnlocatedProblem::new(at.span(), "`client-secret` is set without `client-id`").help("add the `client-id`"),
        );
    }
    if let (Some(at), None) = (&raw.client_id, &raw.issuer) {
        problems.0.push(
            UnlocatedProblem::new(
                at.span(),
                "`client-id` is set without `issuer`, so its secret could go to any server",
            )
            .help("add `issuer = \"https://…\"`, the authorization server that the client is registered at"),
        );
    }
    if let (Some(at), Some(_)) = (&raw.client_metadata, &raw.client_id) {
        problems.0.push(
            UnlocatedProblem::new(at.span(), "`client-metadata` and `client-id` exclude each other")
                .help("remove one of them"),
        );
    }
    OAuthConfig {
        issuer,
        client: raw.client_id.as_ref().and_then(|at| problems.keep(client_id(at))).map(|id| OAuthClient { id, secret }),
        document: raw.client_metadata.as_ref().and_then(|at| problems.keep(document(at))),
        scopes: raw.scopes.as_ref().map(|list| list.iter().filter_map(|at| problems.keep(scope(at))).collect()),
    }
}

/// Validates an issuer identifier (RFC 8414, section 2). It is kept as written, since issuers are compared as text.
pub(super) fn issuer(at: &Located<String>) -> Result<String, UnlocatedProblem> {
    let good = url::Url::parse(at).is_ok_and(|url| {
        let bare = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
        matches!(url.scheme(), "https" | "http") && url.has_host() && bare && url.password().is_none()
    });
    good.then(|| at.to_string()).ok_or_else(|| {
        UnlocatedProblem::new(at.span(), format!("{:?} is not an issuer", at.as_str()))
            .help("write it as the server does, like \"https://login.example.com\", without query and fragment")
    })
}

fn client_id(at: &Located<String>) -> Result<String, UnlocatedProblem> {
    let good = (1..=1024).contains(&at.len()) && at.bytes().all(|b| (b' '..=b'~').contains(&b));
    good.then(|| at.to_string()).ok_or_else(|| {
        UnlocatedProblem::new(at.span(), format!("{:?} is not a client id", at.as_str()))
            .help("write it as the server gave it")
    })
}

fn document(at: &Located<String>) -> Result<url::Url, UnlocatedProblem> {
    let url =
        url::Url::parse(at).ok().filter(|url| url.scheme() == "https" && url.path() != "/" && url.fragment().is_none());
    url.ok_or_else(|| {
        UnlocatedProblem::new(at.span(), format!("{:?} cannot be a client id", at.as_str()))
            .help("write an https URL with a path, like \"https://example.com/portcullis.json\"")
    })
}

/// Validates a scope (RFC 6749, section 3.3).
fn scope(at: &Located<String>) -> Result<String, UnlocatedProblem> {
    let good = !at.is_empty() && at.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\'));
    good.then(|| at.to_string()).ok_or_else(|| {
        UnlocatedProblem::new(at.span(), format!("{:?} is not a scope", at.as_str()))
            .help("write each scope as a string of its own")
    })
}
