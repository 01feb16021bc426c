//! Input schemas that are repaired for a profile's model, and arguments that are restored.

use serde_json::{Value, json};

use crate::agent::{Agent, ERAS, Era};
use crate::test_dir::TestDir;

/// Two tools: one whose schema needs every repair of form, and one that needs none.
const TOOLS: &str = r##"{"tools":[
{"name":"find","v":1.0,"inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","additionalProperties":false,"required":["where","limit"],
"properties":{"where":{"type":"object","required":["the.place"],"properties":{"the.place":{"type":"object","required":["city"],"properties":{"city":{"type":"string"},"zip":{"$ref":"#/$defs/Zip"}}}}},"limit":{"type":["integer","null"]}},
"$defs":{"Zip":{"type":"integer"}}}},
{"name":"plain","inputSchema":{ "type":"object","properties":{"a":{"type":"integer"}}}}]}"##;

fn config(profile: &str) -> String {
    let tools = TOOLS.replace('\n', "");
    format!(
        r#"
[profiles.default]
{profile}
record = "full"
[sources.far]
command = ["@source@", "prepared", '''{tools}''']
[sources.bare]
command = ["@source@", "prepared", '''{}''']
names = "plain"
[[policies]]
plugin = "builtin:cedar"
[policies.settings]
policies = '''
permit (principal, action, resource);
@id("no-rome")
forbid (principal, action == Action::"far__find", resource)
when {{ context.input.where["the.place"].city == "Rome" }};
'''
"#,
        tools.replace("\"find\"", "\"seek\"").replace("\"plain\"", "\"simple\"")
    )
}

fn tools(agent: &mut Agent) -> Vec<Value> {
    let listed = agent.request("tools/list", json!({}));
    listed["result"]["tools"].as_array().unwrap().clone()
}

fn tool<'a>(tools: &'a [Value], name: &str) -> &'a Value {
    tools.iter().find(|tool| tool["name"] == name).unwrap()
}

/// Returns the call of a model that reads the repaired schema, and the arguments that the source asked for.
fn call() -> (Value, Value) {
    let sent = json!({ "where__the_place__city": "Oslo", "where__the_place__zip": "150", "limit": null });
    (sent, json!({ "where": { "the.place": { "city": "Oslo", "zip": 150 } }, "limit": null }))
}

#[test]
fn a_profile_with_repaired_schemas_shows_them_and_its_calls_reach_the_source_in_the_sources_own_form() {
    let dir = TestDir::new(&config("approve = \"never\"\nschemas = \"repair\""));
    for era in ERAS {
        let mut agent = Agent::start(&dir, era);
        let tools = tools(&mut agent);
        let found = tool(&tools, "far__find");
        let names: Vec<_> = found["inputSchema"]["properties"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["where__the_place__city", "where__the_place__zip", "limit"], "{found}");
        assert_eq!(
            (&found["inputSchema"]["required"], &found["v"]),
            (&json!(["where__the_place__city", "limit"]), &json!(1.0))
        );
        assert!(!found.to_string().contains('$'), "{found}");

        let (sent, restored) = call();
        for form in [&sent, &restored] {
            let answer = agent.call("far__find", form, None);
            assert_eq!(serde_json::from_str::<Value>(answer["ok"].as_str().unwrap()).unwrap(), restored, "{form}");
        }
        assert_eq!(agent.call("far__plain", &json!({ "a": "5" }), None)["ok"], r#"{"a":5}"#);
        agent.leave();
    }
    let intents = dir.records_of("call.intent");
    let body = |record: &Value| record["body"]["arguments"]["body"].clone();
    assert_eq!(body(&intents[0]), call().1, "the ledger has the form that the source got");
    let restored: Vec<_> = intents.iter().map(|intent| intent["body"]["restored"] == true).collect();
    assert_eq!(restored, [true, false, true, true, false, true], "it says which calls came in another form");
    dir.assert_good();
}

#[test]
fn policies_and_questions_see_restored_arguments_alone() {
    let dir = TestDir::new(&config("approve = \"always\"\nschemas = \"repair\""));
    for era in ERAS {
        let mut agent = Agent::start(&dir, era);
        agent.list();
        for city in ["where__the_place__city", "where.the.place.city"] {
            let denied = agent.call("far__find", &json!({ city: "Rome", "limit": "1" }), None);
            assert_eq!(denied["message"], "forbidden by the policy `no-rome`", "{denied}");
        }
        let (sent, restored) = call();
        let answer = agent.call("far__find", &sent, Some("once"));
        assert_eq!(serde_json::from_str::<Value>(answer["ok"].as_str().unwrap()).unwrap(), restored, "{answer}");
        agent.leave();
    }
    let mut agent = Agent::start(&dir, Era::Modern);
    let question = agent.request("tools/call", json!({ "name": "far__find", "arguments": call().0 })).to_string();
    assert!(question.contains("the.place") && !question.contains("where__"), "{question}");
    agent.leave();
}

#[test]
fn two_arguments_for_one_place_are_refused_and_recorded() {
    let dir = TestDir::new(&config("approve = \"never\"\nschemas = \"repair\""));
    let mut agent = Agent::start(&dir, Era::Modern);
    agent.list();
    let twice = json!({ "where__the_place__city": "Oslo", "where": { "the.place": { "city": "Rome" } }, "limit": 1 });
    let refused = agent.request("tools/call", json!({ "name": "far__find", "arguments": twice }));
    let expected = "the arguments are ambiguous: two arguments stand for `city` of the tool; send one of them";
    assert_eq!(refused["error"]["message"], expected, "{refused}");
    agent.leave();
    let denied = dir.records_of("call.denied");
    assert_eq!((denied.len(), &denied[0]["body"]["code"]), (1, &json!("arguments-ambiguous")));
    assert_eq!(dir.records_of("call.intent").len(), 0);
}

#[test]
fn schemas_are_shown_as_they_are_by_default_and_for_a_source_with_plain_names() {
    let own: Value = serde_json::from_str(TOOLS).unwrap();
    for (profile, repaired) in [
        ("approve = \"never\"", false),
        ("approve = \"never\"\nschemas = \"as-is\"", false),
        ("approve = \"never\"\nschemas = \"repair\"", true),
    ] {
        let dir = TestDir::new(&config(profile));
        let mut agent = Agent::start(&dir, Era::Legacy);
        let tools = tools(&mut agent);
        assert_eq!(tool(&tools, "far__find")["inputSchema"] == own["tools"][0]["inputSchema"], !repaired, "{profile}");
        assert_eq!(tool(&tools, "seek")["inputSchema"], own["tools"][0]["inputSchema"], "{profile}");
        assert_eq!(agent.call("seek", &json!({ "limit": "5" }), None)["ok"], r#"{"limit":"5"}"#);
        agent.leave();
        assert_eq!(dir.records_of("schema.repaired").len(), usize::from(repaired), "{profile}");
    }
}

#[test]
fn each_repair_is_recorded_once_with_the_definition_that_the_lock_file_pins() {
    let dir = TestDir::new(&config("approve = \"never\"\nschemas = \"repair\""));
    let accepted = dir.run(&["lock", "accept", "far__find"]);
    assert_eq!(accepted.code, Some(0), "{}", accepted.err);
    for profile in ["", "schemas = \"repair\""] {
        dir.configure(&config(&format!("approve = \"never\"\n{profile}")));
        let mut agent = Agent::alone(&dir, Era::Modern);
        agent.list();
        agent.list();
        agent.leave();
        let same = dir.run(&["lock", "diff"]);
        assert!(!same.out.contains("changed"), "a repair is no change of the definition: {}", same.out);
    }
    let repaired = dir.records_of("schema.repaired");
    assert_eq!(repaired.len(), 1, "{repaired:?}");
    let body = &repaired[0]["body"];
    let connected = dir.records_of("mcp.connected");
    let connected = connected.iter().find(|connected| connected["body"]["source"] == "far").unwrap();
    let listed = connected["body"]["tools"].as_array().unwrap().iter().find(|tool| tool["tool"] == "find");
    assert_eq!(
        (&body["source"], body["tools"].as_array().unwrap().len(), &body["tools"][0]["definition"]),
        (&json!("far"), 1, &listed.unwrap()["definition"])
    );
    assert_eq!(
        body["tools"][0]["repairs"],
        json!({ "reference": 1, "type": 1, "keyword": 3, "flattened": 2 }),
        "{body}"
    );
}

#[test]
fn check_names_an_invalid_schema_and_each_repair() {
    let bad = r#"{"tools":[{"name":"bad","inputSchema":{"type":"object","properties":{"a":{"type":"strin"},"b":{"$ref":"https://a.example/s.json"}}}}]}"#;
    let source = format!("[sources.bad]\ncommand = [\"@source@\", \"prepared\", '''{bad}''']\n");
    let dir = TestDir::new(&format!("{}{source}", config("approve = \"never\"\nschemas = \"repair\"")));
    let ran = dir.run(&["check"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    for said in [
        "schema       of bad__bad is invalid at inputSchema/properties/a/type: it must be one of `string`",
        "schema       of bad__bad is invalid at inputSchema/properties/b/$ref: it must lead to a part of this schema",
    ] {
        assert!(dir.plain(&ran.out).contains(said), "{}", ran.out);
    }
    assert!(!ran.out.contains("far__find"), "a repair is no fault: {}", ran.out);
    let ran = dir.run(&["check", "far"]);
    let said = "far__find at inputSchema/properties/where/properties/the.place/properties/city: flattened, where__the_place__city";
    assert!(ran.out.contains(said), "{}", ran.out);
    let report: Value = serde_json::from_str(&dir.run(&["check", "--json"]).out).unwrap();
    let far = report["sources"].as_array().unwrap().iter().find(|source| source["name"] == "far").unwrap();
    assert_eq!(far["schemas"][0]["repair"]["counts"]["flattened"], 2, "{far}");
}

#[test]
fn a_model_that_searches_for_tools_is_described_the_repaired_schema() {
    let dir = TestDir::new(&config("approve = \"never\"\nschemas = \"repair\"\ntools = \"deferred\""));
    let mut agent = Agent::start(&dir, Era::Modern);
    let described =
        agent.request("tools/call", json!({ "name": "describe_tool", "arguments": { "name": "far__find" } }));
    let schema = &described["result"]["structuredContent"]["inputSchema"];
    assert!(schema["properties"]["where__the_place__city"].is_object(), "{described}");
    let (sent, restored) = call();
    let answer = agent.call("call_tool", &json!({ "name": "far__find", "arguments": sent }), None);
    assert_eq!(serde_json::from_str::<Value>(answer["ok"].as_str().unwrap()).unwrap(), restored);
    agent.leave();
}
