//! The memory of the broker: a large result takes at most twice its size, over both fronts and both kinds of transport.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

use crate::agent::{Agent, ERAS, Era};
use crate::test_dir::TestDir;
use crate::web::Server;

/// The size of the result in bytes. For buffers this large, the resident memory is the memory that is held: the
/// allocator gives each buffer its own pages and returns them.
const BYTES: usize = 33 << 20;

/// The memory in bytes that the rest of a broker takes meanwhile: buffers, threads, the ledger's pages.
const REST: usize = 12 << 20;

const CONFIG: &str = r#"
[profiles.default]
approve = "never"
[sources.far]
command = ["@source@", "echo"]
[sources.web]
url = "@url@"
dangerous-allow-private = true
"#;

/// Starts a server of one tool, `big`, that answers with a resource of this many bytes, as JSON or as an event.
fn server(events: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || serve(stream, events));
        }
    });
    url
}

fn serve(stream: TcpStream, events: bool) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let request: Value = serde_json::from_slice(&body).unwrap_or_default();
        let result = match request["method"].as_str() {
            Some("initialize") => json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": {} } }),
            Some("tools/list") => json!({ "tools": [{ "name": "big", "inputSchema": { "type": "object" } }] }),
            Some("tools/call") => {
                let bytes = request["params"]["arguments"]["bytes"].as_u64().unwrap_or(0);
                let text = "x".repeat(usize::try_from(bytes).unwrap());
                // The URI in it is rewritten to the exposed one, so that the result is not passed on unchanged.
                json!({ "content": [{ "type": "resource", "resource": { "uri": "mem://big", "text": text } }] })
            }
            _ => Value::Null,
        };
        let answer = match &result {
            Value::Null => {
                json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": -32601, "message": "no" } })
            }
            _ => json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }),
        };
        let (kind, answer) = match events && result != Value::Null {
            true => ("text/event-stream", format!("data: {answer}\n\n")),
            false => ("application/json", answer.to_string()),
        };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", answer.len());
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(answer.as_bytes())).ok()?;
    }
}

/// Returns the resident memory of a process in bytes: now, and at its peak since the last call of this function.
pub(crate) fn resident(pid: u32) -> (usize, usize) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    };
    let seen = (field("VmRSS:"), field("VmHWM:"));
    fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
    seen
}

/// Returns by how many bytes the memory of a process grows at most while `call` runs.
fn growth(pid: u32, call: impl FnOnce()) -> usize {
    let (before, _) = resident(pid);
    call();
    let (_, most) = resident(pid);
    most.saturating_sub(before)
}

#[test]
fn a_large_result_takes_at_most_twice_its_size_in_memory() {
    let limit = 2 * BYTES + REST;
    for events in [false, true] {
        let dir = TestDir::new(&CONFIG.replace("@url@", &server(events)));
        for era in ERAS {
            let mut agent = Agent::of(dir.command(&["serve", "--stdio"]), era, json!({}));
            for tool in ["far__big", "web__big"] {
                let pid = agent.running.pid();
                let mut call = |bytes: usize| {
                    let answer = agent.request("tools/call", json!({ "name": tool, "arguments": { "bytes": bytes } }));
                    assert!(answer.to_string().len() > bytes, "{era:?} {tool}");
                };
                call(1);
                let grown = growth(pid, || call(BYTES));
                assert!(grown <= limit, "stdio, {era:?}, {tool}, events {events}: {grown} bytes, over {limit}");
            }
            agent.leave();
        }
        let server = Server::start(&dir);
        let mut session = server.endpoint.session(&json!({}));
        for tool in ["far__big", "web__big"] {
            session.call(tool, &json!({ "bytes": 1 })).unwrap();
            let grown = growth(server.running.pid(), || {
                let answer = session.send_call(tool, &json!({ "bytes": BYTES })).unwrap().answer().unwrap();
                assert!(answer.to_string().len() > BYTES);
            });
            assert!(grown <= limit, "http, {tool}, events {events}: {grown} bytes, over {limit}");
        }
    }
}

/// The memory in bytes that an idle session may take.
const SESSION: usize = 64 << 10;

#[test]
fn an_idle_session_takes_at_most_64_kib() {
    let dir = TestDir::new(&CONFIG.replace("@url@", &server(false)));
    let server = Server::start(&dir);
    let open = |count: usize| {
        let sessions: Vec<_> = (0..count).map(|_| server.endpoint.session(&json!({}))).collect();
        for mut session in sessions {
            session.send("tools/list", json!({})).unwrap().answer().unwrap();
            assert_eq!(session.call("far__echo", &json!({ "a": 1 })).unwrap()["ok"], json!({ "a": 1 }).to_string());
        }
    };
    open(50);
    let (before, _) = resident(server.running.pid());
    open(1_000);
    let (after, _) = resident(server.running.pid());
    let each = after.saturating_sub(before) / 1_000;
    assert!(each <= SESSION, "{each} bytes a session");
}

#[test]
fn a_message_over_the_configured_limit_fails_with_its_size() {
    let config = CONFIG.replace("@url@", &server(false));
    let dir = TestDir::new(&format!("[broker]\nmax-message = \"1MiB\"\n{config}"));
    let mut agent = Agent::of(dir.command(&["serve", "--stdio"]), Era::Legacy, json!({}));
    for tool in ["far__big", "web__big"] {
        let answer = agent.request("tools/call", json!({ "name": tool, "arguments": { "bytes": 1 << 20 } }));
        let said = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(said.contains("10485") && said.contains("over the limit of 1048576 bytes"), "{tool}: {said}");
    }
    // Messages of the agent have the same limit.
    let id = agent.send("tools/call", json!({ "name": "far__echo", "arguments": { "text": "x".repeat(1 << 20) } }));
    let refused = agent.next().unwrap();
    let said = refused["error"]["message"].as_str().unwrap();
    assert!(said.contains("larger than the limit of 1048576 bytes"), "{id}: {said}");
    agent.leave();
}
