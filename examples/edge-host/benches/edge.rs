//! Measures the edge host: its size, the time from its start to the first answer of a tool, and the time of a call. It
//! uses the program and the folder that the README makes:
//!
//! ```sh
//! cargo build --package portcullis-edge-host --profile edge
//! examples/edge-host/compile.sh target/edge/host
//! cargo bench --package portcullis-edge-host
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a bench starts the program")]

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use criterion::Criterion;

const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
"#;
const ADD: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"calc__add","arguments":{"a":20,"b":22}}}
"#;

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

    /// Returns the line of `/proc` with the resident memory.
    fn resident(&self) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or("VmRSS: unknown").to_owned()
    }

    fn end(mut self) {
        drop(self.input);
        self.child.wait().unwrap();
    }
}

fn main() {
    // This program is target/release/deps/EDGE-HASH; the host is in target/edge.
    let target = std::env::current_exe().unwrap().ancestors().nth(3).map(PathBuf::from).unwrap_or_default();
    let folder = target.join("edge");
    let Ok(program) = std::fs::metadata(folder.join("portcullis-edge-host")) else {
        println!(
            "nothing is measured: {} is missing; examples/edge-host/README.md says how it is made",
            folder.display()
        );
        return;
    };
    println!("the program has {} KiB", program.len() >> 10);

    let mut criterion = Criterion::default().configure_from_args().sample_size(20);
    criterion.bench_function("edge/start to the first answer of a tool", |bench| {
        bench.iter(|| {
            let mut host = Host::start(&folder);
            host.add();
            host.end();
        });
    });
    let mut host = Host::start(&folder);
    host.add();
    println!("resident after a call: {}", host.resident());
    criterion.bench_function("edge/call", |bench| bench.iter(|| host.add()));
    host.end();
    criterion.final_summary();
}
