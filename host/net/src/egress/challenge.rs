//! The challenge that a server sends with a 401 or 403 (RFC 9110, section 11.6.1; RFC 6750, section 3; RFC 9728,
//! section 5.1).

use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};
use serde::{Deserialize, Serialize};

/// The longest header that is parsed, in bytes, and the longest value that is taken from it.
const MAX_HEADER_BYTES: usize = 8 * 1024;
const MAX_VALUE_BYTES: usize = 2 * 1024;

/// The challenge of a server: its requirements, from its `WWW-Authenticate` header.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// The URL of the server's protected resource metadata.
    pub resource_metadata: Option<String>,
    /// The scopes that the refused request needs.
    pub scope: Option<String>,
    /// An error code, such as `invalid_token` or `insufficient_scope`.
    pub error: Option<String>,
    /// The URL at which a registry of components issues tokens.
    pub(crate) realm: Option<String>,
    /// The service for which the realm issues tokens.
    pub service: Option<String>,
}

impl Challenge {
    /// Returns the first challenge for a bearer token.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        headers.get_all(WWW_AUTHENTICATE).iter().find_map(|value| Self::parse(value.to_str().ok()?))
    }

    /// Returns the scopes one by one.
    pub fn scopes(&self) -> Vec<String> {
        self.scope.iter().flat_map(|scope| scope.split_ascii_whitespace()).map(str::to_owned).collect()
    }

    fn parse(header: &str) -> Option<Self> {
        if header.len() > MAX_HEADER_BYTES {
            return None;
        }
        let mut found: Option<Self> = None;
        let mut ours = false;
        for item in items(header) {
            let (name, value) = item.split_once('=').unwrap_or((item, ""));
            // A scheme is followed by a space and its first parameter.
            let (scheme, name) = name.trim().rsplit_once(char::is_whitespace).unwrap_or(("", name.trim()));
            let scheme = if item.contains('=') { scheme.trim() } else { item };
            if !scheme.is_empty() {
                if found.is_some() {
                    break;
                }
                ours = scheme.eq_ignore_ascii_case("bearer");
                found = ours.then(Self::default);
            }
            if let Some(challenge) = found.as_mut().filter(|_| ours) {
                challenge.take(name, &unquoted(value.trim()));
            }
        }
        found
    }

    fn take(&mut self, name: &str, value: &str) {
        let value = Some(value.to_owned()).filter(|value| !value.is_empty() && value.len() <= MAX_VALUE_BYTES);
        match name.to_ascii_lowercase().as_str() {
            "resource_metadata" => self.resource_metadata = value,
            "scope" => self.scope = value,
            "error" => self.error = value,
            "realm" => self.realm = value,
            "service" => self.service = value,
            _ => {}
        }
    }
}

/// Splits a header at the commas that are not within quotes.
fn items(header: &str) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    header
        .split(move |c| {
            let ends = c == ',' && !quoted;
            match c {
                _ if escaped => escaped = false,
                '\\' if quoted => escaped = true,
                '"' => quoted = !quoted,
                _ => {}
            }
            ends
        })
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

fn unquoted(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return value.to_owned() };
    let mut out = String::with_capacity(inner.len());
    let mut escaped = false;
    for c in inner.chars() {
        escaped = c == '\\' && !escaped;
        if !escaped {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn challenge(metadata: Option<&str>, scope: Option<&str>, error: Option<&str>) -> Option<Challenge> {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Some(Challenge {
            resource_metadata: owned(metadata),
            scope: owned(scope),
            error: owned(error),
            ..Challenge::default()
        })
    }

    #[test]
    fn what_a_challenge_says_is_found_in_every_spelling() {
        let url = "https://a.example/.well-known/oauth-protected-resource";
        for (header, expected) in [
            ("Bearer", challenge(None, None, None)),
            (
                r#"Bearer resource_metadata="https://a.example/.well-known/oauth-protected-resource""#,
                challenge(Some(url), None, None),
            ),
            (
                r#"bearer  error="insufficient_scope" , scope="a b",resource_metadata=https://a.example/.well-known/oauth-protected-resource"#,
                challenge(Some(url), Some("a b"), Some("insufficient_scope")),
            ),
            (r#"Basic realm="a, Bearer scope=\"x\"", Bearer scope="y""#, challenge(None, Some("y"), None)),
            (r#"Negotiate abc==, BEARER Scope="a\"b""#, challenge(None, Some("a\"b"), None)),
            (r#"Bearer scope="y", DPoP algs="ES256", scope="z""#, challenge(None, Some("y"), None)),
            (r#"Basic realm="x""#, None),
            ("", None),
        ] {
            assert_eq!(Challenge::parse(header), expected, "{header}");
        }
        assert_eq!(Challenge::parse(&format!("Bearer scope=\"{}\"", "x".repeat(MAX_HEADER_BYTES))), None);
        let long = format!("Bearer scope=\"{}\"", "x".repeat(MAX_VALUE_BYTES + 1));
        assert_eq!(Challenge::parse(&long), challenge(None, None, None));
    }

    proptest::proptest! {
        #[test]
        fn no_header_makes_it_panic(header in ".*") {
            let _ = Challenge::parse(&header);
        }
    }
}
