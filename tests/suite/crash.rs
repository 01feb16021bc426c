//! `kill -9` of the broker under load.

use std::collections::BTreeMap;
use std::sync::mpsc;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent::{Agent, Era};
use crate::sources::{arrived, gate};
use crate::test_dir::{DEADLINE, TestDir};
use crate::web::Server;

const CLIENTS: u64 = 8;

/// More calls than a client can make before the kill.
const CALLS_OF_A_CLIENT: u64 = 1_000_000;

/// The number of calls that are answered before the kill: enough that it happens in the middle of several group
/// commits.
const ANSWERED: usize = 200;

#[test]
fn a_killed_broker_loses_no_call_that_it_answered() {
    let dir = TestDir::new(
        "[sources.files]\ncommand = [\"@source@\", \"plain\"]\nrequired = true\n@cell@\n\
         [sources.slow]\ncommand = [\"@source@\", \"plain\"]\nrequired = true\n@cell@\n\
         [profiles.default]\napprove = \"never\"\nrecord = \"full\"\n",
    );
    let gate = gate(&dir);
    let mut server = Server::start(&dir);
    let mut stuck = server.endpoint.session(&json!({}));
    let path = gate.display().to_string();
    let stuck = std::thread::spawn(move || stuck.call("slow__gate", &json!({ "path": path })));
    let open = arrived(&gate);

    let numbers = answered_until_killed(&mut server, |_| "files__add");
    assert_eq!(stuck.join().unwrap(), None);
    drop(open);
    dir.await_no_process();

    let ran = dir.run(&["audit", "verify"]);
    assert_eq!(ran.code, Some(2), "{}{}", ran.out, ran.err);
    assert!(ran.out.starts_with("incomplete"), "{}", ran.out);
    let calls = calls(&dir);
    for number in &numbers {
        let (_, outcome) =
            calls.get(number).unwrap_or_else(|| panic!("call {number} was answered and is not recorded"));
        assert!(*outcome == json!("ok") || outcome.is_null(), "call {number} was answered, and reads {outcome}");
    }
    // Every call with an intent and no outcome is shown as unknown.
    for (call, _) in calls.values().filter(|(_, outcome)| outcome.is_null()) {
        assert_eq!(dir.state_of(call), "unknown");
    }
    let stuck = dir.records_of("call.intent").into_iter().find(|intent| intent["body"]["tool"] == "slow__gate");
    assert_eq!(dir.state_of(&stuck.unwrap()["call"]), "unknown");

    // A new broker works with the ledger of the old one, whose chain it seals.
    let mut agent = Agent::start(&dir, Era::Modern);
    assert_eq!(agent.call("files__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));
    agent.leave();
    dir.assert_good();
    dir.await_no_process();
}

#[test]
fn a_killed_broker_loses_calls_that_can_have_no_effect_at_most_and_says_that_it_may_have() {
    let dir = TestDir::new(
        "[sources.files]\ncommand = [\"@source@\", \"plain\"]\nrequired = true\n@cell@\n\
         [sources.sealed]\ncommand = [\"@source@\", \"plain\"]\nrequired = true\n\
         [profiles.default]\napprove = \"never\"\nrecord = \"full\"\n",
    );
    let mut server = Server::start(&dir);
    let is_sealed = |client: u64| client.is_multiple_of(2);
    let numbers =
        answered_until_killed(&mut server, |client| if is_sealed(client) { "sealed__add" } else { "files__add" });
    dir.await_no_process();

    let ran = dir.run(&["audit", "verify"]);
    assert_eq!(ran.code, Some(2), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("calls that can have no effect may be missing"), "{}", ran.out);
    let durability = |tool: &'static str| {
        let intents = dir.records_of("call.intent").into_iter().filter(move |intent| intent["body"]["tool"] == tool);
        intents.map(|intent| intent["body"]["durability"].clone())
    };
    assert!(durability("files__add").all(|durability| durability.is_null()), "each waits for its intent");
    assert!(durability("sealed__add").all(|durability| durability == "queued"), "none waits for its intent");
    let calls = calls(&dir);
    for client in 0..CLIENTS {
        let of_client = numbers.iter().filter(|number| **number / CALLS_OF_A_CLIENT == client);
        let mut lost = of_client.skip_while(|number| calls.contains_key(number)).peekable();
        if is_sealed(client) {
            // Records are written in their order, so that only the last ones are missing.
            assert!(!lost.any(|number| calls.contains_key(number)), "a call is missing before one that is recorded");
        } else {
            assert_eq!(lost.peek(), None, "a call that can have an effect was answered and is not recorded");
        }
    }

    // A new broker works with the ledger of the old one, and what may be missing is still told.
    let mut agent = Agent::start(&dir, Era::Modern);
    assert_eq!(agent.call("sealed__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));
    agent.leave();
    let ran = dir.run(&["audit", "verify"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("1 of 2 chains ended in a crash"), "{}", ran.out);
}

/// Lets each client call the tool that `tool` names for it, until the broker is killed in the middle of them. Returns
/// the numbers in the arguments of the calls that were answered, those of each client in their order.
fn answered_until_killed(server: &mut Server, tool: impl Fn(u64) -> &'static str) -> Vec<u64> {
    let (sender, answered) = mpsc::channel();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (endpoint, sender, tool) = (server.endpoint.clone(), sender.clone(), tool(client));
            std::thread::spawn(move || {
                let mut session = endpoint.session(&json!({}));
                for n in 0..CALLS_OF_A_CLIENT {
                    let number = client * CALLS_OF_A_CLIENT + n;
                    // Both eras, in turn.
                    let seen = if n % 2 == 0 {
                        session.call(tool, &json!({ "a": number, "b": 0 }))
                    } else {
                        let params = json!({ "name": tool, "arguments": { "a": number, "b": 0 } });
                        endpoint.modern("tools/call", params).map(|answer| crate::agent::outcome(&answer))
                    };
                    let Some(seen) = seen else { break };
                    assert_eq!(seen, json!({ "ok": number.to_string() }));
                    sender.send(number).unwrap();
                }
            })
        })
        .collect();
    drop(sender);
    let mut numbers: Vec<u64> = (0..ANSWERED).map(|_| answered.recv_timeout(DEADLINE).unwrap()).collect();
    server.running.signal(Signal::KILL);
    clients.into_iter().for_each(|client| client.join().unwrap());
    numbers.extend(answered.iter());
    assert_eq!(server.running.ended().0, None, "killed");
    numbers
}

/// Returns calls by the number in their arguments: the id of each call with an intent, and its outcome or null.
pub(crate) fn calls(dir: &TestDir) -> BTreeMap<u64, (Value, Value)> {
    let records = dir.records();
    let ends: BTreeMap<String, Value> = records
        .iter()
        .filter(|record| record["kind"] == "tool.completed")
        .map(|record| (record["call"].to_string(), record["body"]["outcome"].clone()))
        .collect();
    let intents = records.iter().filter(|record| record["kind"] == "call.intent");
    intents
        .filter_map(|intent| {
            let number = intent["body"]["arguments"]["body"]["a"].as_u64()?;
            let end = ends.get(&intent["call"].to_string()).cloned().unwrap_or_default();
            Some((number, (intent["call"].clone(), end)))
        })
        .collect()
}
