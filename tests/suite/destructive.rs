//! Tools that their own source calls destructive: they are off until a person accepts them.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent::{Agent, ERAS, Era, outcome, question_in};
use crate::ill_sources::instructions;
use crate::terminal::Terminal;
use crate::test_dir::TestDir;
use crate::web::Server;

/// Sets up a source with the tools `echo` and `erase`, in a cell that may write.
fn erasing(more: &str) -> TestDir {
    let dir = TestDir::new(&format!(
        "[sources.far]\ncommand = [\"@source@\", \"faulty\", \"@dir@/open/script\"]\n@cell@\n{more}"
    ));
    fs::write(dir.path("open/script"), "erases").unwrap();
    dir
}

/// Returns the outcome of a call of this source, which answers with the arguments.
fn echoed(arguments: &Value) -> Value {
    json!({ "ok": arguments.to_string() })
}

fn names(agent: &mut Agent) -> Vec<String> {
    let listed = agent.list();
    listed["tools"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_destructive_tool_is_off_until_a_person_accepts_it() {
    for era in ERAS {
        let dir = erasing("");
        let mut agent = Agent::alone(&dir, era);
        assert_eq!(names(&mut agent), ["far__echo"]);
        let refused = agent.request("tools/call", json!({ "name": "far__erase", "arguments": {} }));
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("`portcullis lock accept far__erase`"), "{refused}");
        let status = dir.run(&["status"]).out;
        assert!(
            status.contains("1 tool that the source calls destructive") && status.contains("far__erase"),
            "{status}"
        );
        let check = dir.run(&["check"]);
        assert!(check.out.contains("portcullis lock accept far__erase"), "{}", check.out);
        // Accepting without a name leaves it out, and says so.
        let accepted = dir.run(&["lock", "accept"]);
        assert!(accepted.code == Some(1) && accepted.err.contains("far__erase"), "{}", accepted.err);
        assert_eq!(names(&mut agent), ["far__echo"]);
        let accepted = dir.run(&["lock", "accept", "far__erase"]);
        assert_eq!(accepted.code, Some(0), "{}", accepted.err);
        agent.leave();
        let mut agent = Agent::alone(&dir, era);
        assert_eq!(names(&mut agent), ["far__echo", "far__erase"]);
        let id = agent.send_call("far__erase", &json!({}));
        assert_eq!(outcome(&agent.answer(id, None)), echoed(&json!({})), "accepted, so not asked");
        agent.leave();
        assert_eq!(dir.records_of("call.intent").len(), 1);
    }
}

#[test]
fn an_agent_is_told_which_tools_are_off_before_their_source_has_started_again() {
    for era in ERAS {
        let dir = erasing("[sources.calc]\ncomponent = \"builtin:calculator\"\n");
        assert_eq!(dir.run(&["check"]).code, Some(0));
        for (script, expected) in [("erases", true), ("waits erases", true), ("waits erases", false)] {
            if !expected {
                fs::write(dir.path("open/script"), "erases").unwrap();
                assert_eq!(dir.run(&["lock", "accept", "far__erase"]).code, Some(0));
            }
            fs::write(dir.path("open/script"), script).unwrap();
            let told = instructions(&dir, era);
            let says = told.contains("1 tool that its source calls destructive") && told.contains("`far__erase`");
            assert_eq!(says, expected, "{script}: {told}");
        }
    }
}

#[test]
fn a_session_that_is_open_sees_what_is_accepted_meanwhile() {
    let dir = erasing("");
    let server = Server::start(&dir);
    let mut session = server.endpoint.session(&json!({}));
    let mut stream = session.listen().unwrap();
    let listed = |session: &mut crate::web::Session| {
        let answer = session.send("tools/list", json!({})).unwrap().answer().unwrap();
        answer["result"]["tools"].as_array().unwrap().len()
    };
    assert_eq!(listed(&mut session), 1);
    assert_eq!(dir.run(&["lock", "accept", "far__erase"]).code, Some(0));
    let told = std::iter::from_fn(|| stream.next()).find(|told| told["method"] == "notifications/tools/list_changed");
    assert!(told.is_some(), "the agent is told");
    assert_eq!(listed(&mut session), 2);
    assert_eq!(session.call("far__erase", &json!({})), Some(echoed(&json!({}))));
    drop((session, stream));
    server.running.signal(Signal::TERM);
    assert_eq!(server.running.end().0, Some(0));
}

#[test]
fn who_decides_about_every_call_or_asks_for_it_sees_destructive_tools() {
    for profile in ["approve = \"always\"", "approve = \"never\"", "destructive = \"ask\""] {
        let dir = erasing(&format!("[profiles.default]\n{profile}\n"));
        let mut agent = Agent::alone(&dir, Era::Legacy);
        assert_eq!(names(&mut agent), ["far__echo", "far__erase"], "{profile}");
        agent.leave();
    }
    // A cell that can neither write nor reach a network has nothing to destroy.
    let dir = erasing("");
    let config = fs::read_to_string(dir.path("portcullis.toml")).unwrap();
    dir.configure(&config.replace("write =", "read ="));
    let mut agent = Agent::alone(&dir, Era::Legacy);
    assert_eq!(names(&mut agent), ["far__echo", "far__erase"]);
    agent.leave();
}

#[test]
fn always_accepts_the_tool_for_this_session_and_all_others() {
    let dir = erasing("");
    let server = Server::start(&dir);
    let mut session = server.endpoint.session(&json!({}));
    let mut reply = session.send_call("far__echo", &json!({})).unwrap();
    let question = question_in(&reply.next().unwrap()).unwrap();
    let ran = dir.run(&["approvals", "approve", &question, "--scope", "always"]);
    assert!(ran.code == Some(0) && ran.out.contains("approved: far__echo (always)"), "{}{}", ran.out, ran.err);
    assert_eq!(outcome(&reply.answer().unwrap()), echoed(&json!({})));
    assert_eq!(session.call("far__echo", &json!({ "x": 1 })), Some(echoed(&json!({ "x": 1 }))), "not asked again");
    let mut other = server.endpoint.session(&json!({}));
    assert_eq!(other.call("far__echo", &json!({ "x": 2 })), Some(echoed(&json!({ "x": 2 }))));
    let shown: Value = serde_json::from_str(&dir.run(&["lock", "show", "--json"]).out).unwrap();
    assert_eq!(shown["tools"][0]["name"], "echo", "{shown}");
    let accepted = dir.records_of("lock.accepted");
    assert!(accepted[0]["body"]["by"].as_str().unwrap().starts_with("cli (uid "), "{accepted:?}");
    drop((session, other));
    server.running.signal(Signal::TERM);
    assert_eq!(server.running.end().0, Some(0));
}

#[test]
fn always_is_offered_neither_at_the_agents_side_nor_for_what_the_lock_does_not_decide() {
    // At the agent's side: an agent that answers without a person would accept for good.
    let dir = erasing("");
    let mut agent = Agent::start(&dir, Era::Legacy);
    let id = agent.send_call("far__echo", &json!({}));
    let asked = agent.next().unwrap();
    assert_eq!(asked["method"], "elicitation/create");
    assert!(!asked.to_string().contains("always"), "{asked}");
    let content = json!({ "action": "accept", "content": { "answer": "always" } });
    agent.running.write(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": content }).to_string());
    let open: Value = serde_json::from_str(&dir.run(&["approvals", "--json"]).out).unwrap();
    assert_eq!(dir.run(&["approvals", "refuse", open[0]["id"].as_str().unwrap()]).code, Some(0));
    assert_eq!(outcome(&agent.answer(id, None))["refused"], "approval-refused");
    agent.leave();
    assert!(!dir.data("portcullis.lock").exists());

    let asks = "[[policies]]\nplugin = \"builtin:rules\"\nsettings = { ask = [\"far__echo\"] }";
    for (more, tool) in [
        ("[profiles.default]\napprove = \"always\"", "far__echo"),
        ("[profiles.default]\ndestructive = \"ask\"", "far__erase"),
        ("", "far__wander"),
        (asks, "far__echo"),
    ] {
        let dir = erasing(&format!("{more}\n"));
        fs::write(dir.path("open/script"), "erases wanders").unwrap();
        let mut agent = Agent::alone(&dir, Era::Legacy);
        let id = agent.send_call(tool, &json!({}));
        let question = agent.question();
        let refused = dir.run(&["approvals", "approve", &question, "--scope", "always"]);
        assert!(refused.code == Some(1) && refused.err.contains("choose one of once"), "{}", refused.err);
        assert_eq!(dir.run(&["approvals", "refuse", &question]).code, Some(0));
        agent.answer(id, None);
        agent.leave();
    }
}

#[test]
fn one_answer_is_given_to_all_open_questions_about_a_tool() {
    let dir = erasing("");
    fs::write(dir.path("open/script"), "wanders").unwrap();
    let server = Server::start(&dir);
    let mut session = server.endpoint.session(&json!({}));
    let mut asked = |count: usize| {
        let ask = |number: usize| {
            let mut reply = session.send_call("far__echo", &json!({ "number": number })).unwrap();
            let question = question_in(&reply.next().unwrap()).unwrap();
            (reply, question)
        };
        (0..count).map(ask).collect::<Vec<_>>()
    };
    let first = asked(3);
    let mut neighbour = server.endpoint.session(&json!({}));
    let mut other = neighbour.send_call("far__wander", &json!({})).unwrap();
    let other_question = question_in(&other.next().unwrap()).unwrap();
    let ran = dir.run(&["approvals", "approve", "--batch", &first[0].1, "--json"]);
    let answers: Vec<Value> = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}{}", ran.out, ran.err));
    assert_eq!((ran.code, answers.len(), &answers[2]["approved"]), (Some(0), 3, &json!(true)), "{answers:?}");
    for (number, (mut reply, _)) in first.into_iter().enumerate() {
        assert_eq!(outcome(&reply.answer().unwrap()), echoed(&json!({ "number": number })));
    }
    assert_eq!(
        dir.run(&["approvals", "refuse", &other_question]).code,
        Some(0),
        "another tool's question is open still"
    );
    assert_eq!(outcome(&other.answer().unwrap())["refused"], "approval-refused");
    let second = asked(2);
    let ran = dir.run(&["approvals", "refuse", &second[0].1]);
    assert_eq!((ran.code, ran.out.matches("refused: far__echo").count()), (Some(0), 1), "{}", ran.out);
    let third = asked(1);
    let mut terminal = Terminal::run(dir.command(&["approvals", "--watch"]));
    let shown = terminal.shows(" s left");
    assert!(shown.contains("b answers the 1 others of this tool too"), "{shown}");
    terminal.press("b");
    let shown = terminal.shows(" s left");
    assert!(
        shown.contains("for all 2") && shown.contains("\"number\": 1") && shown.contains("\"number\": 0"),
        "{shown}"
    );
    terminal.press("\r");
    terminal.shows("refused: far__echo");
    for (mut reply, _) in second.into_iter().chain(third) {
        assert_eq!(outcome(&reply.answer().unwrap())["refused"], "approval-refused");
    }
    terminal.press("q");
    assert_eq!(terminal.ended(), Some(0));
    drop((session, neighbour));
    server.running.signal(Signal::TERM);
    assert_eq!(server.running.end().0, Some(0));
}
