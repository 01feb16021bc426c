//! Results in the form that a profile's model can read: without images, with structured content as text, and in parts.

use serde_json::{Value, json};

use crate::agent::{Agent, ERAS, Era};
use crate::test_dir::TestDir;
use crate::web::{Server, Session};

/// Returns the text of a result of 60 KB, with characters of several bytes.
fn long() -> String {
    (0..3_000).map(|line| format!("line {line}: é€ \n")).collect()
}

fn config(profile: &str) -> String {
    let block = |text: &str| json!({ "type": "text", "text": text });
    let picture = json!({ "type": "image", "data": "AAAA".repeat(600), "mimeType": "image/png" });
    let imitated =
        json!({ "type": "resource_link", "uri": "portcullis-result:00000000000000000000000000000000/1", "name": "x" });
    let prepared = json!({
        "tools": [
            { "name": "see", "inputSchema": { "type": "object" } },
            { "name": "count", "inputSchema": { "type": "object" }, "outputSchema": { "type": "object" } },
            { "name": "dump", "inputSchema": { "type": "object" }, "outputSchema": { "type": "object" } },
            { "name": "imitate", "inputSchema": { "type": "object" } },
            { "name": "quote", "inputSchema": { "type": "object" } },
        ],
        "results": {
            "see": { "content": [block("before"), picture, block("after")] },
            "count": { "content": [], "structuredContent": { "n": 1 } },
            "dump": { "content": [block(&long())], "structuredContent": { "lines": 3000 }, "x": 1 },
            "imitate": { "content": [imitated] },
            "quote": {
                "content": [block(&"\"\n".repeat(3_000))], "isError": true, "_meta": { "far/large": "x".repeat(9_000) },
            },
        },
    });
    format!(
        "[profiles.default]\napprove = \"never\"\n{profile}\n[sources.far]\ncommand = [\"@source@\", \"prepared\", '''{prepared}''']\n\
         names = \"plain\"\n"
    )
}

fn call(agent: &mut Agent, tool: &str) -> Value {
    agent.request("tools/call", json!({ "name": tool, "arguments": {} }))["result"].clone()
}

#[test]
fn a_profile_without_vision_gets_a_text_in_the_place_of_each_image() {
    for (profile, kept) in [("", true), ("images = \"keep\"", true), ("images = \"strip\"", false)] {
        let dir = TestDir::new(&config(profile));
        for era in ERAS {
            let mut agent = Agent::start(&dir, era);
            agent.list();
            let content = call(&mut agent, "see")["content"].clone();
            assert_eq!((&content[0]["text"], &content[2]["text"]), (&json!("before"), &json!("after")));
            let left_out =
                json!({ "type": "text", "text": "[An image (image/png, 2 KiB) is left out: this profile shows none]" });
            assert_eq!((content[1]["type"] == "image", content[1] == left_out), (kept, !kept), "{content}");
            agent.leave();
        }
        let converted = dir.records_of("result.converted");
        assert_eq!(converted.len(), if kept { 0 } else { 2 }, "{profile}");
        let completed = dir.records_of("tool.completed");
        for (converted, completed) in converted.iter().zip(&completed) {
            let body = json!({ "source": "far", "tool": "see", "images": 1 });
            assert_eq!((&converted["body"], &converted["call"]), (&body, &completed["call"]));
            assert!(
                completed["body"]["result"]["bytes"].as_u64().unwrap() > 2400,
                "the record is of the whole: {completed}"
            );
        }
    }
}

#[test]
fn structured_content_is_added_as_a_text_for_a_client_that_does_not_read_it() {
    for (profile, texts) in [("", 0), ("structured-content = \"as-is\"", 0), ("structured-content = \"text\"", 1)] {
        let dir = TestDir::new(&config(profile));
        let mut agent = Agent::start(&dir, Era::Legacy);
        agent.list();
        let result = call(&mut agent, "count");
        assert_eq!(result["structuredContent"], json!({ "n": 1 }));
        assert_eq!(result["content"].as_array().unwrap().len(), texts, "{profile}: {result}");
        if texts == 1 {
            assert_eq!(result["content"][0], json!({ "type": "text", "text": "{\"n\":1}" }));
        }
        agent.leave();
        assert_eq!(dir.records_of("result.converted").len(), texts);
    }
}

#[test]
fn a_large_result_is_read_in_parts_and_a_small_one_is_not_touched() {
    let dir = TestDir::new(&config("max-result = \"8KiB\""));
    for era in ERAS {
        let mut agent = Agent::start(&dir, era);
        let tools = agent.request("tools/list", json!({}))["result"]["tools"].clone();
        assert!(
            tools[2]["name"] == "dump" && tools[2].get("outputSchema").is_none(),
            "no structured content is promised"
        );
        let result = call(&mut agent, "dump");
        assert!(result.to_string().len() < 8 * 1024 && result.get("structuredContent").is_none(), "{result}");
        assert_eq!(result["x"], 1, "what is no content stays");
        let mut text = result["content"][0]["text"].as_str().unwrap().to_owned();
        let note = result["content"][1]["text"].as_str().unwrap();
        let second = result["content"][2]["uri"].as_str().unwrap().to_owned();
        let last: usize = note.trim_end_matches(']').rsplit('/').next().unwrap().parse().unwrap();
        assert!(note.contains(&format!("part 1 of {last}")) && note.contains(&second), "{note}");
        let first = second.strip_suffix("/2").unwrap();
        for number in 2..=last {
            let read = agent.request("resources/read", json!({ "uri": format!("{first}/{number}") }));
            text += read["result"]["contents"][0]["text"].as_str().unwrap();
        }
        assert_eq!(text, format!("{}\n{{\"lines\":3000}}", long()), "the parts are the whole");
        for beyond in [format!("{first}/0"), format!("{first}/{}", last + 1), format!("{first}/x"), first.to_owned()] {
            let refused = agent.request("resources/read", json!({ "uri": beyond }));
            assert_eq!(refused["error"]["message"], "resource not found", "{refused}");
        }
        assert_eq!(call(&mut agent, "count"), {
            let mut small = json!({ "content": [], "structuredContent": { "n": 1 } });
            if era == Era::Modern {
                small["resultType"] = json!("complete");
            }
            small
        });
        agent.leave();
    }
    let converted = dir.records_of("result.converted");
    let oversize = &converted[0]["body"]["oversize"];
    assert!(
        converted.len() == 2 && oversize["kept"] == true && oversize["bytes"].as_u64().unwrap() > 50_000,
        "{converted:?}"
    );
    let completed = dir.records_of("tool.completed");
    assert!(completed[0]["body"]["result"]["bytes"].as_u64().unwrap() > 50_000, "the record is of the whole");
    dir.assert_good();
}

#[test]
fn a_shortened_result_keeps_to_its_size_whatever_the_source_writes() {
    let dir = TestDir::new(&config("max-result = \"8KiB\""));
    for era in ERAS {
        let mut agent = Agent::start(&dir, era);
        agent.list();
        let result = call(&mut agent, "quote");
        assert!(result.to_string().len() <= 8 * 1024, "{} bytes", result.to_string().len());
        assert_eq!((&result["isError"], result.get("_meta")), (&json!(true), None), "{result}");
        let mut text = result["content"][0]["text"].as_str().unwrap().to_owned();
        for link in result["content"].as_array().unwrap().iter().filter(|block| block["type"] == "resource_link") {
            let read = agent.request("resources/read", json!({ "uri": link["uri"] }))["result"].clone();
            assert!(read.to_string().len() <= 8 * 1024, "{} bytes", read.to_string().len());
            text += read["contents"][0]["text"].as_str().unwrap();
        }
        assert_eq!(text, "\"\n".repeat(3_000), "the parts are the whole");
        agent.leave();
    }
    let converted = dir.records_of("result.converted");
    assert_eq!(converted[0]["body"]["oversize"]["members-dropped"], true, "{converted:?}");
}

fn read(session: &mut Session, uri: &str) -> Value {
    session.send("resources/read", json!({ "uri": uri })).unwrap().answer().unwrap()
}

#[test]
fn a_kept_result_is_read_by_the_session_that_got_it_alone_and_no_source_can_imitate_it() {
    let dir = TestDir::new(&config("max-result = \"8KiB\""));
    let server = Server::start(&dir);
    let (mut one, mut two) = (server.endpoint.session(&json!({})), server.endpoint.session(&json!({})));
    let result = one.send_call("dump", &json!({})).unwrap().answer().unwrap();
    let uri = result["result"]["content"][2]["uri"].as_str().unwrap().to_owned();
    assert!(read(&mut one, &uri)["result"]["contents"][0]["text"].as_str().unwrap().contains("line "));
    assert_eq!(read(&mut two, &uri)["error"]["message"], "resource not found");
    let modern = server.endpoint.modern("resources/read", json!({ "uri": uri })).unwrap();
    assert_eq!(modern["error"]["message"], "resource not found", "{modern}");
    // A modern caller is known by its principal: it comes back to what it got, and a legacy session does not.
    let own = server.endpoint.modern("tools/call", json!({ "name": "dump", "arguments": {} })).unwrap();
    let own = own["result"]["content"][2]["uri"].as_str().unwrap().to_owned();
    let modern = server.endpoint.modern("resources/read", json!({ "uri": own })).unwrap();
    assert_eq!(modern["result"]["contents"][0]["uri"], json!(own), "{modern}");
    assert_eq!(read(&mut one, &own)["error"]["message"], "resource not found");
    // This source reads every URI that reaches it.
    let elsewhere = read(&mut one, "test://a");
    assert_eq!(elsewhere["result"]["contents"][0]["text"], "from the source", "{elsewhere}");
    let imitated = one.send_call("imitate", &json!({})).unwrap().answer().unwrap();
    let imitated = imitated["result"]["content"][0]["uri"].as_str().unwrap().to_owned();
    assert_eq!(read(&mut one, &imitated)["error"]["message"], "resource not found", "it does not reach the source");
}
