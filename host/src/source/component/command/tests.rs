#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use portcullis_test_support::guest;
use serde_json::{Value as Data, json};

use super::*;
use crate::call::Outcome;
use crate::cell::CellGrant;
use crate::config::PluginRef;
use crate::plugin::testing::plugins;
use crate::plugin::{ComponentAccess, ComponentKind, PluginError};
use crate::protocol::MAX_MESSAGE_BYTES;
use crate::secret::{ConfigValue, SecretStore};
use crate::source::RedactedValues;
use crate::source::Source as _;
use crate::source::testing::{no_client, permit, silent, supervision, text};

/// A command with its own folder, in which it may read `open` and write `drop`.
struct Bench {
    dir: tempfile::TempDir,
    source: CommandSource,
}

async fn load(name: &str, access: ComponentAccess) -> Result<CommandComponent, PluginError> {
    let reference = PluginRef::Path(guest(name));
    match plugins().component(&reference, &json!({}), &[], access).await?.kind {
        ComponentKind::Command(command) => Ok(command),
        other => panic!("{other:?}"),
    }
}

/// Makes a source that is given a secret, and this mode.
fn source_of(command: CommandComponent, mode: &str, dir: &Path) -> CommandSource {
    let pipe_config =
        PipeConfig { limit: MAX_MESSAGE_BYTES, log: dir.join("test.log"), secrets: RedactedValues::default() };
    let secrets = SecretStore::open(&dir.join("secrets")).unwrap();
    secrets.set("key", &"hunter22".into()).unwrap();
    let (mode, key) = (ConfigValue::Plain(mode.to_owned()), ConfigValue::Secret("key".to_owned()));
    let given = GivenValues::new(&BTreeMap::from([("MODE".to_owned(), mode), ("API_KEY".to_owned(), key)]), &secrets);
    let program = ComponentProgram { command, pipe_config, given, started: Box::new(|| {}) };
    // Longer than any guest runs on a busy machine.
    CommandSource::new(supervision(Duration::from_secs(600)), program)
}

impl Bench {
    async fn new(mode: &str) -> Self {
        Self::with(mode, |_| {}).await
    }

    async fn with(mode: &str, change: impl FnOnce(&mut CellGrant)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let env = vec![("MODE".into(), mode.into()), ("API_KEY".into(), "hunter22".into())];
        let mut access = ComponentAccess { env, ..ComponentAccess::default() };
        for (name, list) in [("open", &mut access.grant.read), ("drop", &mut access.grant.write)] {
            let folder = dir.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("note.txt"), name).unwrap();
            list.push(folder);
        }
        change(&mut access.grant);
        let source = source_of(load("server", access).await.unwrap(), mode, dir.path());
        Self { dir, source }
    }

    fn path(&self, inner: &str) -> String {
        self.dir.path().join(inner).to_str().unwrap().to_owned()
    }

    async fn call(&self, tool: &str, arguments: Data) -> Outcome {
        // The definition that the guest lists, as a session would have been shown it.
        let described = json!({ "name": tool, "inputSchema": { "type": "object" } });
        self.source.call(permit(&described, arguments), &no_client(), silent()).await
    }

    async fn text(&self, tool: &str, arguments: Data) -> String {
        text(self.call(tool, arguments).await)
    }

    /// Calls a tool that breaks, and returns why the outcome is unknown; the next call must work.
    async fn broken(&self, tool: &str) -> String {
        let Outcome::Unknown(why) = self.call(tool, json!({})).await else { panic!("{tool} was answered") };
        assert_eq!(self.text("echo", json!({ "n": 1 })).await, r#"{"n":1}"#, "after {tool}");
        why.to_string()
    }

    async fn refusal(&self) -> String {
        self.source.discover(&no_client()).await.unwrap_err().to_string()
    }
}

#[tokio::test]
async fn a_command_is_an_mcp_server_of_either_era() {
    for (mode, protocol) in [("", "2025-11-25"), ("modern", "2026-07-28")] {
        let bench = Bench::new(mode).await;
        let found = bench.source.discover(&no_client()).await.unwrap();
        assert_eq!(found.protocol, protocol);
        assert_eq!(found.server.get_str("name").as_deref(), Some("guest"));
        assert_eq!(found.tools.items.len(), 17);
        assert_eq!(bench.text("echo", json!({ "n": 18446744073709551615_u64 })).await, r#"{"n":18446744073709551615}"#);
    }
}

#[tokio::test]
async fn a_command_sees_what_is_listed_and_nothing_else() {
    let bench = Bench::new("").await;
    let seen: Data = serde_json::from_str(&bench.text("look", json!({})).await).unwrap();
    assert_eq!(seen["environment"], json!({ "API_KEY": "hunter22", "MODE": "" }));
    assert_eq!(seen["arguments"], json!([]));
    assert!(seen["time"].as_u64().unwrap() > 1_700_000_000);
}

#[tokio::test]
async fn a_command_reaches_the_granted_folders_and_no_file_beside() {
    let bench = Bench::new("").await;
    let (open, drop) = (bench.path("open/note.txt"), bench.path("drop/note.txt"));
    std::fs::write(bench.path("secret.txt"), "secret").unwrap();
    std::os::unix::fs::symlink(bench.path("secret.txt"), bench.path("drop/link")).unwrap();
    assert_eq!(bench.text("read", json!({ "path": open })).await, "open");
    assert_eq!(bench.text("list", json!({ "path": bench.path("open") })).await, "note.txt");
    assert_eq!(bench.text("write", json!({ "path": drop, "text": "new" })).await, "written");
    assert_eq!(std::fs::read_to_string(&drop).unwrap(), "new");
    let said = bench.text("write", json!({ "path": open, "text": "new" })).await;
    assert!(said.contains("not permitted"), "{said}");
    assert_eq!(std::fs::read_to_string(&open).unwrap(), "open");
    for path in ["/etc/passwd", &bench.path("secret.txt"), &bench.path("open/../secret.txt"), &bench.path("drop/link")]
    {
        let said = bench.text("read", json!({ "path": path })).await;
        assert!(!said.contains("secret") && !said.contains("root:"), "{path}: {said}");
        assert!(said.contains("os error"), "{path}: {said}");
    }
}

#[tokio::test]
async fn a_command_that_breaks_a_limit_is_ended_by_name_and_the_next_call_works() {
    for (tool, named) in [
        ("spin", "5 s of processor time"),
        ("grow", "more than 64 MiB of memory"),
        ("recurse", "plugin-trap"),
        ("panic", "plugin-trap"),
        ("half", "plugin-trap"),
        ("exit", "exited with status 1"),
    ] {
        // A new source for each tool: one that breaks repeatedly is soon left alone.
        let why = Bench::new("").await.broken(tool).await;
        assert!(why.contains(named), "{tool}: {why}");
        assert!(why.contains("guest_server.wasm"), "{tool}: {why}");
    }
    // It exceeds its time or the length of a line, whichever comes first.
    let bench = Bench::new("").await;
    let why = bench.broken("flood").await;
    assert!(why.contains("without ending the line") || why.contains("over the limit"), "{why}");
    let why = bench.broken("panic").await;
    assert!(why.contains("its last words") && why.contains("told to"), "{why}");
}

#[tokio::test]
async fn memory_is_as_much_as_is_granted() {
    let bench = Bench::with("", |grant| grant.limits.memory = 8 << 20).await;
    let why = bench.broken("grow").await;
    assert!(why.contains("more than 8 MiB of memory"), "{why}");
}

#[tokio::test]
async fn forged_replies_reach_no_call() {
    let bench = Bench::new("").await;
    assert_eq!(bench.text("forge", json!({})).await, "forged");
    assert_eq!(bench.text("echo", json!({})).await, "{}");
}

#[tokio::test]
async fn a_dropped_call_leaves_the_command_as_it_was() {
    let bench = Bench::new("").await;
    bench.source.discover(&no_client()).await.unwrap();
    let gave_up = tokio::time::timeout(Duration::from_millis(50), bench.call("hang", json!({}))).await;
    assert!(gave_up.is_err());
    assert_eq!(bench.text("echo", json!({})).await, "{}");
}

#[tokio::test]
async fn standard_error_is_kept_in_a_bounded_log_without_secrets() {
    let bench = Bench::new("").await;
    assert_eq!(bench.text("chatter", json!({})).await, "said");
    bench.source.close().await;
    let log = std::fs::read_to_string(bench.path("test.log")).unwrap();
    assert!(log.contains("a long complaint with [secret] in it") && log.len() < 2_000_000, "{}", log.len());
}

#[tokio::test]
async fn a_command_that_is_not_a_server_fails_with_the_reason() {
    let why = Bench::new("exit-now").await.refusal().await;
    assert!(why.contains("exited with status 1; its last words: fatal: no database"), "{why}");
    let why = Bench::new("garbage").await.refusal().await;
    assert!(why.contains("writes garbage to standard output"), "{why}");
    let why = Bench::new("spin").await.refusal().await;
    // On a busy machine the deadline of the handshake passes first.
    assert!(why.contains("5 s of processor time") || why.contains("did not answer `initialize`"), "{why}");
}

#[tokio::test]
async fn further_calls_do_not_keep_a_hanging_command_alive() {
    let bench = Bench::new("").await;
    bench.source.discover(&no_client()).await.unwrap();
    let calls = async {
        loop {
            // So few that they fit into the pipe for as long as the command spins, however busy the machine is.
            let _ = tokio::time::timeout(Duration::from_secs(2), bench.call("echo", json!({}))).await;
        }
    };
    tokio::select! {
        ended = bench.call("spin", json!({})) => {
            assert!(matches!(&ended, Outcome::Unknown(why) if why.contains("5 s of processor time")), "{ended:?}");
        }
        () = calls => {}
    }
}

#[tokio::test]
async fn many_calls_at_once_are_all_answered() {
    let bench = Bench::new("").await;
    bench.source.discover(&no_client()).await.unwrap();
    let calls = (0..300).map(|n| bench.text("echo", json!({ "n": n })));
    let said = futures_util::future::join_all(calls).await;
    assert!(said.iter().enumerate().all(|(n, said)| *said == format!("{{\"n\":{n}}}")));
}

#[tokio::test]
async fn a_command_ends_when_there_is_no_more_input() {
    let mut bench = Bench::new("").await;
    let (running, streams) = bench.source.tune().connector.command.start(&[]).await.unwrap();
    std::mem::drop(streams);
    running.wait().await;
    assert_eq!(running.exit_description().as_deref(), Some("exited with status 0"));
}

#[tokio::test]
async fn no_more_of_a_command_run_at_once_than_the_source_may_have() {
    let access = ComponentAccess { instances: 1, timeout: Duration::from_millis(50), ..ComponentAccess::default() };
    let command = load("server", access).await.unwrap();
    let (running, _streams) = command.start(&[]).await.unwrap();
    let refused = command.start(&[]).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("plugin-busy") && refused.contains("write `cell = { instances = 2 }`"), "{refused}");
    running.stop();
    running.wait().await;
    assert!(command.start(&[]).await.is_ok());
}

#[tokio::test]
async fn a_command_that_may_reach_nothing_starts_and_is_refused_when_it_connects() {
    let folder = tempfile::tempdir().unwrap();
    let source = source_of(load("dialer", ComponentAccess::default()).await.unwrap(), "", folder.path());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    for to in [address.to_string(), format!("localhost:{}", address.port())] {
        let described = json!({ "name": "connect", "inputSchema": { "type": "object" } });
        let arguments = json!({ "address": to, "send": "hello" });
        let said = text(source.call(permit(&described, arguments), &no_client(), silent()).await);
        assert!(said.contains("ermission denied") || said.contains("ccess"), "{to}: {said}");
    }
}

#[tokio::test]
async fn a_command_reaches_what_is_granted_and_is_told_that_the_rest_is_denied() {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = server.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut tokio::io::AsyncReadExt::take(&mut read, 5), &mut write).await;
            });
        }
    });
    let network = vec![format!("localhost:{port}")];
    let folder = tempfile::tempdir().unwrap();
    let source_of_reach = async |reach| {
        let declared = crate::egress::AllowedDestinations::of_entries(&network);
        let mut access = ComponentAccess::default();
        access.grant.network = network.clone();
        let (egress, source) = (crate::egress::Egress::new(), "test".parse().unwrap());
        access.egress = Some(crate::egress::ComponentEgress::open(egress, &source, declared, reach, |_| {}));
        source_of(load("dialer", access).await.unwrap(), "", folder.path())
    };
    let call = async |source: &CommandSource, tool: &str, arguments| {
        let described = json!({ "name": tool, "inputSchema": { "type": "object" } });
        text(source.call(permit(&described, arguments), &no_client(), silent()).await)
    };
    let near = source_of_reach(crate::egress::Reach::Private).await;
    let connect = async |address: String| call(&near, "connect", json!({ "address": address, "send": "hello" })).await;
    let denied = |said: &str| {
        said.contains("ermission denied") || said.contains("access-denied") || said.contains("AccessDenied")
    };
    let before = connect(format!("127.0.0.1:{port}")).await;
    assert!(denied(&before), "an address that was never looked up: {before}");
    assert_eq!(connect(format!("localhost:{port}")).await, "hello");
    for address in ["169.254.169.254:80", "127.0.0.1:1", "[::1]:80", "1.1.1.1:443", "localhost:1"] {
        let said = connect(address.to_owned()).await;
        assert!(denied(&said), "{address}: {said}");
    }
    let said = call(&near, "resolve", json!({ "host": "secret.evil.test:80" })).await;
    assert!(!said.contains('['), "{said}");
    let far = source_of_reach(crate::egress::Reach::Public).await;
    let said = call(&far, "connect", json!({ "address": format!("localhost:{port}"), "send": "hello" })).await;
    assert!(!said.contains("hello"), "{said}");
}

#[tokio::test]
async fn a_grant_that_leads_nowhere_is_refused() {
    let counter = PluginRef::Path(guest("counter"));
    let env = ComponentAccess { env: vec![("KEY".into(), "x".into())], ..ComponentAccess::default() };
    let args = ComponentAccess { args: vec!["counter".into(), "-x".into()], ..ComponentAccess::default() };
    for (key, access) in [("env", env), ("args", args)] {
        let error = plugins().component(&counter, &json!({}), &[], access).await.unwrap_err().to_string();
        assert!(error.contains(&format!("is given `{key}`, but does not import wasi:cli/environment")), "{error}");
    }
    let settings = json!({ "deep": true });
    let server = PluginRef::Path(guest("server"));
    let error = plugins().component(&server, &settings, &[], ComponentAccess::default()).await.unwrap_err().to_string();
    assert!(error.contains("is given `settings`"), "{error}");
}

#[tokio::test]
async fn what_is_no_source_says_what_it_is() {
    let refused = async |name| {
        let plugin = PluginRef::Path(guest(name));
        plugins().component(&plugin, &json!({}), &[], ComponentAccess::default()).await.unwrap_err().to_string()
    };
    let error = refused("plain").await;
    assert!(error.contains("is not a source: it is a plugin that exports `policy`"), "{error}");
}
