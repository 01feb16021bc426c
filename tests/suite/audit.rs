//! A person's view of yesterday's calls: one line for each, and their numbers.

use serde_json::{Value, json};

use crate::agent::{Agent, Era, Running};
use crate::test_dir::{DEADLINE, Ran, TestDir};

const CONFIG: &str = "[sources.calc]\ncomponent = \"builtin:calculator\"\n\
                      [sources.other]\ncomponent = \"builtin:calculator\"\n\
                      [[policies]]\nplugin = \"builtin:rules\"\nsettings = { deny = [\"*__divide\"] }\n\
                      [profiles.default]\nrecord = \"full\"\n";

/// Returns a folder in which an agent has made four calls: two answered, one failed, one denied.
fn with_calls() -> TestDir {
    let dir = TestDir::new(CONFIG);
    let mut agent = Agent::start(&dir, Era::Modern);
    agent.list();
    agent.call("calc__add", &json!({ "a": 4711, "b": 2 }), None);
    agent.call("other__add", &json!({ "a": 1, "b": 2 }), None);
    agent.call("calc__add", &json!({ "a": "\u{1b}[31mred" }), None);
    agent.call("calc__divide", &json!({ "a": 1, "b": 2 }), None);
    agent.leave();
    dir
}

fn lines(dir: &TestDir, arguments: &[&str]) -> Vec<String> {
    let mut all = vec!["audit"];
    all.extend(arguments);
    let Ran { code, out, err } = dir.run(&all);
    assert_eq!((code, &*err), (Some(0), ""), "{arguments:?}");
    out.lines().map(str::to_owned).collect()
}

#[test]
fn audit_prints_one_line_for_each_call_that_matches() {
    let dir = with_calls();
    let all = lines(&dir, &[]);
    assert_eq!(all.len(), 4, "{all:#?}");
    assert!(all[0].contains(" ok ") && all[0].contains("calc__add") && all[0].contains("s  "), "{all:#?}");
    assert!(all[2].contains(" failed "), "{all:#?}");
    assert!(all[3].contains(" denied ") && all[3].ends_with("calc__divide  (rule)"), "{all:#?}");
    for (arguments, expected) in [
        (&["--source", "other"][..], 1),
        (&["--tool", "calc__*"], 3),
        (&["--tool", "*__add", "--source", "calc"], 2),
        (&["--outcome", "denied"], 1),
        (&["--text", "4711"], 1),
        (&["--text", "RULE"], 4),
        (&["--text", "ru", "--since", "1h"], 4),
        (&["--principal", "nobody"], 0),
        (&["--profile", "default"], 4),
        (&["--since", "1h"], 4),
        (&["--since", "yesterday", "--until", "1h"], 0),
        (&["--until", "2000-01-01"], 0),
        (&["-n", "1"], 1),
    ] {
        assert_eq!(lines(&dir, arguments).len(), expected, "{arguments:?}");
    }
    assert_eq!(lines(&dir, &["-n", "1"]), all[3..], "the newest");
    let short = dir.run(&["audit", "--text", "ru"]);
    assert!(short.code == Some(1) && short.err.contains("--since today"), "{}", short.err);

    let objects: Vec<Value> = lines(&dir, &["--json"]).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects[0]["item"], "calc__add");
    assert_eq!((&objects[3]["outcome"], &objects[3]["reason"]), (&json!("denied"), &json!("rule")));
    let csv = lines(&dir, &["--csv"]);
    assert_eq!((csv.len(), csv[0].starts_with("time,call,run,principal")), (5, true), "{csv:#?}");
    assert!(csv[4].contains(",calc,tool,calc__divide,tools/call,denied,rule,"), "{csv:#?}");
}

#[test]
fn audit_refuses_what_it_would_ignore() {
    let dir = TestDir::new(CONFIG);
    for (arguments, expected) in [
        (&["audit", "--since", "30"][..], "did you mean `30s`, `30m` or `30h`?"),
        (&["audit", "--outcome", "denyed"], "denied"),
        (&["audit", "--since", "2h", "tail"], "leave one of them out"),
        (&["audit", "--csv", "--json"], "cannot be used with"),
    ] {
        let ran = dir.run(arguments);
        assert!(ran.code != Some(0) && ran.err.contains(expected), "{arguments:?}: {}", ran.err);
    }
}

#[test]
fn audit_show_tells_in_words_what_was_called_and_why_it_was_refused() {
    let dir = with_calls();
    let shown: Vec<String> = lines(&dir, &["--json"])
        .iter()
        .map(|line| {
            let entry: Value = serde_json::from_str(line).unwrap();
            dir.run(&["audit", "show", entry["call"].as_str().unwrap()]).out
        })
        .collect();
    for (shown, expected) in [
        (&shown[0], "arguments   {\"a\":4711,\"b\":2}"),
        (&shown[0], "verdict     builtin:rules: pass"),
        (&shown[0], "approval    not asked"),
        (&shown[0], "outcome     ok after "),
        (&shown[3], "rule: denied by the rule `*__divide`"),
        (&shown[3], "verdict     builtin:rules: deny (rule)"),
    ] {
        assert!(shown.contains(expected), "{expected:?} is not in:\n{shown}");
    }
    assert!(shown.iter().all(|text| !text.contains('\u{1b}')), "{shown:#?}");
    let run: Value = serde_json::from_str(&lines(&dir, &["--json"])[0]).unwrap();
    let run = dir.run(&["audit", "show", run["run"].as_str().unwrap()]).out;
    assert!(run.contains("calls       ") && run.contains("calc__divide  (rule)"), "{run}");
    assert!(run.contains("numbered from 1 without a gap") && run.contains("end         ended"), "{run}");
}

#[test]
fn the_text_of_a_rule_is_recorded_whole_and_what_may_repeat_the_payload_is_not() {
    let rules = "[[policies]]\nplugin = \"builtin:rules\"\n[policies.settings]\n\
                 deny = [{ tool = \"add\", arguments = { a = 4711 }, message = \"not this sum\" },\n\
                 { tool = \"divide\", arguments = { a = 471247124712 } },\n\
                 { tool = \"subtract\", when = \"arguments.key > 1\" }]\nask = [\"calc__multiply\"]\n";
    let cedar = "[[policies]]\nplugin = \"builtin:cedar\"\n[policies.settings]\npolicies = '''\n\
                 permit (principal, action, resource);\n@id(\"no zero\")\n\
                 forbid (principal, action in Action::\"call_tool\", resource) when { context.input.b == 0 };\n'''\n";
    let dir = TestDir::new(&format!("[sources.calc]\ncomponent = \"builtin:calculator\"\n{rules}{cedar}"));
    let mut agent = Agent::start(&dir, Era::Modern);
    agent.list();
    agent.call("calc__add", &json!({ "a": 4711, "b": 2 }), None);
    agent.call("calc__add", &json!({ "a": 1, "b": 0 }), None);
    agent.call("calc__divide", &json!({ "a": 471247124712_i64, "b": 2 }), None);
    agent.call("calc__subtract", &json!({ "a": 1, "b": 1, "key": "a-word-of-the-caller" }), None);
    agent.call("calc__multiply", &json!({ "a": 1, "b": 1 }), Some("no"));
    agent.leave();

    let denied = dir.records_of("call.denied");
    let message = |code: &str| {
        let of_code = |record: &&Value| record["body"]["code"] == code;
        &denied.iter().find(of_code).unwrap_or_else(|| panic!("{code}: {denied:#?}"))["body"]["message"]
    };
    assert_eq!(message("rule"), "not this sum");
    assert_eq!(message("forbidden"), "forbidden by the policy `no zero`");
    assert!(message("condition-error")["hash"].is_string(), "{}", message("condition-error"));
    let recorded = format!("{:?}", dir.records());
    assert!(!recorded.contains("a-word-of-the-caller"));
    assert!(!recorded.contains("471247124712"), "the name of a rule has the values that it compares with");

    let asked = dir.records_of("call.asked").remove(0);
    assert_eq!(asked["body"]["reasons"][0], "asked for by the rule `calc__multiply`");
    let question = asked["body"]["question"].as_str().unwrap();
    for id in [question, &question[..4]] {
        let shown = dir.run(&["audit", "show", id]);
        assert!(shown.out.contains("asked for by the rule `calc__multiply`"), "{}{}", shown.out, shown.err);
    }
    assert_eq!(dir.run(&["audit", "show", &question[..3]]).code, Some(1), "three characters are too few");
}

#[test]
fn a_call_is_shown_by_the_beginning_of_its_id_and_several_are_listed() {
    let dir = with_calls();
    let calls: Vec<String> = lines(&dir, &["--json"])
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["call"].as_str().unwrap().to_owned())
        .collect();
    let show = |id: &str| dir.run(&["audit", "show", id]);
    // Two identifiers of the same moment may have more in common.
    let own =
        (6..=26).map(|n| &calls[0][..n]).find(|own| !calls[1..].iter().any(|call| call.starts_with(own))).unwrap();
    let shown = show(&own.to_ascii_lowercase());
    assert!(shown.code == Some(0) && shown.out.contains("\"a\":4711,\"b\":2"), "{}{}", shown.out, shown.err);
    let few = show(&calls[0][..5]);
    assert!(few.code == Some(1) && few.err.contains("no call, run or question"), "{}", few.err);
    // The calls of one test share the beginnings of their times, unless a period ends between them.
    let together: Vec<&String> = calls.iter().filter(|call| call.starts_with(&calls[0][..6])).collect();
    if together.len() > 1 {
        let several = show(&calls[0][..6]);
        assert!(several.code == Some(1) && several.err.contains("write more of it"), "{}", several.err);
        together.iter().for_each(|call| assert!(several.err.contains(call.as_str()), "{call}: {}", several.err));
    }
}

/// Waits for a line on standard output that contains the text, and returns it.
fn printed(running: &Running, text: &str) -> String {
    loop {
        let line = running.out.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("{text:?} was not printed"));
        if line.contains(text) {
            return line;
        }
    }
}

#[test]
fn audit_follow_prints_each_call_once_when_it_ends() {
    let dir = with_calls();
    let following = Running::start(dir.command(&["audit", "--follow", "-n", "1", "--csv"]));
    // The newest call shows that it reads.
    printed(&following, "calc__divide");
    let mut agent = Agent::start(&dir, Era::Modern);
    agent.call("calc__subtract", &json!({ "a": 3, "b": 2 }), None);
    printed(&following, "calc__subtract");
    agent.call("calc__multiply", &json!({ "a": 3, "b": 2 }), None);
    let line = printed(&following, "");
    assert!(line.contains("calc__multiply"), "one line for each call: {line}");
    agent.leave();
    following.end_by(rustix::process::Signal::INT);
}

#[test]
fn stats_count_calls_by_source_and_tool() {
    let dir = with_calls();
    let ran = dir.run(&["stats", "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let stats: Value = serde_json::from_str(&ran.out).unwrap();
    let counts = |of: &Value| ["calls", "failed", "denied"].map(|key| of[key].as_u64().unwrap());
    assert_eq!(counts(&stats["all"]), [4, 1, 1]);
    assert_eq!(stats["sources"][0]["source"], "calc");
    assert_eq!(counts(&stats["sources"][0]["all"]), [3, 1, 1]);
    let add = &stats["sources"][0]["items"][0];
    assert_eq!((&add["item"], counts(&add["all"])), (&json!("calc__add"), [2, 1, 0]));
    assert!(add["all"]["p95Micros"].as_u64() >= add["all"]["p50Micros"].as_u64(), "{add}");
    let table = dir.run(&["stats", "--source", "calc"]).out;
    let row = table.lines().find(|line| line.starts_with("  calc__divide")).unwrap();
    assert_eq!(row.split_whitespace().skip(1).take(3).collect::<Vec<_>>(), ["1", "0", "1"], "{table}");
    assert!(dir.run(&["stats", "--until", "2000-01-01"]).out.contains("all"), "an empty table is no error");
}

#[test]
fn a_call_that_has_to_be_sent_again_ends_as_deferred_and_holds_up_no_export() {
    let dir = TestDir::new(&format!("{}approve = \"always\"\n", CONFIG.replace("record = \"full\"\n", "")));
    let mut agent = Agent::start(&dir, Era::Modern);
    agent.list();
    let answer = agent.call("calc__add", &json!({ "a": 1, "b": 2 }), Some("once"));
    assert_eq!(answer, json!({ "ok": "3" }));
    let entries: Vec<Value> = lines(&dir, &["--json"]).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let facts: Vec<_> =
        entries.iter().map(|entry| [&entry["outcome"], &entry["principal"], &entry["profile"]]).collect();
    assert_eq!(json!(facts), json!([["deferred", "local", "default"], ["ok", "local", "default"]]));
    assert_eq!(lines(&dir, &["--outcome", "deferred"]).len(), 1);
    let shown = dir.run(&["audit", "show", entries[0]["call"].as_str().unwrap()]).out;
    for expected in ["asked", "approved", "deferred", "caller      local, profile default", "state       deferred"] {
        assert!(shown.contains(expected), "{expected:?} is not in:\n{shown}");
    }
    let exported = dir.run(&["audit", "export"]);
    assert_eq!((exported.code, exported.out.lines().count()), (Some(0), 2), "while the broker runs: {}", exported.err);
    agent.leave();
    assert_eq!(dir.run(&["audit", "verify"]).code, Some(0));
}
