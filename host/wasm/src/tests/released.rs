//! Components that were built on the day on which their version of the contract was frozen (`tests/guests/released`).
//! They are never built again: each must load and decide as before.

use std::path::PathBuf;
use std::sync::Arc;

use portcullis_core::protocol::Json;
use portcullis_core::testing::view;
use serde_json::json;

use super::super::testing::plugins;
use super::super::*;
use super::entry;

fn released(file: &str) -> PluginRef {
    PluginRef::Path(PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/guests/released")).join(file))
}

struct NoVault;

impl Vault for NoVault {
    fn protect(&self, _: &str, value: &str, _: Vec<String>) -> String {
        value.to_owned()
    }
}

#[tokio::test]
async fn a_policy_of_0_1_0_loads_and_decides() {
    let settings = json!({ "refuse": "evil", "ask": "odd" });
    let config = PluginConfig { plugin: released("policy-0.1.0.wasm"), ..entry("plain", settings) };
    let policy = plugins().policy(&config).await.unwrap();
    assert_eq!(policy.check(&view(r#"{"a":"fine"}"#)).await, Ok(Verdict::Pass));
    assert_eq!(policy.check(&view(r#"{"a":"odd"}"#)).await, Ok(Verdict::ask("odd", "read of files holds \"odd\"")));
    let denied = policy.check(&view(r#"{"a":"evil"}"#)).await;
    assert_eq!(denied, Ok(Verdict::deny("plain-refused", "files__read holds \"evil\" in phase call")));
    let failed = policy.check(&view(r#"{"a":"please fail"}"#)).await.unwrap_err();
    assert_eq!(failed.code, FailureCode::Error);
}

#[tokio::test]
async fn a_transform_of_0_1_0_loads_and_rewrites() {
    let settings = json!({ "remove": ["token"] });
    let config = PluginConfig { plugin: released("transform-0.1.0.wasm"), ..entry("plain", settings) };
    let transform = plugins().transform(&config).await.unwrap();
    let kept = transform.rewrite(&view(r#"{"a":1}"#), Arc::new(NoVault)).await;
    assert_eq!(kept, Ok(TransformDecision::Keep));
    let rewritten = transform.rewrite(&view(r#"{"a":1,"token":"x"}"#), Arc::new(NoVault)).await;
    assert_eq!(rewritten, Ok(TransformDecision::Replace(Json::parse(r#"{"a":1}"#.to_owned()).unwrap())));
}
