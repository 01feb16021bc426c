//! Measures what a call costs from end to end: a closed loop of callers, against a source directly and through a broker
//! in front of it.
//!
//! ```text
//! cargo build --release --bins && cargo bench --bench load -- [--seconds N] [--only WORD] [--data DIR]
//! ```
//!
//! `--only` selects the rows whose name contains the word (`rules`, `1 MiB`). `--data` is where the ledgers are kept:
//! their disk decides what durability costs. Every answer is compared in full. Trust the processor time per call most:
//! it repeats within a few per cent. Then come ratios of rows of one run, and latencies last, since the callers share
//! the machine with what they measure.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a bench"
)]

mod direct;
mod http;
mod process;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use direct::Direct;
use http::Http;
use process::Usage;

/// Calls in flight.
const CONCURRENCY: [usize; 2] = [1, 16];

/// The time before each measurement, so that what is made on first use does not count.
const WARM_UP: Duration = Duration::from_millis(300);

const NO_PLUGIN: &str = "";

/// Each call waits for the disk, also if it can have no effect.
const ALL_DURABLE: &str = "[ledger]\ndurability = \"all\"\n";

const RULES: &str = r#"
[[policies]]
plugin = "builtin:rules"
settings.allow = ["source__*"]
settings.deny = ["*__delete*", "*__drop*", { tool = "source__echo", arguments = { path = "/etc/*" } }]
settings.ask = ["*__deploy*", { tool = "source__add", arguments = { a = 1000 } }]
"#;

const ALL: &str = r#"
[[transforms]]
plugin = "builtin:redact"
[[sinks]]
plugin = "builtin:jsonl"
"#;

/// A tool, and the arguments that it is called with.
struct Payload {
    name: &'static str,
    tool: &'static str,
    arguments: Value,
}

/// Something that can be called.
trait Target {
    /// Keeps `concurrency` calls open for `time`, and returns how long each took.
    fn load(&mut self, payload: &Payload, concurrency: usize, time: Duration) -> Vec<Duration>;
    /// Returns what the broker's process and the source's have used so far.
    fn usage(&self) -> (Usage, Usage);
}

fn main() {
    let options = Options::read();
    // `cargo test` runs benches too, to check that they build.
    if !options.measure {
        return;
    }
    println!(
        "{:<28} {:>4} {:>9} {:>9} {:>9} | µs of CPU a call: broker, source | broker's switches, writes a call | MiB",
        "", "open", "calls/s", "p50 µs", "p99 µs"
    );
    for payload in payloads() {
        for concurrency in CONCURRENCY {
            run(&options, "direct", &payload, concurrency, || Box::new(Direct::start(&options.source)));
            for (name, plugins) in [
                ("no plugin", NO_PLUGIN.to_owned()),
                ("all durable", ALL_DURABLE.to_owned()),
                ("rules", RULES.to_owned()),
                ("rules+redact+jsonl", format!("{RULES}{ALL}")),
            ] {
                run(&options, name, &payload, concurrency, || Box::new(Http::start(&options, &plugins)));
            }
        }
    }
}

fn run<'a>(
    options: &Options,
    name: &str,
    payload: &Payload,
    concurrency: usize,
    start: impl FnOnce() -> Box<dyn Target + 'a>,
) {
    let name = format!("{}, {name}", payload.name);
    if !options.only.as_ref().is_none_or(|word| name.contains(word.as_str())) {
        return;
    }
    let mut target = start();
    target.load(payload, concurrency, WARM_UP);
    let before = target.usage();
    let begun = Instant::now();
    let mut took = target.load(payload, concurrency, options.time);
    let elapsed = begun.elapsed();
    let after = target.usage();
    took.sort_unstable();
    let calls = took.len();
    let quantile = |part: usize| took.get(calls * part / 100).map_or(0, Duration::as_micros);
    #[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
    let calls_f = calls as f64;
    let cpu = |before: Usage, after: Usage| (after.cpu - before.cpu).as_secs_f64() * 1e6 / calls_f;
    #[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
    let each = |before: u64, after: u64| (after - before) as f64 / calls_f;
    println!(
        "{name:<28} {concurrency:>4} {:>9.0} {:>9} {:>9} | {:>8.1} {:>8.1} | {:>5.1} {:>5.1} | {:>5}",
        calls_f / elapsed.as_secs_f64(),
        quantile(50),
        quantile(99),
        cpu(before.0, after.0),
        cpu(before.1, after.1),
        each(before.0.switches, after.0.switches),
        each(before.0.writes, after.0.writes),
        after.0.peak_bytes >> 20,
    );
}

/// Returns echoes of three sizes, and a small call with a large result, as images and files have.
fn payloads() -> Vec<Payload> {
    let echo = |name, bytes| Payload { name, tool: "echo", arguments: json!({ "text": "x".repeat(bytes) }) };
    let image = Payload { name: "1 MiB result", tool: "big", arguments: json!({ "bytes": 1 << 20 }) };
    vec![echo("100 B", 100), echo("10 KiB", 10 << 10), echo("1 MiB both ways", 1 << 20), image]
}

/// The options of the command line.
struct Options {
    measure: bool,
    time: Duration,
    only: Option<String>,
    data: PathBuf,
    broker: PathBuf,
    source: PathBuf,
}

impl Options {
    fn read() -> Self {
        let arguments: Vec<String> = std::env::args().collect();
        let value = |name: &str| arguments.iter().skip_while(|argument| *argument != name).nth(1).cloned();
        // target/release/deps/load-HASH
        let own = std::env::current_exe().unwrap();
        let folder = own.ancestors().nth(2).unwrap_or(Path::new("."));
        Self {
            measure: arguments.iter().any(|argument| argument == "--bench"),
            time: Duration::from_secs(value("--seconds").map_or(2, |text| text.parse().unwrap())),
            only: value("--only"),
            data: value("--data").map_or_else(std::env::temp_dir, PathBuf::from),
            broker: folder.join("portcullis"),
            source: folder.join("portcullis-test-source"),
        }
    }
}

/// Returns a `tools/call` request in one line.
fn request(id: usize, name: &str, arguments: &Value) -> String {
    let params = json!({ "name": name, "arguments": arguments });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string()
}

/// Returns what the test source answers, byte for byte: the broker must not change it.
fn expected(id: usize, payload: &Payload) -> String {
    let text = match payload.tool {
        "big" => "x".repeat(usize::try_from(payload.arguments["bytes"].as_u64().unwrap()).unwrap()),
        _ => payload.arguments.to_string(),
    };
    let result = json!({ "content": [{ "type": "text", "text": text }] });
    json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string()
}
