//! Judges recorded decisions again: one thread reads them, and tasks judge them, as many at once as there are
//! processors.

use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use portcullis::config::{Config, PluginConfig};
use portcullis::ledger::LedgerReader;
use portcullis::plugin::{Policy, Verdict};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::comparison::{Comparison, NotJudged};
use crate::call_query::CallQuery;
use crate::joint_verdict::{DecidedBy, JointVerdict};
use crate::output;
use crate::policy_hosts::PolicyHosts;
use crate::recorded_call::{Definitions, NotDecided, RecordedDecision, decisions};

/// The largest number of decisions that one task judges, and of bytes of arguments and results: as many are in memory
/// for each processor.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 4 << 20;

/// The number of calls after which the progress is shown again.
const PROGRESS_EVERY: u64 = 1000;

/// Decisions that one task judges.
type Batch = Vec<Result<RecordedDecision, NotDecided>>;

/// Lets policies, those of the configuration or candidates, decide about the recorded calls that match, and compares.
///
/// # Errors
/// A policy cannot be loaded, or the ledger cannot be read.
pub(super) async fn rejudge(
    reader: LedgerReader,
    query: CallQuery,
    config: &Config,
    policies: &[PluginConfig],
    examples: usize,
) -> anyhow::Result<Comparison> {
    let host = PolicyHosts::of(config)?;
    let mut loaded = Vec::new();
    for policy in policies {
        loaded.push(host.policy(policy).await?);
    }
    let policies: Arc<[Policy]> = loaded.into();
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let (batches, mut received) = mpsc::channel(processors);
    let reading = tokio::task::spawn_blocking(move || read(&reader, &query, &batches));
    let (mut tasks, mut found) = (JoinSet::new(), Comparison::new(examples));
    while let Some(batch) = received.recv().await {
        if tasks.len() >= processors
            && let Some(judged) = tasks.join_next().await
        {
            found.add(judged?);
        }
        tasks.spawn(judge(Arc::clone(&policies), batch, examples));
    }
    while let Some(judged) = tasks.join_next().await {
        found.add(judged?);
    }
    found.calls = reading.await??;
    Ok(found)
}

/// Reads the decisions in batches, and returns the number of calls.
fn read(reader: &LedgerReader, query: &CallQuery, batches: &mpsc::Sender<Batch>) -> anyhow::Result<u64> {
    let definitions = Definitions::read(reader)?;
    let (mut batch, mut bytes, mut calls) = (Batch::new(), 0, 0);
    let shows_progress = std::io::stderr().is_terminal();
    query.visit_with_records(reader, false, |entry, records| {
        if query.leaves_out(&entry) {
            return Ok(ControlFlow::Continue(()));
        }
        for decision in decisions(&entry, records, &definitions) {
            bytes += decision.as_ref().map_or(0, |decision| {
                let outcome = decision.view.outcome.as_ref().map_or(0, |outcome| outcome.as_bytes().len());
                decision.view.call.arguments.as_bytes().len() + outcome
            });
            batch.push(decision);
        }
        calls += 1;
        if shows_progress && calls % PROGRESS_EVERY == 0 {
            output::status_line(&format!("judged {calls} calls"));
        }
        if batch.len() >= BATCH || bytes >= BATCH_BYTES {
            bytes = 0;
            // Nobody receives it only if the work has failed elsewhere.
            if batches.blocking_send(std::mem::take(&mut batch)).is_err() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if shows_progress {
        output::status_line("");
    }
    let _ = batches.blocking_send(batch);
    Ok(calls)
}

async fn judge(policies: Arc<[Policy]>, batch: Batch, examples: usize) -> Comparison {
    let mut found = Comparison::new(examples);
    for decision in batch {
        match decision {
            Ok(decision) => match decide(&policies, &decision).await {
                Ok(now) => found.compare(&decision, now),
                Err(why) => found.skip(why),
            },
            Err(NotDecided::NotAsked) => found.skip(NotJudged::NotAsked),
            Err(NotDecided::Unreadable) => found.skip(NotJudged::Unreadable),
        }
    }
    found
}

/// Returns what the policies decide together. As at the gate, a policy that fails denies.
async fn decide(policies: &[Policy], decision: &RecordedDecision) -> Result<DecidedBy, NotJudged> {
    let (view, mut decided, mut unknown) = (&decision.view, DecidedBy::default(), None);
    for policy in policies.iter().filter(|policy| policy.on(view.phase)) {
        let name = &policy.identity().name;
        let judged = match policy.check_observed(view).await {
            Ok(observed) => {
                if let Some(missing) = decision.unknown.among(&observed.usage.asked) {
                    unknown = Some(missing);
                    continue;
                }
                observed.decision
            }
            Err(failure) => Err(failure),
        };
        match judged {
            Ok(Verdict::Pass) => {}
            Ok(Verdict::Ask(concern)) => decided.add(JointVerdict::Ask, name, Some(&concern.code)),
            Ok(Verdict::Deny(denial)) => decided.add(JointVerdict::Deny, name, Some(&denial.code)),
            Err(failure) => decided.add(JointVerdict::Deny, name, Some(failure.code.as_str())),
        }
    }
    match unknown {
        // One denial is enough, whatever the others would say.
        Some(missing) if decided.joint != JointVerdict::Deny => Err(NotJudged::Reads(missing)),
        _ => Ok(decided),
    }
}
