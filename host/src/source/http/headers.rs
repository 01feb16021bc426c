//! The HTTP headers that MCP requires with a message.
//!
//! Specification: MCP 2026-07-28 and 2025-11-25, "Transports: Streamable HTTP".

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use crate::protocol::param_header::{self, MirroredArgument};
use crate::protocol::{Json, Message, Method, Request, header, meta, revision};

pub(super) const SESSION: HeaderName = HeaderName::from_static(header::SESSION_ID);
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static(header::LAST_EVENT_ID);
const VERSION: HeaderName = HeaderName::from_static(header::PROTOCOL_VERSION);
const METHOD: HeaderName = HeaderName::from_static(header::METHOD);
const NAME: HeaderName = HeaderName::from_static(header::NAME);

/// Returns the headers for one POST. For a request that carries its own protocol version, as modern ones do, they
/// follow that version; for everything else, the agreed one.
///
/// `mirrored` returns the arguments of a tool that are repeated in headers.
pub(super) fn for_message(
    message: &Message,
    agreed: Option<&str>,
    mirrored: impl FnOnce(&str) -> Vec<MirroredArgument>,
) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let own = own_version(message);
    let Some(protocol) = own.as_deref().or(agreed) else { return headers };
    put(&mut headers, VERSION, protocol);
    if !revision::is_modern(protocol) {
        return headers;
    }
    let (method, params) = match message {
        Message::Request(Request { method, params, .. }) => (method, params),
        Message::Notification(notification) => (&notification.method, &notification.params),
        Message::Response(_) => return headers,
    };
    put(&mut headers, METHOD, method.as_str());
    if let Some(name) = params.as_ref().and_then(|params| name_of(method, params)) {
        put(&mut headers, NAME, &name);
        if method == Method::ToolsCall {
            put_arguments(&mut headers, params.as_ref(), &mirrored(&name));
        }
    }
    headers
}

fn put_arguments(headers: &mut HeaderMap, params: Option<&Json>, mirrored: &[MirroredArgument]) {
    if mirrored.is_empty() {
        return;
    }
    let arguments = params.and_then(|params| params.get("arguments")).and_then(|arguments| arguments.read().ok());
    let arguments: serde_json::Value = arguments.unwrap_or_default();
    for mirrored in mirrored {
        let name = HeaderName::from_bytes(mirrored.header.as_bytes());
        if let (Ok(name), Some(value)) = (name, mirrored.value(&arguments)) {
            put(headers, name, &value);
        }
    }
}

/// Returns the headers for a GET that listens to the server.
pub(super) fn for_listening(agreed: Option<&str>, last_event: Option<&str>) -> HeaderMap {
    let mut headers = for_ending(agreed);
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    if let Some(id) = last_event.and_then(|id| HeaderValue::from_str(id).ok()) {
        headers.insert(LAST_EVENT_ID, id);
    }
    headers
}

/// Returns the headers for a DELETE.
pub(super) fn for_ending(agreed: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(protocol) = agreed {
        put(&mut headers, VERSION, protocol);
    }
    headers
}

fn own_version(message: &Message) -> Option<String> {
    let Message::Request(Request { params: Some(params), .. }) = message else { return None };
    params.get("_meta")?.get_str(meta::PROTOCOL_VERSION)
}

/// Returns the name or URI that the request is about, for intermediaries that route it without reading its body.
fn name_of(method: &Method, params: &Json) -> Option<String> {
    params.get_str(method.named_by()?)
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // Characters that are not allowed in a header are encoded, so this never fails.
    if let Ok(value) = HeaderValue::from_str(&param_header::encode(value)) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

    use super::*;

    fn headers(text: &'static str, agreed: Option<&str>) -> Vec<(String, String)> {
        let headers = for_message(&Message::parse(text).unwrap(), agreed, |_| Vec::new());
        headers
            .iter()
            .filter(|(name, _)| name.as_str().starts_with("mcp-"))
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn nothing_is_agreed_before_initialize() {
        assert_eq!(headers(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#, None), []);
    }

    #[test]
    fn a_legacy_message_carries_the_version_alone() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}"#;
        assert_eq!(headers(text, Some("2025-06-18")), pairs(&[("mcp-protocol-version", "2025-06-18")]));
    }

    #[test]
    fn a_modern_probe_speaks_for_itself_before_anything_is_agreed() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        let expected = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "server/discover")];
        assert_eq!(headers(text, None), pairs(&expected));
    }

    #[test]
    fn the_name_header_has_the_tool_or_uri_and_encodes_what_a_header_cannot_hold() {
        for (text, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a b"}}"#, "a b"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"größe"}}"#, "=?base64?Z3LDtsOfZQ==?="),
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":" a"}}"#, "=?base64?IGE=?="),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a\r\nX-Evil: 1"}}"#,
                "=?base64?YQ0KWC1FdmlsOiAx?=",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"=?base64?YQ==?="}}"#,
                "=?base64?PT9iYXNlNjQ/WVE9PT89?=",
            ),
            (r#"{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"test://x"}}"#, "test://x"),
        ] {
            let name = headers(text, Some("2026-07-28")).into_iter().find(|(name, _)| name == "mcp-name");
            assert_eq!(name.unwrap().1, expected, "{text}");
        }
    }
}
