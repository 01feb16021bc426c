//! `portcullis replay`

pub(super) mod candidate;
mod comparison;
mod rejudge;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::call_query::CallQuery;
use crate::cli::GlobalArgs;
use crate::command::audit;
use crate::identity::IdentityArgs;
use crate::{report, runtime};

/// Let policies judge recorded calls again, and show which verdicts would differ
///
/// Every recorded decision of a policy is made anew: about the call as it was recorded, before it was sent and, where
/// policies judge results, after it was answered. The policies are those of the configuration, or of the configuration
/// with the candidate in the place of the policy that it replaces. Nothing is called and nothing is recorded. Calls that
/// `portcullis learn` made are left out unless `--principal learn` asks for them.
///
/// A decision can be made anew only from what was recorded. Under a profile with `record = "full"` that is everything,
/// and with `record = "sealed"` it is everything for whoever has the identity. Otherwise the ledger has the shape of
/// arguments and results, and a decision for which a policy reads them is counted as one that could not be judged.
///
/// The exit code is 1 if a verdict became wider: a call passes, or only asks, that was denied or asked about. It is 2
/// if that cannot be judged: the candidate or the ledger cannot be read, or there were calls and none of their verdicts
/// could be judged.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis replay --since 7d                             # do the configured policies decide as they did?
  portcullis replay --since 7d --candidate team.cedar      # in the place of `builtin:cedar`
  portcullis replay --candidate build/limits.wasm --replaces limits.wasm
  portcullis replay --candidate new/portcullis.toml --json # all policies of another configuration")]
pub(crate) struct Args {
    #[command(flatten)]
    query: CallQuery,

    /// The policy to try: Cedar policies (.cedar), a component (.wasm, or builtin:NAME), or a configuration (.toml)
    /// whose policies are taken in the place of all
    #[arg(long, value_name = "FILE")]
    candidate: Option<String>,

    /// The configured policy that the candidate replaces, by its name or file name
    /// [default: the one with the candidate's file name, or else none]
    #[arg(long, value_name = "NAME", requires = "candidate")]
    replaces: Option<String>,

    /// The number of examples to show of each difference
    #[arg(long, value_name = "N", default_value_t = 5)]
    examples: usize,

    #[command(flatten)]
    identities: IdentityArgs,

    /// Read the ledger of this data folder
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    judged(args, global).or_else(|error| report::not_judged(error, global.json))
}

fn judged(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let config = global.load()?;
    let policies = candidate::policies(&config, args.candidate.as_deref(), args.replaces.as_deref())?;
    let reader = args.identities.reader(&audit::folder(global, args.data_dir.as_ref())?)?;
    let found = runtime::block_on(rejudge::rejudge(reader, args.query.clone(), &config, &policies, args.examples))?;
    found.print(global.json)?;
    Ok(if found.is_wider() {
        ExitCode::FAILURE
    } else if found.judged_nothing() {
        ExitCode::from(2)
    } else {
        ExitCode::SUCCESS
    })
}
