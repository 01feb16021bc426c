//! Proves with the solver cvc5 that policies in Cedar are never wider than others, or finds a call for which they are.
//!
//! Two implications are proved for each action of the schema: what the new policies let pass or ask about, the old ones
//! let pass or ask about; and what the new ones let pass without asking, the old ones did too. For the second one, a
//! permit with `@requireApproval` counts as a `forbid`.
//!
//! `builtin:cedar` denies if a policy fails, where Cedar skips the policy. For the new policies this difference does
//! not matter, since they may be judged wider than they are. The old ones may not, so they must be proved never to
//! fail.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cedar_policy::{Effect, Policy, PolicySet, RequestEnv, Schema, SchemaFragment};
use cedar_policy_symcc::solver::LocalSolver;
use cedar_policy_symcc::{CedarSymCompiler, CompiledPolicy, CompiledPolicySet};
use portcullis::call::{Call, CallView, Phase, Risk};
use portcullis::config::{Config, PluginConfig, PluginRef};
use portcullis::item::Item;

use super::judge::Judge;
use super::possible::Possible;
use super::search::Wider;
use super::undeclared::undeclared;
use super::{example, sample};

/// The annotation on a permit that makes `builtin:cedar` ask.
const APPROVAL: &str = "requireApproval";

/// The time for all proofs. Each takes milliseconds, unless policies do much arithmetic or compare many sets.
const DEADLINE: Duration = Duration::from_secs(120);

/// The options of the solver: its limit for one question, in milliseconds; and patterns that begin with a wildcard, which
/// releases such as Debian's refuse otherwise.
const OPTIONS: [&str; 2] = ["--tlimit-per=30000", "--strings-exp"];

/// The result of a proof.
pub(super) enum Proof {
    NeverWider,
    Wider(Box<Wider>),
    /// Nothing is known, for this reason.
    Impossible(String),
}

/// The calls that there can be.
pub(super) struct KnownCalls<'a> {
    pub(super) config: &'a Config,
    pub(super) items: &'a [Arc<Item>],
    /// The types of the calls, in Cedar's syntax.
    pub(super) schema: &'a str,
}

/// The reason why there is no proof, in words.
type Failed = String;

/// Proves that the new policies are never wider.
pub(super) async fn prove(old: &[PluginConfig], new: &[PluginConfig], world: &KnownCalls<'_>, judge: &Judge) -> Proof {
    let proof = async {
        let (old, new) = changed_policies(old, new)?;
        match implications(&old, &new, world, judge).await? {
            Some(wider) => Ok(Proof::Wider(Box::new(wider))),
            None => Ok(Proof::NeverWider),
        }
    };
    let failed = match tokio::time::timeout(DEADLINE, proof).await {
        Ok(Ok(proof)) => return proof,
        Ok(Err(failed)) => failed,
        Err(_) => format!("the solver took more than {} s", DEADLINE.as_secs()),
    };
    Proof::Impossible(failed)
}

/// Returns the texts of the policies in Cedar in which OLD and NEW differ.
fn changed_policies(old: &[PluginConfig], new: &[PluginConfig]) -> Result<(String, String), Failed> {
    let only_cedar = || "OLD and NEW differ in more than the policies of one `builtin:cedar`".to_owned();
    let mut changed = old.iter().zip(new).filter(|(old, new)| old != new);
    let (before, after) = changed.next().ok_or_else(only_cedar)?;
    let cedar = PluginRef::Builtin("cedar".to_owned());
    if changed.next().is_some() || old.len() != new.len() || before.plugin != cedar || after.plugin != cedar {
        return Err(only_cedar());
    }
    let without_policies = |policy: &PluginConfig| {
        let mut policy = policy.clone();
        policy.settings.as_object_mut().and_then(|settings| settings.remove("policies"));
        policy
    };
    if without_policies(before) != without_policies(after) {
        return Err(only_cedar());
    }
    let text = |policy: &PluginConfig| {
        policy.settings.get("policies").and_then(|text| text.as_str()).map(str::to_owned).ok_or_else(only_cedar)
    };
    Ok((text(before)?, text(after)?))
}

/// Proves both implications for each action, and returns a call for which one does not hold.
async fn implications(old: &str, new: &str, world: &KnownCalls<'_>, judge: &Judge) -> Result<Option<Wider>, Failed> {
    let parse = |text: &str| text.parse::<PolicySet>().map_err(|error| error.to_string());
    let (old, new) = (parse(old)?, parse(new)?);
    let (schema, _) = Schema::from_cedarschema_str(world.schema).map_err(|error| error.to_string())?;
    let (types, _) = SchemaFragment::from_cedarschema_str(world.schema).map_err(|error| error.to_string())?;
    let types = types.to_json_value().map_err(|error| error.to_string())?;
    let solver = LocalSolver::cvc5_with_args(OPTIONS).map_err(|_| {
        "the solver cvc5 is not installed; with it in PATH, or named by the variable CVC5, there would be a proof"
            .to_owned()
    })?;
    let mut compiler = CedarSymCompiler::new(solver).map_err(|error| error.to_string())?;
    let possible = Possible::new(world, &[&old, &new]);
    let (old_silent, new_silent) = (without_asking(&old)?, without_asking(&new)?);
    for environment in schema.request_envs() {
        let Some(only_possible) = possible.calls_of(environment.action()) else { continue };
        let only_possible = only_possible?;
        if let Some(name) = undeclared(&[&old, &new], environment.action(), &types) {
            return Err(format!(
                "a policy depends on `{name}`, of which a caller may send more than the types of {} name",
                environment.action()
            ));
        }
        let compile = |policies: &PolicySet| {
            CompiledPolicySet::compile(policies, &environment, &schema).map_err(|error| ill_typed(&error, &environment))
        };
        never_fails(&mut compiler, &old, &environment, &schema).await?;
        for (new, old) in [(&new, &old), (&new_silent, &old_silent)] {
            let new = compile(&with(new, &only_possible)?)?;
            let found = compiler.check_implies_with_counterexample_opt(&new, &compile(old)?).await;
            let Some(found) = found.map_err(|error| format!("cvc5 gave no answer: {error}"))? else { continue };
            let view = example::view(&found, world).ok_or("cvc5 found a call that cannot be shown")?;
            let view = ordinary(view, world, judge).await;
            // Denials by other policies, or a failing new policy, are known only to the plugins.
            return match judge.wider(&view).await {
                Some((old, new)) => Ok(Some(Wider { view, old, new })),
                None => {
                    Err("cvc5 found a call that the new policies alone would let go further, and the others do not"
                        .into())
                }
            };
        }
    }
    Ok(None)
}

/// Returns the call as an ordinary caller would make it, if that goes further, too: the solver takes any caller.
async fn ordinary(view: CallView, world: &KnownCalls<'_>, judge: &Judge) -> CallView {
    for (name, trust) in sample::profiles(world.config) {
        let Some(caller) = sample::caller("local", name, trust) else { continue };
        let call = Call { caller, risk: Risk::Risky, ..Call::clone(&view.call) };
        let ordinary = CallView::before(&Arc::new(call), Phase::Call);
        if judge.wider(&ordinary).await.is_some() {
            return ordinary;
        }
    }
    view
}

/// Proves that no policy of a set can fail.
async fn never_fails(
    compiler: &mut CedarSymCompiler<LocalSolver>,
    policies: &PolicySet,
    environment: &RequestEnv,
    schema: &Schema,
) -> Result<(), Failed> {
    for policy in policies.policies() {
        let compiled =
            CompiledPolicy::compile(policy, environment, schema).map_err(|error| ill_typed(&error, environment))?;
        let never = compiler.check_never_errors_opt(&compiled).await;
        if !never.map_err(|error| format!("cvc5 gave no answer: {error}"))? {
            let name = policy.annotation("id").unwrap_or(policy.id().as_ref()).to_owned();
            return Err(format!("the policy `{name}` of OLD fails for some calls, because a number becomes too large"));
        }
    }
    Ok(())
}

/// Returns the policies that decide what passes without a question.
fn without_asking(policies: &PolicySet) -> Result<PolicySet, Failed> {
    let mut silent = PolicySet::new();
    for policy in policies.policies() {
        let asks = policy.effect() == Effect::Permit && policy.annotation(APPROVAL).is_some();
        let policy = if asks { as_forbid(policy)? } else { policy.clone() };
        silent.add(policy).map_err(|error| error.to_string())?;
    }
    Ok(silent)
}

/// Returns a permit as a `forbid` of the same calls.
fn as_forbid(policy: &Policy) -> Result<Policy, Failed> {
    let mut json = policy.to_json().map_err(|error| error.to_string())?;
    if let Some(effect) = json.get_mut("effect") {
        *effect = "forbid".into();
    }
    Policy::from_json(Some(policy.id().clone()), json).map_err(|error| error.to_string())
}

/// Returns the policies and one more.
fn with(policies: &PolicySet, further: &Policy) -> Result<PolicySet, Failed> {
    let mut all = policies.clone();
    all.add(further.clone()).map_err(|error| error.to_string())?;
    Ok(all)
}

fn ill_typed(error: &cedar_policy_symcc::err::Error, environment: &RequestEnv) -> Failed {
    use cedar_policy_symcc::err::Error;
    let causes = match error {
        Error::PolicyNotWellTyped { errs } => errs.iter().map(ToString::to_string).collect::<BTreeSet<_>>(),
        other => BTreeSet::from([other.to_string()]),
    };
    let causes: Vec<_> = causes.into_iter().collect();
    format!("the policies do not agree with the types of {}: {}", environment.action(), causes.join("; "))
}
