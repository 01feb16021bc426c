//! Measures what many sources cost: 1,000 configured components, and a call of one through the whole broker; and 50
//! processes in cells with 10,000 tools, from their start to a search.
//!
//! ```text
//! cargo bench -p portcullis --bench sources
//! ```
//!
//! The bench `load` measures the same call with a process, and with that process without a broker.
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods, reason = "a bench")]

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis::Launcher;
use portcullis::agent::NoAgent;
use portcullis::broker::Broker;
use portcullis::config::Config;
use portcullis::protocol::{Answer, Json};
use portcullis_test_support::source_program;

/// The number of calls that are measured.
const CALLS: usize = 2_000;

fn main() {
    // `cargo test` runs benches too, to check that they build.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        println!(
            "{:>7} {:>11} {:>14} {:>11} {:>17}",
            "sources", "start ms", "discovery ms", "MiB more", "KiB a source more"
        );
        // The first one compiles, and pays for what the process needs only once.
        for sources in [1, 1, 1_000, 1_000] {
            row(folder.path(), sources).await;
        }
        call(folder.path()).await;
        processes(folder.path()).await;
    });
}

fn configuration(folder: &Path, sources: usize) -> Config {
    let mut text = String::new();
    for n in 0..sources {
        let _ = writeln!(text, "[sources.calc{n}]\ncomponent = \"builtin:calculator\"");
    }
    Config::parse(&text, &folder.join("portcullis.toml")).unwrap()
}

async fn row(folder: &Path, sources: usize) {
    let config = configuration(folder, sources);
    let (before, begin) = (resident(), Instant::now());
    let broker = Broker::build(config, Launcher::SelfExec).await.unwrap();
    let (started, begin) = (begin.elapsed(), Instant::now());
    let found = broker.discover().await;
    assert!(found.values().all(Result::is_ok), "a source failed");
    let discovered = begin.elapsed();
    let more = resident().saturating_sub(before);
    println!(
        "{sources:>7} {:>11.1} {:>14.1} {:>11.1} {:>17.1}",
        started.as_secs_f64() * 1e3,
        discovered.as_secs_f64() * 1e3,
        more as f64 / 1024.0,
        more as f64 / sources as f64,
    );
    broker.shutdown().await;
}

/// Measures calls to the one source of an idle broker, by a program that embeds the broker.
async fn call(folder: &Path) {
    let broker = Broker::build(configuration(folder, 1), Launcher::SelfExec).await.unwrap();
    let session = broker.open_session(&"default".parse().unwrap(), &"me".parse().unwrap(), "bench").await.unwrap();
    let params = Json::parse(r#"{"name":"calc0__add","arguments":{"a":20,"b":22}}"#.to_owned()).unwrap();
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let begin = Instant::now();
        let answer = session.request("tools/call", params.clone(), Arc::new(NoAgent)).await;
        times.push(begin.elapsed());
        assert!(matches!(answer, Answer::Result(_)), "{answer:?}");
    }
    times.sort_unstable();
    let at = |share: usize| times.get(CALLS * share / 100).copied().unwrap_or(Duration::ZERO).as_micros();
    println!("a call through the broker, durable intent and all: p50 {} µs, p99 {} µs", at(50), at(99));
    broker.shutdown().await;
}

/// Measures 50 processes that offer 200 tools each: how long until an agent has the list, and until it has searched it.
async fn processes(folder: &Path) {
    let source = source_program("portcullis-test-source");
    let mut text = "[profiles.default]\ntools = \"deferred\"\n".to_owned();
    for n in 0..50 {
        let _ = writeln!(text, "[sources.s{n}]\ncommand = [{source:?}, \"many\"]");
    }
    let config = Config::parse(&text, &folder.join("portcullis.toml")).unwrap();
    let (before, begin) = (resident(), Instant::now());
    // The test source can become a source's process, as `portcullis` can.
    let broker = Broker::build(config, Launcher::Path(source)).await.unwrap();
    let (mut times, idle) = (vec![begin.elapsed()], resident());
    let session = broker.open_session(&"default".parse().unwrap(), &"me".parse().unwrap(), "bench").await.unwrap();
    let params = Json::parse(r#"{"name":"find_tools","arguments":{"query":"tool 42"}}"#.to_owned()).unwrap();
    let begin = Instant::now();
    assert_eq!(session.tools().await.unwrap().len(), 10_000);
    times.push(begin.elapsed());
    for _ in 0..2 {
        let begin = Instant::now();
        let answer = session.request("tools/call", params.clone(), Arc::new(NoAgent)).await;
        times.push(begin.elapsed());
        assert!(matches!(answer, Answer::Result(_)), "{answer:?}");
    }
    println!("50 processes with 10,000 tools: start, list, first search, next search: {times:.1?}");
    let each = |after: u64| after.saturating_sub(before) / 50;
    println!(
        "KiB of the broker a source: {} idle, {} connected with 200 tools in an index",
        each(idle),
        each(resident())
    );
    broker.shutdown().await;
}

/// Returns the resident memory of this process in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default()
}
