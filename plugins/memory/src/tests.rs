#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use serde_json::Value;

use super::*;

fn call(tool: &str, arguments: Value) -> String {
    let answer = Memory.call(&mut (), tool, &arguments.to_string()).unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    answer["content"][0]["text"].as_str().unwrap().to_owned()
}

// Each test has its own thread, and each thread its own store.

#[test]
fn what_is_remembered_is_recalled_and_added_to() {
    assert_eq!(call("recall", json!({})), "nothing is known");
    call("remember", json!({ "entity": "Ada", "kind": "person", "observations": ["wrote notes", "born in 1815"] }));
    call("remember", json!({ "entity": "Ada", "observations": ["wrote notes", "knew Babbage"] }));
    call("relate", json!({ "from": "Ada", "relation": "worked on", "to": "Engine" }));
    let ada = call("recall", json!({ "entity": "Ada" }));
    let mut lines: Vec<_> = ada.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["- born in 1815", "- knew Babbage", "- worked on: Engine", "- wrote notes", "Ada (person)"]);
    assert_eq!(call("recall", json!({})), "Ada (person)\nEngine");
    assert_eq!(call("recall", json!({ "words": "BABBAGE wrote" })), ada);
    assert_eq!(call("recall", json!({ "words": "babbage rhubarb" })), "nothing that is known contains all these words");
    assert_eq!(call("recall", json!({ "entity": "Bob" })), "nothing is known of Bob");
}

#[test]
fn a_fact_or_all_of_an_entity_is_forgotten() {
    call("remember", json!({ "entity": "A", "observations": ["one", "two"] }));
    call("remember", json!({ "entity": "AB", "observations": ["other"] }));
    call("relate", json!({ "from": "B", "relation": "knows", "to": "A" }));
    call("relate", json!({ "from": "B", "relation": "knows", "to": "AB" }));
    assert_eq!(call("forget", json!({ "entity": "A", "observation": "one" })), "forgot 1 fact of A");
    assert_eq!(call("forget", json!({ "entity": "A", "observation": "one" })), "nothing of that was known of A");
    assert_eq!(call("recall", json!({ "entity": "A" })), "A\n- two");
    assert_eq!(call("forget", json!({ "entity": "A" })), "forgot 3 facts of A");
    assert_eq!(call("recall", json!({ "entity": "B" })), "B\n- knows: AB");
    assert_eq!(call("recall", json!({ "entity": "AB" })), "AB\n- other");
}

#[test]
fn more_than_one_page_is_recalled() {
    for begin in [0, 600] {
        let many: Vec<String> = (begin..begin + 600).map(|n| format!("fact {n}")).collect();
        call("remember", json!({ "entity": "many", "observations": many }));
    }
    assert_eq!(call("recall", json!({ "entity": "many" })).lines().count(), 1201);
    assert_eq!(call("forget", json!({ "entity": "many" })), "forgot 1201 facts of many");
    assert_eq!(call("recall", json!({})), "nothing is known");
}

#[test]
fn words_are_found_among_many_entities_whose_names_begin_alike() {
    for n in 0..600 {
        call("remember", json!({ "entity": format!("e{n}"), "kind": "number", "observations": [format!("is {n}")] }));
        call("relate", json!({ "from": format!("e{n}"), "relation": "precedes", "to": format!("e{}", n + 1) }));
    }
    call("remember", json!({ "entity": "e 1", "observations": ["has a space"] }));
    call("remember", json!({ "entity": "e1-", "observations": ["has a dash"] }));
    assert_eq!(
        call("recall", json!({ "words": "number 599" })),
        "e598 (number)\n- is 598\n- precedes: e599\n\ne599 (number)\n- is 599\n- precedes: e600"
    );
    assert_eq!(call("recall", json!({ "words": "space" })), "e 1\n- has a space");
    assert_eq!(call("recall", json!({ "words": "dash" })), "e1-\n- has a dash");
    assert_eq!(call("recall", json!({ "words": "e600 precedes" })).lines().next(), Some("e599 (number)"));
    // A relation of another entity to this one is a fact about the other.
    call("forget", json!({ "entity": "e599" }));
    assert_eq!(call("recall", json!({ "entity": "e598" })), "e598 (number)\n- is 598");
}

#[test]
fn a_kind_stays_whatever_is_said_without_one() {
    call("relate", json!({ "from": "A", "relation": "knows", "to": "B" }));
    call("remember", json!({ "entity": "B", "kind": "person" }));
    call("relate", json!({ "from": "A", "relation": "likes", "to": "B" }));
    call("remember", json!({ "entity": "B", "observations": ["late"] }));
    assert_eq!(call("recall", json!({ "entity": "B" })), "B (person)\n- late");
    assert_eq!(call("forget", json!({ "entity": "B" })), "forgot 5 facts of B");
    assert_eq!(call("recall", json!({})), "A");
}

#[test]
fn names_that_would_break_keys_are_refused() {
    for name in ["", "  ", "a\u{1f}b", "two\nlines", &"x".repeat(161)] {
        let refused = Memory.call(&mut (), "remember", &json!({ "entity": name }).to_string());
        assert!(
            matches!(&refused, Err(Failure::InvalidArguments(why)) if why.contains("is not a name")),
            "{refused:?}"
        );
    }
}

#[test]
fn each_entity_is_a_resource() {
    call("remember", json!({ "entity": "Ünï / 1", "kind": "test", "observations": ["text"] }));
    let listed: Value = serde_json::from_str(&Memory.list().unwrap()).unwrap();
    let uri = listed[0]["uri"].as_str().unwrap();
    assert_eq!((uri, &listed[0]["name"]), ("memory:///%C3%9Cn%C3%AF%20%2F%201", &json!("Ünï / 1")));
    let read: Value = serde_json::from_str(&Memory.read(uri).unwrap().unwrap()).unwrap();
    assert_eq!(read[0]["text"], "Ünï / 1 (test)\n- text");
    for other in ["memory:///nobody", "file:///etc/passwd", "memory:///%zz", "memory:///"] {
        assert_eq!(Memory.read(other).unwrap(), None, "{other}");
    }
}

#[test]
fn the_definitions_are_true_of_the_tools() {
    let definitions: Vec<Value> =
        serde_json::from_str(&Memory::configure("{}").unwrap().definitions().unwrap()).unwrap();
    let hints = |name: &str| definitions.iter().find(|tool| tool["name"] == name).unwrap()["annotations"].clone();
    assert_eq!((&hints("recall")["readOnlyHint"], &hints("forget")["destructiveHint"]), (&json!(true), &json!(true)));
    assert_eq!(
        (&hints("remember")["readOnlyHint"], &hints("remember")["destructiveHint"]),
        (&json!(false), &json!(false))
    );
}
