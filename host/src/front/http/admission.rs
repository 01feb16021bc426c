//! Admission: the caller, and its profile. A caller holds one of the broker's own tokens, or one that the configured
//! issuer gave it; or the program that mounts the front identifies it.
//!
//! A caller's token goes no further than this. No source ever sees it.

use std::sync::Arc;

use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};
use url::Url;

use super::current_tokens::CurrentTokens;
use super::jwt::{JwtVerifier, TokenDenial};
use super::reply::HttpRefusal;
use super::token::{AccessTokens, TokenMark};
use crate::name::ProfileName;
use crate::principal::Principal;
use crate::protocol::RpcError;

/// The path at which a protected resource describes itself (RFC 9728, section 3).
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The principal of every caller where no token is asked for.
const ANYBODY: &str = "anonymous";

/// A caller whom the program that mounts the front has itself authenticated, such as by its own login. Put it into the
/// extensions of a request, and [`HttpService`](super::HttpService) asks for no token. Nobody can send extensions over
/// a network.
///
/// Sessions are bound to the principal and the profile. Calls run under the profile with which the front was mounted
/// if [`Self::profile`] names no other.
///
/// # Example
/// ```
/// use axum::extract::Request;
/// use axum::http::StatusCode;
/// use axum::middleware::{Next, from_fn};
/// use axum::response::{IntoResponse as _, Response};
/// use portcullis::{AuthenticatedCaller, HttpService};
///
/// /// Stands for the program's own login.
/// fn user_of(request: &Request) -> Option<&str> {
///     request.headers().get("x-user")?.to_str().ok()
/// }
///
/// async fn authenticate(mut request: Request, next: Next) -> Response {
///     let Some(Ok(principal)) = user_of(&request).map(|user| format!("user:{user}").parse()) else {
///         return StatusCode::UNAUTHORIZED.into_response();
///     };
///     request.extensions_mut().insert(AuthenticatedCaller::new(principal));
///     next.run(request).await
/// }
///
/// fn app(agents: HttpService) -> axum::Router {
///     axum::Router::new().nest_service("/agents", agents).layer(from_fn(authenticate))
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticatedCaller {
    principal: Principal,
    profile: Option<ProfileName>,
}

impl AuthenticatedCaller {
    /// Returns a caller who has the profile of the front.
    #[must_use]
    pub fn new(principal: Principal) -> Self {
        Self { principal, profile: None }
    }

    /// Sets the caller's profile. Requests are answered with an error if the configuration has no such profile.
    #[must_use]
    pub fn profile(self, profile: ProfileName) -> Self {
        Self { profile: Some(profile), ..self }
    }
}

/// A caller that was admitted. Sessions are bound to its principal and profile.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct AdmittedCaller {
    pub(crate) principal: Principal,
    pub(crate) profile: ProfileName,
    /// The mark of the broker's own token by which it was admitted, if it was one.
    pub(crate) token: Option<TokenMark>,
}

/// The conditions under which callers are admitted.
pub(crate) struct Admission {
    /// The profile of callers for whom no other is configured.
    profile: ProfileName,
    /// The broker's own tokens, or `None` where every caller is admitted.
    tokens: Option<CurrentTokens>,
    issued: Option<Issued>,
}

/// The tokens of an issuer: their verification, and the audience that they are issued for.
struct Issued {
    verifier: JwtVerifier,
    issuer: String,
    /// The URL under which callers know this server.
    resource: Url,
}

impl Admission {
    /// Returns the conditions without an issuer. Without `tokens` every caller is admitted.
    pub(crate) fn new(profile: ProfileName, tokens: Option<CurrentTokens>) -> Self {
        Self { profile, tokens, issued: None }
    }

    /// Also admits callers to whom `issuer` gave a token for `resource`.
    pub(crate) fn issued(mut self, verifier: JwtVerifier, issuer: String, resource: Url) -> Self {
        self.issued = Some(Issued { verifier, issuer, resource });
        self
    }

    /// Reports whether callers need no token.
    pub(crate) fn admits_anybody(&self) -> bool {
        self.tokens.is_none()
    }

    /// Returns the caller of a request, or the refusal to answer with.
    pub(crate) async fn admit(&self, request: &Parts) -> Result<AdmittedCaller, HttpRefusal> {
        if let Some(AuthenticatedCaller { principal, profile }) = request.extensions.get() {
            let profile = profile.as_ref().unwrap_or(&self.profile).clone();
            return Ok(AdmittedCaller { principal: principal.clone(), profile, token: None });
        }
        let Some(tokens) = &self.tokens else {
            let (principal, profile) = (Principal::established(ANYBODY), self.profile.clone());
            return Ok(AdmittedCaller { principal, profile, token: None });
        };
        let Some(bearer) = bearer(&request.headers) else {
            let needs = "this server needs `Authorization: Bearer TOKEN` with its token";
            return Err(self.refuse(&lacking(needs, &request.headers), None));
        };
        if let Some(holder) = tokens.now().holder(bearer) {
            let profile = holder.profile.as_ref().unwrap_or(&self.profile).clone();
            return Ok(AdmittedCaller { principal: holder.principal.clone(), profile, token: Some(holder.mark) });
        }
        let Some(issued) = &self.issued else {
            return Err(self.refuse("this server needs `Authorization: Bearer TOKEN` with its token", None));
        };
        issued.verifier.verify(bearer, &self.profile).await.map_err(|denial| match denial {
            TokenDenial::Invalid(why) => self.refuse(
                &format!("this token is neither one of this server's own nor accepted as a JWT: {why}"),
                Some("invalid_token"),
            ),
            TokenDenial::NoProfile => {
                let message = "this token's claims lead to no profile of this server, or to several";
                HttpRefusal::rejected("profile", StatusCode::FORBIDDEN, message)
            }
            TokenDenial::NoKeys => {
                let message =
                    "the issuer's keys cannot be fetched, so no token can be checked; this server's log says why";
                HttpRefusal::new(StatusCode::SERVICE_UNAVAILABLE, RpcError::INTERNAL, message).because("token")
            }
        })
    }

    /// Checks that a caller that was admitted still is: its token may have been withdrawn while its body arrived or its
    /// session was opened.
    pub(crate) fn confirm(&self, caller: &AdmittedCaller) -> Result<(), HttpRefusal> {
        match (&self.tokens, caller.token) {
            (Some(tokens), Some(mark)) if !tokens.now().has(mark) => {
                Err(self.refuse("this token was withdrawn", Some("invalid_token")))
            }
            _ => Ok(()),
        }
    }

    /// Returns the tokens of the broker's own if they have changed since the last time that this was asked. Sessions that
    /// were opened by others end.
    pub(crate) fn changed_tokens(&self) -> Option<Arc<AccessTokens>> {
        self.tokens.as_ref()?.changed()
    }

    /// Checks whether a caller may read metrics; `None` if nobody may. A token for calls does not count, because
    /// metrics include those of other profiles.
    pub(crate) fn admit_to_metrics(&self, headers: &HeaderMap) -> Option<Result<(), HttpRefusal>> {
        let tokens = self.tokens.as_ref()?.now();
        let reads = tokens.reads_metrics(bearer(headers).unwrap_or_default())?;
        let needs = "metrics need `Authorization: Bearer TOKEN` with the `metrics-token`";
        let refusal = || self.refuse(&lacking(needs, headers), None);
        Some(if reads { Ok(()) } else { Err(refusal()) })
    }

    /// Returns the person who may answer questions, or the refusal to answer with; `None` if nobody may over HTTP. A
    /// token for calls does not count: an agent would answer its own questions with it.
    pub(crate) fn admit_person(&self, headers: &HeaderMap) -> Option<Result<Arc<str>, HttpRefusal>> {
        let tokens = self.tokens.as_ref().map(CurrentTokens::now).filter(|tokens| tokens.has_people())?;
        let needs = "questions need `Authorization: Bearer TOKEN` with a person's token";
        let refusal = || self.refuse(&lacking(needs, headers), None);
        Some(tokens.person(bearer(headers).unwrap_or_default()).ok_or_else(refusal))
    }

    /// Returns the description of this resource and its issuer (RFC 9728), if the path is one at which it is served.
    pub(crate) fn describes(&self, path: &str) -> Option<Value> {
        let Issued { issuer, resource, .. } = self.issued.as_ref()?;
        let rest = path.strip_prefix(WELL_KNOWN)?;
        (rest.is_empty() || rest == resource.path().trim_end_matches('/')).then(|| {
            json!({
                "resource": resource.as_str(),
                "authorization_servers": [issuer],
                "bearer_methods_supported": ["header"],
                "resource_name": "Portcullis",
            })
        })
    }

    fn refuse(&self, message: &str, error: Option<&str>) -> HttpRefusal {
        let mut refusal = HttpRefusal::rejected("token", StatusCode::UNAUTHORIZED, message);
        let mut parameters = Vec::new();
        parameters.extend(error.map(|error| format!("error=\"{error}\"")));
        parameters.extend(self.issued.as_ref().map(|Issued { resource, .. }| {
            let mut place = resource.clone();
            place.set_path(&format!("{WELL_KNOWN}{}", resource.path().trim_end_matches('/')));
            format!("resource_metadata=\"{place}\"")
        }));
        let challenge = format!("Bearer {}", parameters.join(", "));
        // A URL and fixed words always fit into a header.
        let challenge = HeaderValue::from_str(challenge.trim_end()).unwrap_or(HeaderValue::from_static("Bearer"));
        refusal.header = Some((WWW_AUTHENTICATE, challenge));
        refusal
    }
}

/// Returns the bearer token of a request, if the request carries exactly one.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let value = given.next().filter(|_| given.next().is_none())?;
    let (scheme, token) = value.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Adds to a message about a token what the header of a request lacks, if it has one.
fn lacking(needs: &str, headers: &HeaderMap) -> String {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let what = match (given.next(), given.next()) {
        (None, _) => return needs.to_owned(),
        (Some(_), Some(_)) => "this request has more than one `Authorization` header",
        (Some(value), None) if value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"bearer") => {
            "there is no token behind the word `Bearer` of this request's header"
        }
        (Some(_), None) if bearer(headers).is_none() => {
            "the header of this request does not begin with the word `Bearer` and a space"
        }
        (Some(_), None) => return needs.to_owned(),
    };
    format!("{needs}; {what}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use axum::http::Request;

    use super::super::token::AccessTokens;
    use super::*;

    #[tokio::test]
    async fn the_token_must_be_brought_once_and_whole() {
        let profile = || "default".parse::<ProfileName>().unwrap();
        let admission = Admission::new(profile(), Some(CurrentTokens::fixed(AccessTokens::one("s3cret".into()))));
        let check = async |given: &[&str]| {
            let (mut request, ()) = Request::new(()).into_parts();
            for value in given {
                request.headers.append(AUTHORIZATION, value.parse().unwrap());
            }
            admission.admit(&request).await
        };
        for good in ["Bearer s3cret", "bearer s3cret"] {
            assert_eq!(&*check(&[good]).await.unwrap().principal, "token");
        }
        for bad in ["Bearer s3cre", "Bearer s3crets", "Bearer ", "Bearer", "Basic s3cret", "s3cret"] {
            let refusal = check(&[bad]).await.unwrap_err();
            assert_eq!((refusal.status, refusal.reason), (StatusCode::UNAUTHORIZED, Some("token")), "{bad}");
        }
        assert!(check(&["Bearer s3cret", "Bearer x"]).await.is_err());
        assert!(check(&[]).await.is_err());
        let open = Admission::new(profile(), None).admit(&Request::new(()).into_parts().0).await.unwrap();
        assert_eq!(&*open.principal, ANYBODY);
    }

    #[test]
    fn a_header_that_is_no_bearer_token_is_told_what_it_lacks() {
        for (given, expected) in [
            (&["s3cret"][..], "needs; the header of this request does not begin with the word `Bearer` and a space"),
            (&["Basic s3cret"], "needs; the header of this request does not begin with the word `Bearer` and a space"),
            (&["Bearers3cret"], "needs; the header of this request does not begin with the word `Bearer` and a space"),
            (&["bearer"], "needs; there is no token behind the word `Bearer` of this request's header"),
            (&["Bearer a", "Bearer b"], "needs; this request has more than one `Authorization` header"),
            (&["Bearer wrong"], "needs"),
            (&[], "needs"),
        ] {
            let given = given.iter().map(|value| (AUTHORIZATION, value.parse().unwrap()));
            assert_eq!(lacking("needs", &given.collect()), expected);
        }
    }
}
