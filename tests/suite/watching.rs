//! Changes of resources reach the agents that watch them, and lead to no other resource.

use serde_json::json;

use crate::agent::Era;
use crate::protocol::{CONFIG, agent};
use crate::test_dir::{TestDir, until};

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
    assert_eq!(first["params"]["notifications"], json!({ "resourceSubscriptions": [b, c] }), "{first}");
    let change = modern.next().unwrap();
    assert_eq!(change["params"]["uri"], c, "{change}");
    modern.leave();
    let intents = dir.records_of("call.intent").into_iter().map(|record| record["body"].clone());
    let watched: Vec<_> = intents.filter(|body| body["method"] == "resources/subscribe").collect();
    assert_eq!(watched.len(), 1, "{watched:?}");
    // No list names it, so that the record has the scheme alone.
    assert_eq!(watched[0]["resource"], "portcullis://far/mem:…", "{watched:?}");
}

/// A modern source is asked about all resources at once, so the broker judges each by itself.
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
