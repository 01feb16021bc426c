//! Measures how long `portcullis replay` takes to judge recorded calls again, with `builtin:rules` and with 50 policies in
//! Cedar, and checks that the unchanged policies give the same verdicts.
//!
//! ```text
//! cargo build --release --bin portcullis
//! cargo bench -p portcullis --bench replay
//! ```
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "a bench")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use portcullis::Launcher;
use portcullis::agent::NoAgent;
use portcullis::broker::Broker;
use portcullis::config::Config;
use portcullis::protocol::Json;
use serde_json::{Value, json};

/// The number of calls that are recorded.
const CALLS: usize = 40_000;

/// The number of callers at once.
const CALLERS: usize = 16;

fn main() {
    // `cargo test` runs benches too, to check that they build.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let rules = "deny = [\"*__divide\", { tool = \"*\", arguments = { a = 13 } }]\nallow = [\"calc__*\"]".to_owned();
    for (name, settings) in [("rules", rules), ("cedar", format!("policies = '''{}'''", policies()))] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("portcullis.toml");
        std::fs::write(&file, configuration(name, &settings)).unwrap();
        runtime.block_on(record(&file));
        let begin = Instant::now();
        let ran =
            Command::new(program()).args(["--config", file.to_str().unwrap(), "replay", "--json"]).output().unwrap();
        let took = begin.elapsed();
        let said: Value = serde_json::from_slice(&ran.stdout).unwrap_or_default();
        assert!(ran.status.success(), "{}{said}", String::from_utf8_lossy(&ran.stderr));
        assert_eq!((&said["judged"], &said["differences"]), (&json!(CALLS), &json!([])), "{said}");
        let took = took.as_secs_f64();
        let million = took * 1e6 / CALLS as f64;
        println!("{name}: {CALLS} calls in {took:.1} s, {million:.0} s a million; all verdicts are the same");
    }
}

fn configuration(plugin: &str, settings: &str) -> String {
    let sources = "[sources.calc]\ncomponent = \"builtin:calculator\"\n[profiles.default]\nrecord = \"full\"\n";
    format!("{sources}[[policies]]\nplugin = \"builtin:{plugin}\"\n[policies.settings]\n{settings}\n")
}

/// Returns 50 policies in Cedar, most of which are about other tools.
fn policies() -> String {
    let permit = r#"permit (principal, action in Action::"call_tool", resource in Source::"calc");"#;
    let others = (0..49).map(|n| match n % 2 {
        0 => format!(r#"permit (principal, action == Action::"git__tool_{n}", resource) when {{ context.input has a }};"#),
        _ => format!(
            r#"forbid (principal, action, resource in Source::"calc") when {{ context.input has a && context.input.a == {n} }};"#
        ),
    });
    others.fold(permit.to_owned(), |text, policy| text + "\n" + &policy)
}

/// Records calls in the ledger of this configuration.
async fn record(file: &Path) {
    let config = Config::parse(&std::fs::read_to_string(file).unwrap(), file).unwrap();
    let broker = Arc::new(Broker::build(config, Launcher::SelfExec).await.unwrap());
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let broker = Arc::clone(&broker);
        callers.spawn(async move {
            let session =
                broker.open_session(&"default".parse().unwrap(), &"me".parse().unwrap(), "bench").await.unwrap();
            for n in 0..CALLS / CALLERS {
                let params = json!({ "name": "calc__add", "arguments": { "a": n % 60, "b": caller } });
                let params = Json::parse(params.to_string()).unwrap();
                session.request("tools/call", params, Arc::new(NoAgent)).await;
            }
        });
    }
    callers.join_all().await;
    Arc::into_inner(broker).unwrap().shutdown().await;
}

/// Returns the release binary, which is next to the folder of this bench.
fn program() -> std::path::PathBuf {
    let bench = std::env::current_exe().unwrap();
    bench.ancestors().nth(2).unwrap().join("portcullis")
}
