//! The official conformance suite against the server that the official Python SDK has for it: every check that passes
//! directly also passes through the broker, over HTTP and over stdio.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::broker::TestDir;
use crate::conformance::{CONFIG, Serving, serving, suite};
use crate::installed;

/// The Python code that runs the server over stdio.
const OVER_STDIO: &str = "from mcp_everything_server.server import mcp; mcp.run('stdio')";

/// A check that passes directly and not through the broker.
struct Exception {
    scenario: &'static str,
    check: &'static str,
    /// The status that it has through the broker.
    becomes: &'static str,
    /// The reason.
    why: &'static str,
}

const fn exception(scenario: &'static str, check: &'static str, becomes: &'static str, why: &'static str) -> Exception {
    Exception { scenario, check, becomes, why }
}

const ONE_ANSWER: &str =
    "with nothing to say before the answer, the broker answers in JSON, which the protocol leaves to it";
const UNBROKEN: &str =
    "the source breaks its stream off, and the broker takes that up itself: the agent's own is never broken";

const OLD: [Exception; 2] = [
    exception("server-sse-multiple-streams", "server-sse-streams-functional", "INFO", ONE_ANSWER),
    exception("server-sse-polling", "server-sse-disconnect-resume", "INFO", UNBROKEN),
];

/// The reason for the tasks extension, which the SDK does not have and the revision does not require: its tools are in
/// no catalog, and the suite takes the error result of the SDK for an answer of the tools.
const NO_SUCH_TOOL: &str = "a tool that no source lists is an error of the protocol, as the specification has it";

const NEW: [Exception; 5] = [
    exception("tasks-capability-negotiation", "sep-2663-server-rejects-undeclared-client", "FAILURE", NO_SUCH_TOOL),
    exception("tasks-dispatch-and-envelope", "sep-2663-legacy-task-param-ignored", "FAILURE", NO_SUCH_TOOL),
    exception("tasks-dispatch-and-envelope", "tasks-immediate-result-shortcut", "FAILURE", NO_SUCH_TOOL),
    exception(
        "tasks-dispatch-and-envelope",
        "tasks-result-type-complete-on-non-task-responses",
        "FAILURE",
        NO_SUCH_TOOL,
    ),
    exception("tasks-lifecycle", "tasks-sync-tool-call", "FAILURE", NO_SUCH_TOOL),
];

#[tokio::test(flavor = "multi_thread")]
async fn checks_that_pass_directly_with_the_official_sdk_pass_through_the_broker_in_2025_11_25() {
    passes_through("2025-11-25", &OLD).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_that_pass_directly_with_the_official_sdk_pass_through_the_broker_in_2026_07_28() {
    passes_through("2026-07-28", &NEW).await;
}

async fn passes_through(revision: &str, exceptions: &[Exception]) {
    let server = server().await;
    let direct = checks(&server.dir, &server.serving.url, revision).await;
    assert!(direct.values().flatten().filter(|status| *status == "SUCCESS").count() > 50, "{direct:?}");

    let url = format!("url = {:?}\ndangerous-allow-private = true", server.serving.url);
    let command = json!([installed::sdk("python"), "-c", OVER_STDIO]);
    for (transport, source) in [("HTTP", url), ("stdio", format!("command = {command}"))] {
        let dir = TestDir::bare(&format!("{CONFIG}[sources.official]\nnames = \"plain\"\nrequired = true\n{source}\n"));
        let broker = serving(dir.portcullis(&["serve"]), "serving ").await;
        let through = checks(&dir, &broker.url, revision).await;
        broker.end().await;
        dir.verify(None).await;
        compare(&direct, &through, exceptions, &format!("{revision} over {transport}"));
    }
}

/// The server of the SDK in a place of its own. It is killed when this is dropped.
struct Server {
    dir: TestDir,
    serving: Serving,
}

async fn server() -> Server {
    let dir = TestDir::bare("");
    let mut command = dir.command(&installed::sdk("mcp-everything-server"));
    command.args(["--port", "0"]);
    let mut serving = serving(command, "Uvicorn running on ").await;
    serving.url.push_str("/mcp");
    Server { dir, serving }
}

/// The statuses of each check, by scenario and name. Some checks are made several times.
type Checks = BTreeMap<(String, String), Vec<String>>;

async fn checks(dir: &TestDir, url: &str, revision: &str) -> Checks {
    suite(dir, url, "results", &["--requirements", revision]).await;
    let mut checks = Checks::new();
    for folder in fs::read_dir(dir.path().join("results")).unwrap() {
        let folder = folder.unwrap();
        let name = folder.file_name().into_string().unwrap();
        // The name is like `server-ping-2026-07-28T12-00-00-000Z`.
        let scenario = name.strip_prefix("server-").and_then(|name| name.rsplitn(7, '-').last()).unwrap().to_owned();
        for check in read(&folder.path().join("checks.json")) {
            let text = |key: &str| check[key].as_str().unwrap().to_owned();
            checks.entry((scenario.clone(), text("id"))).or_default().push(text("status"));
        }
    }
    checks
}

fn read(file: &Path) -> Vec<Value> {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

fn compare(direct: &Checks, through: &Checks, exceptions: &[Exception], what: &str) {
    let passed = |statuses: Option<&Vec<String>>| {
        statuses.map_or(0, |all| all.iter().filter(|status| *status == "SUCCESS").count())
    };
    let (mut wrong, mut sums) = (Vec::new(), [0, 0]);
    for (key, statuses) in direct {
        let here = through.get(key);
        let (before, after) = (passed(Some(statuses)), passed(here));
        sums[0] += before;
        sums[1] += after.min(before);
        let (scenario, check) = key;
        match exceptions.iter().find(|one| one.scenario == scenario && one.check == check) {
            None if after < before => wrong.push(format!("{scenario} {check}: {statuses:?} direct, {here:?} through")),
            Some(one) if !here.is_some_and(|all| all.iter().any(|status| status == one.becomes)) => {
                wrong.push(format!("{scenario} {check}: {here:?} through, though {}", one.why));
            }
            _ => {}
        }
    }
    for one in exceptions {
        let key = (one.scenario.to_owned(), one.check.to_owned());
        if passed(direct.get(&key)) == 0 {
            wrong.push(format!("{} {}: an exception that does not pass directly", one.scenario, one.check));
        }
    }
    println!("{what}: of {} checks that pass directly, {} pass through the broker", sums[0], sums[1]);
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}
