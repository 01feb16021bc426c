//! Measures the edge host: its size, the time from its start to the first answer of a tool, and the time of a call. It
//! uses the program and the folder that the README makes:
//!
//! ```sh
//! examples/edge-host/compile.sh target/edge/host
//! cargo bench --package portcullis-edge-host --profile edge
//! ```
//! It fails if the program, or what it keeps in memory, is more than 1 MiB above the figures in `figures.json`. A job of
//! CI runs it, and judges no time. With `UPDATE_GOLDEN=1` it writes what it measured to that file. The README and the
//! book say the same; a test of the repository compares them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a bench starts the program"
)]

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
"#;
const ADD: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"calc__add","arguments":{"a":20,"b":22}}}
"#;

/// The file with the figures that the documents repeat.
const FIGURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/figures.json");

/// The number of starts whose median is taken.
const STARTS: usize = 21;

/// The number of calls whose median is taken.
const CALLS: usize = 1001;

struct Host {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Host {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(folder.join("portcullis-edge-host"));
        command.arg(folder.join("host/portcullis.toml")).env_clear();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the edge host starts");
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut host = Self { child, input, lines: BufReader::new(output).lines() };
        host.input.write_all(HELLO.as_bytes()).unwrap();
        host.answer();
        host
    }

    fn answer(&mut self) -> String {
        self.lines.next().expect("the edge host lives").unwrap()
    }

    fn add(&mut self) {
        self.input.write_all(ADD.as_bytes()).unwrap();
        let answer = self.answer();
        assert!(answer.contains("42"), "{answer}");
    }

    /// Returns the resident memory in KiB, as `/proc` has it.
    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the resident memory");
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    fn end(mut self) {
        drop(self.input);
        self.child.wait().unwrap();
    }
}

fn main() {
    // This program is target/PROFILE/deps/EDGE-HASH; the host is in target/edge.
    let target = std::env::current_exe().unwrap().ancestors().nth(3).map(PathBuf::from).unwrap_or_default();
    let folder = target.join("edge");
    let missing = ["portcullis-edge-host", "host/portcullis.toml"].map(|name| folder.join(name));
    if let Some(missing) = missing.iter().find(|file| !file.exists()) {
        panic!("{} is missing; examples/edge-host/README.md says how it is made", missing.display());
    }
    let program = std::fs::metadata(folder.join("portcullis-edge-host")).unwrap();

    let first_answer = median(STARTS, || {
        let started = Instant::now();
        let mut host = Host::start(&folder);
        host.add();
        let took = started.elapsed();
        host.end();
        took
    });
    let mut host = Host::start(&folder);
    host.add();
    let resident = host.resident();
    let call = median(CALLS, || {
        let started = Instant::now();
        host.add();
        started.elapsed()
    });
    host.end();

    let figures = json!({
        "program-mib": mib(program.len() >> 10),
        "resident-mib": mib(resident),
        "first-answer-ms": (first_answer.as_secs_f64() * 1e3).round() as u64,
        "call-ms": (call.as_secs_f64() * 1e5).round() / 1e2,
    });
    let text = serde_json::to_string_pretty(&figures).unwrap();
    println!("{text}");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(FIGURES, text + "\n").unwrap();
        return;
    }
    let recorded: Value = serde_json::from_str(&std::fs::read_to_string(FIGURES).unwrap()).unwrap();
    for size in ["program-mib", "resident-mib"] {
        let (now, before) = (&figures[size], &recorded[size]);
        let is_larger = now.as_u64().unwrap() > before.as_u64().unwrap() + 1;
        assert!(
            !is_larger,
            "{size} was {before} and is {now}; UPDATE_GOLDEN=1 records it, and the documents say it too"
        );
    }
}

/// Returns whole MiB, rounded to the nearest.
fn mib(kib: u64) -> u64 {
    (kib + 512) >> 10
}

/// Returns the median of so many measurements, after a first one that does not count.
fn median(measurements: usize, mut measure: impl FnMut() -> Duration) -> Duration {
    measure();
    let mut times: Vec<_> = (0..measurements).map(|_| measure()).collect();
    times.sort_unstable();
    times.swap_remove(measurements / 2)
}
