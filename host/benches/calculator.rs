//! The time of one `add` call after another over standard streams: with a server written only with rmcp; with
//! `builtin:calculator` through the whole broker; and with that rmcp server through the broker, in a cell.
//!
//! ```text
//! cargo build --release --bins && cargo bench -p portcullis --bench calculator
//! ```
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a bench")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use criterion::Criterion;
use serde_json::{Value, json};

/// A server that has been initialized. It is killed on drop.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

fn main() {
    // `cargo test` runs benches too, to check that they build.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    // target/release/deps/calculator-HASH
    let own = std::env::current_exe().unwrap();
    let programs = own.ancestors().nth(2).unwrap();
    let rmcp = programs.join("portcullis-test-calculator");
    let (component, process) = (json!({ "component": "builtin:calculator" }), json!({ "command": [rmcp] }));

    let mut criterion = Criterion::default().configure_from_args();
    for (name, tool, source) in [
        ("rmcp alone", "add", None),
        ("component through the broker", "calc__add", Some(component)),
        ("rmcp through the broker", "calc__add", Some(process)),
    ] {
        let data = tempfile::tempdir().unwrap();
        let mut server = Server::start(match source {
            None => Command::new(&rmcp),
            Some(source) => broker(&programs.join("portcullis"), data.path(), &source),
        });
        let request = message(1, "tools/call", &json!({ "name": tool, "arguments": { "a": 20, "b": 22 } }));
        criterion.bench_function(&format!("calculator/{name}"), |bencher| {
            bencher.iter(|| {
                let answer = server.ask(&request);
                assert!(answer.contains(r#""structuredContent":{"result":42"#), "{answer}");
            });
        });
    }
    criterion.final_summary();
}

/// Returns the command of a broker with this one source, over standard streams.
fn broker(program: &Path, data: &Path, source: &Value) -> Command {
    let (key, value) = source.as_object().unwrap().iter().next().unwrap();
    let file = data.join("portcullis.toml");
    fs::write(&file, format!("[profiles.default]\napprove = \"never\"\n[sources.calc]\n{key} = {value}\n")).unwrap();
    let mut command = Command::new(program);
    command.args(["serve", "--stdio", "--config"]).arg(file);
    command
}

fn message(id: u32, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string() + "\n"
}

impl Server {
    fn start(mut command: Command) -> Self {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("{command:?}: {error}; build it with --release --bins"));
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut server = Self { child, input, output };
        let client = json!({ "name": "bench", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        server.ask(&message(0, "initialize", &hello));
        server.input.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n").unwrap();
        server
    }

    fn ask(&mut self, request: &str) -> String {
        self.input.write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
