//! Portcullis is a deny-by-default broker for the Model Context Protocol.
//!
//! An agent connects to one endpoint. Behind it are many tool sources, none of which is trusted. Every call passes a
//! gate of plugins, which are WebAssembly or the program's own, and no call that can have an effect reaches a source before
//! its record is on disk.
//!
//! # The way of a call
//! 1. A [`Config`] describes what is configured. [`Broker::build`] loads the plugins and opens the ledger; it starts no
//!    source and binds no address. [`Broker::builder`] adds policies, sinks and sources of the program's own:
//!    [`NativePolicy`], [`NativeSink`], [`NativeSource`].
//! 2. A [`Session`] belongs to a [`Principal`] under a profile. The program opens it ([`Broker::open_session`]), or
//!    agents do: over HTTP ([`HttpFront`]), over standard streams ([`serve_stdio`]), or in the same process
//!    ([`connect`]).
//! 3. The session sees the tools of the sources that its profile admits ([`Session::discover`]), and calls them
//!    ([`Session::call_tool`]).
//! 4. The policies give their [`Verdict`]s, transforms may rewrite the arguments, and a person is asked where that is
//!    needed: the [`Inbox`] has the questions. If a plugin fails to answer properly, the call is denied.
//!
//!    By default, a question comes before each call of a source that can write or reach a network, and of every
//!    [`NativeSource`]. If nobody answers, [`Session::call_tool`] waits for 50 seconds and returns
//!    [`RpcError::PENDING`]. Answer the [`Inbox`], or set [`Approve::Never`] for the [profile](ProfileTable).
//! 5. The ledger records the intent. If the call can have an effect, it reaches its source only when the record is on disk;
//!    `durability = "all"` has every call wait.
//! 6. The outcome passes the gate too and is recorded, and the caller gets what the gate released. [`verify_ledger`]
//!    checks the records.
//!
//! # Where to read on
//! - The book's page [Embed the broker in a program][book] has the dependencies to write down, and explains questions,
//!   reloads, a front that is mounted in a server of yours, and what cargo does not pass on from this repository.
//! - [`examples/embed-in-rust`][smallest] is the smallest program. [`examples/embed-rmcp`][rmcp] puts a server of its own,
//!   made with `rmcp`, behind the gate, with a policy in Rust.
//!
//! The library needs Rust 1.95, and a C compiler for SQLite and for the cryptography of TLS. Cells of programs need
//! Linux.
//!
//! [book]: https://github.com/portcullis-mcp/portcullis/blob/main/docs/src/extend/embedding.md
//! [smallest]: https://github.com/portcullis-mcp/portcullis/blob/main/examples/embed-in-rust/src/main.rs
//! [rmcp]: https://github.com/portcullis-mcp/portcullis/blob/main/examples/embed-rmcp/README.md
//!
//! Anything that is not exported here or in [`error`] by name is internal and promises no stability, even where the
//! compiler can reach it.
//!
//! # Example
//! ```
//! use portcullis::{Broker, Config, Launcher, PluginTable, SourceTable};
//! use serde_json::json;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let config = Config::builder(folder.path())
//!     .source("calc", SourceTable::component("builtin:calculator"))
//!     .policy(PluginTable::new("builtin:rules").settings(json!({ "deny": ["calc__divide"] })))
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
//! - `jwt` (default): callers of that front may bring tokens of an issuer. Without it, `[serve.jwt]` in a configuration
//!   is an error.
//! - `remote` (default): sources with a `url`. Without it, such a source is an error.
//! - `oauth` (default): people log in at such sources. Without it, a login that somebody else made is not used, and
//!   `[sources.NAME.oauth]` is an error.
//! - `telemetry` (default): spans for a collector, by OTLP. Without it, `[telemetry]` in a configuration is an error.
//! - `pulley`: without `compiler`, code for an interpreter (`plugin compile --target pulley64`) instead of native code,
//!   25 times as slow. On a processor for which wasmtime has no code generator it is the only way, and this feature is
//!   needed there as well.
//!
//! On an edge host all of them may be off: `portcullis = { version = "…", default-features = false }`. The API is the
//! same, without `main_if_asked`, the front over HTTP with its types and errors, and what concerns packages and the cells
//! of processes.

mod context;
mod http_receiver;
mod limited_lines;
mod lock_reader;
mod provenance;
mod receivers;
mod reexports;
#[cfg_attr(not(feature = "http-front"), expect(dead_code, reason = "the HTTP front uses more of it"))]
mod shared_limit;
mod telemetry;

pub use broker::{Broker, BrokerBuilder, BrokerState, BuildError, ReloadSummary, SourceHealth};
#[cfg(feature = "http-front")]
pub use front::http::{AuthenticatedCaller, HttpFront, HttpService};
pub use front::stdio::{connect, serve_stdio};
pub use gate::{AnswerResult, AnswerRoute, GivenAnswer, Inbox, Question, QuestionEvent};

pub use reexports::*;
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

/// Items that this repository's benches measure.
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
    age, agent, call, digest, escape, file_stamp, flow, item, limits, lockfile, name, principal, protocol, secret,
    trust,
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
