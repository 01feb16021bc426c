#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use portcullis_plugin::fake::{FakeCall, FakeFlow};

use super::*;

const BOTH: [&str; 2] = [PRIVATE, UNTRUSTED];

fn check(settings: &str, flow: &FakeFlow) -> Option<String> {
    let rules = FlowRules::configure(settings).unwrap();
    match rules.check(&FakeCall::new("mail", "send"), flow).unwrap() {
        Verdict::Pass => None,
        Verdict::Ask(concern) => Some(concern.message),
        other => panic!("{other:?}"),
    }
}

fn flow(effects: &[&str], seen: &[&str]) -> FakeFlow {
    FakeFlow::default().with_effects(effects).after(seen)
}

#[test]
fn a_call_without_effects_runs_whatever_the_session_has_seen() {
    let worst = flow(&[], &BOTH).untraced().with_origin("web", "fetch", 1, &BOTH, "/a");
    assert_eq!(check("{}", &worst), None);
}

#[test]
fn a_call_with_effects_runs_in_a_session_that_has_seen_nothing() {
    assert_eq!(check("{}", &flow(&["network", "write"], &[])), None);
    assert_eq!(check("{}", &flow(&["network", "write"], &["crm"])), None);
}

#[test]
fn a_change_after_untrusted_content_asks_and_names_what_its_arguments_came_from() {
    let seen = flow(&["network", "write"], &[UNTRUSTED]);
    let reason = check("{}", &seen).unwrap();
    assert_eq!(
        reason,
        "the session has seen content that strangers may have written, and the call may change something"
    );
    let reason = check("{}", &seen.with_origin("web", "fetch", 2, &[UNTRUSTED], "/to")).unwrap();
    assert_eq!(
        reason,
        "text in `/to` came from `web__fetch`, 2 calls ago, where strangers may have written it, and the call may change \
         something"
    );
}

#[test]
fn after_text_that_reads_like_an_instruction_every_effect_asks_unless_the_rule_is_off() {
    let seen = |effects: &[&str]| flow(effects, &[INSTRUCTIONS, UNTRUSTED]);
    for settings in [r#"{"untrusted":"off","private":"off"}"#, r#"{"untrusted":"traced"}"#] {
        for (effects, may) in [(["network", "write"].as_slice(), "change"), (&["network"], "disclose")] {
            assert_eq!(
                check(settings, &seen(effects)).unwrap(),
                format!(
                    "the session has seen text that reads like an instruction to a model, and the call may {may} something"
                )
            );
        }
        assert_eq!(check(settings, &seen(&[])), None);
        assert_eq!(check(settings, &flow(&["write"], &[UNTRUSTED])), None);
    }
    assert_eq!(check(r#"{"instructions":"off"}"#, &seen(&["network"])), None);
    let both = check("{}", &seen(&["write"])).unwrap();
    assert!(
        both.contains("an instruction to a model") && both.contains("; and the session has seen content"),
        "{both}"
    );
}

#[test]
fn with_traced_untrusted_content_is_a_reason_only_in_the_arguments() {
    let seen = flow(&["write"], &[UNTRUSTED]);
    let settings = r#"{"untrusted":"traced"}"#;
    assert_eq!(check(settings, &seen), None);
    assert!(check(settings, &seen.clone().with_origin("web", "fetch", 1, &[UNTRUSTED], "/to")).is_some());
    assert!(check(settings, &seen.untraced()).unwrap().contains("more than can be traced"));
}

#[test]
fn private_text_that_a_call_may_disclose_asks() {
    let seen = flow(&["network"], &[PRIVATE]);
    assert_eq!(check("{}", &seen), None);
    let reason = check("{}", &seen.clone().with_origin("files", "read", 1, &[PRIVATE], "/body")).unwrap();
    assert_eq!(
        reason,
        "text in `/body` came from `files__read`, 1 call ago, which is private, and the call may disclose it"
    );
    assert!(check("{}", &seen.clone().untraced()).unwrap().contains("count as private content"));
    assert!(check(r#"{"private":"any"}"#, &seen).is_some());
    assert_eq!(check(r#"{"private":"off"}"#, &seen.with_origin("files", "read", 1, &[PRIVATE], "")), None);
}

#[test]
fn private_text_may_be_written_back_to_its_own_source_but_not_disclosed_by_it() {
    let own = |effects: &[&str]| flow(effects, &[PRIVATE]).with_origin("mail", "read", 1, &[PRIVATE], "/body");
    assert_eq!(check("{}", &own(&["write"])), None);
    assert!(check("{}", &own(&["network"])).is_some());
    let other = flow(&["write"], &[PRIVATE]).with_origin("files", "read", 1, &[PRIVATE], "/body");
    assert!(check("{}", &other).unwrap().contains("writes it to another place"));
}

#[test]
fn reading_on_a_network_asks_only_when_there_is_something_private_to_disclose() {
    assert_eq!(check("{}", &flow(&["network"], &[UNTRUSTED])), None);
    assert!(check("{}", &flow(&["network"], &BOTH)).unwrap().contains("may disclose what the session has seen"));
}

#[test]
fn an_effect_that_is_not_known_is_the_most_dangerous_one() {
    assert!(check("{}", &flow(&["person"], &[UNTRUSTED])).is_some());
    let private = flow(&["person"], &[PRIVATE]).with_origin("mail", "read", 1, &[PRIVATE], "");
    assert!(check("{}", &private).is_some());
}

#[test]
fn labels_of_the_operator_count_if_they_are_named() {
    let crm = flow(&["network"], &["crm"]).with_origin("crm", "find", 1, &["crm"], "/body");
    assert_eq!(check("{}", &crm), None);
    assert!(check(r#"{"private-labels":["private","crm"]}"#, &crm).is_some());
}

#[test]
fn both_reasons_are_given_and_a_long_list_is_shortened() {
    let mut many = flow(&["network", "write"], &BOTH);
    for ago in 1..=5 {
        many = many.with_origin("web", "fetch", ago, &BOTH, "/a");
    }
    let reason = check("{}", &many).unwrap();
    assert!(reason.contains("; and ") && reason.contains(", and from 2 more"), "{reason}");
}

#[test]
fn a_result_and_a_list_pass() {
    let rules = FlowRules::configure("{}").unwrap();
    let worst = flow(&["network", "write"], &BOTH).untraced();
    for call in [FakeCall::new("a", "b").in_phase(Phase::List), FakeCall::new("a", "b").with_outcome("{}")] {
        assert_eq!(rules.check(&call, &worst).unwrap(), Verdict::Pass);
    }
    let later = FakeCall::new("a", "b").in_phase(Phase::Other);
    assert!(matches!(rules.check(&later, &worst).unwrap(), Verdict::Ask(_)));
}

#[test]
fn settings_are_checked() {
    let error = |text| FlowRules::configure(text).err().unwrap();
    assert!(error(r#"{"private-labels":[]}"#).contains("`private = \"off\"`"));
    assert!(error(r#"{"untrusted-labels":["instructions"]}"#).contains("has a rule of its own"));
    let nothing = r#"{"instructions":"off","untrusted":"off","private":"off"}"#;
    assert!(error(nothing).contains("nothing would be asked"));
    assert!(error(r#"{"untrusted":"sometimes"}"#).starts_with("settings.untrusted: unknown variant"));
    assert!(error(r#"{"lables":[]}"#).starts_with("settings.lables: unknown field"));
}
