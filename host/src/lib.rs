//! Portcullis is a deny-by-default broker for the Model Context Protocol.
//!
//! An agent connects to one endpoint; behind it stand many tool sources that nobody has reason to trust. Every call passes
//! a gate of WebAssembly plugins, and nothing reaches a source before the ledger has it.
//!
//! # The way of a call
//! 1. [`config`] and [`secret`] say what there is. [`broker::Broker::build`] loads the plugins and opens the ledger; it
//!    starts no source and binds no address.
//! 2. A [`front`] reads envelopes from an agent ([`protocol`]: the only place that knows their bytes), says who is asking,
//!    and opens a [`session`] under a profile.
//! 3. The session takes its [`catalog`] once: every [`source`] is discovered, every definition gets a [`digest`], filters
//!    and trust decide what is shown. A tool is called by its exposed [`name`].
//! 4. The [`gate`] asks the policies, lets transforms rewrite the arguments, asks the policies again if they did, and
//!    settles whatever must be asked with a person. What a [`plugin`] cannot answer properly is a no.
//! 5. The [`ledger`] makes the intent durable. Only then is there a [`gate::Permit`].
//! 6. The source takes the permit by value: one permit, one call. What goes out to the network goes through [`egress`].
//! 7. The outcome passes the gate too ([`gate::Gate::release`]), the ledger gets it, and the agent gets what is left of it.
//!
//! Beside the way: [`control`] is how the command line of the same user reaches a live broker, and [`visible`] makes text
//! from elsewhere safe to show.
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
//! A program that configures `command` sources calls `main_if_asked` as the first statement of its `main`: each source is
//! launched through the program itself.
//!
//! # Features
//! - `compiler` (default): plugins are WebAssembly, compiled here by Cranelift, and the reference plugins are on board. Without it
//!   plugins are what `portcullis plugin compile` made, loaded by digest: `plugin = "rules.cwasm@sha256:…"`.
//! - `process` (default): sources with a `command`, their cells and packages. Without it nothing is started, and such a source is
//!   an error.
//! - `telemetry` (default): spans for a collector, by OTLP. Without it `[telemetry]` in a configuration is an error.
//! - `pulley`: without `compiler`, code for an interpreter (`plugin compile --target pulley64`) in place of the processor's own, 25
//!   times as slow. Where wasmtime has no code generator for the processor, it is the only way, and needs this feature too.
//!
//! On an edge host all four are off: `portcullis = { version = "…", default-features = false }`. The API is the same, but for
//! `main_if_asked` and what is about packages and cells of processes.

pub mod cell;
pub mod config;
mod context;
mod private;
pub mod secret;
pub mod trust;

pub mod agent;
pub mod broker;
pub mod control;
pub mod front;
pub mod session;

pub mod call;
pub mod catalog;
pub mod digest;
pub mod item;
pub mod limits;
pub mod lockfile;
pub mod login;
pub mod name;
pub mod protocol;

pub mod gate;
pub mod ledger;
pub mod plugin;
mod seal;
mod sync;

pub mod egress;

mod key_value;
mod metrics;
pub mod oauth;
pub mod oci;
pub mod source;
mod telemetry;

pub mod visible;

pub use portcullis_jail::Launcher;
#[cfg(feature = "process")]
pub use portcullis_jail::main_if_asked;
