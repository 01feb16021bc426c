//! Policies, sinks and sources that are part of the program.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use tokio::io::DuplexStream;

use super::*;
use crate::broker::BrokerBuilder;
use crate::call::CallView;
use crate::plugin::{NativeError, NativePolicy, NativeSink, Verdict};
use crate::source::NativeSource;
use crate::sync::Mutex;

/// A policy whose verdict on each call is stated in the call's arguments.
struct Obedient;

#[async_trait]
impl NativePolicy for Obedient {
    fn version(&self) -> &str {
        "7"
    }

    async fn check(&self, view: &CallView) -> Result<Verdict, NativeError> {
        let deny = |code: &str| Ok(Verdict::deny(code, "as told"));
        match view.call.arguments.get_str("say").as_deref() {
            Some("deny") => deny("told-so"),
            Some("bad code") => deny("Not A Code"),
            Some("ask badly") => Ok(Verdict::ask("Not A Code", "as told")),
            Some("ask") => Ok(Verdict::ask("told-to-ask", "as told")),
            Some("fail") => Err("the database is away".into()),
            Some("panic") => panic!("as told"),
            _ => Ok(Verdict::Pass),
        }
    }
}

/// A sink that fails the first time and keeps all later records.
#[derive(Clone, Default)]
struct Keeping {
    records: Arc<Mutex<Vec<String>>>,
    deliveries: Arc<AtomicUsize>,
}

#[async_trait]
impl NativeSink for Keeping {
    async fn deliver(&self, records: &[String]) -> Result<(), NativeError> {
        if self.deliveries.fetch_add(1, Ordering::SeqCst) == 0 {
            panic!("not yet");
        }
        self.records.lock().extend_from_slice(records);
        Ok(())
    }
}

/// A server with the tool `note`, which fails in every way that it is told to.
#[derive(Clone)]
struct Notes(&'static str);

impl ServerHandler for Notes {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = json!({ "tools": [{ "name": "note", "inputSchema": { "type": "object" } }] });
        serde_json::from_value(tools).map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text = request.arguments.unwrap_or_default();
        let text = text.get("text").and_then(serde_json::Value::as_str).unwrap_or("nothing");
        Ok(CallToolResult::success(vec![ContentBlock::text(format!("noted: {text}"))]).into())
    }
}

#[async_trait]
impl NativeSource for Notes {
    fn version(&self) -> &str {
        self.0
    }

    async fn serve(&self, stream: DuplexStream) -> Result<(), NativeError> {
        self.clone().serve(stream).await?.waiting().await?;
        Ok(())
    }
}

/// A server that never serves.
struct Broken(&'static str);

#[async_trait]
impl NativeSource for Broken {
    fn version(&self) -> &str {
        "1"
    }

    async fn serve(&self, _stream: DuplexStream) -> Result<(), NativeError> {
        match self.0 {
            "panics" => panic!("as told"),
            _ => Err("there is no paper".into()),
        }
    }
}

const OBEDIENT: &str = "native:obedient";

fn calc(folder: &std::path::Path) -> crate::config::ConfigBuilder {
    Config::builder(folder)
        .broker(json!({ "ask-timeout": "1s" }))
        .source("calc", json!({ "component": "builtin:calculator" }))
}

fn builder(config: crate::config::ConfigBuilder) -> BrokerBuilder {
    Broker::builder(config.build().unwrap(), Launcher::SelfExec)
}

/// Returns a broker with the tool `notes__note`, before which only the obedient policy is asked.
async fn obedient(folder: &std::path::Path, policy: serde_json::Value) -> Broker {
    let config = Config::builder(folder)
        .broker(json!({ "ask-timeout": "1s" }))
        .profile("default", json!({ "approve": "never" }))
        .source("notes", json!({ "native": "notes" }))
        .policy(policy);
    builder(config).policy("obedient", Obedient).source("notes", Notes("1")).build().await.unwrap()
}

/// Calls the tool, and returns `ok` or the code of the refusal.
async fn note(session: &Arc<Session>, say: &str) -> String {
    match session.call_tool("notes__note", &json!({ "say": say })).await {
        Ok(_) => "ok".to_owned(),
        Err(error) => error.data.map_or_else(String::new, |data| data["code"].as_str().unwrap_or_default().to_owned()),
    }
}

/// Returns the text of the error with which a broker is not built.
async fn refusal(builder: BrokerBuilder) -> String {
    match builder.build().await {
        Ok(_) => panic!("it was built"),
        Err(error) => error.to_string(),
    }
}

pub(super) fn records(broker: &Broker, kind: &str) -> Vec<serde_json::Value> {
    let filter = RecordFilter { kind: Some(kind.to_owned()), ..RecordFilter::default() };
    let found = LedgerReader::open(&broker.config().data_dir).unwrap().tail(100, &filter).unwrap();
    found.into_iter().map(|found| found.record.body).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_native_policy_decides_and_the_ledger_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let broker = obedient(folder.path(), json!({ "plugin": OBEDIENT })).await;
    let session = session(&broker).await;
    for (say, expected) in [
        ("nothing", "ok"),
        ("deny", "told-so"),
        ("ask", "approval-expired"),
        ("ask badly", "plugin-output"),
        ("fail", "plugin-error"),
        ("panic", "plugin-trap"),
        ("bad code", "plugin-output"),
        // It is asked again as if nothing had been.
        ("nothing", "ok"),
    ] {
        assert_eq!(note(&session, say).await, expected, "{say}");
    }
    broker.shutdown().await;
    let intents = records(&broker, "call.intent");
    assert_eq!(intents.len(), 2);
    let decision = &intents[0]["verdicts"][0];
    assert_eq!((&decision["plugin"], &decision["verdict"]), (&json!(OBEDIENT), &json!("pass")), "{intents:?}");
    assert!(decision["digest"].as_str().unwrap().starts_with("sha256:"));
    let failures: Vec<_> = records(&broker, "plugin.failed").into_iter().map(|body| body["code"].clone()).collect();
    assert_eq!(failures, ["plugin-output", "plugin-error", "plugin-trap", "plugin-output"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_native_policy_in_shadow_is_asked_and_never_applied() {
    let folder = tempfile::tempdir().unwrap();
    let broker = obedient(folder.path(), json!({ "plugin": OBEDIENT, "mode": "shadow" })).await;
    assert_eq!(note(&session(&broker).await, "deny").await, "ok");
    broker.shutdown().await;
    assert_eq!(records(&broker, "call.intent")[0]["verdicts"][0]["verdict"], json!({ "deny": "told-so" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_native_sink_gets_every_record_even_if_it_fails_at_first() {
    let folder = tempfile::tempdir().unwrap();
    let (config, sink) = (calc(folder.path()).sink(json!({ "plugin": "native:keeping" })), Keeping::default());
    let broker = builder(config).sink("keeping", sink.clone()).build().await.unwrap();
    assert_eq!(add(&session(&broker).await, r#"{"a":1,"b":2}"#).await, "ok");
    broker.shutdown().await;
    let got: Vec<serde_json::Value> =
        sink.records.lock().iter().map(|record| serde_json::from_str(record).unwrap()).collect();
    let sequence: Vec<_> = got.iter().map(|record| record["seq"].as_u64().unwrap()).collect();
    // The chain's end is written when the sinks have been fed.
    let written = LedgerReader::open(&broker.config().data_dir).unwrap().tail(1, &RecordFilter::default()).unwrap();
    assert_eq!(sequence, (1..written[0].record.seq).collect::<Vec<_>>());
    assert!(got.iter().any(|record| record["kind"] == "tool.completed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_the_program_is_a_source_behind_the_same_gate() {
    let folder = tempfile::tempdir().unwrap();
    let broker = obedient(folder.path(), json!({ "plugin": OBEDIENT })).await;
    let session = session(&broker).await;
    let tools = session.discover().await.unwrap();
    assert_eq!(tools[0].name, "notes__note");
    assert_eq!(tools[0].risk, crate::call::Risk::Risky, "nothing confines it");
    let noted = session.call_tool("notes__note", &json!({ "text": "milk" })).await.unwrap();
    assert!(noted.text().contains("noted: milk"), "{noted:?}");
    let denied = session.call_tool("notes__note", &json!({ "say": "deny" })).await.unwrap_err();
    assert_eq!(denied.code, RpcError::DENIED, "{denied}");
    broker.shutdown().await;
    assert_eq!(records(&broker, "call.intent").len(), 1, "what was denied never reached it");
    let expected = json!({ "source": "notes", "native": "native:notes", "version": "1" });
    assert_eq!(records(&broker, "source.started"), [expected]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_of_a_native_source_is_another_source() {
    let identity = async |version: &'static str| {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::builder(folder.path()).source("notes", json!({ "native": "notes" }));
        let broker = builder(config).source("notes", Notes(version)).build().await.unwrap();
        let identity = broker.identity(&"notes".parse().unwrap()).unwrap();
        broker.shutdown().await;
        identity
    };
    assert_eq!(identity("1").await, identity("1").await);
    assert_ne!(identity("1").await, identity("2").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_server_of_the_program_is_missing_alone() {
    let folder = tempfile::tempdir().unwrap();
    let config = calc(folder.path())
        .source("panics", json!({ "native": "panics" }))
        .source("fails", json!({ "native": "fails" }));
    let broker =
        builder(config).source("panics", Broken("panics")).source("fails", Broken("fails")).build().await.unwrap();
    let failed = broker.connect_all().await.unwrap();
    let text = |name: &str| failed[&name.parse().unwrap()].to_string();
    assert!(text("panics").contains("panicked"), "{}", text("panics"));
    assert!(text("fails").contains("failed: there is no paper"), "{}", text("fails"));
    assert_eq!(add(&session(&broker).await, r#"{"a":1,"b":2}"#).await, "ok");
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_program_and_the_configuration_do_not_both_name_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let calc = || calc(folder.path());
    let obedient = |more: serde_json::Value| {
        let mut table = json!({ "plugin": OBEDIENT });
        table.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        builder(calc().policy(table)).policy("obedient", Obedient)
    };
    for (builder, expected) in [
        (builder(calc()).policy("obedient", Obedient), "add `plugin = \"native:obedient\"` to `[[policies]]`"),
        (builder(calc()).sink("keeping", Keeping::default()), "add `plugin = \"native:keeping\"` to `[[sinks]]`"),
        (builder(calc()).source("notes", Notes("1")), "add `native = \"notes\"` to a source"),
        (obedient(json!({})).policy("obedient", Obedient), "adds a second policy under the name `obedient`"),
        (builder(calc().policy(json!({ "plugin": OBEDIENT }))), "has no policy `native:obedient`; it brings none"),
        (
            obedient(json!({})).sink("keeping", Keeping::default()),
            "the program brings the sink `keeping`, and the configuration does not use it",
        ),
        (
            builder(calc().sink(json!({ "plugin": OBEDIENT }))).policy("obedient", Obedient),
            "the program brings the policy `obedient`",
        ),
        (obedient(json!({ "settings": { "a": 1 } })), "`settings` cannot reach it"),
        (obedient(json!({ "grant": ["log"] })), "it needs no `grant`"),
        (
            builder(calc().transform(json!({ "plugin": "native:x" }))),
            "native:x is part of the program that embeds the broker: it can be a policy or a sink",
        ),
        (
            builder(calc().source("x", json!({ "component": "native:x", "required": true }))),
            "or a source with `native = \"NAME\"`",
        ),
        (
            builder(calc().source("x", json!({ "native": "x" }))),
            "source `x`: this program brings no source `x`; one that embeds the broker adds it with `BrokerBuilder::source`",
        ),
    ] {
        let text = refusal(builder).await;
        assert!(text.contains(expected), "{text}\n{expected}");
    }
    let both = Config::builder(folder.path()).source("x", json!({ "native": "x", "cell": { "network": ["a:1"] } }));
    let text = both.build().unwrap_err().to_string();
    assert!(text.contains("`cell` belongs to a source with `command`, and this one has `native`"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_keeps_what_the_program_brings_and_refuses_to_forget_it() {
    let folder = tempfile::tempdir().unwrap();
    let guarded = || calc(folder.path()).policy(json!({ "plugin": OBEDIENT }));
    let broker = builder(guarded()).policy("obedient", Obedient).build().await.unwrap();
    let session = session(&broker).await;
    let other = guarded().profile("other", json!({})).build().unwrap();
    broker.reload(other).await.unwrap();
    assert_eq!(add(&session, r#"{"a":1,"b":2,"say":"deny"}"#).await, "told-so");
    let forgotten = broker.reload(calc(folder.path()).build().unwrap()).await.unwrap_err().to_string();
    assert!(forgotten.contains("the program brings the policy `obedient`"), "{forgotten}");
    let unknown = guarded().source("notes", json!({ "native": "notes" })).build().unwrap();
    let missing = broker.reload(unknown).await.unwrap_err().to_string();
    assert!(missing.contains("source `notes`: this program brings no source `notes`"), "{missing}");
    assert_eq!(add(&session, r#"{"a":1,"b":2,"say":"deny"}"#).await, "told-so");
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_in_the_program_uses_a_session_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let broker = obedient(folder.path(), json!({ "plugin": OBEDIENT })).await;
    let client =
        ().serve(crate::front::connect(&broker, "default".parse().unwrap(), &"ada".parse().unwrap())).await.unwrap();
    let names: Vec<_> = client.list_all_tools().await.unwrap().into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["notes__note"]);
    let call = |say: &str| {
        let arguments = json!({ "say": say }).as_object().unwrap().clone();
        client.call_tool(CallToolRequestParams::new("notes__note").with_arguments(arguments))
    };
    assert!(call("nothing").await.is_ok());
    let denied = call("deny").await.unwrap_err().to_string();
    assert!(denied.contains("as told"), "{denied}");
    client.cancel().await.unwrap();
    // The broker sees the end of the stream in its own time.
    while records(&broker, "run.completed").is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let waiting =
        ().serve(crate::front::connect(&broker, "default".parse().unwrap(), &"ada".parse().unwrap())).await.unwrap();
    broker.shutdown().await;
    // Its stream ends with the broker.
    waiting.waiting().await.unwrap();
    assert_eq!(records(&broker, "call.intent")[0]["principal"], "ada");
    let ended = records(&broker, "run.completed");
    assert_eq!(ended.len(), 2, "{ended:?}");
    assert_eq!(ended[0]["status"], "ended", "the stream's end closed the session: {ended:?}");
}
