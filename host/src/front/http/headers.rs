//! The headers of a message: its media type, what its sender can read, and whether they agree with the body.

use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};

use super::reply::HttpRefusal;
use crate::front::protocol::client;
use crate::protocol::{Json, Message, Method, RpcError, header, param_header, revision};

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// Returns the one value of a header. 400 if it is given twice, because a proxy may have routed by the other value.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, HttpRefusal> {
    value(headers, name).map_err(|why| HttpRefusal::new(StatusCode::BAD_REQUEST, RpcError::INVALID_REQUEST, why))
}

/// Returns the protocol version that the headers name.
pub(crate) fn version(headers: &HeaderMap) -> Result<Option<&str>, HttpRefusal> {
    single(headers, header::PROTOCOL_VERSION)
}

/// Refuses with 415 unless the body is JSON.
pub(crate) fn check_content_type(headers: &HeaderMap) -> Result<(), HttpRefusal> {
    let given = single(headers, CONTENT_TYPE.as_str())?.unwrap_or_default();
    if given.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case(JSON)) {
        return Ok(());
    }
    let message = format!("`Content-Type` must be {JSON}");
    Err(HttpRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, RpcError::INVALID_REQUEST, message))
}

/// Refuses with 406 unless the sender accepts both forms of an answer.
pub(crate) fn check_accept(headers: &HeaderMap) -> Result<(), HttpRefusal> {
    if accepts(headers, JSON) && accepts(headers, EVENTS) {
        return Ok(());
    }
    let message = format!("`Accept` must allow both {JSON} and {EVENTS}");
    Err(HttpRefusal::new(StatusCode::NOT_ACCEPTABLE, RpcError::INVALID_REQUEST, message))
}

/// Refuses with 406 unless the sender accepts a stream of events.
pub(crate) fn check_accept_stream(headers: &HeaderMap) -> Result<(), HttpRefusal> {
    if accepts(headers, EVENTS) {
        return Ok(());
    }
    let message = format!("`Accept` must allow {EVENTS}");
    Err(HttpRefusal::new(StatusCode::NOT_ACCEPTABLE, RpcError::INVALID_REQUEST, message))
}

/// Reports whether a media type is accepted (RFC 9110, 12.5.1); an absent header accepts everything.
fn accepts(headers: &HeaderMap, media: &str) -> bool {
    let group = media.split('/').next().unwrap_or_default();
    let mut given = headers.get_all(ACCEPT).iter().peekable();
    given.peek().is_none()
        || given.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let range = parts.next().unwrap_or_default().to_ascii_lowercase();
            let refused = |part: &str| {
                let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
                weight.is_some_and(|weight| weight.parse() == Ok(0.0))
            };
            let matches = range == media || range == "*/*" || range.strip_suffix("/*") == Some(group);
            matches && !parts.any(refused)
        })
}

/// Reports whether a message belongs to the modern era. `initialize` does only if its body says so.
pub(crate) fn is_modern(headers: &HeaderMap, message: &Message) -> Result<bool, HttpRefusal> {
    let by_header = version(headers)?.is_some_and(|version| version >= revision::MODERN && version.starts_with("20"));
    Ok(match message {
        Message::Request(request) => {
            let by_body = client::meta_version(request.params.as_ref()).is_some_and(|v| !revision::is_legacy(&v));
            let by_header = by_header && request.method != Method::Initialize;
            by_header || by_body || request.method == Method::ServerDiscover
        }
        Message::Notification(_) | Message::Response(_) => by_header,
    })
}

/// Refuses with 400 if a legacy request names a version that the broker does not speak.
pub(crate) fn check_legacy_version(headers: &HeaderMap) -> Result<(), HttpRefusal> {
    match version(headers)? {
        Some(version) if !revision::is_legacy(version) => {
            let version: String = version.chars().take(32).collect();
            let message = format!("`MCP-Protocol-Version` {version:?} is not served here");
            Err(HttpRefusal::new(StatusCode::BAD_REQUEST, RpcError::INVALID_REQUEST, message))
        }
        _ => Ok(()),
    }
}

/// Refuses with 400 and -32020 unless the headers of a modern message repeat what its body says.
pub(crate) fn check_agreement(headers: &HeaderMap, message: &Message) -> Result<(), HttpRefusal> {
    let (id, method, params) = match message {
        Message::Request(request) => (Some(&request.id), &request.method, request.params.as_ref()),
        Message::Notification(notification) => (None, &notification.method, notification.params.as_ref()),
        Message::Response(_) => return Ok(()),
    };
    agreement(headers, id.is_some(), method, params).map_err(|why| {
        let error = RpcError::new(RpcError::HEADER_MISMATCH, why);
        HttpRefusal::of(StatusCode::BAD_REQUEST, id.cloned(), &error).because("mismatch")
    })
}

/// Refuses with 400 and -32020 if a header of a legacy message contradicts its body. The headers may be absent:
/// revisions with `initialize` do not have them, but proxies that route by them read them.
pub(crate) fn check_contradiction(headers: &HeaderMap, message: &Message) -> Result<(), HttpRefusal> {
    let (id, method, params) = match message {
        Message::Request(request) => (Some(&request.id), Some(&request.method), request.params.as_ref()),
        Message::Notification(notification) => (None, Some(&notification.method), notification.params.as_ref()),
        // A response has no method that a header could repeat.
        Message::Response(_) => (None, None, None),
    };
    contradiction(headers, method, params).map_err(|why| {
        let error = RpcError::new(RpcError::HEADER_MISMATCH, why);
        HttpRefusal::of(StatusCode::BAD_REQUEST, id.cloned(), &error).because("mismatch")
    })
}

fn contradiction(headers: &HeaderMap, method: Option<&Method>, params: Option<&Json>) -> Result<(), String> {
    if let Some(given) = value(headers, header::METHOD)? {
        agree("Mcp-Method", Some(given), method.map_or("", Method::as_str))?;
    }
    let Some(given) = name_in(headers)? else { return Ok(()) };
    let named = method.and_then(Method::named_by).and_then(|key| params?.get_str(key)).unwrap_or_default();
    agree("Mcp-Name", Some(&given), &named)
}

fn agreement(headers: &HeaderMap, request: bool, method: &Method, params: Option<&Json>) -> Result<(), String> {
    if request && let Some(body) = client::meta_version(params) {
        agree("MCP-Protocol-Version", value(headers, header::PROTOCOL_VERSION)?, &body)?;
    }
    agree("Mcp-Method", value(headers, header::METHOD)?, method.as_str())?;
    let Some(name) = method.named_by().and_then(|key| params?.get_str(key)) else { return Ok(()) };
    agree("Mcp-Name", name_in(headers)?.as_deref(), &name)
}

/// Returns the name that the headers give, decoded.
fn name_in(headers: &HeaderMap) -> Result<Option<String>, String> {
    let decoded = |raw| param_header::decode(raw).ok_or("`Mcp-Name` is not valid Base64");
    Ok(value(headers, header::NAME)?.map(decoded).transpose()?)
}

fn agree(header: &str, given: Option<&str>, body: &str) -> Result<(), String> {
    match given {
        None => Err(format!("header `{header}` is missing")),
        Some(given) if given != body => Err(format!("header `{header}` does not agree with the body")),
        Some(_) => Ok(()),
    }
}

/// Returns the one value of a header, or an error if it is given twice or is not ASCII text.
pub(crate) fn value<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, String> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(|value| value.to_str().map_err(|_| format!("header `{name}` is not ASCII text")));
    if values.next().is_some() {
        return Err(format!("header `{name}` is given twice"));
    }
    value.transpose()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn both_forms_of_an_answer_must_be_accepted() {
        let check = |accept: &str| check_accept(&headers(&[("accept", accept)])).is_ok();
        for good in ["application/json, text/event-stream", "*/*", "application/*;q=0.5, TEXT/event-stream"] {
            assert!(check(good), "{good}");
        }
        for bad in ["application/json", "text/event-stream", "text/html", "", "application/json, text/event-stream;q=0"]
        {
            assert!(!check(bad), "{bad}");
        }
        assert!(check_accept(&HeaderMap::new()).is_ok());
    }

    #[test]
    fn headers_must_repeat_the_body() {
        let params = Json::of(
            &serde_json::json!({ "name": "grüß", "_meta": { crate::protocol::meta::PROTOCOL_VERSION: "2026-07-28" } }),
        );
        let check =
            |pairs: &[(&'static str, &str)]| agreement(&headers(pairs), true, &Method::ToolsCall, Some(&params));
        let version = (header::PROTOCOL_VERSION, "2026-07-28");
        let name = (header::NAME, "=?base64?Z3LDvMOf?=");
        assert_eq!(check(&[version, (header::METHOD, "tools/call"), name]), Ok(()));
        for bad in [
            &[(header::METHOD, "tools/call"), name][..],
            &[(header::PROTOCOL_VERSION, "2025-11-25"), (header::METHOD, "tools/call"), name],
            &[version, name],
            &[version, (header::METHOD, "tools/list"), name],
            &[version, (header::METHOD, "tools/call")],
            &[version, (header::METHOD, "tools/call"), (header::NAME, "other")],
            &[version, (header::METHOD, "tools/call"), (header::NAME, "=?base64?!?=")],
        ] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
        let legacy =
            |pairs: &[(&'static str, &str)]| contradiction(&headers(pairs), Some(&Method::ToolsCall), Some(&params));
        for good in [&[][..], &[name], &[(header::METHOD, "tools/call")], &[(header::METHOD, "tools/call"), name]] {
            assert_eq!(legacy(good), Ok(()), "{good:?}");
        }
        for bad in [(header::METHOD, "tools/list"), (header::METHOD, ""), (header::NAME, "other"), (header::NAME, "")] {
            assert!(legacy(&[bad]).is_err(), "{bad:?}");
        }
        let mut twice = headers(&[version, (header::METHOD, "tools/call"), name]);
        twice.append(header::NAME, "x".parse().unwrap());
        assert!(agreement(&twice, true, &Method::ToolsCall, Some(&params)).is_err());
        assert!(contradiction(&twice, Some(&Method::ToolsCall), Some(&params)).is_err());
        // A request that names nothing must not have the header with a name.
        assert!(contradiction(&headers(&[(header::NAME, "x")]), Some(&Method::ToolsList), None).is_err());
    }
}
