//! Policies that fail, or quote, in the phases in which a source decides how often they are asked.

use async_trait::async_trait;

use super::*;
use crate::config::{PluginConfig, PluginRef};
use crate::plugin::{NativeError, NativePlugins, NativePolicy, PluginHost, Policy, Transform, Verdict};

/// A policy that fails in the phase `list` and about notifications, and denies other results in their own words.
struct Clumsy;

#[async_trait]
impl NativePolicy for Clumsy {
    fn version(&self) -> &str {
        "1"
    }

    async fn check(&self, view: &CallView) -> Result<Verdict, NativeError> {
        match view.outcome.as_ref().filter(|outcome| outcome.get("content").is_some()) {
            Some(outcome) => Ok(Verdict::deny("clumsy", format!("this will not do: {}", outcome.as_str()))),
            None => Err("it does not know what to do".into()),
        }
    }
}

fn table(plugin: PluginRef, settings: serde_json::Value, on: Vec<Phase>) -> PluginConfig {
    PluginConfig { plugin, settings, on, shadow: false, grant: vec![], file: None }
}

async fn clumsy() -> Policy {
    let policies = [("clumsy".to_owned(), Arc::new(Clumsy) as Arc<dyn NativePolicy>)].into();
    let natives = NativePlugins { policies, ..NativePlugins::default() };
    let config = table(PluginRef::Native("clumsy".to_owned()), json!({}), vec![Phase::Result, Phase::List]);
    PluginHost::new(None).unwrap().with_natives(natives).policy(&config).await.unwrap()
}

async fn redact() -> Transform {
    let settings = json!({ "detect": ["email"] });
    let config = table(PluginRef::Builtin("redact".to_owned()), settings, vec![Phase::Result]);
    PluginHost::new(None).unwrap().transform(&config).await.unwrap()
}

async fn bench(transforms: Vec<Transform>) -> Bench {
    let mut bench = Bench::new().await;
    let plugins = GatePlugins { policies: vec![clumsy().await], transforms, ..GatePlugins::default() };
    bench.gate = Arc::new(Gate::new(plugins, bench.inbox.clone(), Duration::from_secs(300), bench.ledger.clone()));
    bench
}

#[tokio::test]
async fn a_source_makes_few_records_with_notifications_and_items_on_which_a_plugin_fails() {
    let bench = bench(Vec::new()).await;
    let call = Arc::new(bench.call(r#"{"name":"files__read"}"#));
    for number in 0..5_000 {
        let params = Json::of(&json!({ "data": number }));
        assert_eq!(bench.gate.filter_notification(&call, &bench.vault, &bench.flow, None, params).await, None);
        assert!(!bench.gate.shows(&call).await);
    }
    assert!(!bench.gate.failures.report());
    let failed = bench.recorded("plugin.failed").await;
    assert_eq!(failed.len(), 2, "{failed:?}");
    assert_eq!(failed[0]["body"]["plugin"], "native:clumsy");
    let expected = json!({ "plugin": "native:clumsy", "code": "plugin-error", "source": "files", "count": 9_999 });
    assert_eq!(failed[1]["body"], expected);
}

#[tokio::test]
async fn a_denial_quotes_nothing_that_a_transform_would_have_hidden() {
    let answer = json!({ "content": [{ "type": "text", "text": "write to ann@example.com" }] });
    for (transforms, is_quoted) in [(Vec::new(), true), (vec![redact().await], false)] {
        let bench = bench(transforms).await;
        let admitted = bench.admit(r#"{"name":"files__read","arguments":{}}"#, Approve::Never, Elicitation::None).await;
        let AdmittedCall { ticket, .. } = admitted.unwrap().unwrap();
        let Answer::Error(error) = ticket.release(Outcome::Answered(Answer::Result(Json::of(&answer)))).await else {
            panic!("it is denied")
        };
        assert!(error.as_str().contains("clumsy"), "the agent gets the code: {}", error.as_str());
        assert_eq!(error.as_str().contains("ann@example.com"), is_quoted, "{}", error.as_str());
        let withheld = bench.recorded("tool.completed").await[0]["body"]["withheld"].to_string();
        assert!(withheld.contains("ann@example.com"), "the ledger keeps the message: {withheld}");
    }
}
