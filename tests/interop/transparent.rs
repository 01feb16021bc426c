//! In front of one server whose names are kept, the broker must not be noticeable: a client with all capabilities sees
//! byte for byte what it sees without it. The one exception is intended: a question to a person names the source.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::broker::{DEADLINE, TestDir, output, succeeded};
use crate::installed;

/// Returns the requests of a client, in order.
fn requests(server: &str, dir: &TestDir) -> Vec<(&'static str, Value)> {
    let tool = |name: &str, arguments: Value| ("tools/call", json!({ "name": name, "arguments": arguments }));
    if server == "files" {
        let file = dir.at("docs/hello.txt");
        return vec![
            ("tools/list", json!({})),
            tool("list_directory", json!({ "path": dir.at("docs") })),
            tool("read_text_file", json!({ "path": file })),
            tool("get_file_info", json!({ "path": dir.at("nowhere") })),
            tool("read_media_file", json!({ "path": file })),
            ("vendor/unknown", json!({ "x": 1 })),
        ];
    }
    let completion = |about: Value, name: &str, value: &str| {
        ("completion/complete", json!({ "ref": about, "argument": { "name": name, "value": value } }))
    };
    vec![
        ("prompts/list", json!({})),
        ("prompts/get", json!({ "name": "simple-prompt" })),
        ("prompts/get", json!({ "name": "args-prompt", "arguments": { "city": "Zürich" } })),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({ "uri": "demo://resource/static/document/features.md" })),
        completion(json!({ "type": "ref/prompt", "name": "completable-prompt" }), "department", "E"),
        completion(
            json!({ "type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}" }),
            "resourceId",
            "1",
        ),
        tool("get-tiny-image", json!({})),
        tool("get-resource-links", json!({ "count": 2 })),
        tool("get-roots-list", json!({})),
        tool("trigger-elicitation-request", json!({})),
        tool("trigger-sampling-request", json!({ "prompt": "Say something", "maxTokens": 5 })),
        (
            "tools/call",
            json!({
                "name": "trigger-long-running-operation", "arguments": { "duration": 1, "steps": 3 },
                "_meta": { "progressToken": "all the way" },
            }),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_with_the_everything_server_is_the_same_without_the_broker() {
    same("everything").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_with_the_filesystem_server_is_the_same_without_the_broker() {
    same("files").await;
}

async fn same(server: &str) {
    let dir = TestDir::new("").await;
    let argv = installed::command(server, dir.path());
    let mut direct = dir.command(argv[0].as_ref());
    direct.args(&argv[1..]);
    let direct = conversation(direct, server, &dir).await;

    let mut toml = format!(
        "[profiles.default]\napprove = \"never\"\nsampling = true\n\
         [sources.plain]\ncommand = {}\nnames = \"plain\"\nrequired = true\n",
        json!(argv)
    );
    for [option, value] in installed::cell(server, dir.path()) {
        toml += &format!("cell.{} = [{value:?}]\n", option.trim_start_matches("--"));
    }
    std::fs::write(dir.path().join("portcullis.toml"), toml).unwrap();
    let through = conversation(dir.portcullis(&["serve", "--stdio"]), server, &dir).await;
    assert_eq!(through.len(), direct.len());
    for (through, direct) in through.iter().zip(&direct) {
        assert_eq!(through, direct);
    }
    dir.verify(None).await;
}

/// Runs a conversation and returns all messages of the server, in order.
async fn conversation(command: Command, server: &str, dir: &TestDir) -> Vec<String> {
    // Roots would make the filesystem server change its folders at an unpredictable time.
    let capabilities = match server {
        "files" => json!({}),
        _ => json!({ "roots": {}, "sampling": {}, "elicitation": {} }),
    };
    let mut client = Client::start(command, &capabilities).await;
    let mut seen = Vec::new();
    for (method, params) in requests(server, dir) {
        seen.push(format!("-> {method} {params}"));
        let id = client.send(method, &params).await;
        while !client.hear(id, &mut seen).await {}
    }
    if server == "everything" {
        seen.push("-> cancelled halfway".to_owned());
        let params = json!({
            "name": "trigger-long-running-operation", "arguments": { "duration": 2, "steps": 4 },
            "_meta": { "progressToken": 7 },
        });
        let id = client.send("tools/call", &params).await;
        let before = seen.len();
        while seen.len() < before + 2 {
            assert!(!client.hear(id, &mut seen).await, "{seen:?}");
        }
        let cancelled = json!({ "requestId": id, "reason": "enough" });
        client.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled })).await;
        // The cancelled call is not answered, and the request after it is.
        let mut rest = Vec::new();
        let next = client.send("ping", &json!({})).await;
        while !client.hear(next, &mut rest).await {}
        assert_eq!(rest.last().map(String::as_str), Some("<- {}"), "{rest:?}");
    }
    client.end().await;
    seen
}

struct Client {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    last: u64,
}

#[derive(Deserialize)]
struct Message {
    id: Option<Box<RawValue>>,
    method: Option<String>,
    params: Option<Box<RawValue>>,
    result: Option<Box<RawValue>>,
    error: Option<Box<RawValue>>,
}

impl Client {
    async fn start(mut command: Command, capabilities: &Value) -> Self {
        let piped = std::process::Stdio::piped;
        let mut child = command.stdin(piped()).stdout(piped()).stderr(std::process::Stdio::null()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut client = Self { child, input, output, last: 0 };
        let info = json!({ "name": "interop", "version": "1" });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info });
        let id = client.send("initialize", &params).await;
        while !client.hear(id, &mut Vec::new()).await {}
        client.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        // Tools that depend on the capabilities of the client are registered a moment later.
        let wanted = ["get-roots-list", "trigger-sampling-request", "trigger-elicitation-request"];
        let listed = timeout(DEADLINE, async {
            loop {
                let mut seen = Vec::new();
                let id = client.send("tools/list", &json!({})).await;
                while !client.hear(id, &mut seen).await {}
                let listed = seen.concat();
                if !listed.contains("trigger-long-running-operation") || wanted.iter().all(|name| listed.contains(name))
                {
                    return;
                }
            }
        });
        listed.await.expect("all tools are listed");
        client
    }

    async fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.last += 1;
        let id = self.last;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        id
    }

    async fn say(&mut self, message: &Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        self.input.flush().await.unwrap();
    }

    /// Receives one message, and answers it if it is a request. Returns true if it is the response to the request `id`.
    async fn hear(&mut self, id: u64, seen: &mut Vec<String>) -> bool {
        let line = timeout(DEADLINE, self.output.next_line()).await.expect("it says something").unwrap();
        let message: Message = serde_json::from_str(&line.expect("it answers before it ends")).unwrap();
        let bytes = |part: &Option<Box<RawValue>>| part.as_ref().map_or("", |part| part.get()).to_owned();
        match (&message.method, &message.id) {
            // The time of these depends on how fast the server starts and gets its roots.
            (Some(method), None) if method.ends_with("/list_changed") => false,
            (Some(_), None) if bytes(&message.params).contains("Roots updated") => false,
            (Some(method), None) => {
                seen.push(format!("<- {method} {}", bytes(&message.params)));
                false
            }
            (Some(method), Some(question)) => {
                // Roots are requested once for the connection, and not for a request.
                if method != "roots/list" {
                    seen.push(format!("<- {method} {}", unnamed(&bytes(&message.params))));
                }
                let question: Value = serde_json::from_str(question.get()).unwrap();
                self.say(&json!({ "jsonrpc": "2.0", "id": question, "result": answer(method) })).await;
                false
            }
            (None, _) => {
                let answered = message.id.as_ref().is_some_and(|answered| answered.get() == id.to_string());
                seen.push(format!("<- {}{}", bytes(&message.result), bytes(&message.error)));
                answered
            }
        }
    }

    async fn end(mut self) {
        drop(self.input);
        timeout(DEADLINE, self.child.wait()).await.expect("it ends with its input").unwrap();
    }
}

fn answer(method: &str) -> Value {
    match method {
        "roots/list" => json!({ "roots": [{ "uri": "file:///srv", "name": "srv" }] }),
        "sampling/createMessage" => {
            json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "words" } })
        }
        "elicitation/create" => json!({ "action": "accept", "content": { "name": "Ann", "check": true } }),
        _ => json!({}),
    }
}

/// Returns the parameters of a question without the name of the source that asks.
fn unnamed(params: &str) -> String {
    params.replace("Source `plain` asks: ", "")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inspector_prints_the_same_with_and_without_wrap() {
    let dir = TestDir::new("").await;
    let argv = installed::command("everything", dir.path());
    let data_dir = dir.at("data");
    let mut wrapped = vec![installed::portcullis().display().to_string(), "wrap".to_owned()];
    wrapped.extend(["--approve", "never", "--data-dir", &data_dir, "--"].map(str::to_owned));
    wrapped.extend(argv.iter().cloned());
    let server = |argv: &[String]| json!({ "command": argv[0], "args": argv[1..] });
    let servers = json!({ "mcpServers": { "direct": server(&argv), "wrapped": server(&wrapped) } });
    std::fs::write(dir.path().join("servers.json"), servers.to_string()).unwrap();
    let print = async |name: &str, arguments: &[&str]| {
        let mut command = dir.command(&installed::node());
        command.arg(installed::inspector()).args(["--cli", "--config", "servers.json", "--server", name]);
        command.args(["--protocol-era", "legacy", "--format", "json"]).args(arguments);
        succeeded(output(command).await, &[&[name], arguments].concat())
    };
    for arguments in [
        &["--method", "prompts/list"][..],
        &["--method", "resources/list"],
        &["--method", "resources/templates/list"],
        &["--method", "resources/read", "--uri", "demo://resource/static/document/features.md"],
        &["--method", "prompts/get", "--prompt-name", "simple-prompt"],
        &["--method", "tools/call", "--tool-name", "echo", "--tool-args-json", r#"{"message":"grüße"}"#],
        &["--method", "tools/call", "--tool-name", "get-tiny-image", "--tool-args-json", "{}"],
    ] {
        assert_eq!(print("wrapped", arguments).await, print("direct", arguments).await, "{arguments:?}");
    }
    dir.verify(Some(&data_dir)).await;
}
