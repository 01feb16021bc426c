//! The MCP Inspector's command line against `portcullis serve`, in both eras.

use std::process::Output;

use serde_json::{Value, json};

use crate::broker::{Served, TestDir, output, succeeded};
use crate::installed::{self, TOOLS};

const CONFIG: &str = r#"
[[policies]]
plugin = "builtin:rules"
settings = { deny = ["*__git_reset"], ask = ["files__write_*"] }
[profiles.default]
approve = "never"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_inspector_lists_tools_and_its_calls_run_or_are_denied_in_both_eras() {
    let dir = TestDir::new(CONFIG).await;
    let served = dir.serve().await;
    for era in ["legacy", "modern"] {
        let inspector = Inspector { dir: &dir, served: &served, era };

        let tools = inspector.list().await;
        for (server, _) in TOOLS {
            let shown = tools.iter().filter(|name| name.starts_with(&format!("{server}__"))).count();
            assert!(installed::shows(server, shown), "{shown} tools of {server}, {era}: {tools:?}");
        }

        let result = inspector.result("everything__echo", json!({ "message": "grüße" })).await;
        assert_eq!(result["content"][0]["text"], "Echo: grüße");
        let result = inspector.result("everything__get-tiny-image", json!({})).await;
        assert_eq!(result["content"][1]["type"], "image");
        let result = inspector.result("everything__get-structured-content", json!({ "location": "Chicago" })).await;
        assert!(result["structuredContent"]["temperature"].is_number(), "{result}");
        let result =
            inspector.result("everything__trigger-long-running-operation", json!({ "duration": 1, "steps": 2 })).await;
        assert!(text(&result).contains("completed"), "{result}");
        let result = inspector.result("files__read_text_file", json!({ "path": dir.at("docs/hello.txt") })).await;
        assert_eq!(text(&result), "hello, café\n");
        let result = inspector.result("git__git_log", json!({ "repo_path": dir.at("repo") })).await;
        assert!(text(&result).contains("the first"), "{result}");
        let result = inspector.result("memory__read_graph", json!({})).await;
        assert_eq!(result["structuredContent"], json!({ "entities": [], "relations": [] }));
        let result = inspector.result("time__get_current_time", json!({ "timezone": "UTC" })).await;
        assert!(text(&result).contains("UTC"), "{result}");

        let denied = inspector.call("git__git_reset", json!({ "repo_path": dir.at("repo") })).await;
        let said = String::from_utf8_lossy(&denied.stderr);
        assert!(!denied.status.success() && said.contains("denied by the rule `*__git_reset`"), "{said}");

        let file = dir.at(&format!("docs/{era}.txt"));
        let (result, ()) = tokio::join!(
            inspector.result("files__write_file", json!({ "path": file, "content": era })),
            approve(&dir, "files__write_file")
        );
        assert!(text(&result).starts_with("Successfully wrote"), "{result}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), era);
    }
    served.end().await;
    dir.verify(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inspector_without_the_token_is_refused() {
    let dir = TestDir::new("").await;
    let mut served = dir.serve().await;
    served.token = "guessed".to_owned();
    for era in ["legacy", "modern"] {
        let refused = Inspector { dir: &dir, served: &served, era }.call("everything__echo", json!({})).await;
        assert!(!refused.status.success(), "{era}: {}", String::from_utf8_lossy(&refused.stdout));
    }
    served.end().await;
    dir.verify(None).await;
}

struct Inspector<'a> {
    dir: &'a TestDir,
    served: &'a Served,
    era: &'a str,
}

impl Inspector<'_> {
    /// Returns the names of all tools. `--strict` fails on definitions that are not portable between clients.
    async fn list(&self) -> Vec<String> {
        let listed = succeeded(self.run(&["--method", "tools/list", "--strict"]).await, &["tools/list"]);
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let tools = listed["result"]["tools"].as_array().expect("a list of tools");
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    async fn result(&self, tool: &str, arguments: Value) -> Value {
        let said = succeeded(self.call(tool, arguments).await, &[tool, self.era]);
        let said: Value = serde_json::from_str(&said).unwrap();
        said["result"].clone()
    }

    async fn call(&self, tool: &str, arguments: Value) -> Output {
        self.run(&["--method", "tools/call", "--tool-name", tool, "--tool-args-json", &arguments.to_string()]).await
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.dir.command(&installed::node());
        command.arg(installed::inspector()).args(["--cli", &self.served.url, "--transport", "http"]);
        command.args(["--header", &format!("Authorization: Bearer {}", self.served.token)]);
        // The first listing waits for seven interpreters to start.
        command.args(["--connect-timeout", "120000"]);
        command.args(["--protocol-era", self.era, "--format", "json"]).args(arguments);
        output(command).await
    }
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}

/// Approves the next question about a tool as a person at another terminal would.
pub(crate) async fn approve(dir: &TestDir, tool: &str) {
    let ask = tokio::time::timeout(crate::broker::DEADLINE, async {
        loop {
            let open = dir.json(&["approvals", "list"]).await;
            if let Some(ask) = open.as_array().unwrap().iter().find(|ask| ask["tool"] == tool) {
                return ask["id"].as_str().unwrap().to_owned();
            }
        }
    });
    let ask = ask.await.expect("the call asks");
    let said = dir.run(&["approvals", "approve", &ask]).await;
    assert!(said.starts_with(&format!("approved: {tool}")), "{said}");
}
