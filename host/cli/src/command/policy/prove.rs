//! `portcullis policy prove`: whether other policies let a call go further than those before.

mod constants;
#[cfg(feature = "prove")]
mod example;
mod judge;
#[cfg(feature = "prove")]
mod possible;
mod report;
mod sample;
mod search;
#[cfg(feature = "prove")]
mod symbolic;
#[cfg(not(feature = "prove"))]
#[path = "prove/no_solver.rs"]
mod symbolic;
#[cfg(feature = "prove")]
mod undeclared;
mod values;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use portcullis::broker::Broker;
use portcullis::call::Phase;
use portcullis::config::{PluginConfig, PluginRef};
use portcullis::item::{Item, ItemKind};

use self::constants::Constants;
use self::judge::Judge;
use self::report::{FoundBy, ProveReport};
use self::sample::Space;
use self::symbolic::{KnownCalls, Proof};
use crate::cli::GlobalArgs;
use crate::command::replay::candidate;
use crate::output::{self, escape_hidden};
use crate::runtime;

/// The number of calls after which the progress is shown again.
const PROGRESS_EVERY: usize = 500;

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis policy prove today.cedar tomorrow.cedar
  portcullis policy prove portcullis.toml new/portcullis.toml  # all policies of two configurations
  portcullis policy prove --calls 100000 old.toml new.toml     # search further")]
pub(super) struct Args {
    /// The policies before the change: Cedar policies (.cedar), a configuration (.toml) whose policies are taken, or a
    /// component (.wasm, or builtin:NAME)
    old: String,

    /// The policies after the change, written in the same ways
    new: String,

    /// The largest number of calls that a search judges
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    calls: usize,

    /// Search, also where a proof is possible
    #[arg(long)]
    search: bool,

    /// End with exit code 2 if nothing wider is found and there is no proof, so that a build relies on no search
    #[arg(long, conflicts_with = "search")]
    require_proof: bool,
}

pub(super) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    judged(args, global).or_else(|error| crate::report::not_judged(error, global.json))
}

fn judged(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let config = global.load()?;
    if args.calls == 0 {
        bail!("--calls 0 would judge nothing: name 1 or more");
    }
    let (old, old_elsewhere) = judging_calls(candidate::policies(&config, Some(&args.old), None)?);
    let (new, new_elsewhere) = judging_calls(candidate::policies(&config, Some(&args.new), None)?);
    if old.is_empty() {
        bail!("no policy of {} judges calls, so nothing could be wider: name the policies before the change", args.old);
    }
    let found = runtime::with_broker(config.clone(), async |broker| {
        runtime::until_interrupted(async { Ok(broker.definitions().await) }).await
    })?;
    let mut items: Vec<Arc<Item>> = Vec::new();
    let mut not_judged = (old_elsewhere != new_elsewhere)
        .then(|| "OLD and NEW differ in what they do with results or lists, which is not judged".to_owned());
    for (source, offered) in &found {
        match offered {
            Ok(offered) => items.extend(offered.items.iter().filter(|item| item.kind != ItemKind::Source).cloned()),
            Err(error) => {
                output::message(&format!("source `{source}` is missing: {}", escape_hidden(&error.to_string())));
                not_judged = Some(format!("the source `{source}` is missing, so no call of it was judged"));
            }
        }
    }
    if items.is_empty() {
        output::message("the configured sources offer nothing that could be called");
        return Ok(ExitCode::from(2));
    }
    let schema = Broker::policy_schema(&found);
    let world = KnownCalls { config: &config, items: &items, schema: &schema };
    let answer = runtime::block_on(runtime::until_interrupted(answer(args, &world, (&old, &new), not_judged)))?;
    answer.print(global.json)?;
    Ok(match answer.wider {
        Some(_) => ExitCode::FAILURE,
        None if found.values().all(Result::is_ok) && (answer.is_proved() || !args.require_proof) => ExitCode::SUCCESS,
        None => ExitCode::from(2),
    })
}

/// Returns the policies that decide whether a call is sent, only in that role, and those that do something else, in
/// theirs. The plugins named here hide an item from lists only if they let no call of it pass, so their calls are
/// enough to judge.
fn judging_calls(policies: Vec<PluginConfig>) -> (Vec<PluginConfig>, Vec<PluginConfig>) {
    let in_phases = |is_wanted: fn(&Phase) -> bool| {
        let policies = policies.iter().cloned().map(move |mut policy| {
            policy.on.retain(is_wanted);
            policy
        });
        policies.filter(|policy| !policy.on.is_empty()).collect::<Vec<_>>()
    };
    let calls = in_phases(|phase| *phase == Phase::Call);
    let mut elsewhere = in_phases(|phase| *phase != Phase::Call);
    let consistent = [PluginRef::Builtin("cedar".to_owned()), PluginRef::Builtin("rules".to_owned())];
    for policy in elsewhere.iter_mut().filter(|policy| consistent.contains(&policy.plugin)) {
        let judges_calls =
            calls.iter().any(|call| (&call.plugin, &call.settings) == (&policy.plugin, &policy.settings));
        policy.on.retain(|phase| *phase != Phase::List || !judges_calls);
    }
    elsewhere.retain(|policy| !policy.on.is_empty());
    (calls, elsewhere)
}

async fn answer(
    args: &Args,
    world: &KnownCalls<'_>,
    (old, new): (&[PluginConfig], &[PluginConfig]),
    not_judged: Option<String>,
) -> anyhow::Result<ProveReport> {
    let judge = Judge::load(world.config, (&args.old, old), (&args.new, new)).await?;
    let constants = Constants::of(&old.iter().chain(new).collect::<Vec<_>>());
    let proof = match not_judged {
        None if old == new => return Ok(ProveReport { method: FoundBy::Same, wider: None }),
        Some(reason) => Proof::Impossible(reason),
        None if args.search => Proof::Impossible("a search was asked for".to_owned()),
        None => symbolic::prove(old, new, world, &judge).await,
    };
    let no_proof = match proof {
        Proof::NeverWider => None,
        Proof::Wider(wider) => return Ok(ProveReport { method: FoundBy::Proof { judged: 0 }, wider: Some(*wider) }),
        Proof::Impossible(reason) => Some(reason),
    };
    let spaces: Vec<Space> = world.items.iter().map(|item| Space::new(item, world.config, &constants)).collect();
    let shows_progress = std::io::stderr().is_terminal();
    let progress = |judged: usize| {
        if shows_progress && judged.is_multiple_of(PROGRESS_EVERY) {
            output::status_line(&format!("judged {judged} calls"));
        }
    };
    let searched = search::search(&judge, &spaces, args.calls, progress).await;
    if shows_progress {
        output::status_line("");
    }
    let method = match no_proof {
        None if searched.wider.is_none() => FoundBy::Proof { judged: searched.judged },
        no_proof => FoundBy::Search {
            judged: searched.judged,
            sample: searched.sample,
            is_exhaustive: searched.is_exhaustive,
            no_proof: no_proof.unwrap_or_else(|| {
                "cvc5 proves it for arguments that agree with the input schemas of the tools, and those of this call do not".into()
            }),
        },
    };
    Ok(ProveReport { method, wider: searched.wider })
}
