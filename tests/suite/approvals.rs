//! Approvals: the questions, the people who may answer them, and the scope of an answer.

use serde_json::{Value, json};

use crate::agent::{Agent, ERAS, Era, QUESTION, elicited, outcome, question_in};
use crate::terminal::Terminal;
use crate::test_dir::{DEADLINE, TestDir};
use crate::web::Server;

const FILES: &str = "[sources.files]\ncommand = [\"@source@\", \"plain\"]\n@cell@\n";

/// A source that can neither write nor reach a network, so that its tools are not grave; the profile asks nevertheless.
const CALC: &str = "[sources.calc]\ncomponent = \"builtin:calculator\"\n[profiles.default]\napprove = \"always\"\n\
                    [[approvals]]\nplugin = \"builtin:approval-memory\"\n";

fn sum() -> Value {
    json!({ "a": 1, "b": 2 })
}

#[test]
fn a_call_is_approved_or_refused_from_another_terminal() {
    for era in ERAS {
        let dir = TestDir::new(FILES);
        let mut agent = Agent::alone(&dir, era);
        for (word, expected) in [
            ("approve", json!({ "ok": "3" })),
            ("refuse", json!({ "refused": "approval-refused", "message": "a person refused it" })),
        ] {
            let id = agent.send_call("files__add", &sum());
            let question = agent.question();
            let said = agent.running.says(&format!("`portcullis approvals approve {question}`"));
            assert!(said.contains("may `add` of source `files` run for local?") && !said.contains("\"a\""), "{said}");
            let shown = dir.run(&["approvals", "show", &question, "--json"]);
            let shown: Value = serde_json::from_str(&shown.out).unwrap();
            assert_eq!(
                (&shown["tool"], &shown["arguments"], &shown["waiting"]),
                (&json!("files__add"), &sum(), &json!(1))
            );
            for part in ["", "0", &question[..10]] {
                let ran = dir.run(&["approvals", word, part]);
                assert!(ran.code == Some(if part.len() < 6 { 2 } else { 1 }), "{part:?}: {}{}", ran.out, ran.err);
            }
            let ran = dir.run(&["approvals", word, &question[question.len() - 6..]]);
            assert_eq!(ran.code, Some(0), "{}", ran.err);
            assert_eq!(outcome(&agent.answer(id, None)), expected);
            agent.running.says(&format!("question {question}: {word}"));
            let again = dir.run(&["approvals", word, &question]);
            assert_eq!(again.code, Some(1), "an answer is given once");
        }
        agent.leave();
        let by = dir.records_of("call.answered")[0]["body"]["by"].clone();
        assert!(by.as_str().unwrap().starts_with("cli (uid "), "{by}");
        dir.assert_nothing_left();
    }
}

#[test]
fn questions_are_answered_in_a_terminal_as_they_come() {
    const DOWN: &str = "\u{1b}[B";
    let dir = TestDir::new(FILES);
    let mut agent = Agent::alone(&dir, Era::Legacy);
    agent.list();
    let mut terminal = Terminal::run(dir.command(&["approvals", "--watch"]));
    terminal.shows("waiting for questions");
    for (keys, said, expected) in [
        // The answer of somebody who only presses Enter is no.
        ("\r".to_owned(), "refused: files__add", json!("approval-refused")),
        (format!("{DOWN}\r"), "approved: files__add (once)", Value::Null),
        (format!("{DOWN}{DOWN}k\r"), "approved: files__add (once)", Value::Null),
    ] {
        let id = agent.send_call("files__add", &json!({ "a": 1, "b": 2, "why": "\u{1b}[31mred" }));
        let shown = terminal.shows(" s left");
        for text in ["source files", "because", "\"a\": 1", "› No", "\\u001b[31mred"] {
            assert!(shown.contains(text), "{text:?} is not in {shown}");
        }
        terminal.press(&keys);
        terminal.shows(said);
        assert_eq!(outcome(&agent.answer(id, None))["refused"], expected);
    }
    let id = agent.send_call("files__add", &sum());
    terminal.shows(" s left");
    let question = agent.question();
    assert_eq!(dir.run(&["approvals", "approve", &question]).code, Some(0));
    terminal.shows("answered elsewhere");
    agent.answer(id, None);
    terminal.press("q");
    assert_eq!(terminal.ended(), Some(0));
    agent.leave();
    let without = dir.run(&["approvals", "--watch"]);
    assert!(without.code == Some(1) && without.err.contains("needs a terminal"), "{}", without.err);
}

#[test]
fn a_question_that_is_not_answered_in_time_denies_the_call() {
    for era in ERAS {
        let dir = TestDir::new(&format!("[broker]\nask-timeout = \"1s\"\n{FILES}"));
        let mut agent = Agent::alone(&dir, era);
        let denied = agent.call("files__add", &sum(), None);
        assert_eq!(denied["refused"], "approval-expired", "{denied}");
        agent.leave();
        assert_eq!(dir.records_of("call.answered")[0]["body"]["by"], "expiry");
        assert_eq!(dir.records_of("call.intent"), Vec::<Value>::new(), "the source saw nothing");
    }
}

#[test]
fn a_question_that_expires_during_elicitation_denies_the_call_and_is_withdrawn() {
    let dir = TestDir::new(&format!("[broker]\nask-timeout = \"3s\"\n{FILES}"));
    let mut agent = Agent::start(&dir, Era::Legacy);
    let id = agent.send_call("files__add", &sum());
    let asked = agent.next().unwrap();
    assert_eq!(asked["method"], "elicitation/create");
    let mut withdrawn = false;
    let answer = loop {
        let message = agent.next().unwrap();
        withdrawn |= message["method"] == "notifications/cancelled" && message["params"]["requestId"] == asked["id"];
        if message["id"] == id && message["method"].is_null() {
            break message;
        }
    };
    assert_eq!(outcome(&answer)["refused"], "approval-expired");
    assert!(withdrawn);
    // This answer is too late.
    agent.running.write(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": elicited(Some("once")) }).to_string());
    agent.leave();
    assert_eq!(dir.records_of("call.intent"), Vec::<Value>::new());
}

#[test]
fn an_approval_by_request_state_is_valid_once_and_only_for_its_call() {
    let dir = TestDir::new(FILES);
    let mut agent = Agent::start(&dir, Era::Modern);
    let retry = |agent: &mut Agent, arguments: Value, state: &Value| {
        let params = json!({
            "name": "files__add", "arguments": arguments,
            "requestState": state, "inputResponses": { QUESTION: elicited(Some("once")) },
        });
        outcome(&agent.request("tools/call", params))
    };
    let id = agent.send_call("files__add", &sum());
    let state = agent.answer(id, None)["result"]["requestState"].clone();

    let forged = retry(&mut agent, sum(), &json!("AAAA"));
    assert_eq!(forged["refused"], "request-state", "{forged}");
    let sealed = state.as_str().unwrap();
    let changed = format!("{}{}", if sealed.starts_with('A') { 'B' } else { 'A' }, &sealed[1..]);
    assert_eq!(retry(&mut agent, sum(), &json!(changed))["refused"], "request-state");
    let moved = retry(&mut agent, json!({ "a": 40, "b": 2 }), &state);
    assert_eq!(moved, json!({ "asked": true }), "a yes to one call is none to another");
    assert_eq!(retry(&mut agent, sum(), &state), json!({ "ok": "3" }));
    assert_eq!(retry(&mut agent, sum(), &state), json!({ "asked": true }), "a yes counts once");

    let other = TestDir::new(FILES);
    let mut stranger = Agent::start(&other, Era::Modern);
    assert_eq!(retry(&mut stranger, sum(), &state)["refused"], "request-state", "another broker's seal");
    stranger.leave();
    agent.leave();
    assert_eq!(dir.records_of("call.intent").len(), 1);
}

#[test]
fn an_approval_for_the_arguments_covers_one_more_call() {
    for era in ERAS {
        let dir = TestDir::new(CALC);
        let mut agent = Agent::start(&dir, era);
        assert_eq!(agent.call("calc__add", &sum(), Some("arguments")), json!({ "ok": "3" }));
        assert_eq!(agent.call("calc__add", &json!({ "a": 1, "b": 3 }), Some("refuse"))["refused"], "approval-refused");
        // The call is not asked about: the answer would refuse it.
        assert_eq!(agent.call("calc__add", &sum(), Some("refuse")), json!({ "ok": "3" }));
        assert_eq!(agent.call("calc__add", &sum(), Some("refuse"))["refused"], "approval-refused");
        agent.leave();
        let grant = dir.records_of("grant.added")[0]["body"]["grant"].clone();
        let intents = dir.records_of("call.intent");
        assert_eq!(intents[1]["body"]["approval"]["grant"], grant, "the ledger says by which grant");
    }
}

#[test]
fn an_approval_for_the_session_covers_only_its_tool_in_that_session() {
    for era in ERAS {
        let dir = TestDir::new(CALC);
        let mut agent = Agent::start(&dir, era);
        assert_eq!(agent.call("calc__add", &sum(), Some("session")), json!({ "ok": "3" }));
        for b in 0..3 {
            assert_eq!(
                agent.call("calc__add", &json!({ "a": 0, "b": b }), Some("refuse")),
                json!({ "ok": b.to_string() })
            );
        }
        assert_eq!(agent.call("calc__divide", &sum(), Some("refuse"))["refused"], "approval-refused");
        agent.leave();
        let mut next = Agent::start(&dir, era);
        assert_eq!(next.call("calc__add", &sum(), Some("refuse"))["refused"], "approval-refused");
        next.leave();
        dir.assert_nothing_left();
    }
}

/// Returns when the only remembered answer ends, in milliseconds since the Unix epoch, after giving it another end if
/// one is wanted.
fn end_of_grant(dir: &TestDir, moved_to: Option<i64>) -> i64 {
    let state = rusqlite::Connection::open(dir.data("ledger.sqlite")).unwrap();
    state.busy_timeout(DEADLINE).unwrap();
    if let Some(end) = moved_to {
        assert_eq!(state.execute("UPDATE grants SET expires_at = ?1", [end]).unwrap(), 1);
    }
    state.query_row("SELECT expires_at FROM grants", [], |row| row.get(0)).unwrap()
}

#[test]
fn an_answer_until_a_time_counts_before_it_and_not_after_and_is_never_extended() {
    const HOUR: i64 = 60 * 60 * 1000;
    for era in ERAS {
        let dir = TestDir::new(CALC);
        let mut agent = Agent::start(&dir, era);
        assert_eq!(agent.call("calc__add", &sum(), Some("hour")), json!({ "ok": "3" }));
        let answered = dir.records_of("call.answered").pop().unwrap();
        let end = end_of_grant(&dir, None);
        assert_eq!((&answered["body"]["until"], &answered["body"]["scope"]), (&json!(end), &json!("session")));
        let given = answered["at"].as_i64().unwrap();
        assert!((given..=given + HOUR).contains(&end), "{answered}");

        // Any arguments, no question, and no other end afterwards.
        assert_eq!(agent.call("calc__add", &json!({ "a": 20, "b": 22 }), Some("refuse")), json!({ "ok": "42" }));
        assert_eq!(end_of_grant(&dir, None), end);
        assert_eq!(agent.call("calc__divide", &sum(), Some("refuse"))["refused"], "approval-refused");

        // The time has come: the answer lies more than an hour back.
        end_of_grant(&dir, Some(end - HOUR));
        assert_eq!(agent.call("calc__add", &sum(), Some("refuse"))["refused"], "approval-refused");
        agent.leave();
    }
}

#[test]
fn a_person_gives_an_answer_an_end_from_another_terminal() {
    let dir = TestDir::new(CALC);
    let mut agent = Agent::alone(&dir, Era::Legacy);
    let call = |agent: &mut Agent| {
        let id = agent.send_call("calc__add", &sum());
        (id, agent.question())
    };
    let (id, question) = call(&mut agent);
    let approve = |arguments: &[&str]| {
        let ran = dir.run(&[&["approvals", "approve", &*question], arguments].concat());
        (ran.code, format!("{}{}", ran.out, ran.err))
    };
    for (arguments, says) in [
        (&["--for", "9h"][..], "an answer holds for 28800 s at most"),
        (&["--until", "2001-01-01T00:00:00Z"], "has passed"),
        (&["--for", "90"], "did you mean `90m` or `90h`?"),
        (&["--for", "1h", "--scope", "arguments"], "scope \"until a time\" is not offered"),
        (&["--for", "1h", "--scope", "principal"], "scope \"principal\" is not offered"),
        (&["--for", "1h", "--until", "2999-01-01T00:00:00Z"], "cannot be used with"),
    ] {
        let (code, said) = approve(arguments);
        assert!(code != Some(0) && said.contains(says), "{arguments:?}: {said}");
    }
    let (code, said) = approve(&["--for", "2h"]);
    assert!(code == Some(0) && said.contains("approved: calc__add (session until 2"), "{said}");
    assert_eq!(outcome(&agent.answer(id, None)), json!({ "ok": "3" }));
    assert_eq!(agent.call("calc__add", &json!({ "a": 20, "b": 22 }), None), json!({ "ok": "42" }));
    let end = end_of_grant(&dir, None);
    assert_eq!(dir.records_of("grant.added")[0]["body"]["expires"], json!(end));

    // With nobody to say more than `no`, the choice is there too, in words.
    end_of_grant(&dir, Some(0));
    let mut terminal = Terminal::run(dir.command(&["approvals", "--watch"]));
    let (id, _) = call(&mut agent);
    assert!(terminal.shows(" s left").contains("Yes, and this tool for one hour of this session"));
    // No, once, arguments, session, hour.
    terminal.press("jjjj\r");
    terminal.shows("approved: calc__add (session until 2");
    assert_eq!(outcome(&agent.answer(id, None)), json!({ "ok": "3" }));
    terminal.press("q");
    agent.leave();
}

#[test]
fn what_may_do_harm_is_not_approved_until_a_time() {
    let dir = TestDir::new(&format!("{FILES}[[approvals]]\nplugin = \"builtin:approval-memory\"\n"));
    let mut agent = Agent::alone(&dir, Era::Legacy);
    let id = agent.send_call("files__add", &sum());
    let question = agent.question();
    for arguments in [["--for", "1h"], ["--scope", "hour"]] {
        let ran = dir.run(&[&["approvals", "approve", &*question], &arguments[..]].concat());
        assert!(
            ran.code == Some(1) && ran.err.contains("not offered for this question: choose one of once, arguments")
        );
    }
    assert_eq!(dir.run(&["approvals", "approve", &question]).code, Some(0));
    assert_eq!(outcome(&agent.answer(id, None)), json!({ "ok": "3" }));
    agent.leave();
}

/// Two sessions of one broker; the source lists its tools for each. `rug-pull` gives other descriptions the second
/// time.
#[test]
fn a_grant_is_void_when_the_definition_changes() {
    for (mode, holds) in [("plain", true), ("rug-pull", false)] {
        let dir = TestDir::new(&format!(
            "[sources.files]\ncommand = [\"@source@\", \"{mode}\"]\n@cell@\n[[approvals]]\nplugin = \"builtin:approval-memory\"\n"
        ));
        let server = Server::start(&dir);
        let mut first = server.endpoint.session(&json!({}));
        let mut reply = first.send_call("files__add", &sum()).unwrap();
        let question = std::iter::from_fn(|| reply.next()).find_map(|message| question_in(&message)).unwrap();
        let ran = dir.run(&["approvals", "approve", &question, "--scope", "arguments"]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        assert_eq!(outcome(&reply.answer().unwrap()), json!({ "ok": "3" }));

        let mut second = server.endpoint.session(&json!({}));
        let mut reply = second.send_call("files__add", &sum()).unwrap();
        let message = reply.next().unwrap();
        match question_in(&message) {
            None => assert!(holds && outcome(&message) == json!({ "ok": "3" }), "{mode}: {message}"),
            Some(question) => {
                assert!(!holds, "{mode}: the grant does not hold");
                assert_eq!(dir.run(&["approvals", "refuse", &question]).code, Some(0));
                assert_eq!(outcome(&reply.answer().unwrap())["refused"], "approval-refused");
            }
        }
    }
}

#[test]
fn an_answer_under_one_profile_counts_under_no_other() {
    let dir = TestDir::new(&format!("{CALC}[profiles.distrusted]\napprove = \"always\"\n"));
    let call = |profile: &str, word: Option<&str>| {
        let command = dir.command(&["serve", "--stdio", "--profile", profile]);
        let mut agent = Agent::of(command, Era::Legacy, json!({}));
        let id = agent.send_call("calc__add", &sum());
        if let Some(word) = word {
            let question = agent.question();
            let scope: &[&str] = if word == "approve" { &["--scope", "arguments"] } else { &[] };
            let ran = dir.run(&[&["approvals", word, &question], scope].concat());
            assert_eq!(ran.code, Some(0), "{}", ran.err);
        }
        let answered = outcome(&agent.answer(id, None));
        agent.leave();
        answered
    };
    assert_eq!(call("default", Some("approve"))["ok"], "3");
    assert_eq!(call("distrusted", Some("refuse"))["refused"], "approval-refused");
    assert_eq!(call("default", None)["ok"], "3", "the answer counts where it was given");
}

#[test]
fn an_accepted_tool_runs_and_a_changed_one_asks_out_of_band_and_says_what_changed() {
    let dir = TestDir::new("[sources.files]\ncommand = [\"@source@\", \"rug-pull\", \"@dir@/open/pulled\"]\n@cell@\n");
    let accepted = dir.run(&["lock", "accept", "files__add"]);
    assert_eq!(accepted.code, Some(0), "{}", accepted.err);
    let shown = dir.run(&["lock", "show", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&shown.out).unwrap()["tools"].as_array().unwrap().len(), 1);

    let server = Server::start(&dir);
    // A session with elicitation has a source process of its own; the first list of each process is the accepted one.
    let mut first = server.endpoint.session(&json!({ "elicitation": {} }));
    assert_eq!(first.call("files__add", &sum()), Some(json!({ "ok": "3" })), "accepted, so not asked");

    std::fs::write(dir.path("open/pulled"), "").unwrap();
    let mut second = server.endpoint.session(&json!({ "elicitation": {} }));
    let mut reply = second.send_call("files__add", &sum()).unwrap();
    let message = reply.next().unwrap();
    let question = question_in(&message).unwrap_or_else(|| panic!("not asked out of band: {message}"));
    let shown = dir.run(&["approvals", "show", &question]);
    let says = "the tool is not the one that was accepted: description changed from";
    assert!(shown.out.contains(says) && shown.out.contains("version 2"), "{}", shown.out);
    assert_eq!(dir.run(&["approvals", "approve", &question]).code, Some(0));
    assert_eq!(outcome(&reply.answer().unwrap()), json!({ "ok": "3" }));
    drop((first, second));
    server.running.signal(rustix::process::Signal::TERM);
    let (code, err) = server.running.end();
    assert_eq!(code, Some(0), "{err}");
    dir.assert_nothing_left();
}

#[test]
fn a_question_about_a_sources_own_method_names_the_method() {
    let dir =
        TestDir::new("[profiles.default]\napprove = \"always\"\n[sources.far]\ncommand = [\"@source@\", \"mirror\"]\n");
    let mut agent = Agent::start(&dir, Era::Legacy);
    agent.send("vendor/erase", json!({ "x": 1 }));
    let asked = loop {
        let message = agent.next().unwrap();
        if message["method"] == "elicitation/create" {
            break message["params"]["message"].as_str().unwrap().to_owned();
        }
    };
    assert!(asked.contains("May method `vendor/erase` of source `far` run?"), "{asked}");
    let listed = dir.run(&["approvals"]).out;
    assert!(listed.contains("vendor/erase  far"), "{listed}");
    let open: Value = serde_json::from_str(&dir.run(&["approvals", "--json"]).out).unwrap();
    let shown = dir.run(&["approvals", "show", open[0]["id"].as_str().unwrap()]).out;
    assert!(shown.contains("method      vendor/erase"), "{shown}");
    agent.leave();
    assert_eq!(dir.records_of("call.asked")[0]["body"]["method"], "vendor/erase");
}
