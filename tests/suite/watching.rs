//! Changes of resources reach the agents that watch them, and lead to no other resource.

use serde_json::json;

use crate::agent::Era;
use crate::protocol::{CONFIG, agent};
use crate::test_dir::{TestDir, until};
use crate::web::{Reply, Server};

/// A resource of the source `full` that changes whenever another one is watched, with one that nobody watches before it.
const LOUD: &str = "portcullis://far/mem://t/loud";

/// Returns the URI of the next resource that changed.
fn changed(stream: &mut Reply) -> String {
    loop {
        let message = stream.next().expect("the stream ended");
        if message["method"] == "notifications/resources/updated" {
            return message["params"]["uri"].as_str().unwrap().to_owned();
        }
    }
}

#[test]
fn subscribers_get_resource_updates_in_both_eras() {
    let dir = TestDir::new(CONFIG);
    let uri = "portcullis://far/mem://a";
    let mut legacy = agent(&dir, Era::Legacy);
    let id = legacy.send("resources/subscribe", json!({ "uri": uri }));
    let (mut answered, mut updated) = (false, false);
    while !(answered && updated) {
        let message = legacy.next().unwrap();
        answered |= message["id"] == id;
        updated |= message["method"] == "notifications/resources/updated" && message["params"]["uri"] == uri;
    }
    legacy.leave();

    let mut modern = agent(&dir, Era::Modern);
    let wanted = json!({ "resourceSubscriptions": [uri], "toolsListChanged": true });
    let id = modern.send("subscriptions/listen", json!({ "notifications": wanted }));
    let first = modern.next().unwrap();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"], json!({ "resourceSubscriptions": [uri] }), "what the source supports");
    let change = modern.next().unwrap();
    assert_eq!((&change["method"], &change["params"]["uri"]), (&json!("notifications/resources/updated"), &json!(uri)));
    for message in [&first, &change] {
        assert_eq!(message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], id);
    }
    modern.leave();
}

/// Neither what is hidden nor what a policy denies is watched at a source, and records name what is.
#[test]
fn a_stream_of_changes_leads_only_to_resources_that_the_session_may_use() {
    let [a, b, c] = ["portcullis://far/mem://a", "portcullis://far/mem://t/b", "portcullis://far/mem://t/c"];
    let rule = r#"{ tool = "*t/b", method = "resources/subscribe" }"#;
    let deny = format!("policies = [{{ plugin = \"builtin:rules\", settings = {{ deny = [{rule}] }} }}]\n");
    let dir = TestDir::new(
        &format!("{deny}{CONFIG}").replace("[profiles.default]", &format!("[profiles.default]\ndeny = [\"{a}\"]")),
    );
    let mut modern = agent(&dir, Era::Modern);
    let wanted = json!({ "resourceSubscriptions": [a, b, c, c, "portcullis://nobody/x", "mem://a"] });
    modern.send("subscriptions/listen", json!({ "notifications": wanted }));
    let first = modern.next().unwrap();
    assert_eq!(first["params"]["notifications"], json!({ "resourceSubscriptions": [c] }), "{first}");
    let change = modern.next().unwrap();
    assert_eq!(change["params"]["uri"], c, "{change}");
    modern.leave();
    let intents = dir.records_of("call.intent").into_iter().map(|record| record["body"].clone());
    let watched: Vec<_> = intents.filter(|body| body["method"] == "resources/subscribe").collect();
    assert_eq!(watched.len(), 1, "{watched:?}");
    // No list names it, so the record has only the scheme.
    assert_eq!(watched[0]["resource"], "portcullis://far/mem:…", "{watched:?}");
}

/// A modern source is asked about all resources at once, so the broker judges each separately.
#[test]
fn a_policy_decides_about_each_resource_of_a_modern_source_that_is_watched() {
    let [b, c] = ["portcullis://far/mem://b", "portcullis://far/mem://c"];
    let rule = r#"{ tool = "*mem://b", method = "resources/subscribe" }"#;
    let deny = format!("policies = [{{ plugin = \"builtin:rules\", settings = {{ deny = [{rule}] }} }}]\n");
    let dir = TestDir::new(&format!("{deny}{CONFIG}").replace("\"full\"", "\"watched\""));
    let mut modern = agent(&dir, Era::Modern);
    modern.send("subscriptions/listen", json!({ "notifications": { "resourceSubscriptions": [b, c] } }));
    let first = modern.next().unwrap();
    assert_eq!(first["params"]["notifications"], json!({ "resourceSubscriptions": [c] }), "{first}");
    let change = modern.next().unwrap();
    assert_eq!(change["params"]["uri"], c, "{change}");
    modern.leave();

    let mut legacy = agent(&dir, Era::Legacy);
    let refused = legacy.request("resources/subscribe", json!({ "uri": b }));
    assert_eq!(refused["error"]["data"]["code"], "rule", "{refused}");
    let id = legacy.send("resources/subscribe", json!({ "uri": c }));
    let (mut answered, mut updated) = (false, false);
    while !(answered && updated) {
        let message = legacy.next().unwrap();
        answered |= message["id"] == id;
        updated |= message["params"]["uri"] == c;
        assert_ne!(message["params"]["uri"], b);
    }
    legacy.leave();
    let denied = dir.records_of("call.denied");
    assert_eq!(denied.iter().filter(|record| record["body"]["resource"] == b).count(), 2, "{denied:?}");
}

#[test]
fn a_resource_is_watched_until_the_last_of_several_streams_has_ended() {
    let dir = TestDir::new(CONFIG);
    let uri = "portcullis://far/mem://a";
    let mut modern = agent(&dir, Era::Modern);
    let mut open = Vec::new();
    for _ in 0..2 {
        let id = modern.send("subscriptions/listen", json!({ "notifications": { "resourceSubscriptions": [uri] } }));
        while modern.next().unwrap()["method"] != "notifications/resources/updated" {}
        open.push(id);
    }
    let ended = || {
        let intents = dir.records_of("call.intent").into_iter();
        intents.filter(|record| record["body"]["method"] == "resources/unsubscribe").count()
    };
    for (left, id) in [(1, open[0]), (0, open[1])] {
        modern.notify("notifications/cancelled", json!({ "requestId": id }));
        if left == 0 {
            until("the source is told", || ended() == 1);
        }
    }
    modern.leave();
    assert_eq!(ended(), 1, "only the last stream ends the subscription");
}

#[test]
fn an_agent_hears_of_no_resource_that_it_does_not_watch_and_of_none_that_a_reload_denies() {
    let rule = "{ tool = \"*t/loud\", method = \"resources/subscribe\" }";
    let deny = format!("policies = [{{ plugin = \"builtin:rules\", settings = {{ deny = [{rule}] }} }}]\n");
    let other = "portcullis://far/mem://t/other";
    let dir = TestDir::new(CONFIG);
    let server = Server::start(&dir);
    let mut legacy = server.endpoint.session(&json!({}));
    let mut of_legacy = legacy.listen().unwrap();
    legacy.send("resources/subscribe", json!({ "uri": LOUD })).unwrap().answer().unwrap();
    assert_eq!(changed(&mut of_legacy), LOUD);
    let wanted = json!({ "notifications": { "resourceSubscriptions": [LOUD, other] } });
    let mut of_modern = server.endpoint.send_modern("subscriptions/listen", wanted).unwrap();
    assert_eq!(changed(&mut of_modern), LOUD);

    dir.configure(&format!("{deny}{CONFIG}"));
    server.running.says("the configuration is reloaded");
    // Both still watch it at the source, which says so at each subscription to another.
    until("the modern stream subscribes again", || {
        let intents = dir.records_of("call.intent").into_iter();
        intents.filter(|record| record["body"]["method"] == "resources/subscribe").count() >= 4
    });
    let later = "portcullis://far/mem://t/later";
    legacy.send("resources/subscribe", json!({ "uri": later })).unwrap().answer().unwrap();
    assert_eq!(changed(&mut of_legacy), later);
    let denied = dir.records_of("call.denied");
    assert_eq!(denied.len(), 2, "each subscription was judged again: {denied:?}");
    let mut seen = Vec::new();
    while seen.iter().filter(|uri| *uri == other).count() < 2 {
        seen.push(changed(&mut of_modern));
    }
    let after = seen.iter().skip_while(|uri| *uri != other).filter(|uri| *uri != other).count();
    assert_eq!(after, 0, "the denied one is not told of again: {seen:?}");
    drop(of_modern);
    until("the end of the stream reaches the source", || {
        let intents = dir.records_of("call.intent").into_iter();
        intents.filter(|record| record["body"]["method"] == "resources/unsubscribe").count() >= 1
    });
    assert_eq!(server.running.end_by(rustix::process::Signal::TERM).0, Some(0));
}

#[test]
fn a_modern_source_tells_of_no_resource_that_the_agent_does_not_watch() {
    let uri = "portcullis://far/mem://b";
    let dir = TestDir::new(&CONFIG.replace("\"full\"", "\"watched\""));
    for era in [Era::Legacy, Era::Modern] {
        let mut agent = agent(&dir, era);
        match era {
            Era::Legacy => agent.send("resources/subscribe", json!({ "uri": uri })),
            Era::Modern => {
                agent.send("subscriptions/listen", json!({ "notifications": { "resourceSubscriptions": [uri] } }))
            }
        };
        let mut message = agent.next().unwrap();
        while message["method"] != "notifications/resources/updated" {
            message = agent.next().unwrap();
        }
        assert_eq!(message["params"]["uri"], uri, "{message}");
        agent.leave();
    }
}

#[test]
fn a_resource_whose_new_subscription_waits_for_a_person_holds_up_no_other_and_is_told_of_afterwards() {
    let [a, other] = ["portcullis://far/mem://a", "portcullis://far/mem://t/other"];
    let ask = ["*mem://a", "*t/loud"].map(|tool| format!("{{ tool = \"{tool}\", method = \"resources/subscribe\" }}"));
    let asks = ask.join(", ");
    let asking = format!("policies = [{{ plugin = \"builtin:rules\", settings = {{ ask = [{asks}] }} }}]\n{CONFIG}");
    let dir = TestDir::new(CONFIG);
    let server = Server::start(&dir);
    let mut legacy = server.endpoint.session(&json!({}));
    let mut heard = legacy.listen().unwrap();
    for uri in [a, LOUD] {
        legacy.send("resources/subscribe", json!({ "uri": uri })).unwrap().answer().unwrap();
        assert_eq!(changed(&mut heard), uri);
    }
    dir.configure(&asking);
    server.running.says("the configuration is reloaded");
    let questions = || dir.records_of("call.asked");
    until("a person is asked about both", || questions().len() == 2);
    // The source announces a change of the loud one, too.
    legacy.send("resources/subscribe", json!({ "uri": other })).unwrap().answer().unwrap();
    assert_eq!(changed(&mut heard), other, "nobody has agreed to the loud one again");
    for question in questions() {
        let question = question["body"]["question"].as_str().unwrap().to_owned();
        assert_eq!(dir.run(&["approvals", "approve", &question]).code, Some(0));
    }
    while changed(&mut heard) != LOUD {}
    assert_eq!(server.running.end_by(rustix::process::Signal::TERM).0, Some(0));
}

#[test]
fn a_subscription_at_a_modern_source_for_which_there_is_no_room_is_refused() {
    let dir = TestDir::new(&CONFIG.replace("\"full\"", "\"watched\""));
    let mut legacy = agent(&dir, Era::Legacy);
    let subscribe = |number| json!({ "uri": format!("portcullis://far/mem://{number}") });
    for number in 0..64 {
        let answer = legacy.request("resources/subscribe", subscribe(number));
        assert_eq!(answer["result"], json!({}), "{number}: {answer}");
    }
    let refused = legacy.request("resources/subscribe", subscribe(64));
    assert!(refused["error"]["message"].as_str().unwrap().contains("unsubscribe from one"), "{refused}");
    assert_eq!(legacy.request("resources/unsubscribe", subscribe(7))["result"], json!({}));
    assert_eq!(legacy.request("resources/subscribe", subscribe(64))["result"], json!({}));
    legacy.leave();
}
