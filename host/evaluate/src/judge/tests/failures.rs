//! Refused writes and failed calls in an evaluation.

use super::*;

#[test]
fn a_refused_write_and_the_calls_that_failed_are_said() {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let refused = RecordedAttempt {
        availability: AttemptAvailability::ReadOnly,
        ..attempt(AttemptAction::Write, own.join("memory.json").to_str().unwrap(), Duration::ZERO)
    };
    let failed = |tool: &str, text: &str| ObservedCall { failed: true, ..call(tool, json!({}), text) };
    let calls = vec![
        call("find", json!({}), "nothing"),
        failed("find", "no query"),
        failed("keep", "\nEROFS: read-only file system, open 'memory.json'\n    at open (node:internal)"),
    ];
    let seen = Observation { attempts: vec![refused], calls, ..run("Keeps notes.") };
    let facts = portcullis_learn::SourceFacts { inside: vec![own], ..Default::default() };
    let target = crate::EvaluationTarget::Program(&facts);
    let evaluation = crate::Evaluation::of(&[], &[seen], target, Default::default());
    let said: Vec<String> = evaluation.exercised.failed.iter().map(ToString::to_string).collect();
    let expected =
        ["keep, 1 of 1 calls: EROFS: read-only file system, open 'memory.json'", "find, 1 of 2 calls: no query"];
    assert_eq!(said, expected, "what never worked comes first");
    let page = crate::html(&evaluation);
    let cell = evaluation.cell.unwrap();
    assert!(cell.lines.is_empty() && cell.opens_nothing().contains("was refused"), "{cell:?}");
    let refused: Vec<&str> = cell.withheld.iter().map(|line| line.value.as_str()).collect();
    assert_eq!(refused, [env!("CARGO_MANIFEST_DIR")]);
    assert!(page.contains(env!("CARGO_MANIFEST_DIR")) && page.contains("keep, 1 of 1 calls"), "{page}");
}
