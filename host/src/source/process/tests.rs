#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod calls;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use portcullis_jail::Launcher;
use serde_json::{Value as Data, json};
use tempfile::TempDir;

use super::*;
use crate::call::{Outcome, SessionId};
use crate::cell::CellFactory;
use crate::config::{CellConfig, Naming};
use crate::gate::Permit;
use crate::protocol::{Answer, Json};
use crate::secret::{ConfigValue, SecretStore};
use crate::source::testing::{no_client, silent, text};
use crate::source::{CallEvent, CallEventSender, Source, SourceClient};

/// Returns the program of `tests/sources`, which is built once and is also the launcher.
fn test_source() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        // This test is in `<target>/<profile>/deps`.
        let profile = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
        let mut build = std::process::Command::new(env!("CARGO"));
        build.args(["build", "-q", "-p", "portcullis-test-sources", "--target-dir"]).arg(profile.parent().unwrap());
        if profile.file_name().unwrap() == "release" {
            build.arg("--release");
        }
        assert!(build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
        profile.join("portcullis-test-source")
    })
}

struct Bench {
    source: ProcessSource,
    dir: TempDir,
}

impl Bench {
    fn new(mode: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let beside = dir.path().join("open/started").display().to_string();
        let argv = vec![test_source().display().to_string(), mode.to_owned(), beside];
        Self::with(dir, argv, BTreeMap::new())
    }

    fn with(dir: TempDir, argv: Vec<String>, env: BTreeMap<String, ConfigValue>) -> Self {
        let secrets = SecretStore::open(&dir.path().join("secrets")).unwrap();
        for (key, value) in &env {
            let ConfigValue::Secret(name) = value else { continue };
            secrets.set(name, &format!("value of {key}").into()).unwrap();
        }
        let given = GivenValues::new(&env, &secrets);
        let config = SourceConfig {
            endpoint: Endpoint::Command { argv, cwd: None, env },
            cell: CellConfig { write: vec![dir.path().join("open")], ..CellConfig::default() },
            timeout: Duration::from_secs(60),
            ..crate::catalog::testing::source("test", Naming::Source)
        };
        std::fs::create_dir(dir.path().join("open")).unwrap();
        let launcher = Launcher::Path(test_source().to_owned());
        let cells =
            Arc::new(CellFactory::new(launcher, &dir.path().join("data"), vec![dir.path().join("data")], None, |_| {}));
        let process_cell = Arc::new(ProcessCell::new(cells, &config));
        Self { source: ProcessSource::new(&config, process_cell, given).unwrap(), dir }
    }

    /// Returns a bench whose deadlines are short for a source that does not answer, and long enough for a slow machine.
    fn hasty(mode: &str) -> Self {
        let mut bench = Self::new(mode);
        let short = Duration::from_secs(2);
        bench.source.tune().deadlines =
            HandshakeDeadlines { probe: Some(short), handshake: short, list: short, ..HandshakeDeadlines::default() };
        bench
    }

    async fn call(&self, tool: &str, arguments: Data) -> Outcome {
        self.source.call(permit(tool, arguments), &no_client(), silent()).await
    }

    /// Calls a tool and returns the text of its answer.
    async fn text(&self, tool: &str, arguments: Data) -> String {
        text(self.call(tool, arguments).await)
    }

    async fn refusal(&self) -> String {
        self.source.discover(&no_client()).await.unwrap_err().to_string()
    }
}

/// Returns a permit for a tool as the test source describes it.
fn permit(tool: &str, arguments: Data) -> Permit {
    permit_for(tool, "a tool", arguments)
}

fn permit_for(tool: &str, described: &str, arguments: Data) -> Permit {
    let schema = json!({ "type": "object" });
    crate::source::testing::permit(&json!({ "name": tool, "description": described, "inputSchema": schema }), arguments)
}

impl Bench {
    /// Reports whether a process runs whose command line names this bench's folder. Zombies have no command line.
    fn alive(&self) -> bool {
        let mark = self.dir.path().to_str().unwrap().as_bytes();
        let names_it = |process: std::fs::DirEntry| {
            let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            line.windows(mark.len()).any(|words| words == mark)
        };
        std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).any(names_it)
    }

    /// Waits until no such process runs.
    async fn gone(&self) {
        self.gone_within(Duration::from_secs(60)).await;
    }

    /// Waits so long at most until no such process runs.
    async fn gone_within(&self, time: Duration) {
        let ended = async {
            while self.alive() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(time, ended).await.expect("something lives");
    }
}

#[tokio::test]
async fn a_source_sees_what_is_listed_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let argv = vec![test_source().display().to_string(), "env-dump".to_owned()];
    let listed = BTreeMap::from([("API_KEY".to_owned(), ConfigValue::Secret("key".to_owned()))]);
    let bench = Bench::with(dir, argv, listed);
    // Inheritable on purpose, like a descriptor of a careless embedder.
    let careless = std::fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&careless, rustix::io::FdFlags::empty()).unwrap();
    let seen: Data = serde_json::from_str(&bench.text("look", json!({})).await).unwrap();

    let names: Vec<_> = seen["environment"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["API_KEY", "HOME", "LANG", "PATH", "TMPDIR"]);
    assert_eq!(seen["environment"]["API_KEY"], "value of API_KEY");
    assert_eq!(seen["descriptors"].as_array().unwrap().iter().filter(|fd| fd.as_u64() > Some(2)).count(), 0, "{seen}");
    assert_eq!(seen["group"], seen["pid"]);
    assert_eq!(seen["session"], seen["pid"]);
    assert_eq!(seen["no_new_privileges"], "1");
    assert_eq!(seen["cwd"], "/home/source");
    assert_eq!(seen["environment"]["HOME"], "/home/source");
}

#[tokio::test]
async fn signals_that_the_broker_ignores_are_not_ignored_in_the_source() {
    // Not the test source: a Rust program itself ignores SIGPIPE when it starts.
    let script = "grep -E 'SigBlk|SigIgn' /proc/self/status >&2; exit 9";
    let argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    let why = Bench::with(tempfile::tempdir().unwrap(), argv, BTreeMap::new()).refusal().await;
    let mask = |name: &str| {
        let (_, rest) = why.rsplit_once(name).unwrap();
        u64::from_str_radix(rest.trim_start_matches([':', '\t']).get(..16).unwrap(), 16).unwrap()
    };
    // Signals 32 and 33 belong to the C library, which does not let programs change them.
    let settable = !(0b11 << 31);
    assert_eq!((mask("SigBlk") & settable, mask("SigIgn") & settable), (0, 0), "{why}");
}

#[tokio::test]
async fn declaring_starts_nothing_and_discovery_lists_the_tools() {
    let bench = Bench::new("echo");
    assert!(!bench.dir.path().join("data/logs").exists() && !bench.alive());
    let discovery = bench.source.discover(&no_client()).await.unwrap();
    assert_eq!(discovery.protocol, "2025-11-25");
    assert_eq!(discovery.server.get_str("name").as_deref(), Some("test-source"));
    assert_eq!(discovery.tools.items.first().and_then(|tool| tool.get_str("name")).as_deref(), Some("echo"));
    assert_eq!(bench.text("echo", json!({ "n": 1 })).await, r#"{"n":1}"#);
    assert_eq!(bench.text("add", json!({ "a": 1, "b": 2 })).await, "3");
    assert_eq!(bench.text("big", json!({ "bytes": 3_000_000 })).await.len(), 3_000_000);
}

#[tokio::test]
async fn a_modern_source_is_spoken_to_as_such() {
    let bench = Bench::new("modern");
    let discovery = bench.source.discover(&no_client()).await.unwrap();
    assert_eq!((discovery.protocol.as_str(), discovery.instructions.as_deref()), ("2026-07-28", Some("be brief")));
    assert_eq!(discovery.server.get_str("name").as_deref(), Some("modern"));
    let meta: Data = serde_json::from_str(&bench.text("meta", json!({})).await).unwrap();
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}));
}

#[tokio::test]
async fn a_source_that_dies_of_the_probe_is_started_again_without_it() {
    let bench = Bench::new("only-initialize");
    assert_eq!(bench.source.discover(&no_client()).await.unwrap().protocol, "2025-11-25");
}

#[tokio::test]
async fn each_discovery_tells_what_the_source_says_now() {
    let bench = Bench::new("rug-pull");
    let first = bench.source.discover(&no_client()).await.unwrap().tools.items;
    assert_ne!(first, bench.source.discover(&no_client()).await.unwrap().tools.items);
}

#[tokio::test]
async fn names_are_passed_on_for_the_catalog_to_judge() {
    let listed = Bench::new("odd-names").source.discover(&no_client()).await.unwrap().tools.items;
    assert_eq!(listed.len(), 9);
}

#[tokio::test]
async fn a_missing_program_is_named() {
    let bench = Bench::with(tempfile::tempdir().unwrap(), vec!["no-such-server".to_owned()], BTreeMap::new());
    let why = bench.refusal().await;
    assert!(why.contains("`no-such-server`") && why.contains("install it"), "{why}");
    assert!(matches!(bench.call("echo", json!({})).await, Outcome::NotSent(text) if text.to_string() == why));
}

#[tokio::test]
async fn a_secret_among_the_arguments_is_in_no_message() {
    let argv = [&*test_source().to_string_lossy(), "exit-now", "--api-key", "hunter2"].map(str::to_owned);
    let why = Bench::with(tempfile::tempdir().unwrap(), argv.into(), BTreeMap::new()).refusal().await;
    assert!(why.contains(" …` exited with status 3") && !why.contains("hunter2"), "{why}");
}

#[tokio::test]
async fn a_program_that_exits_at_once_gives_its_status_and_last_words() {
    let why = Bench::new("exit-now").refusal().await;
    assert!(why.contains("exit-now") && why.contains("exited with status 3"), "{why}");
    assert!(why.contains("its last words: fatal: no \\u{1b}[31mdatabase"), "{why}");
}

/// A secret is also redacted where the cut of a long line would split it.
#[tokio::test]
async fn a_secret_on_standard_output_is_redacted_in_the_error_that_quotes_it() {
    let argv = vec![test_source().display().to_string(), "leak".to_owned()];
    let env = BTreeMap::from([("KEY".to_owned(), ConfigValue::Secret("key".to_owned()))]);
    let why = Bench::with(tempfile::tempdir().unwrap(), argv, env).refusal().await;
    assert!(why.contains("it wrote \"xxx") && why.contains("no access with [secret]"), "{why}");
    assert!(!why.contains("value"), "{why}");
}

#[tokio::test]
async fn a_silent_program_is_named_with_the_time_it_had() {
    let bench = Bench::hasty("hang");
    let why = bench.refusal().await;
    assert!(why.contains("hang") && why.contains("did not answer `initialize` within 2 s"), "{why}");
}

#[tokio::test]
async fn a_program_that_writes_text_and_no_message_is_quoted() {
    let why = Bench::hasty("text-only").refusal().await;
    assert!(why.contains("did not answer `initialize` within 2 s"), "{why}");
    let quoted =
        "it wrote \"Server listening on port 3000\" and further such lines to standard output, and no message of MCP";
    assert!(why.contains(quoted), "{why}");
}

#[tokio::test]
async fn garbage_is_called_so_and_a_banner_is_forgiven() {
    let why = Bench::new("garbage").refusal().await;
    assert!(why.contains(r#"first line "I am \u{7} not a server"#), "{why}");
    assert_eq!(Bench::new("banner").text("add", json!({ "a": 2, "b": 2 })).await, "4");
}

#[tokio::test]
async fn floods_end_at_a_deadline() {
    let why = Bench::hasty("flood").refusal().await;
    assert!(why.contains("did not answer"), "{why}");
    let why = Bench::hasty("endless-line").refusal().await;
    assert!(why.contains("did not answer") || why.contains("without ending the line"), "{why}");
}

#[tokio::test]
async fn standard_error_is_kept_in_a_bounded_log() {
    let bench = Bench::new("stderr-flood");
    assert_eq!(bench.text("add", json!({ "a": 1, "b": 1 })).await, "2");
    bench.source.close().await;
    let size = std::fs::metadata(bench.dir.path().join("data/logs/test.log")).unwrap().len();
    assert!(size > 0 && size < 4_000_000, "{size} of 4.5 MB");
}
