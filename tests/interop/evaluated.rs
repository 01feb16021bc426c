//! Real servers are evaluated and none is called malicious; servers of real runtimes that wait for a date are found.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::broker::{TestDir, output};
use crate::installed::{self, TOOLS, node, python};

/// Evaluates a command and returns the report.
async fn evaluated(dir: &TestDir, command: &[String]) -> Value {
    let words = ["evaluate", "--json", "--idle", "1", "--"].into_iter().chain(command.iter().map(String::as_str));
    let mut portcullis = dir.portcullis(&words.collect::<Vec<_>>());
    // A script without its interpreter next to it is run only by an installed one.
    let interpreters =
        [python("python"), node()].into_iter().filter_map(|program| program.parent().map(Path::to_owned));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = interpreters.chain(std::env::split_paths(&path));
    portcullis.env("PATH", std::env::join_paths(folders).unwrap());
    let ran = output(portcullis).await;
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{command:?}: {error}: {said}"))
}

/// Returns the findings that say that a server is malicious.
fn grave(report: &Value) -> Vec<&Value> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings.filter(|finding| ["high", "critical"].contains(&finding["level"].as_str().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_real_server_is_called_malicious() {
    let dir = TestDir::new("").await;
    for (server, tools) in TOOLS {
        let report = evaluated(&dir, &installed::command(server, dir.path())).await;
        assert_eq!(grave(&report), Vec::<&Value>::new(), "{server}");
        // One that stands in a file of its own cannot start without it.
        if server != "sqlite" {
            let called = report["exercised"]["tools"].as_array().unwrap().len();
            assert!(installed::shows(server, called), "{server}: {called} of {tools} tools were called: {report:#}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_waits_for_a_date_is_found_by_a_later_clock() {
    let dir = TestDir::bare("");
    let script = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("interop").join(name);
    for (runtime, script) in [(python("python"), script("dated.py")), (node(), script("dated.mjs"))] {
        let command = |kind: &str| {
            let words: [PathBuf; 3] = [runtime.clone(), script.clone(), kind.into()];
            words.map(|word| word.into_os_string().into_string().unwrap())
        };
        let report = evaluated(&dir, &command("hostile")).await;
        let found = grave(&report);
        let sent = found.iter().find(|finding| finding["rule"] == "canary-sent");
        let sent = sent.unwrap_or_else(|| panic!("{script:?} is not found: {report:#}"));
        assert_eq!(sent["conditions"], serde_json::json!(["the clock was two years ahead"]), "{script:?}");
        let report = evaluated(&dir, &command("honest")).await;
        assert_eq!(grave(&report), Vec::<&Value>::new(), "{script:?}");
        assert!(!report["exercised"]["not"].to_string().contains("clock"), "{report:#}");
    }
}
