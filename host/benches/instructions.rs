//! Counts the instructions of a message, of the records of a call and of a whole call with valgrind, and fails above
//! the recorded budget and 5 %. Counts repeat where times do not, so that CI can compare them:
//!
//! ```sh
//! cargo bench --profile dev --bench instructions      # UPDATE_GOLDEN=1 records what it counts as the budget
//! ```
//!
//! The budgets are those of the profile `dev`, which CI builds anyway: what this repository's own crates cost counts
//! more there than in a release.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench"
)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use portcullis::agent::NoAgent;
use portcullis::broker::Broker;
use portcullis::call::{CallId, CallView, SessionId};
use portcullis::config::Config;
use portcullis::digest::Digest;
use portcullis::ledger::{ChainStart, Event, EventKind, IntentDurability, Ledger};
use portcullis::plugin::{NativeError, NativePolicy, Verdict};
use portcullis::protocol::{Answer, Json, Message};
use portcullis::source::NativeSource;
use portcullis_jail::Launcher;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};

const BUDGETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.json");

/// The rounds of the two runs of each work: what they differ by is what the rounds between cost, without the start.
const ROUNDS: [u64; 2] = [20, 120];

/// The part of the budget by which a count may exceed it: five per cent.
const TOLERANCE: f64 = 1.05;

/// Work by its name, which does a number of rounds.
type Work = (&'static str, fn(u64));

const WORKS: [Work; 3] = [("append", append), ("envelope", envelope), ("gate", gate)];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, work, rounds] = arguments.as_slice()
        && let Some((_, run)) = WORKS.iter().find(|(name, _)| name == work)
    {
        run(rounds.parse().unwrap());
        return ExitCode::SUCCESS;
    }
    let counted: BTreeMap<&str, u64> = WORKS.iter().map(|(name, _)| (*name, counted(name))).collect();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(
            BUDGETS,
            serde_json::to_string_pretty(&counted).unwrap()
                + "
",
        )
        .unwrap();
    }
    let budgets: BTreeMap<String, u64> = serde_json::from_str(&std::fs::read_to_string(BUDGETS).unwrap()).unwrap();
    let mut result = ExitCode::SUCCESS;
    for (name, count) in counted {
        let budget = budgets.get(name).copied().unwrap_or_default();
        let share = count as f64 / budget as f64;
        println!("{name:16} {count:>10} instructions, {:.1} % of the budget", share * 100.0);
        if share > TOLERANCE {
            println!(
                "{name} needs more than its budget of {budget} and 5 %: find the cause, or record what it needs now with UPDATE_GOLDEN=1 and say why"
            );
            result = ExitCode::FAILURE;
        }
    }
    result
}

/// Returns the instructions of one round of a work.
fn counted(work: &str) -> u64 {
    let program = std::env::current_exe().unwrap();
    assert!(Command::new(&program).args([work, "1"]).status().unwrap().success(), "{work} fails");
    let [few, many] = ROUNDS.map(|rounds| {
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(&program);
        let output = command.args([work, &rounds.to_string()]).output();
        let output = output.unwrap_or_else(|error| {
            panic!("valgrind cannot be run ({error}): install it, as with `apt-get install valgrind`")
        });
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{work} fails in valgrind: {said}");
        let count = said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse::<u64>().ok());
        count.unwrap_or_else(|| panic!("valgrind counted nothing for {work}: {said}"))
    });
    (many - few) / (ROUNDS[1] - ROUNDS[0])
}

/// Parses a call and a result, and writes them.
fn envelope(rounds: u64) {
    let call = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"a":"hello"}}}"#;
    let text = "x".repeat(10_000);
    let result = json!({ "jsonrpc": "2.0", "id": 7, "result": { "content": [{ "type": "text", "text": text }] } });
    let messages = [Bytes::from(call), Bytes::from(result.to_string())];
    for _ in 0..rounds {
        for message in &messages {
            black_box(Message::parse(black_box(message.clone())).unwrap().to_line());
        }
    }
}

/// Records an intent, waits for it, and records an outcome.
fn append(rounds: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (dir, run, digest) = (tempfile::tempdir().unwrap(), SessionId::new(), Digest::of(b""));
    runtime.block_on(async {
        let started = ChainStart { version: "bench".into(), config: digest, key: None };
        let ledger = Ledger::open(dir.path(), started).await.unwrap();
        for _ in 0..rounds {
            let call = CallId::new();
            let facts =
                json!({ "tool": "files__read_file", "source": "files", "definition": digest, "principal": "cli" });
            let event = |kind| Event::new(kind, facts.clone()).in_run(&run).to_call(&call);
            let (pending, slot) =
                ledger.intent(event(EventKind::CallIntent), None, IntentDurability::BeforeCall).await.unwrap();
            pending.unwrap().durable().await.unwrap();
            slot.record(event(EventKind::ToolCompleted));
        }
        ledger.close().await;
    });
}

/// Calls a tool of a server in this process through a session: a policy judges the call, and the ledger records it.
fn gate(rounds: u64) {
    const CONFIG: &str = r#"
[profiles.default]
approve = "never"
[[policies]]
plugin = "native:pass"
[sources.near]
native = "echo"
# Valgrind needs longer to compile the scanner's rules than an optional source may take.
required = true
"#;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let config = Config::parse(CONFIG, &dir.path().join("portcullis.toml")).unwrap();
    runtime.block_on(async {
        let broker = Broker::builder(config, Launcher::SelfExec).policy("pass", Pass).source("echo", Echo);
        let broker = broker.build().await.unwrap();
        let profile = "default".parse().unwrap();
        let session = broker.open_session(&profile, &"bench".parse().unwrap(), "bench/1").await.unwrap();
        for _ in 0..rounds {
            let params = Json::parse(r#"{"name":"near__echo","arguments":{"a":"hello"}}"#).unwrap();
            match session.request("tools/call", params, Arc::new(NoAgent)).await {
                Answer::Result(result) => drop(black_box(result)),
                Answer::Error(error) => panic!("the call was not let through: {}", error.as_str()),
            }
        }
        broker.shutdown().await;
    });
}

/// A policy that lets each call pass.
struct Pass;

#[async_trait]
impl NativePolicy for Pass {
    fn version(&self) -> &str {
        "1"
    }

    async fn check(&self, _: &CallView) -> Result<Verdict, NativeError> {
        Ok(Verdict::Pass)
    }
}

/// A server that gives each call the same result.
struct Echo;

#[async_trait]
impl NativeSource for Echo {
    fn version(&self) -> &str {
        "1"
    }

    async fn serve(&self, stream: DuplexStream) -> Result<(), NativeError> {
        let (input, mut output) = tokio::io::split(stream);
        let mut lines = BufReader::new(input).lines();
        while let Some(line) = lines.next_line().await? {
            let message: Value = serde_json::from_str(&line)?;
            let Some(id) = message.get("id") else { continue };
            let (key, body) = match message.get("method").and_then(Value::as_str) {
                Some("initialize") => {
                    let server = json!({ "name": "echo", "version": "1" });
                    let capabilities = json!({ "tools": {} });
                    let hello =
                        json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": server });
                    ("result", hello)
                }
                Some("tools/list") => {
                    ("result", json!({ "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] }))
                }
                Some("tools/call") => ("result", json!({ "content": [{ "type": "text", "text": "hello" }] })),
                _ => ("error", json!({ "code": -32601, "message": "there is no such method" })),
            };
            let answer = json!({ "jsonrpc": "2.0", "id": id, key: body });
            output.write_all(format!("{answer}\n").as_bytes()).await?;
        }
        Ok(())
    }
}
