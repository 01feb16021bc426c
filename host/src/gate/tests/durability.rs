//! Which calls wait until their intents are on disk.

use super::*;

const CALL: &str = r#"{"name":"files__read","arguments":{"path":"/a"}}"#;

/// A call that is admitted without waiting for its intent, which each case below changes in one respect.
#[derive(Clone, Copy)]
struct Case {
    durability: Durability,
    harmless_cell: bool,
    risk: Risk,
    resumed: bool,
}

const NO_EFFECT: Case =
    Case { durability: Durability::Effects, harmless_cell: true, risk: Risk::Harmless, resumed: false };

/// Returns the durability that the intent of a call states.
async fn recorded(case: Case) -> serde_json::Value {
    let bench = Bench::new().await;
    let peer: Arc<dyn AgentPeer> = Arc::new(Agent(Elicitation::None));
    let metrics = SourceMetrics::default();
    let Case { durability, harmless_cell, risk, resumed } = case;
    let input = way::input(&bench, &peer, &metrics, None);
    let input = GateInput { durability, harmless_cell, resumed, ..input };
    let call = Call { risk, ..bench.call(CALL) };
    drop(bench.gate.admit(call, &input).await.unwrap());
    bench.recorded("call.intent").await.remove(0)["body"]["durability"].take()
}

#[tokio::test]
async fn only_a_call_that_can_have_no_effect_goes_ahead_of_its_intent() {
    assert_eq!(recorded(NO_EFFECT).await, "queued");
    for (case, why) in [
        (Case { durability: Durability::All, ..NO_EFFECT }, "the configuration says that every call waits"),
        (Case { harmless_cell: false, ..NO_EFFECT }, "its source may write or reach a network"),
        (Case { risk: Risk::Risky, ..NO_EFFECT }, "its source says that it may do harm"),
        (Case { resumed: true, ..NO_EFFECT }, "it may have been approved when it came first"),
    ] {
        assert_eq!(recorded(case).await, json!(null), "{why}");
    }
}

#[tokio::test]
async fn a_call_that_a_person_approved_waits_for_its_intent() {
    let bench = Bench { harmless_cell: true, ..Bench::new().await };
    let asked = bench.ask(CALL).await;
    approvals::answer(&bench, true, None).await;
    drop(asked.await.unwrap().unwrap());
    assert_eq!(bench.recorded("call.intent").await[0]["body"]["durability"], json!(null));
    let unasked = bench.admit(CALL, Approve::Never, Elicitation::None);
    drop(unasked.await.unwrap().unwrap());
    assert_eq!(bench.recorded("call.intent").await[1]["body"]["durability"], "queued");
}
