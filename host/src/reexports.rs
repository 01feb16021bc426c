//! Items of the crates below this one. Their examples are here, where they have the names that programs use; each text
//! begins with a sentence of its own, because the documentation of the item follows the example.

mod call;
pub mod error;

pub use call::*;

/// The calls before which a person is asked although no policy asks.
///
/// # Example
/// ```
/// use portcullis::{Approve, ProfileTable};
/// let unattended = ProfileTable::new().approve(Approve::Never);
/// ```
#[doc(inline)]
pub use portcullis_config::Approve;
/// The configuration of a broker, which a program builds or reads from a file.
///
/// # Example
/// ```
/// use portcullis::{Config, SourceTable};
/// # fn main() -> Result<(), portcullis::ConfigError> {
/// let calculator = SourceTable::component("builtin:calculator");
/// let made = Config::builder("/var/lib/my-program").source("calc", calculator).build()?;
/// assert!(made.data_dir.starts_with("/var/lib/my-program"));
/// let read = Config::load(Some("portcullis.toml".as_ref())); // as the command line reads it
/// # assert!(read.is_err());
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use portcullis_config::Config;
/// A builder of a configuration that has no file.
///
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
/// An error that names the problems of a configuration.
///
/// # Example
/// ```
/// let error = portcullis::Config::builder("/tmp").source("a__b", serde_json::json!({})).build().unwrap_err();
/// assert!(error.to_string().contains("a__b")); // every problem, each with its way out
/// assert!(!error.is_missing());
/// ```
#[doc(inline)]
pub use portcullis_config::ConfigError;
/// A plugin, written with methods: an entry of `[[policies]]`, `[[transforms]]`, `[[approvals]]` or `[[sinks]]`.
///
/// # Example
/// ```
/// use portcullis::{Config, PluginTable, SourceTable};
/// use serde_json::json;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::builder("/var/lib/my-program")
///     .source("calc", SourceTable::component("builtin:calculator"))
///     .policy(PluginTable::new("builtin:rules").settings(json!({ "deny": ["calc__divide"] })))
///     .policy(PluginTable::new("native:on-duty").shadow())
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use portcullis_config::PluginTable;
/// A profile, written with methods: `[profiles.NAME]`.
///
/// # Example
/// ```
/// use portcullis::{Approve, Config, ProfileTable, SourceTable, TrustLevel};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::builder("/var/lib/my-program")
///     .source("calc", SourceTable::component("builtin:calculator"))
///     .profile("guest", ProfileTable::new().trust(TrustLevel::Low).allow(["calc__add"]).approve(Approve::Always))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use portcullis_config::ProfileTable;
/// The front for agents that connect over HTTP, written with methods: `[serve]`.
///
/// # Example
/// ```
/// use portcullis::ServeTable;
/// let serve = ServeTable::new().hosts(["broker.example.com"]).caller("ci", "default", "ci-token");
/// ```
#[doc(inline)]
pub use portcullis_config::ServeTable;
/// A source, written with methods: `[sources.NAME]`.
///
/// # Example
/// ```
/// use portcullis::{Config, SourceTable};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let files = SourceTable::command(["npx", "-y", "@modelcontextprotocol/server-filesystem", "/srv"]).read("/srv");
/// let config = Config::builder("/var/lib/my-program")
///     .source("files", files)
///     .source("search", SourceTable::url("https://mcp.example.com/mcp").key("timeout", "20s"))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use portcullis_config::SourceTable;
/// The name of a profile.
///
/// # Example
/// ```
/// let profile: portcullis::ProfileName = "reviewer".parse()?;
/// assert_eq!(profile.as_str(), "reviewer");
/// # Ok::<(), portcullis::error::NameError>(())
/// ```
#[doc(inline)]
pub use portcullis_core::name::ProfileName;
/// The name of a source.
///
/// # Example
/// ```
/// let source: portcullis::SourceName = "files".parse()?;
/// assert_eq!(source.to_string(), "files");
/// # Ok::<(), portcullis::error::NameError>(())
/// ```
#[doc(inline)]
pub use portcullis_core::name::SourceName;
/// The identity of a caller.
///
/// # Example
/// ```
/// let ada: portcullis::Principal = "customer:ada".parse()?;
/// assert_eq!(ada.as_str(), "customer:ada");
/// # Ok::<(), portcullis::error::PrincipalError>(())
/// ```
#[doc(inline)]
pub use portcullis_core::principal::Principal;
/// A JSON value as the text that was received.
///
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
/// An error with which a request is answered.
///
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
/// The program that becomes each process source.
///
/// # Example
/// ```
/// use portcullis::Launcher;
/// let this_program = Launcher::SelfExec; // its `main` begins with `portcullis::main_if_asked()`
/// let another = Launcher::Path("/usr/lib/portcullis/portcullis-jail".into());
/// # assert_ne!(this_program, another);
/// ```
#[doc(inline)]
pub use portcullis_jail::Launcher;
/// Becomes a source if the program was started as its launcher, and does nothing otherwise.
///
/// # Example
/// ```
/// portcullis::main_if_asked(); // the first statement of `main`: before threads, a runtime and arguments
/// println!("this is the program itself");
/// ```
#[cfg(feature = "process")]
#[doc(inline)]
pub use portcullis_jail::main_if_asked;
/// The verdict on a ledger, or on one chain of it.
///
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
/// The result of verifying a ledger.
///
/// # Example
/// ```
/// # fn check(config: &portcullis::Config) -> Result<(), portcullis::error::LedgerError> {
/// let found = portcullis::verify_ledger(&config.data_dir)?;
/// found.findings.iter().for_each(|finding| eprintln!("{finding:?}"));
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use portcullis_ledger::Verification;
/// Verifies all records of a data folder.
///
/// # Example
/// ```
/// # fn check(config: &portcullis::Config) -> Result<(), portcullis::error::LedgerError> {
/// let found: portcullis::Verification = portcullis::verify_ledger(&config.data_dir)?;
/// assert_eq!(found.verdict, portcullis::ChainStatus::Good);
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use portcullis_ledger::verify as verify_ledger;
/// The reason why a person is asked about a call.
///
/// # Example
/// ```
/// use portcullis::{Concern, Verdict};
/// let concern = Concern::new("out-of-hours", "it is night");
/// assert_eq!(Verdict::ask("out-of-hours", "it is night"), Verdict::Ask(concern));
/// ```
#[doc(inline)]
pub use portcullis_wasm::Concern;
/// The reason why a call is denied.
///
/// # Example
/// ```
/// use portcullis::{Denial, Verdict};
/// let denial = Denial::new("off-duty", "ada is not on duty");
/// assert_eq!(Verdict::deny("off-duty", "ada is not on duty"), Verdict::Deny(denial));
/// ```
#[doc(inline)]
pub use portcullis_wasm::Denial;
/// An error of a policy, a sink or a source of the program.
///
/// # Example
/// ```
/// fn on_duty(file: &str) -> Result<bool, portcullis::NativeError> {
///     Ok(std::fs::read_to_string(file)?.contains("ada")) // any error becomes one
/// }
/// ```
#[doc(inline)]
pub use portcullis_wasm::NativeError;
/// A policy that is part of the program.
///
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
///         Ok(Verdict::ask("out-of-hours", format!("{} is called outside working hours", call.exposed_name())))
///     }
/// }
/// ```
#[doc(inline)]
pub use portcullis_wasm::NativePolicy;
/// A receiver of the ledger's records that is part of the program.
///
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
/// The decision of a policy about a call.
///
/// # Example
/// ```
/// use portcullis::Verdict;
/// # fn judge(amount: u64) -> Verdict {
/// if amount < 100 { Verdict::Pass } else { Verdict::ask("much-money", "more than 100 is spent") }
/// # }
/// ```
#[doc(inline)]
pub use portcullis_wasm::Verdict;
