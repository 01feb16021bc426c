//! What tests share: a caller who is nobody, and does not listen; a permit; what was answered.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use super::{Care, Client, Lane, Onlooker, Relay};
use crate::call::{Call, Outcome};
use crate::catalog::Item;
use crate::config::Lifecycle;
use crate::digest::Digest;
use crate::gate::Permit;
use crate::message::{Answer, Json};
use crate::plugin::testing::view;

pub(crate) fn nobody() -> Arc<dyn Client> {
    Arc::new(Onlooker)
}

pub(crate) fn silent() -> Relay {
    Relay { token: None, out: tokio::sync::mpsc::channel(1).0 }
}

/// Of a source `test` that is used for ever, and whose doings are no record.
pub(crate) fn care(timeout: Duration) -> Care {
    Care {
        name: "test".parse().unwrap(),
        timeout,
        lane: Lane::new(&"test".parse().unwrap(), None),
        lifecycle: Lifecycle::Warm,
        idle: Duration::from_secs(24 * 60 * 60),
        eager: false,
        remote: false,
        context: Arc::default(),
        record: Arc::new(|_| {}),
    }
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

/// The text that a tool answered.
pub(crate) fn text(outcome: Outcome) -> String {
    let Outcome::Answered(Answer::Result(result)) = outcome else { panic!("{outcome:?}") };
    let result: serde_json::Value = result.read().unwrap();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}
