//! Counts the instructions of a message and of the records of a call with valgrind, and fails above the recorded budget and 5 %.
//! Counts repeat where times do not, so that CI can compare them:
//!
//! ```sh
//! cargo bench --profile dev --bench instructions      # UPDATE_GOLDEN=1 records what it counts as the budget
//! ```
//!
//! The budgets are those of the profile `dev`, which CI builds anyway: what this repository's own crates cost counts more there
//! than in a release.
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

use bytes::Bytes;
use portcullis::call::{CallId, SessionId};
use portcullis::digest::Digest;
use portcullis::ledger::{ChainStart, Event, EventKind, IntentDurability, Ledger};
use portcullis::protocol::Message;
use serde_json::json;

const BUDGETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.json");

/// The rounds of the two runs of each work: what they differ by is what the rounds between cost, without the start.
const ROUNDS: [u64; 2] = [20, 120];

/// The part of the budget by which a count may exceed it: five per cent.
const TOLERANCE: f64 = 1.05;

/// Work by its name, which does a number of rounds.
type Work = (&'static str, fn(u64));

const WORKS: [Work; 2] = [("append", append), ("envelope", envelope)];

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
