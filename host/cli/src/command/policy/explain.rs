//! `portcullis policy explain`: each policy's verdict on a recorded call, then and now.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use portcullis::ledger::PositionedRecord;
use portcullis::plugin::{Policy, Verdict};
use serde_json::{Value, json};

use crate::cli::GlobalArgs;
use crate::command::audit;
use crate::identity::IdentityArgs;
use crate::output::{self, BOLD, escape_hidden};
use crate::policy_hosts::PolicyHosts;
use crate::recorded_call::{Definitions, NotDecided, RecordedDecision, decisions, last_round};
use crate::runtime;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The id of a call, as `portcullis audit` shows it
    call: String,

    #[command(flatten)]
    identities: IdentityArgs,

    /// Read the ledger of this data folder
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// The verdicts of one policy about a call: the recorded one, and that of now.
struct Explanation {
    policy: String,
    phase: &'static str,
    /// The verdict that was recorded; `None` if the policy was not asked.
    then: Option<String>,
    now: String,
    /// The reason for the verdict of now.
    reason: Option<String>,
    /// The lines that the policy wrote to the log while it decided, such as which of its parts permit the call.
    log: Vec<String>,
}

pub(super) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let config = global.load()?;
    if config.policies.is_empty() {
        bail!("the configuration has no `[[policies]]` that could explain a call");
    }
    let folder = audit::folder(global, args.data_dir.as_ref())?;
    let reader = args.identities.reader(&folder)?;
    let Some((entry, records)) = reader.call_entry(&args.call)? else {
        bail!(
            "no call {:?} in the ledger at {}; `portcullis audit` lists the calls with their ids",
            args.call,
            folder.display()
        );
    };
    let decisions = decisions(&entry, &records, &Definitions::read(&reader)?);
    let explained = runtime::block_on(async {
        let host = PolicyHosts::of(&config)?;
        let mut explained = Vec::new();
        for config in &config.policies {
            let policy = host.policy(config).await?;
            for decision in &decisions {
                match decision {
                    Ok(decision) if policy.on(decision.view.phase) => {
                        explained.push(explain(&policy, decision, &records).await?);
                    }
                    Ok(_) => {}
                    Err(NotDecided::NotAsked) => {
                        bail!(
                            "the records of this call hold no verdict that was final: either no policy was asked, or \
                             the call ended while its question was open; `portcullis audit show {}` says what became of it",
                            args.call
                        )
                    }
                    Err(NotDecided::Unreadable) => {
                        bail!("the records of this call do not say enough to judge it again")
                    }
                }
            }
        }
        Ok(explained)
    })?;
    if global.json {
        let lines = explained.iter().map(|Explanation { policy, phase, then, now, reason, log }| {
            json!({ "policy": policy, "phase": phase, "then": then, "now": now, "reason": reason, "log": log })
        });
        output::json(&json!({ "call": args.call, "policies": lines.collect::<Vec<_>>() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    output::text(&format!("{BOLD}{}{BOLD:#}\n", audit::line(&entry)))?;
    for Explanation { policy, phase, then, now, reason, log } in explained {
        let then = then.unwrap_or_else(|| "not asked".to_owned());
        let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        let about = if phase == "result" { ", about its result" } else { "" };
        output::text(&format!("{}\n", escape_hidden(&format!("{policy}{about}: {then} then, {now} now{reason}"))))?;
        for line in log {
            output::text(&format!("  it says: {}\n", escape_hidden(&line)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn explain(
    policy: &Policy,
    decision: &RecordedDecision,
    records: &[PositionedRecord],
) -> anyhow::Result<Explanation> {
    let (name, phase) = (&policy.identity().name, decision.view.phase);
    let rounds = records.iter().filter_map(|entry| entry.record.body.get("verdicts"));
    let of_round = |verdicts| {
        let verdicts = last_round(verdicts, phase).into_iter().filter(|entry| entry["plugin"] == name.as_str());
        // The stricter of the two, where it judged placeholders and the values that they stood for.
        verdicts
            .map(|entry| &entry["verdict"])
            .max_by_key(|verdict| (!verdict["deny"].is_null(), !verdict["ask"].is_null()))
    };
    let then = rounds.filter_map(of_round).next_back().map(recorded);
    let observed = policy.check_observed(&decision.view).await?;
    let (now, reason) = match (decision.unknown.among(&observed.usage.asked), observed.decision) {
        (Some(missing), _) => ("not judged".to_owned(), Some(missing.in_words().to_owned())),
        (None, Ok(Verdict::Pass)) => ("pass".to_owned(), None),
        (None, Ok(Verdict::Ask(concern))) => (format!("ask ({})", concern.code), Some(concern.message)),
        (None, Ok(Verdict::Deny(denial))) => (format!("deny ({})", denial.code), Some(denial.message)),
        (None, Err(failure)) => (format!("deny ({})", failure.code.as_str()), Some(failure.detail)),
    };
    // Its log about an incompletely known call may be untrue of the recorded one.
    let log = if now == "not judged" { Vec::new() } else { observed.usage.log };
    let now = if policy.shadow() { format!("{now} (in shadow)") } else { now };
    Ok(Explanation { policy: name.clone(), phase: phase.as_str(), then, now, reason, log })
}

/// Returns a recorded verdict in the words of this command.
fn recorded(verdict: &Value) -> String {
    if let Some(code) = verdict["deny"].as_str() {
        return format!("deny ({code})");
    }
    match (verdict.get("ask"), verdict["code"].as_str()) {
        (None, _) => "pass".to_owned(),
        (Some(_), Some(code)) => format!("ask ({code})"),
        // Recorded by a version in which an ask had no code.
        (Some(_), None) => "ask".to_owned(),
    }
}
