//! Makes the broker's upstream side a client of the conformance suite: an agent calls every tool of the suite's server
//! through `portcullis serve --stdio`, and a person logs in with `portcullis login` when the broker asks for it. The
//! suite starts this program with the URL of its server, and `SUITE_ERA` names the era of that server. The exit code
//! says whether every request was answered.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

fn main() {
    let url = std::env::args().next_back().expect("the server's URL");
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let context: Value = std::env::var("MCP_CONFORMANCE_CONTEXT")
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    let dir = tempfile::tempdir().unwrap();
    let oauth = match &context["client_id"] {
        Value::Null => format!("client-metadata = {}", json!(CLIENT_METADATA)),
        id => format!("client-id = {id}, client-secret = {}, issuer = {}", context["client_secret"], context["issuer"]),
    };
    let era = std::env::var("SUITE_ERA").expect("the era that the suite's server speaks");
    let configuration = format!(
        "[profiles.default]\napprove = \"never\"\nsampling = true\n\
         [sources.suite]\nurl = {}\nera = \"{era}\"\noauth = {{ {oauth} }}\n\
         dangerous-allow-private = true\nnames = \"plain\"\ntimeout = \"20s\"\nrequired = true\n",
        json!(url)
    );
    std::fs::write(dir.path().join("portcullis.toml"), configuration).unwrap();
    let mut logins = 0;
    while let Err(said) = session(dir.path(), &scenario, &context) {
        assert!(said.contains("portcullis login suite") && logins < MAX_LOGINS, "{scenario}: {said}");
        logins += 1;
        login(dir.path());
    }
}

/// The URL at which the suite expects the metadata document of its client. The document is never fetched.
const CLIENT_METADATA: &str = "https://conformance-test.local/client-metadata.json";

/// The number of logins at most: the first one, and one more for a further scope or another server.
const MAX_LOGINS: u32 = 2;

fn portcullis(dir: &Path, arguments: &[&str]) -> Child {
    let program = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("portcullis");
    let mut command = Command::new(program);
    command
        .args(["--config", "portcullis.toml"])
        .args(arguments)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if arguments.contains(&"login") {
        command.stderr(Stdio::piped());
    }
    command.spawn().unwrap()
}

/// Runs one session of the agent. Returns an error with the broker's message if the broker requires something.
fn session(dir: &Path, scenario: &str, context: &Value) -> Result<(), String> {
    let mut broker = portcullis(dir, &["serve", "--stdio"]);
    let (out, lines) = (broker.stdin.take().unwrap(), BufReader::new(broker.stdout.take().unwrap()));
    let ran = Agent { out, lines, last: 0 }.run(scenario, context);
    assert!(broker.wait().unwrap().success());
    ran
}

/// Runs `portcullis login` with a person whose browser follows every redirect.
fn login(dir: &Path) {
    let mut login = portcullis(dir, &["login", "suite"]);
    let mut said = String::new();
    let mut lines = BufReader::new(login.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut next = || lines.next().inspect(|line| said.extend([line, "\n"]));
    let address =
        std::iter::from_fn(&mut next).map(|line| line.trim().to_owned()).find(|line| line.starts_with("http"));
    if let Some(address) = address {
        let mut to = Some(address);
        while let Some(address) = to {
            to = get(&address);
        }
    }
    while next().is_some() {}
    assert!(login.wait().unwrap().success(), "{said}");
}

/// Fetches a page of this machine and returns the location that it redirects to.
fn get(address: &str) -> Option<String> {
    let (host, path) = address.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let mut headers = page.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(": "));
    headers.find(|(name, _)| name.eq_ignore_ascii_case("location")).map(|(_, to)| to.to_owned())
}

struct Agent {
    out: ChildStdin,
    lines: BufReader<ChildStdout>,
    last: u64,
}

impl Agent {
    fn run(mut self, scenario: &str, context: &Value) -> Result<(), String> {
        let capabilities = json!({ "elicitation": {}, "sampling": {}, "roots": {} });
        let client = json!({ "name": "conformance-agent", "version": "1" });
        self.request(
            "initialize",
            &json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": client }),
        );
        self.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        let listed = self.request("tools/list", &json!({}));
        let tools = listed["result"]["tools"].as_array().ok_or_else(|| listed.to_string())?.clone();
        let wanted = context["toolCalls"].as_array().cloned().unwrap_or_else(|| tools.iter().map(call_of).collect());
        // In that scenario the server has only the list.
        let listed_only = scenario == "json-schema-ref-no-deref";
        for call in wanted.into_iter().filter(|_| !listed_only) {
            let answer = self.request("tools/call", &call);
            if answer["error"].to_string().contains("portcullis login") || answer["result"]["isError"] == true {
                return Err(answer.to_string());
            }
            assert!(answer["result"].is_object(), "{scenario}: {call} was answered with {answer}");
        }
        for (list, read, key) in [("prompts", "prompts/get", "name"), ("resources", "resources/read", "uri")] {
            let listed = self.request(&format!("{list}/list"), &json!({}));
            for item in listed["result"][list].as_array().into_iter().flatten() {
                self.request(read, &json!({ key: item[key] }));
            }
        }
        Ok(())
    }

    /// Sends a request and returns its response. Requests of the server that come before it are answered.
    fn request(&mut self, method: &str, params: &Value) -> Value {
        self.last += 1;
        let id = self.last;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the broker ended during {method}");
            let message: Value = serde_json::from_str(&line).unwrap();
            match message["method"].as_str() {
                Some(method) if !message["id"].is_null() => {
                    let result = answer(method, &message["params"]);
                    self.say(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }));
                }
                Some(_) => {}
                None if message["id"] == id => return message,
                None => {}
            }
        }
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.out, "{message}").unwrap();
    }
}

/// Returns the parameters of a call with a value for each argument.
fn call_of(tool: &Value) -> Value {
    let properties = tool["inputSchema"]["properties"].as_object().cloned().unwrap_or_default();
    let value = |schema: &Value| match schema["type"].as_str() {
        Some("number" | "integer") => json!(1),
        Some("boolean") => json!(true),
        Some("object") => json!({}),
        Some("array") => json!([]),
        _ => json!("value"),
    };
    let arguments: serde_json::Map<_, _> =
        properties.iter().map(|(name, schema)| (name.clone(), value(schema))).collect();
    json!({ "name": tool["name"], "arguments": arguments })
}

/// Returns the result that an agent with a consenting person and a model sends.
fn answer(method: &str, params: &Value) -> Value {
    match method {
        "elicitation/create" => {
            let properties = params["requestedSchema"]["properties"].as_object().cloned().unwrap_or_default();
            let field = |(name, schema): (&String, &Value)| {
                let value = match (schema.get("default"), schema["type"].as_str()) {
                    (Some(default), _) => default.clone(),
                    (None, Some("boolean")) => json!(true),
                    (None, Some("number" | "integer")) => json!(1),
                    (None, _) => json!("value"),
                };
                (name.clone(), value)
            };
            let content: serde_json::Map<_, _> = properties.iter().map(field).collect();
            json!({ "action": "accept", "content": content })
        }
        "sampling/createMessage" => {
            json!({ "role": "assistant", "model": "none", "content": { "type": "text", "text": "words" } })
        }
        "roots/list" => json!({ "roots": [] }),
        _ => json!({}),
    }
}
