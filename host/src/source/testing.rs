//! What tests share: a caller who is nobody, and does not listen; a permit.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use super::{Client, Onlooker, Relay};
use crate::call::Call;
use crate::catalog::Item;
use crate::digest::Digest;
use crate::gate::Permit;
use crate::message::Json;
use crate::plugin::testing::view;

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
    let call = Call::clone(&view("{}").call);
    let tool = Item {
        source: "test".parse().unwrap(),
        name: name.into(),
        exposed: format!("test__{name}").into(),
        digest: Digest::of_json(&definition).unwrap(),
        definition,
        ..Item::clone(&call.item)
    };
    let params = Json::of(&serde_json::json!({ "name": name, "arguments": arguments }));
    Permit::unchecked(Call { params, arguments: Json::of(&arguments), item: tool.into(), ..call }.into())
}
