//! The edge host, built as its README says: without a compiler and without processes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use portcullis_test_support::EdgeHost;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::broker::{TestDir, output};
use crate::installed;

/// The longest that one run may take, also in the emulator.
const LONGEST_RUN: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn an_edge_host_serves_only_code_that_was_compiled_ahead_of_time() {
    // A job of CI measures the native host, so it is tested here only where the other one cannot be.
    let without_interpreter = if EdgeHost::Arm.is_available() { EdgeHost::Arm } else { EdgeHost::Native };
    let is_ci = std::env::var_os("CI").is_some();
    assert!(!is_ci || matches!(without_interpreter, EdgeHost::Arm), "CI has no compiler or emulator for ARM");
    for host in [without_interpreter, EdgeHost::Interpreter] {
        let words = host.build();
        let dir = TestDir::bare("");
        let mut compile = dir.command(&example("compile.sh"));
        compile.arg(dir.path()).args(host.target()).env("PORTCULLIS", installed::portcullis());
        let compiled = output(compile).await;
        assert!(compiled.status.success(), "{compiled:?}");

        let answers = serve(run(&dir, &words)).await;
        let names: Vec<_> =
            answers[1]["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
        assert!(names.contains(&&json!("calc__add")), "{names:?}");
        assert_eq!(answers[2]["result"]["structuredContent"], json!({ "result": 42 }));
        assert!(answers[3].to_string().contains("denied"), "{}", answers[3]);

        // Code with another digest, code that was not compiled, and a source that would be a process are refused.
        let configuration = std::fs::read_to_string(dir.path().join("portcullis.toml")).unwrap();
        let altered = std::fs::read(dir.path().join("calculator.cwasm")).unwrap();
        std::fs::write(dir.path().join("calculator.cwasm"), [&altered[..], b"\0"].concat()).unwrap();
        for (configuration, reason) in [
            (configuration.as_str(), "has changed"),
            ("sources.calc.component = \"builtin:calculator\"", "this program has no compiler"),
            ("sources.calc.component = \"calculator.cwasm\"", "compiled code, which runs unchecked"),
            ("sources.calc.command = [\"true\"]", "without the feature `process`"),
        ] {
            std::fs::write(dir.path().join("portcullis.toml"), configuration).unwrap();
            let refused = timeout(LONGEST_RUN, run(&dir, &words).output()).await.expect("it ends").unwrap();
            assert!(String::from_utf8_lossy(&refused.stderr).contains(reason), "{refused:?}");
        }
    }
}

/// Returns a command that runs the host whose words these are with the configuration of this place.
fn run(dir: &TestDir, words: &[OsString]) -> Command {
    let (program, arguments) = words.split_first().unwrap();
    let mut command = dir.command(Path::new(program));
    command.args(arguments).arg("portcullis.toml");
    command
}

/// Runs the whole conversation of one agent. Returns the responses by request id.
async fn serve(mut command: Command) -> Vec<Value> {
    let call = |name: &str| json!({ "name": name, "arguments": { "a": 20, "b": 22 } });
    let hello = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" },
    });
    let requests = [
        ("initialize", hello),
        ("tools/list", json!({})),
        ("tools/call", call("calc__add")),
        ("tools/call", call("calc__divide")),
    ];
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut input, mut lines) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
    let mut answers = Vec::new();
    for (id, (method, params)) in requests.into_iter().enumerate() {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        input.write_all(format!("{request}\n").as_bytes()).await.unwrap();
        let line = lines.next_line().await.unwrap().expect("the edge host ended");
        answers.push(serde_json::from_str(&line).unwrap());
        if method == "initialize" {
            let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            input.write_all(format!("{ready}\n").as_bytes()).await.unwrap();
        }
    }
    drop(input);
    assert!(child.wait().await.unwrap().success());
    answers
}

fn example(file: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/edge-host")).join(file)
}
