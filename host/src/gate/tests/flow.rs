use super::*;
use crate::call::CallView;
use crate::config::{PluginConfig, PluginRef};
use crate::flow::{Effect, PRIVATE};
use crate::plugin::{NativeError, NativePlugins, NativePolicy, PluginHost, Verdict};
use async_trait::async_trait;

/// A policy that denies everything and can ask for the information flow.
struct DeniesAll;

#[async_trait]
impl NativePolicy for DeniesAll {
    fn version(&self) -> &str {
        "1"
    }

    async fn check(&self, _: &CallView) -> Result<Verdict, NativeError> {
        Ok(Verdict::deny("no", "nothing may run"))
    }

    fn reads_flow(&self) -> bool {
        true
    }
}

async fn policy() -> crate::plugin::Policy {
    policy_with(false, &[crate::call::Phase::Call]).await
}

async fn policy_with(shadow: bool, on: &[crate::call::Phase]) -> crate::plugin::Policy {
    let policies = [("denies-all".to_owned(), Arc::new(DeniesAll) as Arc<dyn NativePolicy>)].into();
    let natives = NativePlugins { policies, ..NativePlugins::default() };
    let config = PluginConfig {
        plugin: PluginRef::Native("denies-all".to_owned()),
        settings: json!({}),
        on: on.to_vec(),
        shadow,
        grant: vec![],
        file: None,
    };
    PluginHost::new(None).unwrap().with_natives(natives).policy(&config).await.unwrap()
}

/// Remembered answers are bound to the digest.
#[tokio::test]
async fn a_policy_that_is_enforced_from_now_on_or_in_other_phases_makes_another_digest() {
    let bench = Bench::new().await;
    let mut digests = Vec::new();
    for (shadow, on) in [(true, vec![Phase::Call]), (false, vec![Phase::Call]), (false, vec![Phase::Call, Phase::List])]
    {
        let plugins = GatePlugins { policies: vec![policy_with(shadow, &on).await], ..GatePlugins::default() };
        let gate = Gate::new(plugins, bench.inbox.clone(), Duration::ZERO, bench.ledger.clone());
        assert!(!digests.contains(&gate.policies_digest), "{shadow} {on:?}");
        digests.push(gate.policies_digest);
    }
}

#[tokio::test]
async fn a_denied_call_whose_text_has_many_origins_under_a_long_name_is_recorded() {
    let mut bench = Bench::new().await;
    let plugins = GatePlugins { policies: vec![policy().await], ..GatePlugins::default() };
    let timeout = Duration::from_secs(300);
    bench.gate = Arc::new(Gate::new(plugins, bench.inbox.clone(), timeout, bench.ledger.clone()));
    let source = SourceFlow { labels: [PRIVATE.to_owned()].into(), effects: &Effect::ALL };
    let values = ["api-key-000001", "api-key-000002", "api-key-000003", "api-key-000004", "api-key-000005"];
    for value in values {
        let earlier = TracedCall::new(&bench.flow, source.clone(), &bench.call(r#"{"name":"files__read"}"#));
        earlier.keep_result(&Json::of(&json!({ "text": value })));
    }

    // With a copy of the name for each origin, the record would be larger than a record may be.
    let arguments = json!({ ("k".repeat(900_000)): values.join(" ") });
    let call = bench.call(&json!({ "name": "files__read", "arguments": arguments }).to_string());
    let peer: Arc<dyn AgentPeer> = Arc::new(Agent(Elicitation::None));
    let metrics = SourceMetrics::default();
    let input = GateInput { source_flow: Some(source), ..way::input(&bench, &peer, &metrics, None) };
    assert_eq!(code(bench.gate.admit(call, &input).await), "no");
    let denied = bench.recorded("call.denied").await;
    assert_eq!(denied.len(), 1);
    let origins = denied[0]["body"]["flow"]["origins"].as_array().unwrap();
    assert_eq!(origins.len(), values.len());
    assert!(origins.iter().all(|origin| origin["pointer"].as_str().unwrap().len() < 300));
}
