//! The cost of `builtin:cedar`, counted in WebAssembly instructions: they repeat where times do not.

use portcullis_config::{PluginConfig, PluginRef};
use portcullis_core::call::Phase;
use portcullis_core::testing;
use portcullis_test_support::cedar_policies;
use serde_json::json;

use super::super::testing::plugins;

/// The number of policies, and the instructions that a decision about a call with a kilobyte of arguments may take: the
/// measured number at the time of writing, plus 5 %. `host/benches/decision.rs` measures the time.
const BUDGETS: [(usize, u64); 2] = [(1, 88_000), (50, 301_000)];

#[tokio::test]
async fn a_decision_of_cedar_stays_within_its_budget_of_instructions() {
    let host = plugins().counting();
    let view = testing::view(&json!({ "text": "x".repeat(1000) }).to_string());
    let (mut seen, mut exceeded) = (String::new(), false);
    for (number, budget) in BUDGETS {
        let policies = cedar_policies().split_inclusive(';').take(number).collect::<String>();
        let config = PluginConfig {
            plugin: PluginRef::Builtin("cedar".to_owned()),
            settings: json!({ "policies": policies }),
            on: vec![Phase::Call],
            shadow: false,
            grant: vec![],
            file: None,
        };
        let policy = host.policy(&config).await.unwrap();
        let decided = policy.check_observed(&view).await.unwrap();
        assert!(decided.decision.is_ok(), "{:?}", decided.decision);
        let instructions = decided.usage.instructions.unwrap();
        exceeded |= instructions > budget;
        seen += &format!("{number} policies: {instructions} instructions of {budget}\n");
    }
    assert!(!exceeded, "find the cause, or raise the budget and say why:\n{seen}");
}
