//! The official conformance suite, in front of the broker and behind it. The tests check its exit code, because it also
//! reports passes for a server that does not run.

use std::process::Stdio;

use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::broker::{DEADLINE, TestDir, output, terminate};
use crate::installed;

/// The configuration of the broker. The suite sends no token, which a loopback listener can be configured not to need.
pub(crate) const CONFIG: &str = r#"
[serve]
listen = "127.0.0.1:0"
dangerous-no-token = true
[profiles.default]
approve = "never"
sampling = true
"#;

#[tokio::test(flavor = "multi_thread")]
async fn every_server_scenario_of_2025_11_25() {
    server_scenarios("legacy", "2025-11-25").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_server_scenario_of_2026_07_28() {
    server_scenarios("modern", "2026-07-28").await;
}

/// The scenarios of the tasks extension. The revision does not require them, so `--requirements` does not run them.
const TASKS: [&str; 10] = [
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    // The suite itself skips these: sending them is optional.
    "tasks-status-notifications",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
];

#[tokio::test(flavor = "multi_thread")]
async fn every_scenario_of_the_tasks_extension() {
    for scenario in TASKS {
        against("modern", &["--scenario", scenario, "--spec-version", "2026-07-28"]).await;
    }
}

async fn server_scenarios(era: &str, revision: &str) {
    against(era, &["--requirements", revision]).await;
}

/// Runs server scenarios against the broker, which is in front of the fixture and keeps its tool names.
async fn against(era: &str, scenarios: &[&str]) {
    let dir = TestDir::bare(&fixture(era));
    let broker = serving(dir.portcullis(&["serve"]), "serving ").await;
    suite(&dir, &broker.url, "results", scenarios).await;
    broker.end().await;
    dir.verify(None).await;
}

/// A running server. Dropping this kills it.
pub(crate) struct Serving {
    child: Child,
    pub(crate) url: String,
}

impl Serving {
    /// Sends SIGTERM to the server and waits until it has ended.
    pub(crate) async fn end(mut self) {
        terminate(&self.child);
        assert!(timeout(DEADLINE, self.child.wait()).await.expect("it ends").unwrap().success());
    }
}

/// Starts a server and waits for the line on standard error that has its URL after these words.
pub(crate) async fn serving(mut command: Command, words: &str) -> Serving {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let url = timeout(DEADLINE, async {
        loop {
            let line = said.next_line().await.unwrap().expect("it serves");
            if let Some((_, url)) = line.split_once(words) {
                return url.split(' ').next().unwrap_or(url).to_owned();
            }
        }
    });
    let url = url.await.unwrap();
    tokio::spawn(async move { while let Ok(Some(_)) = said.next_line().await {} });
    Serving { child, url }
}

/// Runs server scenarios. The results of their checks are written to this folder of the place.
pub(crate) async fn suite(dir: &TestDir, url: &str, results: &str, scenarios: &[&str]) {
    let mut suite = dir.command(&installed::node());
    suite.arg(installed::conformance()).args(["server", "--url", url, "-o", results]).args(scenarios);
    let ended = output(suite).await;
    let report = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{report}\n{}", String::from_utf8_lossy(&ended.stderr));
}

/// The scenarios that each set of requirements has for a client, besides the logins of [`LOGINS`].
const CLIENT: [(&str, &[&str]); 2] = [
    ("2025-11-25", &["initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"]),
    (
        "2026-07-28",
        &[
            "tools_call",
            "request-metadata",
            "sep-2322-client-request-state",
            "http-standard-headers",
            "http-custom-headers",
            "http-invalid-tool-headers",
            "json-schema-ref-no-deref",
        ],
    ),
];

/// The login scenarios that both revisions require; each is `auth/NAME`. [`MODERN_LOGINS`] has those that 2026-07-28
/// adds.
const LOGINS: [&str; 14] = [
    "metadata-default",
    "metadata-var1",
    "metadata-var2",
    "metadata-var3",
    "basic-cimd",
    "scope-from-www-authenticate",
    "scope-from-scopes-supported",
    "scope-omitted-when-undefined",
    "scope-step-up",
    "scope-retry-limit",
    "token-endpoint-auth-basic",
    "token-endpoint-auth-post",
    "token-endpoint-auth-none",
    "pre-registration",
];
const MODERN_LOGINS: [&str; 11] = [
    "resource-mismatch",
    "offline-access-scope",
    "offline-access-not-supported",
    "authorization-server-migration",
    "iss-supported",
    "iss-not-advertised",
    "iss-supported-missing",
    "iss-wrong-issuer",
    "iss-unexpected",
    "iss-normalized",
    "metadata-issuer-mismatch",
];

#[tokio::test(flavor = "multi_thread")]
async fn the_upstream_side_passes_every_client_scenario() {
    client_scenarios(
        CLIENT.map(|(revision, scenarios)| (revision, scenarios.iter().map(ToString::to_string).collect())),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_upstream_side_passes_every_login_scenario() {
    let names = |some: &[&str]| some.iter().map(|name| format!("auth/{name}")).collect::<Vec<_>>();
    let modern = [names(&LOGINS), names(&MODERN_LOGINS)].concat();
    client_scenarios([("2025-11-25", names(&LOGINS)), ("2026-07-28", modern)]).await;
}

async fn client_scenarios(wanted: [(&str, Vec<String>); 2]) {
    let dir = TestDir::bare("");
    let agent = installed::example("conformance-agent");
    for (revision, scenarios) in wanted {
        for scenario in &scenarios {
            let mut suite = dir.command(&installed::node());
            suite.arg(installed::conformance()).arg("client").arg("--command").arg(&agent);
            suite.args(["--scenario", scenario, "--spec-version", revision, "-o", "results"]);
            // The agent in front of the broker is legacy, so without `era` a connection would begin with `initialize`.
            suite.env("SUITE_ERA", if revision < "2026-07-28" { "legacy" } else { "modern" });
            let ended = output(suite).await;
            let report = String::from_utf8_lossy(&ended.stdout);
            let said = String::from_utf8_lossy(&ended.stderr);
            assert!(ended.status.success(), "{revision} {scenario}: {report}\n{said}");
        }
    }
}

fn fixture(era: &str) -> String {
    let program = installed::example("conformance-fixture");
    let command = json!([program, era]);
    format!("{CONFIG}[sources.fixture]\ncommand = {command}\nnames = \"plain\"\nrequired = true\n")
}
