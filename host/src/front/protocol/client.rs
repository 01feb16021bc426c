//! A client's description of itself: once in `initialize`, or in the `_meta` of each modern request.

use crate::agent::{Agent, Elicitation, TransportKind};
use crate::protocol::{Era, Json, RpcError, meta, revision};

/// The longest `name/version` that is kept of a client, in characters. It goes into the ledger and into messages.
const MAX_CLIENT_CHARS: usize = 128;

/// The most bytes of a client's capabilities. They are kept for as long as its session.
const MAX_CAPABILITIES_BYTES: usize = 64 * 1024;

/// A client as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientInfo {
    pub(crate) agent: Agent,
    /// The way in which the client can put a question to a person.
    pub(crate) elicitation: Elicitation,
}

impl ClientInfo {
    /// Reads the `params` of `initialize`, and returns the client with the negotiated version.
    pub(crate) fn from_initialize(
        params: Option<&Json>,
        transport: TransportKind,
    ) -> Result<(Self, &'static str), RpcError> {
        let requested = params.and_then(|params| params.get_str("protocolVersion")).ok_or_else(|| {
            RpcError::new(RpcError::INVALID_PARAMS, "`initialize` needs `params.protocolVersion`, a string")
        })?;
        let version = revision::negotiate(&requested);
        let capabilities = params.and_then(|params| params.get("capabilities"));
        let capabilities = capabilities.filter(Json::is_object).unwrap_or_else(Json::empty_object);
        let capabilities =
            if revision::has_elicitation(version) { capabilities } else { capabilities.without("elicitation") };
        let capabilities = kept(&capabilities)?;
        let elicits = elicits(&capabilities);
        let elicitation = if elicits { Elicitation::Request } else { Elicitation::None };
        let name = params.and_then(|params| params.get("clientInfo")).map(|info| name(&info)).unwrap_or_default();
        let agent = Agent {
            name: name.into(),
            era: Era::Legacy,
            revision: Some(version),
            transport: Some(transport),
            capabilities,
        };
        Ok((Self { agent, elicitation }, version))
    }

    /// Reads the `_meta` of a modern request.
    ///
    /// # Errors
    /// -32602 if `_meta` lacks what every request must carry; -32022 if its version is not served.
    pub(crate) fn from_meta(params: Option<&Json>, transport: TransportKind) -> Result<Self, RpcError> {
        let meta = params.and_then(|params| params.get("_meta"));
        let version = meta
            .as_ref()
            .and_then(|meta| meta.get_str(meta::PROTOCOL_VERSION))
            .ok_or_else(|| missing(meta::PROTOCOL_VERSION))?;
        if version != revision::MODERN {
            return Err(unsupported(&version));
        }
        let capabilities = meta
            .as_ref()
            .and_then(|meta| meta.get(meta::CLIENT_CAPABILITIES))
            .filter(Json::is_object)
            .ok_or_else(|| missing(meta::CLIENT_CAPABILITIES))?;
        let capabilities = kept(&capabilities)?;
        let elicitation = if elicits(&capabilities) { Elicitation::InputRequired } else { Elicitation::None };
        let name = meta.and_then(|meta| meta.get(meta::CLIENT_INFO)).map(|info| name(&info)).unwrap_or_default();
        let agent = Agent {
            name: name.into(),
            era: Era::Modern,
            revision: Some(revision::MODERN),
            transport: Some(transport),
            capabilities,
        };
        Ok(Self { agent, elicitation })
    }
}

/// Returns capabilities in the form in which they are kept: without the request that they came with, whose memory
/// nothing counts after its end.
fn kept(capabilities: &Json) -> Result<Json, RpcError> {
    if capabilities.as_bytes().len() > MAX_CAPABILITIES_BYTES {
        let message = format!("a client's capabilities may have at most {MAX_CAPABILITIES_BYTES} bytes");
        return Err(RpcError::new(RpcError::INVALID_PARAMS, message));
    }
    Ok(capabilities.detached())
}

/// Returns the protocol version that a request carries in its `_meta`.
pub(crate) fn meta_version(params: Option<&Json>) -> Option<String> {
    params?.get("_meta")?.get_str(meta::PROTOCOL_VERSION)
}

/// Returns the error for a request with another version, which lists the versions that are served.
pub(crate) fn unsupported(requested: &str) -> RpcError {
    let requested: String = requested.chars().take(32).collect();
    RpcError::new(RpcError::UNSUPPORTED_VERSION, format!("protocol version {requested:?} is not served here"))
        .with_data(serde_json::json!({ "requested": requested, "supported": [revision::MODERN] }))
}

fn missing(key: &str) -> RpcError {
    RpcError::new(RpcError::INVALID_PARAMS, format!("request `_meta` lacks {key:?}, which every request must carry"))
}

/// Reports whether forms may be put to a person: `elicitation` is there and, where it lists modes, lists `form`.
fn elicits(capabilities: &Json) -> bool {
    capabilities
        .get("elicitation")
        .is_some_and(|modes| modes.is_object() && (modes.get("form").is_some() || modes.get("url").is_none()))
}

fn name(info: &Json) -> String {
    let part = |key| info.get_str(key).unwrap_or_default();
    let (name, version) = (part("name"), part("version"));
    let whole = if version.is_empty() { name } else { format!("{name}/{version}") };
    whole.chars().filter(|c| !c.is_control()).take(MAX_CLIENT_CHARS).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn capabilities_are_kept_without_the_request_that_they_came_with() {
        let request = |capabilities: &str, rest: usize| {
            let meta = serde_json::json!({
                meta::PROTOCOL_VERSION: revision::MODERN,
                meta::CLIENT_CAPABILITIES: { "vendor": capabilities },
            });
            let held = std::sync::Arc::new(());
            let params = serde_json::json!({ "_meta": meta, "text": "x".repeat(rest) });
            (std::sync::Arc::downgrade(&held), Json::of(&params).held_with(held))
        };
        for rest in [0, MAX_CAPABILITIES_BYTES] {
            let (held, params) = request("y", rest);
            let client = ClientInfo::from_meta(Some(&params), TransportKind::Tcp).unwrap();
            drop(params);
            assert_eq!((held.strong_count(), client.agent.capabilities.as_str()), (0, r#"{"vendor":"y"}"#), "{rest}");
        }
        let (_, params) = request(&"y".repeat(MAX_CAPABILITIES_BYTES), 0);
        let refused = ClientInfo::from_meta(Some(&params), TransportKind::Tcp).unwrap_err();
        assert!(refused.message.contains("65536 bytes"), "{refused:?}");

        let initialize = |capabilities: &str| {
            let held = std::sync::Arc::new(());
            let params = serde_json::json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "vendor": capabilities },
                "text": "x".repeat(MAX_CAPABILITIES_BYTES),
            });
            let released = std::sync::Arc::downgrade(&held);
            let params = Json::of(&params).held_with(held);
            ClientInfo::from_initialize(Some(&params), TransportKind::Tcp).map(|(client, _)| (released, client))
        };
        let (held, client) = initialize("y").unwrap();
        assert_eq!((held.strong_count(), client.agent.capabilities.as_str()), (0, r#"{"vendor":"y"}"#));
        let refused = initialize(&"y".repeat(MAX_CAPABILITIES_BYTES)).unwrap_err();
        assert!(refused.message.contains("65536 bytes"), "{refused:?}");
    }

    fn json(value: &serde_json::Value) -> Json {
        Json::of(value)
    }

    #[test]
    fn initialize_settles_on_a_known_version_and_reads_the_client() {
        let params = json(&serde_json::json!({
            "protocolVersion": "2025-06-18",
            "capabilities": { "elicitation": {} },
            "clientInfo": { "name": "inspector\u{7}", "version": "2" },
        }));
        let (client, version) = ClientInfo::from_initialize(Some(&params), TransportKind::Tcp).unwrap();
        assert_eq!(version, "2025-06-18");
        assert_eq!((&*client.agent.name, client.elicitation), ("inspector/2", Elicitation::Request));
        assert_eq!(client.agent.capabilities.as_str(), r#"{"elicitation":{}}"#);
        assert_eq!(ClientInfo::from_initialize(None, TransportKind::Tcp).unwrap_err().code, RpcError::INVALID_PARAMS);
        for (asked, given) in [("2024-11-05", "2024-11-05"), ("1999-01-01", "2025-11-25"), ("2026-07-28", "2025-11-25")]
        {
            let params = json(&serde_json::json!({ "protocolVersion": asked, "capabilities": { "elicitation": {} } }));
            assert_eq!(ClientInfo::from_initialize(Some(&params), TransportKind::Tcp).unwrap().1, given);
        }
    }

    #[test]
    fn elicitation_needs_a_version_and_a_mode_that_have_it() {
        let elicitation = |version: &str, capability: serde_json::Value| {
            let params = json(&serde_json::json!({ "protocolVersion": version, "capabilities": capability }));
            ClientInfo::from_initialize(Some(&params), TransportKind::Tcp).unwrap().0.elicitation
        };
        let form = serde_json::json!({ "elicitation": { "form": {}, "url": {} } });
        assert_eq!(elicitation("2025-11-25", form.clone()), Elicitation::Request);
        assert_eq!(elicitation("2025-03-26", form), Elicitation::None);
        assert_eq!(elicitation("2025-11-25", serde_json::json!({ "elicitation": { "url": {} } })), Elicitation::None);
        assert_eq!(elicitation("2025-11-25", serde_json::json!({})), Elicitation::None);
    }

    #[test]
    fn a_modern_request_must_carry_version_and_capabilities() {
        let meta = |value: serde_json::Value| {
            ClientInfo::from_meta(Some(&json(&serde_json::json!({ "_meta": value }))), TransportKind::Pipe)
        };
        let good = serde_json::json!({ meta::PROTOCOL_VERSION: "2026-07-28", meta::CLIENT_CAPABILITIES: { "elicitation": {} } });
        assert_eq!(meta(good).unwrap().elicitation, Elicitation::InputRequired);
        let other = meta(serde_json::json!({ meta::PROTOCOL_VERSION: "2030-01-01", meta::CLIENT_CAPABILITIES: {} }))
            .unwrap_err();
        assert_eq!(other.code, RpcError::UNSUPPORTED_VERSION);
        assert_eq!(other.data.unwrap(), serde_json::json!({ "requested": "2030-01-01", "supported": ["2026-07-28"] }));
        for bad in [serde_json::json!({}), serde_json::json!({ meta::PROTOCOL_VERSION: "2026-07-28" })] {
            assert_eq!(meta(bad).unwrap_err().code, RpcError::INVALID_PARAMS);
        }
    }
}
