//! Calls of one caller do not block those of another, and no profile exceeds its budget.

use serde_json::{Value, json};

use crate::agent::{Agent, Era, outcome};
use crate::groups::{NEVER, members, scripted};
use crate::test_dir::{TestDir, until};

fn echo(agent: &mut Agent, source: &str, text: &str) -> Value {
    agent.call(&format!("{source}__echo"), &json!({ "text": text }), None)
}

/// Sends one call too many to a source that never answers. Returns the ids of those that were not refused.
fn flood(agent: &mut Agent) -> Vec<u64> {
    let mut sent: Vec<u64> = (0..3).map(|n| agent.send_call("a__echo", &json!({ "n": n }))).collect();
    let refused = agent.next().unwrap();
    let what = outcome(&refused);
    assert_eq!(what["refused"], "not-sent", "{refused}");
    assert!(what["message"].as_str().unwrap().contains("source `a` is busy: it has 1 calls"), "{refused}");
    sent.retain(|id| refused["id"] != *id);
    sent
}

#[test]
fn calls_to_a_hanging_source_are_limited_and_do_not_block_other_sources() {
    let config = format!("{}{NEVER}", members("concurrency = 1\nqueue = 1"));
    let dir = scripted(&config, "hang-call", "well");
    let mut agent = Agent::alone(&dir, Era::Modern);
    agent.list();
    let waiting = flood(&mut agent);
    for _ in 0..3 {
        assert!(echo(&mut agent, "b", "x")["ok"].is_string());
    }
    for id in waiting {
        agent.notify("notifications/cancelled", json!({ "requestId": id }));
    }
    until("both have ended", || {
        let ended = dir.records_of("tool.completed");
        ended.iter().filter(|record| record["body"]["source"] == "a").count() == 3
    });
    // The cancelled calls have freed their places.
    flood(&mut agent);
    agent.leave();
    dir.assert_nothing_left();
}

fn spending(budget: &str) -> (TestDir, Agent) {
    let profile = format!("[profiles.default]\napprove = \"never\"\nbudget = {budget}\n");
    let dir = scripted(&format!("{}{profile}", members("")), "well", "well");
    let agent = Agent::alone(&dir, Era::Modern);
    (dir, agent)
}

#[test]
fn a_spent_budget_denies_calls_before_the_intent_and_says_when_calls_are_possible_again() {
    for (budget, of) in [("{ calls = \"2/d\" }", "calls"), ("{ bytes = \"900B/d\" }", "bytes")] {
        let (dir, mut agent) = spending(budget);
        let text = "x".repeat(300);
        assert!(echo(&mut agent, "a", &text)["ok"].is_string(), "{of}");
        assert!(echo(&mut agent, "b", &text)["ok"].is_string(), "{of}");
        let refused = echo(&mut agent, "a", &text);
        assert_eq!(refused["refused"], "budget-spent", "{of}: {refused}");
        let message = refused["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("the profile's `budget` of {of} is spent; a call is possible again in ")));
        assert_eq!(agent.list()["tools"].as_array().unwrap().len(), 2, "listing tools costs nothing");
        agent.leave();
        assert_eq!(dir.records_of("call.intent").len(), 2, "{of}");
        let denied = dir.records_of("call.denied");
        assert_eq!((denied.len(), &denied[0]["body"]["code"]), (1, &json!("budget-spent")), "{of}");
        // Nothing of what such a caller chooses makes the record longer.
        let arguments = denied[0]["body"]["arguments"].as_object().unwrap();
        assert_eq!(arguments.keys().collect::<Vec<_>>(), ["bytes", "hash"], "{of}");
        dir.assert_nothing_left();
    }
}
