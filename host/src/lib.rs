//! Portcullis is a deny-by-default broker for the Model Context Protocol.
//!
//! An agent connects to one endpoint. Behind it are many tool sources, none of which is trusted. Every call passes a
//! gate of WebAssembly plugins, and no call reaches a source before the ledger has recorded it.
//!
//! # The way of a call
//! 1. [`config`] and [`secret`] describe what is configured. [`broker::Broker::build`] loads the plugins and opens the
//!    ledger; it starts no source and binds no address.
//! 2. A [`front`] reads envelopes from an agent ([`protocol`] is the only module that knows their bytes), identifies
//!    the caller, and opens a [`session`] under a profile.
//! 3. The session takes its [`catalog`] once: every [`source`] is discovered, every definition gets a [`digest`], and
//!    filters and trust decide what is shown. A tool is called by its exposed [`name`].
//! 4. The [`gate`] asks the policies, lets transforms rewrite the arguments, asks the policies again if they did, and
//!    puts to a person whatever has to be asked. If a [`plugin`] fails to answer properly, the call is denied.
//! 5. The [`ledger`] makes the intent durable. Only then does a [`gate::Permit`] exist.
//! 6. The source takes the permit by value: one permit, one call. Traffic to the network goes through [`egress`].
//! 7. The outcome passes the gate too ([`gate::Ticket::release`]) and is recorded in the ledger, and the agent gets what
//!    the gate released.
//!
//! Two modules stand beside this way: through [`control`] the command line of the same user reaches a running broker,
//! and [`escape`] makes text from elsewhere safe to show.
//!
//! # Example
//! ```
//! use portcullis::{Launcher, broker::Broker, config::Config};
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
//! let session = broker.open_session(&"default".parse()?, "me", "my-program").await?;
//! let result = session.call_tool("calc__add", &json!({ "a": 20, "b": 22 })).await?;
//! # assert!(result.as_str().contains("42"), "{result:?}");
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
//! - `telemetry` (default): spans for a collector, by OTLP. Without it, `[telemetry]` in a configuration is an error.
//! - `pulley`: without `compiler`, code for an interpreter (`plugin compile --target pulley64`) instead of native code,
//!   25 times as slow. On a processor for which wasmtime has no code generator it is the only way, and this feature is
//!   needed there as well.
//!
//! On an edge host all four are off: `portcullis = { version = "…", default-features = false }`. The API is the same,
//! without `main_if_asked` and without what concerns packages and the cells of processes.

mod context;
mod provenance;
mod telemetry;

pub mod broker;
pub mod catalog;
pub mod control;
pub mod front;
pub mod gate;
pub mod login;
pub mod oauth;
pub mod schema_repair;
pub mod session;
pub mod source;

/// What this repository's benches measure. It is no part of the API.
#[doc(hidden)]
pub mod internal {
    pub use crate::provenance::{SessionFlow, SourceFlow, TracedCall};
}

pub use portcullis_cell as cell;
pub use portcullis_config as config;
pub use portcullis_core::{
    age, agent, call, digest, escape, flow, item, limits, lockfile, name, protocol, secret, trust,
};
pub use portcullis_ledger as ledger;
pub use portcullis_net::{egress, oci};
pub use portcullis_scan as scan;
pub use portcullis_wasm as plugin;

use portcullis_core::{metrics, private, sealing_key, sync};
use portcullis_wasm::key_value;

pub use portcullis_jail::Launcher;
#[cfg(feature = "process")]
pub use portcullis_jail::main_if_asked;
