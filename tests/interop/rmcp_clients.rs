//! rmcp, the Rust SDK, as the agent: over HTTP and over stdio, in both eras.

use std::collections::BTreeMap;
use std::process::Stdio;

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationCapability, Implementation, ProtocolVersion,
};
use rmcp::service::{RequestContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt as _, ErrorData, RoleClient};
use serde_json::{Value, json};
use tokio::process::Child;
use tokio::time::timeout;

use crate::broker::{DEADLINE, Served, TestDir};
use crate::installed::{self, TOOLS};

const CONFIG: &str = r#"
[[policies]]
plugin = "builtin:rules"
settings = { deny = ["*__git_reset"], ask = ["everything__get-sum", "everything__get-annotated-message"] }
[profiles.default]
approve = "never"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn an_rmcp_client_works_over_http_in_both_eras() {
    let dir = TestDir::new(CONFIG).await;
    let served = dir.serve().await;
    for era in [Era::Legacy, Era::Modern] {
        let client = over_http(&served, era).await;
        works(&client, &dir).await;
        client.cancel().await.unwrap();
    }
    served.end().await;
    dir.verify(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_rmcp_client_works_over_stdio_in_both_eras() {
    let dir = TestDir::new(CONFIG).await;
    for era in [Era::Legacy, Era::Modern] {
        let mut command = dir.portcullis(&["serve", "--stdio"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let client = over_stdio(&mut child, era).await;
        works(&client, &dir).await;
        client.cancel().await.unwrap();
        let ended = timeout(DEADLINE, child.wait()).await.expect("it ends with its client").unwrap();
        assert!(ended.success(), "{ended}");
    }
    dir.verify(None).await;
}

/// Uses the command that a client's configuration has for a wrapped server.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrapped_server_keeps_its_tool_names_and_asks_a_person() {
    let dir = TestDir::new("").await;
    let data_dir = dir.at("data");
    let mut command = dir.portcullis(&["wrap", "--data-dir", &data_dir, "--env", "GREETING=hi"]);
    command.args(installed::cell("everything", dir.path()).into_iter().flatten()).arg("--");
    command.args(installed::command("everything", dir.path()));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let client = over_stdio(&mut child, Era::Legacy).await;

    assert!(installed::shows("everything", client.list_all_tools().await.unwrap().len()));
    let sum = call(&client, "get-sum", json!({ "a": 2, "b": 3 })).await.unwrap();
    assert!(text(&sum).contains("is 5"), "{sum:?}");
    let refused = call(&client, "get-env", json!({})).await.unwrap_err();
    assert!(refused.contains("refused"), "{refused}");

    client.cancel().await.unwrap();
    let ended = timeout(DEADLINE, child.wait()).await.expect("it ends with its client").unwrap();
    assert!(ended.success(), "{ended}");
    dir.verify(Some(&data_dir)).await;
}

/// Checks that every server answers, that the rules hold, and that questions reach the person at the client.
async fn works(client: &Client, dir: &TestDir) {
    let tools = client.list_all_tools().await.unwrap();
    for (server, _) in TOOLS {
        let shown = tools.iter().filter(|tool| tool.name.starts_with(&format!("{server}__"))).count();
        assert!(installed::shows(server, shown), "{shown} tools of {server}");
    }

    let result = call(client, "files__read_text_file", json!({ "path": dir.at("docs/hello.txt") })).await.unwrap();
    assert_eq!(result.structured_content, Some(json!({ "content": "hello, café\n" })));
    let result = call(client, "git__git_status", json!({ "repo_path": dir.at("repo") })).await.unwrap();
    assert!(text(&result).contains("nothing to commit"), "{result:?}");
    let result = call(client, "memory__read_graph", json!({})).await.unwrap();
    assert_eq!(result.structured_content, Some(json!({ "entities": [], "relations": [] })));
    let noon = json!({ "source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Kathmandu" });
    let result = call(client, "time__convert_time", noon).await.unwrap();
    assert!(text(&result).contains("+5.75h"), "{result:?}");

    // A server sees only the environment that the broker made for it, and nothing of the broker's own.
    let result = call(client, "everything__get-env", json!({})).await.unwrap();
    let seen: BTreeMap<String, String> = serde_json::from_str(&text(&result)).unwrap();
    assert_eq!(seen.keys().collect::<Vec<_>>(), ["HOME", "LANG", "PATH", "TMPDIR"]);
    assert_eq!(seen["HOME"], "/home/source");

    let denied = call(client, "git__git_reset", json!({ "repo_path": dir.at("repo") })).await.unwrap_err();
    assert!(denied.contains("denied by the rule `*__git_reset`"), "{denied}");

    let sum = call(client, "everything__get-sum", json!({ "a": 2, "b": 3 })).await.unwrap();
    assert!(text(&sum).contains("is 5"), "{sum:?}");
    let refused =
        call(client, "everything__get-annotated-message", json!({ "messageType": "error" })).await.unwrap_err();
    assert!(refused.contains("refused"), "{refused}");
}

type Client = RunningService<RoleClient, Person>;

#[derive(Clone, Copy)]
enum Era {
    Legacy,
    Modern,
}

impl Era {
    fn lifecycle(self) -> ClientLifecycleMode {
        match self {
            Self::Legacy => ClientLifecycleMode::Initialize,
            Self::Modern => ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] },
        }
    }
}

/// A client whose person approves sums and refuses everything else.
#[derive(Debug, Clone)]
struct Person;

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(ElicitationCapability::default());
        ClientConfig::new(capabilities, Implementation::new("interop", "1"))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, .. } = request else {
            return Ok(ElicitResult::new(ElicitationAction::Cancel));
        };
        let answer = if message.contains("`get-sum`") { "once" } else { "refuse" };
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "answer": answer })))
    }
}

async fn over_http(served: &Served, era: Era) -> Client {
    let config = StreamableHttpClientTransportConfig::with_uri(served.url.as_str()).auth_header(served.token.as_str());
    let transport = StreamableHttpClientTransport::from_config(config);
    timeout(DEADLINE, Person.serve_with_lifecycle(transport, era.lifecycle())).await.expect("it connects").unwrap()
}

async fn over_stdio(child: &mut Child, era: Era) -> Client {
    let streams = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    timeout(DEADLINE, Person.serve_with_lifecycle(streams, era.lifecycle())).await.expect("it connects").unwrap()
}

/// Calls a tool. Returns the result, or the text of the error.
async fn call(client: &Client, tool: &'static str, arguments: Value) -> Result<CallToolResult, String> {
    let params = CallToolRequestParams::new(tool).with_arguments(arguments.as_object().unwrap().clone());
    let answer = timeout(DEADLINE, client.call_tool(params)).await.unwrap_or_else(|_| panic!("no answer of {tool}"));
    answer.map_err(|error| error.to_string())
}

fn text(result: &CallToolResult) -> String {
    result.content.iter().filter_map(|block| block.as_text()).map(|block| block.text.as_str()).collect()
}
