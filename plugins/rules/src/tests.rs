#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use portcullis_plugin::fake::FakeCall;

use super::*;

fn rules(settings: &str) -> Rules {
    Rules::configure(settings).unwrap_or_else(|error| panic!("{error}"))
}

fn check(settings: &str, call: &FakeCall) -> Verdict {
    rules(settings).check(call).unwrap()
}

/// Returns one word for a verdict: `pass`, `ask`, or the code of a denial.
fn word(settings: &str, call: &FakeCall) -> String {
    match check(settings, call) {
        Verdict::Pass => "pass".into(),
        Verdict::Ask(_) => "ask".into(),
        Verdict::Deny(denial) => denial.code,
    }
}

fn write() -> FakeCall {
    FakeCall::new("files", "write_file")
}

/// Reports whether a deny rule with these argument matchers denies a call with these arguments.
fn denies(matchers: &str, arguments: &str) -> bool {
    let settings = format!(r#"{{"deny":[{{"source":"*","arguments":{matchers}}}]}}"#);
    word(&settings, &write().with_arguments(arguments)) == "rule"
}

fn allows(matchers: &str, arguments: &str) -> bool {
    let settings = format!(r#"{{"allow":[{{"source":"*","arguments":{matchers}}}]}}"#);
    word(&settings, &write().with_arguments(arguments)) == "pass"
}

#[test]
fn deny_wins_over_ask_over_allow_and_the_rest_passes() {
    let all = r#"{"deny":["*__write_*"],"ask":["files__*"],"allow":["*"]}"#;
    assert_eq!(word(all, &write()), "rule");
    assert_eq!(word(all, &FakeCall::new("files", "read")), "ask");
    assert_eq!(word(all, &FakeCall::new("git", "log")), "pass");
    assert_eq!(word("{}", &write()), "pass");
}

#[test]
fn a_list_of_what_is_allowed_denies_the_rest() {
    assert_eq!(word(r#"{"allow":["git__*"]}"#, &write()), "not-allowed");
    assert_eq!(word(r#"{"allow":["git__*"],"default":"ask"}"#, &write()), "ask");
    assert_eq!(word(r#"{"default":"deny"}"#, &write()), "not-allowed");
    assert_eq!(word(r#"{"default":"ask"}"#, &write()), "ask");
    assert_eq!(word(r#"{"ask":["files__*"],"default":"deny"}"#, &write()), "ask");
}

#[test]
fn a_denial_names_its_rule_or_says_its_message() {
    let message = |settings| match check(settings, &write().with_arguments(r#"{"path":"/etc/x","force":true}"#)) {
        Verdict::Deny(denial) => denial.message,
        other => panic!("a denial, not {other:?}"),
    };
    assert_eq!(message(r#"{"deny":["*__write_*"]}"#), "denied by the rule `*__write_*`");
    assert_eq!(
        message(r#"{"deny":[{"tool":"write_*","arguments":{"path":{"not":"/srv/*"},"force":true}}]}"#),
        "denied by the rule `tool = \"write_*\", arguments.force = true, arguments.path = { not = \"/srv/*\" }`"
    );
    assert_eq!(message(r#"{"deny":[{"source":"files","message":"not today"}]}"#), "not today");
}

#[test]
fn everything_given_in_a_table_must_match() {
    let table = r#"{"deny":[{"source":"files","tool":"write_*","method":"tools/*"}]}"#;
    assert_eq!(word(table, &write()), "rule");
    assert_eq!(word(table, &FakeCall::new("git", "write_file")), "pass");
    assert_eq!(word(table, &FakeCall::new("files", "read_file")), "pass");
    assert_eq!(word(table, &write().with_method("prompts/get")), "pass");
    assert!(denies(r#"{"path":"/etc/*","force":true}"#, r#"{"path":"/etc/x","force":true}"#));
    assert!(!denies(r#"{"path":"/etc/*","force":true}"#, r#"{"path":"/etc/x","force":false}"#));
}

#[test]
fn a_source_cannot_name_its_tool_into_an_allow_rule() {
    let evil = FakeCall::new("evil", "files__read");
    assert_eq!(word(r#"{"allow":[{"tool":"files__read"}]}"#, &evil), "not-allowed");
    assert_eq!(word(r#"{"allow":[{"tool":"read","source":"files"}]}"#, &FakeCall::new("files", "read")), "pass");
    // In rules that deny or ask, either name counts, under whatever name the broker exposes the tool.
    let renamed = FakeCall::new("files", "delete_all").exposed_as("remove");
    assert_eq!(word(r#"{"deny":[{"tool":"delete_*"}]}"#, &renamed), "rule");
    assert_eq!(word(r#"{"deny":[{"tool":"rem*"}]}"#, &renamed), "rule");
}

#[test]
fn paths_lead_into_objects_and_arrays() {
    let nested = r#"{"a":{"b":[{"c":"x"},{"c":"y"}]}}"#;
    assert!(denies(r#"{"a.b.1.c":"y"}"#, nested));
    assert!(!denies(r#"{"a.b.0.c":"y"}"#, nested));
    assert!(!denies(r#"{"a.b.7.c":"*"}"#, nested));
    assert!(denies(r#"{"a.b.c":"y"}"#, nested));
    assert!(!denies(r#"{"a.x.c":"*"}"#, nested));
    assert!(!denies(r#"{"a.b.0.c.d":"*"}"#, nested));
}

#[test]
fn a_text_that_may_be_read_as_json_where_a_path_leads_on_counts_against_the_call() {
    for text in [
        r#"{"a":"{\"b\":\"x\"}"}"#,
        r#"{"a":" \n[{\"b\":\"x\"}]"}"#,
        r#"{"a":["{\"b\":\"x\"}"]}"#,
        r#"{"a":[["{\"b\":\"x\"}"],{"b":"y"}]}"#,
    ] {
        assert!(denies(r#"{"a.b":"x"}"#, text), "{text}");
        assert!(!allows(r#"{"a.b":"*"}"#, text), "{text}");
    }
    assert!(!denies(r#"{"a.b":"*"}"#, r#"{"a":"a text"}"#));
    assert!(!denies(r#"{"a":"/etc/*"}"#, r#"{"a":"[a text]"}"#), "no path leads into it");
    // Where the path ends, a list in a text counts as one.
    for list in [r#"{"a":"[\"/etc/x\"]"}"#, r#"{"a":" [[1, \"/etc/x\"]] "}"#, r#"{"a":["[\"/b\", \"/etc/x\"]"]}"#] {
        assert!(denies(r#"{"a":"/etc/*"}"#, list), "{list}");
        assert!(!allows(r#"{"a":{"not":"/etc/*"}}"#, list), "{list}");
    }
    // Some parsers read these too.
    for item in [r#""\ud800""#, r#"{"k":1,"k":2}"#, "NaN", &"[".repeat(200), "7,"] {
        for list in [format!(r#"["\/etc\/x",{item}]"#), format!(r#"[{item},"\u002fetc/x"]"#)] {
            let arguments = format!(r#"{{"a":{}}}"#, portcullis_plugin::json::quote(&list));
            assert!(denies(r#"{"a":"/etc/*"}"#, &arguments), "{arguments}");
            assert!(!allows(r#"{"a":{"not":"/etc/*"}}"#, &arguments), "{arguments}");
            assert!(!allows(r#"{"a":{"not":"/elsewhere/*"}}"#, &arguments), "{arguments}");
            let asks = r#"{"ask":[{"source":"*","arguments":{"a":"/etc/*"}}]}"#;
            assert_eq!(word(asks, &write().with_arguments(&arguments)), "ask", "{arguments}");
        }
    }
    assert!(allows(r#"{"a":{"not":"/etc/*"}}"#, r#"{"a":"[a text]"}"#), "it holds no list of texts");
    let other = r#"{"a":"[\"/srv/x\", 7, {\"b\": 1}]"}"#;
    assert!(!denies(r#"{"a":"/etc/*"}"#, other) && allows(r#"{"a":{"not":"/etc/*"}}"#, other));
    assert!(!allows(r#"{"a":"/srv/*"}"#, other), "the text itself is not such a path");
}

#[test]
fn another_spelling_of_the_same_argument_does_not_pass() {
    let etc = r#"{"path":"/etc/*"}"#;
    for same in [
        r#"{"path":"/etc/x"}"#,
        r#"{"Path":"/etc/x"}"#,
        r#"{"path":"/a","PATH":"/etc/x"}"#,
        r#"{"path":["/a",["/etc/x"]]}"#,
        r#"{"\u0070ath":"\/etc\/x"}"#,
        r#"{"path":{"value":"/etc/x"}}"#,
        r#"{"path":7}"#,
    ] {
        assert!(denies(etc, same), "{same}");
    }
    assert!(denies(r#"{"tasks":"x"}"#, r#"{"taſKs":"x"}"#));
    for spelled in ["5", "5.0", "50e-1", "0.5E+1", "\"5\"", "[5]", "true", "5e99999999999999999999"] {
        assert!(denies(r#"{"n":5}"#, &format!("{{\"n\":{spelled}}}")), "{spelled}");
    }
    assert!(denies(r#"{"force":true}"#, r#"{"force":"yes"}"#));
    for other in [r#"{"n":50}"#, r#"{"n":-5}"#, r#"{"n":5.000001}"#, r#"{"n":null}"#, r#"{"n":[]}"#, "{}"] {
        assert!(!denies(r#"{"n":5}"#, other), "{other}");
    }
    assert!(denies(r#"{"n":0}"#, r#"{"n":-0.0e5}"#));
}

#[test]
fn what_a_program_reads_as_the_same_value_counts_against_the_call_and_never_for_it() {
    for (rule, given) in [
        (r#"{"n":0}"#, r#"{"n":1e-400}"#),
        (r#"{"n":5}"#, r#"{"n":5.0000000000000000001}"#),
        (r#"{"n":9007199254740992}"#, r#"{"n":9007199254740993}"#),
        (r#"{"n":0}"#, r#"{"n":null}"#),
        (r#"{"n":0}"#, r#"{"n":[]}"#),
        (r#"{"force":false}"#, r#"{"force":null}"#),
    ] {
        assert!(denies(rule, given) && !allows(rule, given), "{rule} {given}");
    }
    assert!(!denies(r#"{"force":true}"#, r#"{"force":null}"#));
    assert!(!denies(r#"{"path":"/etc/*"}"#, r#"{"path":null}"#));
}

#[test]
fn a_path_names_every_item_of_a_list_and_one_with_a_star_is_refused() {
    let edits = r#"{"edits":[{"path":"/srv/a"},{"path":"/etc/x"}]}"#;
    assert!(denies(r#"{"edits.path":"/etc/*"}"#, edits));
    let starred = Rules::configure(r#"{"deny":[{"tool":"*","arguments":{"edits.*.path":"/etc/*"}}]}"#);
    assert!(starred.err().unwrap().contains("leave `.*` out"));
}

#[test]
fn an_allow_rule_matches_only_arguments_that_it_can_compare() {
    let srv = r#"{"path":"/srv/*"}"#;
    assert!(allows(srv, r#"{"path":"/srv/a"}"#) && allows(srv, r#"{"path":["/srv/a","/srv/b"]}"#));
    for not in [
        "{}",
        r#"{"path":null}"#,
        r#"{"path":"/etc"}"#,
        r#"{"path":["/srv/a","/etc"]}"#,
        r#"{"path":[]}"#,
        r#"{"path":"/srv/a","Path":"/etc"}"#,
        r#"{"path":7}"#,
        r#"{"path":{}}"#,
    ] {
        assert!(!allows(srv, not), "{not}");
    }
    assert!(!allows(r#"{"path":{"not":"/etc/*"}}"#, "{}"));
    assert!(allows(r#"{"n":5}"#, r#"{"n":5.0}"#) && !allows(r#"{"n":5}"#, r#"{"n":"5"}"#));
}

#[test]
fn not_matches_every_other_value_and_a_missing_one() {
    let outside = r#"{"path":{"not":"/srv/*"}}"#;
    assert!(!denies(outside, r#"{"path":"/srv/a"}"#));
    for outside_srv in [
        r#"{"path":"/etc"}"#,
        "{}",
        r#"{"path":null}"#,
        r#"{"path":[]}"#,
        r#"{"path":["/srv/a","/etc"]}"#,
        r#"{"path":1}"#,
    ] {
        assert!(denies(outside, outside_srv), "{outside_srv}");
    }
}

#[test]
fn arguments_that_can_be_read_two_ways_are_an_error() {
    let settings = r#"{"deny":[{"tool":"files__*","arguments":{"path":"/etc"}}]}"#;
    let check = |arguments| rules(settings).check(&write().with_arguments(arguments));
    assert!(check(r#"{"path":"/srv","path":"/etc"}"#).unwrap_err().contains("same key twice"));
    assert!(check(r#"{"path":"#).is_err());
}

#[test]
fn arguments_that_no_rule_looks_at_are_not_read() {
    let cut = write().with_arguments(r#"{"path":"#);
    let reads = r#"{"tool":"git__*","arguments":{"path":"/etc"}}"#;
    for settings in [r#"{"ask":["files__*"]}"#.to_owned(), format!(r#"{{"deny":[{reads}],"ask":["files__*"]}}"#)] {
        assert_eq!(rules(&settings).check(&cut), Ok(Verdict::ask("rule", "asked for by the rule `files__*`")));
    }
}

#[test]
fn a_list_hides_only_what_is_denied_whatever_the_arguments() {
    let word = |settings| word(settings, &write().in_phase(Phase::List));
    assert_eq!(word(r#"{"deny":["*__write_*"]}"#), "rule");
    assert_eq!(word(r#"{"deny":[{"tool":"write_*"}]}"#), "rule");
    assert_eq!(word(r#"{"deny":[{"tool":"write_*","arguments":{"path":{"not":"/srv/*"}}}]}"#), "pass");
    assert_eq!(word(r#"{"deny":[{"method":"tools/call"}]}"#), "pass");
    assert_eq!(word(r#"{"ask":["*"]}"#), "pass");
    assert_eq!(word(r#"{"allow":["git__*"]}"#), "not-allowed");
    assert_eq!(word(r#"{"allow":[{"source":"files","arguments":{"path":"/srv/*"}}]}"#), "pass");
    assert_eq!(word(r#"{"allow":["git__*"],"ask":["files__*"]}"#), "pass");
    assert_eq!(word(r#"{"default":"deny"}"#), "not-allowed");
    assert_eq!(word(r#"{"allow":["git__*"],"default":"ask"}"#), "pass");
}

#[test]
fn in_the_result_phase_the_call_is_judged_again() {
    assert_eq!(word(r#"{"deny":["*__write_*"]}"#, &write().with_outcome(r#"{"content":[]}"#)), "rule");
}

#[test]
fn a_wrong_setting_is_named() {
    for (settings, error) in [
        (r#"{"denny":[]}"#, "settings.denny: unknown field `denny`"),
        (r#"{"deny":["a","files__{a,b}"]}"#, "settings.deny[1]: '{' is not allowed"),
        (r#"{"deny":[""]}"#, "settings.deny[0]: an empty glob"),
        (r#"{"ask":[{"tol":"x"}]}"#, "settings.ask[0].tol: unknown field `tol`"),
        (r#"{"ask":[{"tool":"a b"}]}"#, "settings.ask[0].tool: ' ' is not allowed"),
        (r#"{"ask":[{"message":"why"}]}"#, "settings.ask[0]: a table without a matcher"),
        (r#"{"allow":[7]}"#, "settings.allow[0]: invalid type: integer `7`, expected a glob or a table"),
        (r#"{"deny":[{"arguments":{"a..b":"x"}}]}"#, "settings.deny[0].arguments"),
        (
            r#"{"deny":[{"arguments":{"a":["x"]}}]}"#,
            "settings.deny[0].arguments.a: invalid type: sequence, expected a glob, a number",
        ),
        (r#"{"deny":[{"arguments":{"a":{"nott":"x"}}}]}"#, "settings.deny[0].arguments.a.nott: unknown field"),
        (r#"{"default":"allow"}"#, "settings.default: unknown variant `allow`"),
        (r#"{"allow":["*"],"default":"pass"}"#, "settings.default: \"pass\" makes `allow` mean nothing"),
    ] {
        let given = Rules::configure(settings).err().unwrap();
        assert!(given.starts_with(error), "{settings}\n  gave  {given}\n  not   {error}");
    }
}

/// Returns settings with one rule in a list, about every source and with this condition.
fn when(list: &str, condition: &str) -> String {
    format!(r#"{{"{list}":[{{"source":"*","when":{}}}]}}"#, portcullis_plugin::json::quote(condition))
}

#[test]
fn a_rule_with_a_condition_matches_if_the_condition_holds() {
    let (small, large) = (write().with_arguments(r#"{"n":1}"#), write().with_arguments(r#"{"n":9}"#));
    for (list, matched, otherwise) in
        [("deny", "rule", "pass"), ("ask", "ask", "pass"), ("allow", "pass", "not-allowed")]
    {
        let settings = when(list, "arguments.n > 5");
        assert_eq!(word(&settings, &large), matched, "{list}");
        assert_eq!(word(&settings, &small), otherwise, "{list}");
    }
    let both = r#"{"deny":[{"tool":"files__*","arguments":{"n":9},"when":"principal == 'eve'"}]}"#;
    assert_eq!(word(both, &large), "pass");
    assert_eq!(word(both, &large.clone().called_by("eve", "default", portcullis_plugin::Trust::Low)), "rule");
    assert_eq!(word(both, &small.clone().called_by("eve", "default", portcullis_plugin::Trust::Low)), "pass");
}

#[test]
fn a_condition_that_cannot_be_evaluated_counts_against_the_call() {
    for arguments in ["{}", r#"{"N":9}"#, r#"{"n":"1"}"#, r#"{"n":[1]}"#, r#"{"n":null}"#, r#"{"n":1e400}"#] {
        let call = write().with_arguments(arguments);
        assert_eq!(word(&when("deny", "arguments.n > 5"), &call), "condition-error", "{arguments}");
        assert_eq!(word(&when("deny", "!(arguments.n > 5)"), &call), "condition-error", "{arguments}");
        assert_eq!(word(&when("ask", "arguments.n > 5"), &call), "ask", "{arguments}");
        assert_eq!(word(&when("allow", "arguments.n < 5"), &call), "not-allowed", "{arguments}");
        assert_eq!(word(&when("allow", "!(arguments.n > 5)"), &call), "not-allowed", "{arguments}");
    }
}

#[test]
fn a_condition_that_cannot_be_evaluated_is_said_beside_the_message_of_the_rule() {
    let settings = r#"{"deny":[{"tool":"files__*","when":"arguments.n > 5","message":"too many"}]}"#;
    let Verdict::Deny(denial) = check(settings, &write()) else { panic!("a denial") };
    let expected =
        "too many (its condition cannot be evaluated for this call: there is no `n`; test for it with `has`)";
    assert_eq!(denial.message, expected);
    let Verdict::Ask(concern) = check(&when("ask", "arguments.n > 5"), &write()) else { panic!("a question") };
    assert_eq!(concern.code, "condition-error");
    assert!(
        concern.message.starts_with("asked for by the rule `source = \"*\", when = arguments.n > 5` (its condition"),
        "{concern:?}"
    );
}

#[test]
fn a_condition_about_the_call_is_left_out_where_items_are_listed() {
    let word = |settings: String| word(&settings, &write().in_phase(Phase::List));
    for about_the_call in ["arguments.n > 5", "method == 'tools/call'", "name == 'write_file' && has(arguments.n)"] {
        assert_eq!(word(when("deny", about_the_call)), "pass", "{about_the_call}");
        assert_eq!(word(when("allow", about_the_call)), "pass", "{about_the_call}");
    }
    assert_eq!(word(when("deny", "name == 'write_file' && profile == 'default'")), "rule");
    assert_eq!(word(when("deny", "profile == 'admin'")), "pass");
    assert_eq!(word(when("allow", "profile == 'default'")), "pass");
    assert_eq!(word(when("allow", "profile == 'admin'")), "not-allowed");
    assert_eq!(word(when("allow", "tags[0] == 'safe'")), "not-allowed");
    assert_eq!(word(when("deny", "tags[0] == 'unsafe'")), "rule");
}

#[test]
fn arguments_that_no_condition_looks_at_are_not_read() {
    let cut = write().with_arguments(r#"{"path":"#);
    let asked = r#"{"ask":[{"source":"files","when":"trust == 'medium' && risk == 'risky'"}]}"#;
    assert_eq!(word(asked, &cut), "ask");
    assert!(rules(&when("deny", "arguments.n > 5")).check(&cut).is_err());
    let other_tool = r#"{"deny":[{"tool":"git__*","when":"arguments.n > 5"}],"default":"ask"}"#;
    assert_eq!(word(other_tool, &cut), "ask");
}

#[test]
fn a_wrong_condition_is_named_with_its_rule_and_the_place() {
    for (settings, error) in [
        (
            r#"{"deny":["a",{"when":"argument.n == 1"}]}"#,
            "settings.deny[1].when: column 1: there is no `argument`; a condition can use arguments, method, name, principal, \
             profile, risk, source, tags, tool, trust, in `argument.n == 1`",
        ),
        (r#"{"ask":[{"when":7}]}"#, "settings.ask[0].when: invalid type: integer `7`, expected a string"),
        (r#"{"allow":[{"tool":"a","when":"'a'"}]}"#, "settings.allow[0].when: column 1: true or false must stand here"),
    ] {
        let given = Rules::configure(settings).err().unwrap();
        assert!(given.starts_with(error), "{settings}\n  gave  {given}\n  not   {error}");
    }
}
