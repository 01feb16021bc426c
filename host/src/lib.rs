//! Portcullis is a deny-by-default broker for the Model Context Protocol.
//!
//! An agent connects to one endpoint. Behind it are many tool sources, none of which is trusted. Every call passes a
//! gate of WebAssembly plugins, and no call reaches a source before the ledger has recorded it.
//!
//! # The way of a call
//! 1. A [`Config`] describes what is configured. [`Broker::build`] loads the plugins and opens the ledger; it starts no
//!    source and binds no address. [`Broker::builder`] adds policies, sinks and sources of the program's own:
//!    [`NativePolicy`], [`NativeSink`], [`NativeSource`].
//! 2. A [`Session`] belongs to a [`Principal`] under a profile. The program opens it ([`Broker::open_session`]), or agents do:
//!    over HTTP ([`HttpFront`]), over standard streams ([`serve_stdio`]), or in the same process ([`connect`]).
//! 3. The session sees the tools of the sources that its profile admits ([`Session::discover`]), and calls them
//!    ([`Session::call_tool`]).
//! 4. The policies give their [`Verdict`]s, transforms may rewrite the arguments, and a person is asked where that is needed:
//!    the [`Inbox`] has the questions. If a plugin fails to answer properly, the call is denied.
//! 5. The ledger makes the intent durable. Only then does the call reach its source.
//! 6. The outcome passes the gate too and is recorded, and the caller gets what the gate released. [`verify_ledger`] checks
//!    the records.
//!
//! What is not exported here by name is internal and promises no stability, even where the compiler can reach it.
//!
//! # Example
//! ```
//! use portcullis::{Broker, Config, Launcher};
//! use serde_json::json;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let config = Config::builder(folder.path())
//!     .source("calc", json!({ "component": "builtin:calculator" }))
//!     .policy(json!({ "plugin": "builtin:rules", "settings": { "deny": ["calc__divide"] } }))
//!     .build()?;
//! let broker = Broker::build(config, Launcher::SelfExec).await?;
//! let session = broker.open_session(&"default".parse()?, &"me".parse()?, "my-program").await?;
//! let result = session.call_tool("calc__add", &json!({ "a": 20, "b": 22 })).await?;
//! # assert_eq!(result.text(), "42", "{result}");
//! # let denied = session.call_tool("calc__divide", &json!({ "a": 84, "b": 2 })).await.unwrap_err();
//! # assert!(denied.message.contains("denied"), "{denied:?}");
//! broker.shutdown().await;
//! # Ok(())
//! # })
//! # }
//! ```
//! A program that configures `command` sources calls `main_if_asked` as the first statement of its `main`, because each
//! source is launched through the program itself.
//!
//! # Features
//! - `compiler` (default): plugins are WebAssembly, compiled in this process by Cranelift, and the reference plugins
//!   are embedded. Without it, plugins are files that `portcullis plugin compile` made, loaded by digest:
//!   `plugin = "rules.cwasm@sha256:…"`.
//! - `process` (default): sources with a `command`, their cells and packages. Without it no program is started, and
//!   such a source is an error.
//! - `http-front` (default): [`HttpFront`], for agents that connect over HTTP.
//! - `jwt` (default): callers of that front may bring tokens of an issuer. Without it, `[serve.jwt]` in a configuration is an
//!   error.
//! - `remote` (default): sources with a `url`. Without it, such a source is an error.
//! - `oauth` (default): people log in at such sources. Without it, a login that somebody else made is not used, and
//!   `[sources.NAME.oauth]` is an error.
//! - `telemetry` (default): spans for a collector, by OTLP. Without it, `[telemetry]` in a configuration is an error.
//! - `pulley`: without `compiler`, code for an interpreter (`plugin compile --target pulley64`) instead of native code,
//!   25 times as slow. On a processor for which wasmtime has no code generator it is the only way, and this feature is
//!   needed there as well.
//!
//! On an edge host all of them may be off: `portcullis = { version = "…", default-features = false }`. The API is the same,
//! without `main_if_asked`, `HttpFront` and what concerns packages and the cells of processes.

mod context;
mod provenance;
mod telemetry;

pub use broker::{
    Broker, BrokerBuilder, BrokerState, BuildError, ConnectAllError, ReloadError, ReloadSummary, SourceHealth,
};
#[cfg(feature = "http-front")]
pub use front::http::{FrontError, HttpFront, HttpService};
pub use front::stdio::{connect, serve_stdio};
pub use gate::{AnswerResult, AnswerRoute, GivenAnswer, Inbox, InboxError, Question, QuestionEvent};

// Items of the crates below this one. Their examples are here, where they have the names that programs use.

/// # Example
/// ```
/// use portcullis::{Config, SourceTable};
/// # fn main() -> Result<(), portcullis::ConfigError> {
/// let made = Config::builder("/var/lib/my-program").source("calc", SourceTable::component("builtin:calculator")).build()?;
/// assert!(made.data_dir.starts_with("/var/lib/my-program"));
/// let read = Config::load(Some("portcullis.toml".as_ref())); // as the command line reads it
/// # assert!(read.is_err());
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use portcullis_config::Config;
/// # Example
/// ```
/// use portcullis::{Config, ConfigBuilder};
/// let builder: ConfigBuilder = Config::builder("/var/lib/my-program")
///     .source("calc", serde_json::json!({ "component": "builtin:calculator" })) // the keys of portcullis.toml
///     .broker(serde_json::json!({ "ask-timeout": "5m" }));
/// assert!(builder.build().is_ok());
/// ```
#[doc(inline)]
pub use portcullis_config::ConfigBuilder;
/// # Example
/// ```
/// let error = portcullis::Config::builder("/tmp").source("a__b", serde_json::json!({})).build().unwrap_err();
/// assert!(error.to_string().contains("a__b")); // every problem, each with its way out
/// assert!(!error.is_missing());
/// ```
#[doc(inline)]
pub use portcullis_config::ConfigError;
#[doc(inline)]
pub use portcullis_config::{PluginTable, ProfileTable, SourceTable};
/// # Example
/// ```
/// # use portcullis::{CallView, Verdict};
/// fn only_reads(call: &CallView) -> Verdict {
///     if call.tool().starts_with("files__read") {
///         return Verdict::Pass;
///     }
///     Verdict::ask("not-a-read", format!("{} wants to use {}", call.principal(), call.tool()))
/// }
/// ```
#[doc(inline)]
pub use portcullis_core::call::CallView;
/// # Example
/// ```
/// use portcullis::{Phase, PluginTable};
/// let policy = PluginTable::new("native:on-duty").on([Phase::Call, Phase::List]);
/// ```
#[doc(inline)]
pub use portcullis_core::call::Phase;
/// # Example
/// ```
/// # fn show(tools: &[portcullis::Tool]) {
/// let risky = tools.iter().filter(|tool| tool.risk == portcullis::Risk::Risky).count();
/// println!("{risky} tools can change or disclose something");
/// # }
/// ```
#[doc(inline)]
pub use portcullis_core::call::Risk;
/// # Example
/// ```
/// use portcullis::{ProfileTable, TrustLevel};
/// let guests = ProfileTable::new().trust(TrustLevel::Low).allow(["calc__*"]);
/// ```
#[doc(inline)]
pub use portcullis_core::call::TrustLevel;
/// # Example
/// ```
/// use portcullis::{NameError, SourceName};
/// assert_eq!("a__b".parse::<SourceName>(), Err(NameError::Separator("a__b".to_owned())));
/// ```
#[doc(inline)]
pub use portcullis_core::name::NameError;
/// # Example
/// ```
/// let profile: portcullis::ProfileName = "reviewer".parse()?;
/// assert_eq!(profile.as_str(), "reviewer");
/// # Ok::<(), portcullis::NameError>(())
/// ```
#[doc(inline)]
pub use portcullis_core::name::ProfileName;
/// # Example
/// ```
/// let source: portcullis::SourceName = "files".parse()?;
/// assert_eq!(source.to_string(), "files");
/// # Ok::<(), portcullis::NameError>(())
/// ```
#[doc(inline)]
pub use portcullis_core::name::SourceName;
/// # Example
/// ```
/// let ada: portcullis::Principal = "customer:ada".parse()?;
/// assert_eq!(ada.as_str(), "customer:ada");
/// # Ok::<(), portcullis::PrincipalError>(())
/// ```
#[doc(inline)]
pub use portcullis_core::principal::Principal;
/// # Example
/// ```
/// use portcullis::{Principal, PrincipalError};
/// // It would pass for a caller of the HTTP front.
/// assert!(matches!("token:ada".parse::<Principal>(), Err(PrincipalError::Reserved(_))));
/// ```
#[doc(inline)]
pub use portcullis_core::principal::PrincipalError;
/// # Example
/// ```
/// use portcullis::Json;
/// let result = Json::parse(r#"{"total": 1.0, "items": ["a"]}"#).unwrap();
/// assert_eq!(result.get("total").unwrap().as_str(), "1.0"); // as it was received
/// let items: Vec<String> = result.get("items").unwrap().read()?;
/// # assert_eq!(items, ["a"]);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[doc(inline)]
pub use portcullis_core::protocol::Json;
/// # Example
/// ```
/// # fn show(error: portcullis::RpcError) {
/// use portcullis::RpcError;
/// match (error.code, error.reason()) {
///     (RpcError::DENIED, _) => eprintln!("refused: {error}"),
///     (_, Some("not-sent")) => eprintln!("the source has not seen the call"),
///     (_, Some("outcome-unknown")) => eprintln!("the source may have acted: look before you try again"),
///     _ => eprintln!("{error}"),
/// }
/// # }
/// ```
#[doc(inline)]
pub use portcullis_core::protocol::RpcError;
/// # Example
/// ```
/// use portcullis::Launcher;
/// let this_program = Launcher::SelfExec; // its `main` begins with `portcullis::main_if_asked()`
/// let another = Launcher::Path("/usr/lib/portcullis/portcullis-jail".into());
/// # assert_ne!(this_program, another);
/// ```
#[doc(inline)]
pub use portcullis_jail::Launcher;
/// # Example
/// ```
/// portcullis::main_if_asked(); // the first statement of `main`: before threads, a runtime and arguments
/// println!("this is the program itself");
/// ```
#[cfg(feature = "process")]
#[doc(inline)]
pub use portcullis_jail::main_if_asked;
/// # Example
/// ```
/// # fn show(verification: portcullis::Verification) {
/// use portcullis::ChainStatus;
/// match verification.verdict {
///     ChainStatus::Good => println!("every record is as it was written"),
///     ChainStatus::Incomplete { reason, .. } => println!("the end is missing: {reason}"),
///     ChainStatus::Tampered { reason, .. } => println!("somebody changed it: {reason}"),
/// }
/// # }
/// ```
#[doc(inline)]
pub use portcullis_ledger::ChainStatus;
/// # Example
/// ```
/// # fn show(error: portcullis::LedgerError) {
/// match error {
///     portcullis::LedgerError::Full(folder) => eprintln!("no room in {}", folder.display()),
///     error => eprintln!("{error}"),
/// }
/// # }
/// ```
#[doc(inline)]
pub use portcullis_ledger::LedgerError;
/// # Example
/// ```
/// # fn check(config: &portcullis::Config) -> Result<(), portcullis::LedgerError> {
/// let found = portcullis::verify_ledger(&config.data_dir)?;
/// found.findings.iter().for_each(|finding| eprintln!("{finding:?}"));
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use portcullis_ledger::Verification;
/// # Example
/// ```
/// # fn check(config: &portcullis::Config) -> Result<(), portcullis::LedgerError> {
/// let found: portcullis::Verification = portcullis::verify_ledger(&config.data_dir)?;
/// assert_eq!(found.verdict, portcullis::ChainStatus::Good);
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use portcullis_ledger::verify as verify_ledger;
/// # Example
/// ```
/// use portcullis::{Concern, Verdict};
/// let concern = Concern { code: "out-of-hours".to_owned(), message: "it is night".to_owned() };
/// assert_eq!(Verdict::ask("out-of-hours", "it is night"), Verdict::Ask(concern));
/// ```
#[doc(inline)]
pub use portcullis_wasm::Concern;
/// # Example
/// ```
/// use portcullis::{Denial, Verdict};
/// let denial = Denial { code: "off-duty".to_owned(), message: "ada is not on duty".to_owned() };
/// assert_eq!(Verdict::deny("off-duty", "ada is not on duty"), Verdict::Deny(denial));
/// ```
#[doc(inline)]
pub use portcullis_wasm::Denial;
/// # Example
/// ```
/// fn on_duty(file: &str) -> Result<bool, portcullis::NativeError> {
///     Ok(std::fs::read_to_string(file)?.contains("ada")) // any error becomes one
/// }
/// ```
#[doc(inline)]
pub use portcullis_wasm::NativeError;
/// # Example
/// ```
/// use portcullis::{CallView, NativeError, NativePolicy, Verdict};
///
/// struct WorkingHours;
///
/// #[async_trait::async_trait]
/// impl NativePolicy for WorkingHours {
///     fn version(&self) -> &str {
///         "1"
///     }
///
///     async fn check(&self, call: &CallView) -> Result<Verdict, NativeError> {
///         Ok(Verdict::ask("out-of-hours", format!("{} is called outside working hours", call.tool())))
///     }
/// }
/// ```
#[doc(inline)]
pub use portcullis_wasm::NativePolicy;
/// # Example
/// ```
/// use portcullis::{NativeError, NativeSink};
///
/// struct Printer;
///
/// #[async_trait::async_trait]
/// impl NativeSink for Printer {
///     async fn deliver(&self, records: &[String]) -> Result<(), NativeError> {
///         records.iter().for_each(|record| println!("{record}"));
///         Ok(())
///     }
/// }
/// ```
#[doc(inline)]
pub use portcullis_wasm::NativeSink;
/// # Example
/// ```
/// use portcullis::Verdict;
/// # fn judge(amount: u64) -> Verdict {
/// if amount < 100 { Verdict::Pass } else { Verdict::ask("much-money", "more than 100 is spent") }
/// # }
/// ```
#[doc(inline)]
pub use portcullis_wasm::Verdict;
pub use session::{Progress, Session, Tool, ToolResult};
pub use source::{NativeSource, SourceError};

// The modules of the command line, which is developed with the library.
#[doc(hidden)]
pub mod broker;
#[doc(hidden)]
pub mod catalog;
#[doc(hidden)]
pub mod control;
#[doc(hidden)]
pub mod front;
#[doc(hidden)]
pub mod gate;
#[cfg(feature = "oauth")]
#[doc(hidden)]
pub mod login;
#[cfg(feature = "remote")]
#[cfg_attr(not(feature = "oauth"), path = "oauth/without.rs")]
#[doc(hidden)]
pub mod oauth;
#[doc(hidden)]
pub mod schema_repair;
#[doc(hidden)]
pub mod session;
#[doc(hidden)]
pub mod source;

/// What this repository's benches measure.
#[doc(hidden)]
pub mod internal {
    pub use crate::provenance::{SessionFlow, SourceFlow, TracedCall};
}

#[doc(hidden)]
pub use portcullis_cell as cell;
#[doc(hidden)]
pub use portcullis_config as config;
#[doc(hidden)]
pub use portcullis_core::{
    age, agent, call, digest, escape, flow, item, limits, lockfile, name, principal, protocol, secret, trust,
};
#[doc(hidden)]
pub use portcullis_ledger as ledger;
#[doc(hidden)]
pub use portcullis_net::{egress, oci, signature};
#[doc(hidden)]
pub use portcullis_scan as scan;
#[doc(hidden)]
pub use portcullis_wasm as plugin;

use portcullis_core::{metrics, private, sealing_key, sync};
use portcullis_wasm::key_value;
