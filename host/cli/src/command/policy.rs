//! `portcullis policy`

mod explain;
mod prove;

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
    /// The policies of the configuration judge the call again, as it was recorded. Cedar names the policies that
    /// decided.
    Explain(explain::Args),
    /// Show that a change of policies lets no call go further, or give a call that it lets go further
    ///
    /// A change is wider if a call passes, or only asks, that was denied or asked about. OLD and NEW are put in the
    /// place of the policies that they replace, as `portcullis replay --candidate` does it, and the calls are those of
    /// the tools that the configured sources offer: every source is started once, and nothing is called.
    ///
    /// If OLD and NEW differ only in policies in Cedar, and the solver cvc5 is installed (in PATH, or as CVC5), the
    /// answer is a proof for every call whose arguments agree with the tools' input schemas. Otherwise calls are tried:
    /// a sample made of the constants in the policies, the values next to them, the types and limits of the arguments,
    /// and missing arguments; all of it if it is small enough, and else calls chosen from it at random, always the
    /// same. A search can miss a call. The answer says how it was found.
    ///
    /// The exit code is 0 if nothing is wider as far as was found, 1 if a call goes further, and 2 if that cannot be
    /// judged: OLD or NEW cannot be loaded, a source is missing, or there is nothing to call.
    Prove(prove::Args),
}

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    match &args.action {
        Action::Schema => schema(global),
        Action::Explain(args) => explain::run(args, global),
        Action::Prove(args) => prove::run(args, global),
    }
}

fn schema(global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let found = runtime::with_broker(global.load()?, async |broker| {
        runtime::until_interrupted(async { Ok(broker.definitions().await) }).await
    })?;
    for (source, offered) in &found {
        if let Err(error) = offered {
            output::message(&format!("source `{source}` is missing: {}", escape_hidden(&error.to_string())));
        }
    }
    output::text(&Broker::policy_schema(&found))?;
    Ok(if found.values().all(Result::is_ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
