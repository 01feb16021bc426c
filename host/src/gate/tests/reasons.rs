//! An answer counts for the reasons that the person was told, and for no other.

use super::approvals::{answer, input_required, retry};
use super::*;

const CALL: &str = r#"{"name":"files__read","arguments":{"path":"/a"}}"#;

/// Asks about the call, as risky, and gives a yes that no call waits for.
async fn answered_as_risky(bench: &Bench) {
    let asked = bench.admit(CALL, Approve::Risky, Elicitation::InputRequired).await.unwrap();
    assert!(matches!(asked, Err(CallRefusal::InputRequired(_))), "{asked:?}");
    assert!(!answer(bench, true, None).await.waited);
}

#[tokio::test]
async fn an_answer_does_not_cover_a_call_that_is_asked_about_for_another_reason() {
    let bench = Bench::new().await;
    answered_as_risky(&bench).await;
    let asked = bench.admit(CALL, Approve::Always, Elicitation::InputRequired).await.unwrap();
    assert!(matches!(asked, Err(CallRefusal::InputRequired(_))), "{asked:?}");
    assert_eq!(bench.inbox.list()[0].reasons, ["the profile asks before every call"]);
    assert!(bench.admit(CALL, Approve::Risky, Elicitation::None).await.unwrap().is_ok());
}

#[tokio::test]
async fn a_call_joins_an_open_question_only_if_its_reasons_are_the_same() {
    let bench = Bench::new().await;
    for (approve, open) in [(Approve::Risky, 1), (Approve::Always, 2), (Approve::Risky, 2), (Approve::Always, 2)] {
        let asked = bench.admit(CALL, approve, Elicitation::InputRequired).await.unwrap();
        assert!(matches!(asked, Err(CallRefusal::InputRequired(_))), "{asked:?}");
        assert_eq!(bench.inbox.list().len(), open);
    }
}

#[tokio::test]
async fn the_answer_that_a_retry_brings_counts_only_for_the_reasons_of_its_question() {
    let bench = Bench::new().await;
    let state = input_required(&bench, CALL).await;
    let other = bench.admit(&retry("/a", &state), Approve::Risky, Elicitation::InputRequired).await.unwrap();
    assert!(matches!(other, Err(CallRefusal::InputRequired(_))), "{other:?}");
    let same = bench.admit(&retry("/a", &state), Approve::Always, Elicitation::InputRequired).await.unwrap();
    assert!(same.is_ok(), "{same:?}");
}
