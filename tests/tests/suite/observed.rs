//! What an operator sees of a broker that runs, and what nobody else does.

use serde_json::{Value, json};

use crate::agent::{Agent, ERAS};
use crate::place::Place;
use crate::web::Server;

#[test]
fn calls_are_counted_for_a_monitoring_system_and_for_no_agent() {
    let place = Place::new(
        "serve = { metrics-token = \"scrape\" }\n[profiles.default]\napprove = \"never\"\n\
         [sources.calc]\ncomponent = \"builtin:calculator\"\n[sources.old]\ncommand = [\"@source@\", \"echo\"]",
    );
    let server = Server::start(&place);
    let mut session = server.door.session(&json!({}));
    for _ in 0..3 {
        session.call("calc__add", &json!({ "a": 1, "b": 2 })).unwrap();
    }
    session.call("calc__divide", &json!({ "a": 1, "b": 0 })).unwrap();
    let (status, text) = server.door.with_token("scrape").get("/metrics");
    assert_eq!(status, "200", "{text}");
    let count = "mcp_client_operation_duration_seconds_count{source=\"calc\",method=\"tools/call\"";
    for (series, value) in [
        (format!("{count},tool=\"calc__add\",outcome=\"ok\"}}"), 3),
        (format!("{count},tool=\"calc__divide\",outcome=\"tool_error\"}}"), 1),
        ("portcullis_source_state{source=\"old\",state=\"ready\"}".to_owned(), 1),
        ("portcullis_sessions".to_owned(), 1),
    ] {
        let line = format!("{series} {value}");
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
    }
    assert_eq!(server.door.get("/metrics").0, "401");
    assert_eq!(server.door.with_token("scrape").get("/mcp").0, "401");

    let brokers: Value = serde_json::from_str(&place.run(&["status", "--json"]).out).unwrap();
    let calc = brokers[0]["sources"].as_array().unwrap().iter().find(|source| source["name"] == "calc").unwrap();
    assert_eq!(calc["calls"], json!({ "ok": 3, "tool_error": 1, "denied": 0 }), "{brokers}");
}

#[test]
fn for_whom_an_agent_calls_is_told_to_the_sources_that_may_know_it() {
    let source =
        |name: &str, context: &str| format!("[sources.{name}]\ncommand = [\"@source@\", \"modern\"]\n{context}\n");
    let place = Place::new(&format!(
        "profiles.default.approve = \"never\"\n{}{}",
        source("trusted", "context = [\"user_context\", \"request_id\", \"traceparent\"]"),
        source("other", ""),
    ));
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let said = json!({
        "deps": { "user_context": { "user": "ann" }, "request_id": "r-1", "session_cookie": "c" },
        "traceparent": trace,
        "tracestate": "v=1",
        "example.com/secret": "s",
    });
    for era in ERAS {
        let mut agent = Agent::alone(&place, era);
        let mut told = |source: &str| -> Value {
            let params = json!({ "name": format!("{source}__meta"), "arguments": {}, "_meta": said });
            let answer = agent.request("tools/call", params);
            let meta = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
            let mut meta: Value = serde_json::from_str(meta).unwrap();
            meta.as_object_mut().unwrap().retain(|key, _| key != "progressToken" && !key.starts_with("io.model"));
            meta
        };
        let deps = json!({ "user_context": { "user": "ann" }, "request_id": "r-1" });
        assert_eq!(told("trusted"), json!({ "deps": deps, "traceparent": trace }), "{era:?}");
        assert_eq!(told("other"), json!({}), "{era:?}");
    }
}
