//! `portcullis plugin run`, `bench` and `check`: one plugin outside of a broker, with a broker's limits.

use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use portcullis::broker::user_plugin_host;
use portcullis::call::{CallView, Phase};
use portcullis::config::PluginConfig;
use portcullis::limits;
use portcullis::plugin::{DecisionUsage, PluginHost, Policy, Transform};
use serde_json::{Value, json};

use super::call_facts::CallFacts;
use super::decision::{Decision, RehearsalVault};
use super::named;
use crate::completion;
use crate::output::{self, BOLD, escape_hidden};
use crate::runtime;

/// The time for which `bench` measures.
const BENCH: Duration = Duration::from_secs(1);
/// The least number of decisions that `bench` measures.
const LEAST: usize = 20;
/// The largest file with a call that is read.
const MAX_CALL_BYTES: u64 = 64 << 20;

/// A plugin with its settings and grants.
#[derive(Debug, clap::Args)]
pub(super) struct PluginArgs {
    /// A .wasm file, builtin:NAME, or oci://REGISTRY/NAME@sha256:…
    #[arg(add = completion::plugins())]
    plugin: String,

    /// The settings, as JSON, or @FILE
    #[arg(long, value_name = "JSON", default_value = "{}")]
    settings: String,

    /// A capability that a source may import: `key-value` or `caller`; repeatable. Other plugins need none
    #[arg(long, value_name = "WORD")]
    grant: Vec<String>,
}

/// A plugin, and a call that it is to decide about.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    plugin: PluginArgs,

    /// The name of the tool as agents see it, such as files__write
    #[arg(required_unless_present = "call")]
    tool: Option<String>,

    /// The arguments of the call, a JSON object
    arguments: Option<String>,

    /// A file with the whole call as JSON, as `call` of a fixture; `-` reads standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tool", "arguments"])]
    call: Option<String>,
}

/// A plugin, a call, and what a decision about it may cost.
#[derive(Debug, clap::Args)]
pub(super) struct BenchArgs {
    #[command(flatten)]
    decided: Args,

    /// The most instructions that the decision may take; with more, the command fails. They are the same on every
    /// machine
    #[arg(long, value_name = "N")]
    max_instructions: Option<u64>,
}

/// A plugin that decides.
enum Decider {
    Policy(Policy),
    Transform(Transform),
}

/// Lets the plugin decide once.
pub(super) fn run(args: &Args, json: bool) -> anyhow::Result<ExitCode> {
    let view = view(args)?;
    let (decision, usage, took) = runtime::block_on(async {
        let decider = Decider::load(&user_plugin_host()?, &args.plugin).await?;
        let begun = Instant::now();
        let (decision, usage) = decider.observed(&view).await?;
        anyhow::Ok((decision, usage, begun.elapsed()))
    })?;
    let replaced = decision.replaced.as_ref();
    if json {
        output::json(&json!({
            "verdict": decision.verdict.word(),
            "code": decision.verdict.code(),
            "reasons": decision.reasons,
            "becomes": replaced.map(portcullis::protocol::Json::to_value),
            "asked": usage.asked,
            "memory": usage.memory,
            "microseconds": took.as_micros(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    line("verdict", &verdict(&decision))?;
    for reason in &decision.reasons {
        line("reason", reason)?;
    }
    if let Some(replaced) = replaced {
        line("becomes", replaced.as_str())?;
    }
    line("asked", &if usage.asked.is_empty() { "nothing".to_owned() } else { usage.asked.join(", ") })?;
    line("memory", &memory(&usage))?;
    line("time", &format!("{} of at most {}", millis(took), millis(limits::DECISION_DEADLINE)))?;
    Ok(ExitCode::SUCCESS)
}

/// Measures decisions, one after the other.
pub(super) fn bench(args: &BenchArgs, json: bool) -> anyhow::Result<ExitCode> {
    let BenchArgs { decided: args, max_instructions } = args;
    let view = view(args)?;
    let (mut times, decision, usage, started) = runtime::block_on(async {
        let begun = Instant::now();
        let host = user_plugin_host()?;
        let decider = Decider::load(&host, &args.plugin).await?;
        let started = begun.elapsed();
        let (decision, usage) = Decider::load(&host.counting(), &args.plugin).await?.observed(&view).await?;
        let (begun, mut times) = (Instant::now(), Vec::new());
        while begun.elapsed() < BENCH || times.len() < LEAST {
            let before = Instant::now();
            decider.decide(&view).await;
            times.push(before.elapsed());
        }
        anyhow::Ok((times, decision, usage, started))
    })?;
    times.sort_unstable();
    let at = |share: usize| times.get((times.len() * share / 100).min(times.len() - 1)).copied().unwrap_or_default();
    let (half, most) = (at(50), at(99));
    // A native policy, which has none, cannot be named here.
    let instructions = usage.instructions.unwrap_or_default();
    let is_too_much = max_instructions.is_some_and(|max| instructions > max);
    let exit = if is_too_much { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    if json {
        output::json(&json!({
            "decisions": times.len(),
            "verdict": decision.verdict.word(),
            "code": decision.verdict.code(),
            "p50_microseconds": half.as_micros(),
            "p99_microseconds": most.as_micros(),
            "start_milliseconds": started.as_millis(),
            "memory": usage.memory,
            "instructions": instructions,
            "host_calls": usage.asked.len(),
        }))?;
        return Ok(exit);
    }
    line("verdict", &verdict(&decision))?;
    line("start", &format!("{}, with compiling", millis(started)))?;
    let most_time = millis(limits::DECISION_DEADLINE);
    line(
        "time",
        &format!("p50 {}, p99 {} of at most {most_time} ({} decisions)", millis(half), millis(most), times.len()),
    )?;
    let budget = max_instructions.map(|max| format!(" of at most {max}")).unwrap_or_default();
    line("work", &format!("{instructions} instructions{budget}, on any machine"))?;
    line("memory", &memory(&usage))?;
    line("asked", &format!("the host {} times of at most {}", usage.asked.len(), limits::HOST_CALLS))?;
    if is_too_much {
        output::message("the decision takes more instructions than `--max-instructions` allows");
    }
    Ok(exit)
}

/// Loads the plugin.
pub(super) fn check(args: &PluginArgs, json: bool) -> anyhow::Result<ExitCode> {
    let inspection = runtime::block_on(async {
        let (host, config) = (user_plugin_host()?, args.config()?);
        let inspection = host.inspect(&config.plugin).await?;
        match inspection.world {
            "policy" => drop(host.policy(&config).await?),
            "transform" => drop(host.transform(&config).await?),
            "approval" => drop(host.approval(&config).await?),
            "audit" => {
                let folder = tempfile::tempdir()?;
                drop(host.sink(&config, &folder.path().join("lines")).await?);
            }
            "none" => {
                bail!("{} exports no interface of a plugin: `portcullis plugin inspect` lists its exports", args.plugin)
            }
            _ => drop(host.component(&config.plugin, &config.settings, &config.grant, Default::default()).await?),
        }
        anyhow::Ok(inspection)
    })?;
    let (world, description) = (inspection.world, inspection.description.unwrap_or_default());
    if json {
        output::json(&json!({ "plugin": args.plugin, "world": world, "ok": true, "description": description }))?;
    } else {
        let named = [description.name, description.version].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let named = if named.is_empty() { named } else { format!(", and is {named} by its own description") };
        output::text(&escape_hidden(&format!("{} starts as a plugin of the kind `{world}`{named}", args.plugin)))?;
        output::text("\n")?;
    }
    Ok(ExitCode::SUCCESS)
}

impl PluginArgs {
    fn config(&self) -> anyhow::Result<PluginConfig> {
        let text = match self.settings.strip_prefix('@') {
            Some(file) => std::fs::read_to_string(file).with_context(|| format!("{file} cannot be read"))?,
            None => self.settings.clone(),
        };
        let settings: Value = serde_json::from_str(&text).context("`--settings` is not JSON")?;
        if !settings.is_object() {
            bail!("`--settings` is not a JSON object");
        }
        Ok(PluginConfig {
            plugin: named(&self.plugin)?,
            settings,
            on: vec![Phase::Call, Phase::Result, Phase::List],
            shadow: false,
            grant: self.grant.clone(),
            file: None,
        })
    }
}

impl Decider {
    async fn load(host: &PluginHost, args: &PluginArgs) -> anyhow::Result<Self> {
        let config = args.config()?;
        match host.inspect(&config.plugin).await?.world {
            "policy" => Ok(Self::Policy(host.policy(&config).await?)),
            "transform" => Ok(Self::Transform(host.transform(&config).await?)),
            world => bail!(
                "{} is a plugin of the kind `{world}`; only a policy or a transform decides about a call by itself",
                args.plugin
            ),
        }
    }

    async fn observed(&self, view: &CallView) -> anyhow::Result<(Decision, DecisionUsage)> {
        Ok(match self {
            Self::Policy(policy) => {
                let seen = policy.check_observed(view).await?;
                (Decision::of_policy(&policy.identity().name, seen.decision), seen.usage)
            }
            Self::Transform(transform) => {
                let seen = transform.rewrite_observed(view, RehearsalVault::shared()).await?;
                (Decision::of_transform(&transform.identity().name, seen.decision), seen.usage)
            }
        })
    }

    /// Decides as in a broker.
    async fn decide(&self, view: &CallView) -> Decision {
        match self {
            Self::Policy(policy) => Decision::of_policy(&policy.identity().name, policy.check(view).await),
            Self::Transform(transform) => {
                let change = transform.rewrite(view, RehearsalVault::shared()).await;
                Decision::of_transform(&transform.identity().name, change)
            }
        }
    }
}

fn view(args: &Args) -> anyhow::Result<CallView> {
    if let Some(file) = &args.call {
        let facts: CallFacts =
            serde_json::from_str(&read(file)?).with_context(|| format!("{file} is not a valid call"))?;
        return facts.view();
    }
    let arguments = args.arguments.as_deref().unwrap_or("{}");
    // The text goes to the plugin as written.
    CallFacts::of_tool(args.tool.clone().unwrap_or_default(), Value::String(arguments.to_owned())).view()
}

fn read(file: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = match file {
        "-" => std::io::stdin().lock().take(MAX_CALL_BYTES).read_to_string(&mut text),
        file => {
            std::fs::File::open(Path::new(file)).and_then(|file| file.take(MAX_CALL_BYTES).read_to_string(&mut text))
        }
    };
    read.with_context(|| format!("{file} cannot be read"))?;
    Ok(text)
}

fn line(key: &str, value: &str) -> anyhow::Result<()> {
    output::text(&format!("{BOLD}{key:8}{BOLD:#}  {}\n", escape_hidden(value)))
}

fn verdict(decision: &Decision) -> String {
    let code = decision.verdict.code().map(|code| format!(" ({code})")).unwrap_or_default();
    format!("{}{code}", decision.verdict.word())
}

fn memory(usage: &DecisionUsage) -> String {
    format!("{} KiB of at most {} KiB", usage.memory >> 10, limits::MEMORY_BYTES >> 10)
}

fn millis(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}
