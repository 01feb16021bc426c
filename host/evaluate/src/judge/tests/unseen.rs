//! Tests of what a report says that the evaluation could not see.

use super::*;
use crate::evaluation::Judgement;

#[test]
fn what_could_not_be_seen_is_said_once_for_all_runs() {
    let with = |count| Observation { unseen: [("files that were not searched", count)].into(), ..run("Keeps notes.") };
    let evaluation =
        crate::Evaluation::of(&[], &[with(2), with(3)], crate::EvaluationTarget::Remote, Default::default());
    assert!(evaluation.exercised.not.contains(&"files that were not searched: 5".to_owned()), "{evaluation:?}");
}

#[test]
fn a_source_that_floods_the_record_is_found_and_what_is_missing_is_said() {
    let flooded = Observation { missed: 7, ..run("Keeps notes.") };
    let warning = (FindingLevel::Warning, "flooded", "the record of a run".to_owned());
    assert_eq!(found(std::slice::from_ref(&flooded)), [warning]);
    let evaluation = crate::Evaluation::of(&[], &[flooded], crate::EvaluationTarget::Remote, Default::default());
    assert!(evaluation.exercised.not.iter().any(|sentence| sentence.starts_with("7 attempts")), "{evaluation:?}");
}

#[test]
fn calls_that_were_not_made_because_a_tool_is_slow_are_said_and_a_finding_in_the_baseline() {
    let slow = |condition| Observation {
        condition,
        skipped: [("forecast".to_owned(), 11), ("alerts".to_owned(), 2)].into(),
        ..run("Tells the weather.")
    };
    let runs = [slow(Condition::Baseline), slow(Condition::Values)];
    let warning = |tool: &str| (FindingLevel::Warning, "skipped-calls", format!("tool {tool}"));
    assert_eq!(found(&runs), [warning("alerts"), warning("forecast")]);
    let evaluation = crate::Evaluation::of(&[], &runs, crate::EvaluationTarget::Remote, Default::default());
    let said = "planned calls that were not made, because the tool or the run took too long (alerts, forecast): 26";
    assert!(evaluation.exercised.not.contains(&said.to_owned()), "{evaluation:?}");
}

#[test]
fn a_source_of_which_no_call_was_answered_is_not_judged() {
    let failed = ObservedCall { failed: true, ..call("tool", json!({}), "no network") };
    let of = |calls: Vec<ObservedCall>| {
        let runs = [Observation { calls, ..run("Keeps notes.") }];
        crate::Evaluation::of(&[], &runs, crate::EvaluationTarget::Remote, Default::default())
    };
    let evaluation = of(vec![failed.clone(), failed.clone()]);
    assert_eq!(evaluation.judgement, Judgement::NotJudged);
    let why = evaluation.failure.unwrap();
    assert!(why.contains("no tool ever answered without an error") && why.contains("no network"), "{why}");
    let evaluation = of(vec![failed, call("tool", json!({}), "fine")]);
    assert_eq!((evaluation.judgement, evaluation.failure), (Judgement::NothingSeen, None));
}
