//! `portcullis policy`

mod explain;

use std::process::ExitCode;

use clap::Subcommand;
use portcullis::broker::Broker;

use crate::cli::GlobalArgs;
use crate::output::{self, escape_hidden};
use crate::runtime;

/// Help to write policies, and to understand what they decide
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the Cedar schema of the tools that the configured sources offer
    ///
    /// Starts every source once. Editors that know Cedar check policies against it, and so does `portcullis check`.
    Schema,
    /// Show what each policy said about a recorded call, and what it says now and why
    ///
    /// The policies of the configuration judge the call again, as it was recorded. Cedar names the policies that decided.
    Explain(explain::Args),
}

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    match &args.action {
        Action::Schema => schema(global),
        Action::Explain(args) => explain::run(args, global),
    }
}

fn schema(global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let found = runtime::with_broker(global.load()?, async |broker| Ok(broker.definitions().await))?;
    for (source, offered) in &found {
        if let Err(error) = offered {
            output::message(&format!("source `{source}` is missing: {}", escape_hidden(&error.to_string())));
        }
    }
    output::text(&Broker::policy_schema(&found))?;
    Ok(if found.values().all(Result::is_ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
