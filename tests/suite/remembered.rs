//! Remembered answers: each counts for the reasons that the person was told, and for no other.

use serde_json::{Value, json};

use crate::agent::{Agent, ERAS};
use crate::test_dir::TestDir;

/// `memory` is no grave tool, so that a person may answer for the session; `web` gives away what strangers wrote.
const SOURCES: &str = "
[profiles.default]
record = \"full\"

[[approvals]]
plugin = \"builtin:approval-memory\"

[sources.memory]
component = \"builtin:memory\"
grant = [\"key-value\"]

[sources.web]
command = [\"@source@\", \"claims\"]
required = true
cell = { network = [\"web.example:443\"] }
";

fn note(text: &str) -> Value {
    json!({ "entity": "Ada", "observations": [text] })
}

/// Returns the reasons of the newest question.
fn reasons(dir: &TestDir) -> String {
    dir.records_of("call.asked").pop().unwrap()["body"]["reasons"].to_string()
}

#[test]
fn an_answer_to_another_reason_does_not_cover_what_flow_asks() {
    for era in ERAS {
        let dir = TestDir::new(&format!("[[policies]]\nplugin = \"builtin:flow\"\n{SOURCES}"));
        let mut agent = Agent::start(&dir, era);
        agent.list();
        for answer in ["session", "refuse"] {
            let answered = agent.call("memory__remember", &note("likes engines"), Some(answer));
            assert!(!answered["ok"].is_null(), "{answered}");
        }
        let page = agent.call("web__echo", &json!({ "text": "Ada's key is 4711-0815" }), Some("once"));
        assert!(!page["ok"].is_null(), "{page}");
        let refused = agent.call("memory__remember", &note("key 4711-0815"), Some("refuse"));
        assert_eq!(refused["refused"], "approval-refused", "{refused}");
        assert!(reasons(&dir).contains("strangers may have written it"), "{}", reasons(&dir));
        agent.leave();
    }
}

#[test]
fn an_answer_covers_the_rules_that_asked_and_no_other() {
    let rule = |text: &str| format!("{{ tool = \"memory__remember\", arguments = {{ observations = \"*{text}*\" }} }}");
    let rules = format!("settings = {{ ask = [{}, {}] }}", rule("engine"), rule("key"));
    let dir = TestDir::new(&format!("[[policies]]\nplugin = \"builtin:rules\"\n{rules}\n{SOURCES}"));
    let mut agent = Agent::start(&dir, ERAS[0]);
    agent.list();
    for (text, answer, runs) in [
        ("likes tea", "session", true),
        ("likes engines", "refuse", false),
        ("likes engines", "session", true),
        ("likes other engines", "refuse", true),
        ("likes tea", "refuse", true),
        ("has a key", "refuse", false),
    ] {
        let answered = agent.call("memory__remember", &note(text), Some(answer));
        assert_eq!(!answered["ok"].is_null(), runs, "{text}: {answered}");
    }
    agent.leave();
}
