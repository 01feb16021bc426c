//! `portcullis demo`

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use portcullis::broker::Broker;
use portcullis::config::Config;
use portcullis::ledger::{self, Verdict};
use portcullis::message::{Answer, Json, Notification, RpcError};
use portcullis::session::{Contact, Elicitation, Session};
use serde_json::json;

use crate::cli::Global;
use crate::command::call::failed;
use crate::output::{self, BOLD, visible};
use crate::run;

/// What the tour runs on. It is printed, so it is written to be read.
const CONFIGURATION: &str = r#"[sources.calc]                        # a tool source, itself a sealed WebAssembly component
component = "builtin:calculator"

[[policies]]                          # decides every call
plugin = "builtin:rules"
settings = { deny = ["calc__subtract"], ask = ["calc__divide"] }

[[policies]]                          # breaks on purpose
plugin = "builtin:saboteur"
settings = { loop = ["calc__multiply"], trap = [{ECHO}] }

[[approvals]]                         # how a question is put, and what may be remembered of the answer
plugin = "builtin:approval-memory"
"#;

/// Take a tour: one agent, one source, and everything that can happen to a call
///
/// Runs entirely inside this program, on a ledger in a temporary folder. Nothing is installed, started or left behind.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}
