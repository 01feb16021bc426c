//! Metadata about the issuers of a source's tokens, and the procedure: protected resource metadata (RFC 9728) and
//! authorization server metadata (RFC 8414, OpenID Connect Discovery).

use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

use super::{OAuthError, OAuthHttp};
use crate::egress::shown;
use crate::escape::escape_hidden;

/// A source's description of itself.
#[derive(Debug)]
pub(crate) struct Resource {
    /// The resource identifier, exactly as published: a token is requested for it (RFC 8707).
    pub(crate) id: String,
    /// The authorization server that issues tokens for the source.
    pub(crate) issuer: String,
    /// All scopes that the source lists.
    pub(crate) scopes: Vec<String>,
}

/// An authorization server's description of itself.
#[derive(Debug)]
pub(crate) struct AuthorizationServerMetadata {
    /// The issuer identifier, exactly as published.
    pub(crate) issuer: String,
    pub(crate) authorization: Url,
    pub(crate) token: Url,
    pub(crate) registration: Option<Url>,
    /// The endpoint that revokes tokens (RFC 7009).
    pub(crate) revocation: Option<Url>,
    pub(crate) scopes: Vec<String>,
    /// The methods by which clients may authenticate at the token endpoint; `None` if the server does not say.
    pub(crate) methods: Option<Vec<String>>,
    /// True if the server names itself when it sends the browser back (RFC 9207).
    pub(crate) names_itself: bool,
    /// True if the server accepts the URL of a metadata document as a client ID.
    pub(crate) takes_documents: bool,
}

#[derive(Deserialize)]
struct RawResource {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

#[derive(Deserialize)]
struct RawServer {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    registration_endpoint: Option<String>,
    revocation_endpoint: Option<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
    #[serde(default)]
    response_types_supported: Vec<String>,
    #[serde(default)]
    code_challenge_methods_supported: Vec<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    client_id_metadata_document_supported: bool,
}

/// Returns the source's description of itself, from the URL that its challenge named or else from the well-known ones.
/// If `issuer` is configured, it must be among the authorization servers that the source names. Returns `None` if the
/// source has no description.
pub(crate) async fn resource(
    http: &OAuthHttp,
    url: &Url,
    named: Option<&str>,
    issuer: Option<&str>,
) -> Result<Option<Resource>, OAuthError> {
    let places = match named {
        Some(named) => vec![http.url(named, &shown(url))?],
        None => well_known(url, "oauth-protected-resource"),
    };
    if let Some((place, raw)) = first_answer(http, places).await? {
        return checked_resource(http, url, &place, raw, issuer).map(Some);
    }
    match named {
        Some(_) => Err(OAuthError::Metadata {
            url: shown(url),
            what: "that it is described at an address where there is nothing".to_owned(),
        }),
        None => Ok(None),
    }
}

/// Returns the first document at one of these places, with its place. A server may answer anything where it has no
/// document, such as its start page, so an error counts only if no place has one.
async fn first_answer<T: DeserializeOwned>(http: &OAuthHttp, places: Vec<Url>) -> Result<Option<(Url, T)>, OAuthError> {
    let mut first_error = None;
    for place in places {
        match http.get(&place).await {
            Ok(Some(document)) => return Ok(Some((place, document))),
            Ok(None) => {}
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    first_error.map_or(Ok(None), Err)
}

fn checked_resource(
    http: &OAuthHttp,
    url: &Url,
    place: &Url,
    raw: RawResource,
    wanted: Option<&str>,
) -> Result<Resource, OAuthError> {
    let refuse = |what: String| Err(OAuthError::Metadata { url: shown(place), what });
    if !Url::parse(&raw.resource).is_ok_and(|id| covers(&id, url)) {
        let (id, url) = (escape_hidden(&raw.resource), shown(url));
        return refuse(format!("that it describes `{id}`, which is not `{url}`; no token is asked for"));
    }
    let issuer = match wanted {
        Some(wanted) => raw.authorization_servers.into_iter().find(|issuer| issuer == wanted),
        None => raw.authorization_servers.into_iter().next(),
    };
    let Some(issuer) = issuer else {
        return match wanted {
            Some(wanted) => refuse(format!("nothing about `{wanted}`, the configured `issuer`")),
            None => refuse("nothing about an authorization server that it trusts".to_owned()),
        };
    };
    http.url(&issuer, &shown(place))?;
    Ok(Resource { id: raw.resource, issuer, scopes: raw.scopes_supported })
}

/// Reports whether a token for the resource `id` is valid for the server at `url`: `id` must be the same URL, or a
/// parent of it on the same origin.
fn covers(id: &Url, url: &Url) -> bool {
    let above = id.path().trim_end_matches('/');
    let below = url.path().strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    id.fragment().is_none() && id.origin() == url.origin() && below
}

/// Returns the authorization server `issuer`'s description of itself. `chosen` is true if a person named the issuer,
/// and false if the source did.
pub(crate) async fn server(
    http: &OAuthHttp,
    issuer: &str,
    chosen: bool,
) -> Result<AuthorizationServerMetadata, OAuthError> {
    let base = http.url(issuer, issuer)?;
    if let Some((place, raw)) = first_answer(http, server_places(&base)).await? {
        return checked_server(http, (issuer, chosen), &place, raw);
    }
    let what = "does not say how to get tokens from it (RFC 8414, OpenID Connect Discovery)".to_owned();
    Err(OAuthError::Answer { url: shown(&base), what })
}

/// The parameters of a login. A server that has one of them in the address of its login page may have prepared a login
/// of its own at the server of somebody else, which reads the first of two.
const OF_THE_LOGIN: [&str; 10] = [
    "response_type",
    "client_id",
    "redirect_uri",
    "state",
    "code_challenge",
    "code_challenge_method",
    "resource",
    "scope",
    "request",
    "request_uri",
];

fn checked_server(
    http: &OAuthHttp,
    (issuer, chosen): (&str, bool),
    place: &Url,
    raw: RawServer,
) -> Result<AuthorizationServerMetadata, OAuthError> {
    let refuse = |what: &str| Err(OAuthError::Metadata { url: shown(place), what: what.to_owned() });
    if !same_issuer(&raw.issuer, issuer) {
        let (its, asked) = (escape_hidden(&raw.issuer), escape_hidden(issuer));
        return refuse(&format!("that it speaks for `{its}`, but `{asked}` was asked"));
    }
    if !raw.code_challenge_methods_supported.iter().any(|method| method == "S256") {
        return refuse("nothing about PKCE with S256, without which codes can be stolen");
    }
    if !raw.response_types_supported.is_empty() && !raw.response_types_supported.iter().any(|kind| kind == "code") {
        return refuse("that it issues no codes");
    }
    let url = |text: &str| http.url(text, &shown(place));
    let (authorization, token) = (url(&raw.authorization_endpoint)?, url(&raw.token_endpoint)?);
    if authorization.query_pairs().any(|(name, _)| OF_THE_LOGIN.contains(&&*name)) {
        return refuse(
            "a login page whose address has parameters of the login already, so that another could be meant",
        );
    }
    // A hostile source could send a person to the login of an honest server, and have that server's code sent to
    // itself. An answer that names its issuer (RFC 9207) would reveal that.
    if authorization.origin() != token.origin() && !raw.authorization_response_iss_parameter_supported && !chosen {
        return refuse(&format!(
            "that one logs in at `{}` and that the code from there is brought to `{}`; if both belong to `{}`, write `oauth \
             = {{ issuer = \"{}\" }}` in the source",
            shown(&authorization),
            shown(&token),
            escape_hidden(issuer),
            escape_hidden(issuer)
        ));
    }
    Ok(AuthorizationServerMetadata {
        authorization,
        token,
        registration: raw.registration_endpoint.as_deref().map(url).transpose()?,
        revocation: raw.revocation_endpoint.as_deref().map(url).transpose()?,
        issuer: raw.issuer,
        scopes: raw.scopes_supported,
        methods: raw.token_endpoint_auth_methods_supported,
        names_itself: raw.authorization_response_iss_parameter_supported,
        takes_documents: raw.client_id_metadata_document_supported,
    })
}

/// Compares two issuers as text, except that a bare origin may or may not end in a slash: many libraries add one, and
/// both mean the same.
fn same_issuer(one: &str, other: &str) -> bool {
    let bare = |text: &str| Url::parse(text).is_ok_and(|url| url.path() == "/" && url.query().is_none());
    one == other || (bare(one) && bare(other) && one.trim_end_matches('/') == other.trim_end_matches('/'))
}

/// Returns the well-known URLs of a document (RFC 9728, section 3.1): with the path inserted after it, then at the
/// root.
fn well_known(url: &Url, document: &str) -> Vec<Url> {
    let path = url.path().trim_end_matches('/');
    let mut places = vec![at(url, &format!("/.well-known/{document}{path}"))];
    if !path.is_empty() {
        places.push(at(url, &format!("/.well-known/{document}")));
    }
    places
}

/// Returns the URLs of an authorization server's metadata, in the order of MCP's "Authorization Server Metadata
/// Discovery".
fn server_places(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/');
    let mut places = vec![
        at(issuer, &format!("/.well-known/oauth-authorization-server{path}")),
        at(issuer, &format!("/.well-known/openid-configuration{path}")),
    ];
    if !path.is_empty() {
        places.push(at(issuer, &format!("{path}/.well-known/openid-configuration")));
    }
    places
}

fn at(url: &Url, path: &str) -> Url {
    let mut place = url.clone();
    place.set_path(path);
    place.set_query(None);
    place.set_fragment(None);
    place
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_resource_is_the_server_or_above_it() {
        let covers = |id: &str, url: &str| covers(&Url::parse(id).unwrap(), &Url::parse(url).unwrap());
        for id in ["https://a.example/mcp", "https://a.example/mcp/", "https://a.example", "https://a.example:443/"] {
            assert!(covers(id, "https://a.example/mcp?x=1"), "{id}");
        }
        for id in [
            "https://a.example/mc",
            "https://a.example/mcp/x",
            "https://b.example/mcp",
            "http://a.example/mcp",
            "https://a.example:8443/mcp",
            "https://a.example/mcp#x",
        ] {
            assert!(!covers(id, "https://a.example/mcp"), "{id}");
        }
    }

    /// With two origins, a hostile source could have the code of an honest server brought to itself.
    #[test]
    fn a_login_page_and_a_token_endpoint_at_two_origins_need_a_named_server() {
        let issuer = "https://login.example";
        let http =
            OAuthHttp::new(&Url::parse("https://mcp.example/mcp").unwrap(), crate::egress::Reach::Public).unwrap();
        let is_taken = |token: &str, names_itself: bool, chosen: bool| {
            let raw = serde_json::json!({
                "issuer": issuer, "authorization_endpoint": "https://login.example/authorize", "token_endpoint": token,
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": names_itself,
            });
            let raw = serde_json::from_value(raw).unwrap();
            checked_server(&http, (issuer, chosen), &Url::parse(issuer).unwrap(), raw).is_ok()
        };
        assert!(is_taken("https://login.example/token", false, false));
        let elsewhere = "https://tokens.example/token";
        let taken =
            [(false, false), (true, false), (false, true)].map(|(names, chosen)| is_taken(elsewhere, names, chosen));
        assert_eq!(taken, [false, true, true]);
    }

    #[test]
    fn an_issuer_is_compared_as_text() {
        assert!(same_issuer("https://a.example/x", "https://a.example/x"));
        assert!(same_issuer("https://a.example/", "https://a.example"));
        for other in
            ["https://a.example/x/", "https://A.example/x", "https://a.example:443/x", "https://a.example", "x"]
        {
            assert!(!same_issuer("https://a.example/x", other), "{other}");
        }
    }

    #[test]
    fn metadata_is_looked_for_in_the_order_of_the_specification() {
        let texts = |urls: Vec<Url>| urls.iter().map(Url::to_string).collect::<Vec<_>>();
        let url = |text: &str| Url::parse(text).unwrap();
        assert_eq!(
            texts(well_known(&url("https://a.example/v1/mcp?x"), "oauth-protected-resource")),
            [
                "https://a.example/.well-known/oauth-protected-resource/v1/mcp",
                "https://a.example/.well-known/oauth-protected-resource"
            ]
        );
        assert_eq!(
            texts(server_places(&url("https://a.example/tenant"))),
            [
                "https://a.example/.well-known/oauth-authorization-server/tenant",
                "https://a.example/.well-known/openid-configuration/tenant",
                "https://a.example/tenant/.well-known/openid-configuration"
            ]
        );
        assert_eq!(
            texts(server_places(&url("https://a.example"))),
            [
                "https://a.example/.well-known/oauth-authorization-server",
                "https://a.example/.well-known/openid-configuration"
            ]
        );
    }
}
