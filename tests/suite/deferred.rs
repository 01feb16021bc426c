//! Deferred tools, which an agent searches for instead of listing them all.

use serde_json::{Value, json};

use crate::agent::{Agent, ERAS};
use crate::test_dir::TestDir;

const CONFIG: &str = r#"
[profiles.default]
tools = "deferred"
approve = "never"
deny = ["calc__subtract"]
[sources.calc]
component = "builtin:calculator"
tags = ["numbers"]
[sources.echo]
command = ["@source@", "echo"]
[[policies]]
plugin = "builtin:rules"
settings = { deny = ["calc__divide"] }
"#;

fn names(agent: &mut Agent, arguments: &Value) -> Vec<String> {
    let found = agent.call("find_tools", arguments, None);
    let found: Value = serde_json::from_str(found["ok"].as_str().unwrap()).unwrap();
    found["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_agent_finds_describes_and_calls_deferred_tools_and_the_gate_checks_the_inner_call() {
    let dir = TestDir::new(CONFIG);
    for era in ERAS {
        let mut agent = Agent::start(&dir, era);
        let listed = agent.request("tools/list", json!({}));
        let listed: Vec<_> = listed["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
        assert_eq!(listed, ["find_tools", "describe_tool", "call_tool"]);

        assert_eq!(names(&mut agent, &json!({ "query": "add two numbers" }))[0], "calc__add");
        assert_eq!(names(&mut agent, &json!({ "source": "echo", "limit": 1 })).len(), 1);
        assert_eq!(names(&mut agent, &json!({ "tag": "other" })), [""; 0]);
        let hidden = names(&mut agent, &json!({ "query": "subtract" }));
        assert!(!hidden.contains(&"calc__subtract".to_owned()), "{hidden:?}");

        let described =
            agent.request("tools/call", json!({ "name": "describe_tool", "arguments": { "name": "calc__add" } }));
        let definition = &described["result"]["structuredContent"];
        assert_eq!(definition["inputSchema"]["required"], json!(["a", "b"]), "{described}");
        for unknown in ["calc__subtract", "nothing", "find_tools"] {
            let refused =
                agent.request("tools/call", json!({ "name": "describe_tool", "arguments": { "name": unknown } }));
            let text = refused["result"]["content"][0]["text"].as_str().unwrap();
            assert_eq!(
                (&refused["result"]["isError"], text),
                (&json!(true), &*format!("unknown tool {unknown:?}; `find_tools` finds those there are"))
            );
        }

        let inner = json!({ "name": "calc__add", "arguments": { "a": 1, "b": 2 } });
        assert_eq!(agent.call("call_tool", &inner, None)["ok"], "3");
        assert_eq!(agent.call("calc__add", &inner["arguments"], None)["ok"], "3", "by its own name too");
        let denied = json!({ "name": "calc__divide", "arguments": { "a": 1, "b": 2 } });
        let denied = agent.request("tools/call", json!({ "name": "call_tool", "arguments": denied }));
        assert_eq!(denied["error"]["data"]["code"], "rule", "{denied}");
        for (unknown, why) in [
            (json!({ "name": "calc__subtract", "arguments": {} }), "unknown tool \"calc__subtract\""),
            (json!({ "name": "call_tool", "arguments": {} }), "unknown tool \"call_tool\""),
            (
                json!({ "arguments": {} }),
                "`params.arguments.name` of `call_tool` must be the name of a tool, as `find_tools` gives it",
            ),
        ] {
            let refused = agent.request("tools/call", json!({ "name": "call_tool", "arguments": unknown }));
            assert_eq!(refused["error"]["message"], why, "{refused}");
        }
        let refused = agent.request("tools/call", json!({ "name": "find_tools", "arguments": { "limit": 0 } }));
        assert_eq!(refused["result"]["content"][0]["text"], "`limit` must be from 1 to 100, not 0", "{refused}");
        agent.leave();
    }
    let called = dir.records_of("tool.completed");
    let tools: Vec<_> = called.iter().map(|record| record["body"]["tool"].as_str().unwrap()).collect();
    assert_eq!(tools, ["calc__add"; 4], "finding and describing reach no source");
    dir.assert_good();
}

#[test]
fn a_tool_with_a_name_of_the_brokers_own_is_left_out() {
    let config = CONFIG.replace(
        "[sources.echo]\ncommand = [\"@source@\", \"echo\"]",
        "[sources.echo]\ncommand = [\"@source@\", \"finder\"]\nnames = \"plain\"",
    );
    let dir = TestDir::new(&config);
    let ran = dir.run(&["call", "calc__add", r#"{"a":1,"b":2}"#]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let ran = dir.run(&["tools"]);
    assert!(ran.out.contains("calc__add") && !ran.out.contains("find_tools"), "{}", ran.out);
    let ran = dir.run(&["check"]);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert!(
        ran.err.contains("source `echo` offers a tool `find_tools`")
            || ran.out.contains("source `echo` offers a tool `find_tools`"),
        "{}{}",
        ran.out,
        ran.err
    );
}
