//! A server's tool definitions and its answers to calls are byte for byte the same through the broker as without it.
//! Each server is tested in the era that it prefers, because servers of both eras answer differently in each.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::broker::TestDir;
use crate::installed;
use crate::lines::{Era, Lines};

#[tokio::test(flavor = "multi_thread")]
async fn the_everything_server_answers_the_same_bytes_through_the_broker() {
    same(
        "everything",
        Era::Legacy,
        &[
            ("echo", json!({ "message": "\u{202e}grüße\u{0} 12345678901234567890" })),
            ("get-sum", json!({ "a": 0.1, "b": 0.2 })),
            ("get-tiny-image", json!({})),
            ("get-annotated-message", json!({ "messageType": "error", "includeImage": true })),
            ("get-resource-links", json!({ "count": 3 })),
            ("get-structured-content", json!({ "location": "New York" })),
            // Errors also come from the server unchanged.
            ("echo", json!({})),
            ("get-sum", json!({ "a": "no number" })),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_filesystem_server_answers_the_same_bytes_through_the_broker() {
    let docs = |dir: &TestDir| dir.at("docs");
    same_in("files", Era::Legacy, |dir| {
        vec![
            ("read_text_file", json!({ "path": docs(dir) + "/hello.txt" })),
            ("read_media_file", json!({ "path": docs(dir) + "/hello.txt" })),
            ("directory_tree", json!({ "path": docs(dir) })),
            ("list_allowed_directories", json!({})),
            ("read_text_file", json!({ "path": "/etc/hostname" })),
        ]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_server_answers_the_same_bytes_through_the_broker() {
    let entity = json!({ "name": "gate", "entityType": "thing", "observations": ["is shut", "ist zu"] });
    same(
        "memory",
        Era::Legacy,
        &[("create_entities", json!({ "entities": [entity] })), ("search_nodes", json!({ "query": "shut" }))],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_git_server_answers_the_same_bytes_through_the_broker() {
    same_in("git", Era::Modern, |dir| {
        vec![
            ("git_log", json!({ "repo_path": dir.at("repo") })),
            ("git_status", json!({ "repo_path": dir.at("repo") })),
            ("git_show", json!({ "repo_path": dir.at("repo"), "revision": "HEAD" })),
            ("git_log", json!({ "repo_path": dir.at("docs") })),
        ]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_server_answers_the_same_bytes_through_the_broker() {
    let noon = |from, to| json!({ "source_timezone": from, "time": "12:00", "target_timezone": to });
    same(
        "time",
        Era::Modern,
        &[("convert_time", noon("UTC", "Asia/Kathmandu")), ("convert_time", noon("UTC", "Nowhere/Town"))],
    )
    .await;
}

async fn same(server: &str, era: Era, calls: &[(&str, Value)]) {
    same_in(server, era, |_| calls.to_vec()).await;
}

/// Makes the calls directly and through `portcullis wrap`, in the same place, and compares the answers.
async fn same_in<'a>(server: &str, era: Era, calls: impl Fn(&TestDir) -> Vec<(&'a str, Value)>) {
    let dir = TestDir::new("").await;
    let calls = calls(&dir);
    let graph = format!("MEMORY_FILE_PATH={}", dir.at("memory/graph.json"));

    let argv = installed::command(server, dir.path());
    let mut direct = dir.command(Path::new(&argv[0]));
    direct.args(&argv[1..]).env("MEMORY_FILE_PATH", dir.at("memory/graph.json"));
    let (direct_tools, direct) = answers(direct, era, &calls).await;
    let _ = std::fs::remove_file(dir.at("memory/graph.json"));

    let data_dir = dir.at("data");
    let mut wrapped = dir.portcullis(&["wrap", "--approve", "never", "--data-dir", &data_dir, "--env", &graph]);
    wrapped.args(installed::cell(server, dir.path()).into_iter().flatten()).arg("--").args(&argv);
    let (wrapped_tools, wrapped) = answers(wrapped, era, &calls).await;

    assert_eq!(wrapped_tools, direct_tools);
    for ((call, wrapped), direct) in calls.iter().zip(wrapped).zip(direct) {
        assert_eq!(wrapped, direct, "{call:?}");
    }
    dir.verify(Some(&data_dir)).await;
}

/// Returns the definitions by name and the answer to each call, as the bytes that were received.
async fn answers(command: Command, era: Era, calls: &[(&str, Value)]) -> (BTreeMap<String, String>, Vec<String>) {
    let mut lines = Lines::start(command, era).await;
    let listed = lines.ask("tools/list", json!({})).await;
    let mut answers = Vec::new();
    for (name, arguments) in calls {
        answers.push(lines.ask("tools/call", json!({ "name": name, "arguments": arguments })).await);
    }
    lines.end().await;

    let listed: List = serde_json::from_str(&listed).unwrap();
    let named = listed.tools.into_iter().map(|tool| {
        let name = serde_json::from_str::<Value>(tool.get()).unwrap()["name"].as_str().unwrap().to_owned();
        (name, tool.get().to_owned())
    });
    (named.collect(), answers)
}

/// The part of a listing that is compared.
#[derive(serde::Deserialize)]
struct List {
    tools: Vec<Box<RawValue>>,
}
