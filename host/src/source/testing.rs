//! What tests share: a caller who is nobody, and does not listen; a permit.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use super::{Client, Onlooker, Relay};
use crate::call::{Call, CallId, Caller, Risk, SessionId, Trust};
use crate::catalog::{Item, Kind};
use crate::digest::Digest;
use crate::gate::Permit;
use crate::message::Json;

pub(crate) fn nobody() -> Arc<dyn Client> {
    Arc::new(Onlooker)
}

pub(crate) fn silent() -> Relay {
    Relay { token: None, out: tokio::sync::mpsc::channel(1).0 }
}

/// A permit for a tool of the source `test` that was shown with this definition.
pub(crate) fn permit(definition: &serde_json::Value, arguments: serde_json::Value) -> Permit {
    let name = definition["name"].as_str().unwrap_or_default();
    let definition = Json::of(definition);
    let caller = Caller {
        principal: "local".into(),
        profile: "default".parse().unwrap(),
        trust: Trust::Medium,
        session: SessionId::new(),
        client: "test/1".into(),
    };
    let tool = Item {
        kind: Kind::Tool,
        source: "test".parse().unwrap(),
        name: name.into(),
        exposed: format!("test__{name}").into(),
        digest: Digest::of_json(&definition).unwrap(),
        definition: definition.clone(),
        hints: Default::default(),
        tags: Vec::new().into(),
    };
    let call = Call {
        id: CallId::new(),
        received_at: 0,
        method: "tools/call".into(),
        caller: caller.into(),
        params: Json::of(&serde_json::json!({ "name": name, "arguments": arguments })),
        arguments: Json::of(&arguments),
        item: tool.into(),
        risk: Risk::Risky,
    };
    Permit::unchecked(call.into())
}
