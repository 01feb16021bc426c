//! `portcullis check`

mod print;

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis::broker::{Broker, BrokerState, SourceDefinitions};
use portcullis::config::{Config, Endpoint, Naming, PluginConfig, Schemas, SourceConfig};
use portcullis::item::{Item, ItemKind};
use portcullis::lockfile::{Acceptance, Lockfile};
use portcullis::name::SourceName;
use portcullis::plugin::PluginIdentity;
use portcullis::protocol::Json;
use portcullis::schema_repair::{Repair, schema_problems};
use portcullis::secret::ConfigValue;
use portcullis::source::SourceError;
use serde_json::{Value, json};

use crate::cli::GlobalArgs;
use crate::completion;
use crate::output;
use crate::runtime;

/// Check the configuration, the plugins and every source: what starts, and in which cell
///
/// Reads the configuration, loads and configures every plugin, starts every source once, lists what it offers and
/// scans it. A source that fails alone is reported, and the others are served. The exit code is 1 if nothing can be
/// served, if a required source or a whole group fails, or if names collide.
///
/// A healthy source is shown on one line, any other with its problem. Details of a cell are shown only for the sources
/// that are named.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis check
  portcullis check files       # also what its cell is made of
  portcullis check --details   # that of every source")]
pub(crate) struct Args {
    /// Sources to show the details of
    #[arg(add = completion::sources())]
    sources: Vec<String>,

    /// Show the details of every source
    #[arg(long)]
    details: bool,
}

type Discovered = BTreeMap<SourceName, Result<SourceDefinitions, SourceError>>;

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let config = global.load()?;
    runtime::sources(&config, &args.sources)?;
    let (report, good) =
        runtime::with_broker(config, async |broker| runtime::until_interrupted(examine(&broker)).await)?;
    if global.json {
        output::json(&report)?;
    } else {
        print::print(&report, |name| args.details || args.sources.iter().any(|source| source == name))?;
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Asks every source for its offer. Returns the report, and whether this can be served.
async fn examine(broker: &Broker) -> anyhow::Result<(Value, bool)> {
    let config = broker.config();
    let mut good = true;
    let mut sources = Vec::new();
    let found = progress(broker, broker.definitions()).await;
    let lock = Lockfile::load(&config.data_dir)?;
    let groups = groups(&config, &found);
    let mut problems = broker.problems(&found)?;
    problems.extend(broker.ill_typed_policies(&Broker::policy_schema(&found)).await?);
    problems.extend(portcullis::front::http::token::problems(&config));
    good &= problems.iter().all(|problem| !problem.fatal);
    good &= groups.iter().all(|group| group["tools"] != 0);
    for (name, found) in found {
        let Some(source) = config.sources.get(&name) else { continue };
        good &= found.is_ok() || !source.required;
        let offered = found.as_ref().ok();
        sources.push(json!({
            "name": name,
            "source": endpoint(source),
            "environment": environment(source),
            "cell": cell(broker, source),
            "required": source.required,
            "tools": offered.map(|offered| offered.of_kind(ItemKind::Tool).count()),
            "flagged": broker.flagged(&name)?,
            "off": broker.off_tools(&name)?,
            "changed": offered.map(|offered| changed(broker, offered, &lock)),
            "listErrors": offered.map(list_errors),
            "schemas": offered.map(|offered| schemas(&config, source, offered)),
            "remarks": broker.remarks(&name).iter().map(ToString::to_string).collect::<Vec<_>>(),
            "error": found.as_ref().err().map(ToString::to_string),
            "missing": broker.missing_from_cell(&name),
        }));
    }
    let report = json!({
        "configuration": config.file.as_deref().map(|file| file.to_string_lossy()),
        "dataDir": config.data_dir.to_string_lossy(),
        "plugins": plugins(broker),
        "problems": problems,
        "sources": sources,
        "disabled": config.disabled.keys().collect::<Vec<_>>(),
        "groups": groups,
        "profiles": profiles(&config),
    });
    Ok((report, good))
}

/// Returns each group with its members in the order in which they are called, and with the tools that keep a member
/// from standing in.
fn groups(config: &Config, found: &Discovered) -> Vec<Value> {
    let of = |(name, members): (&SourceName, Vec<&SourceConfig>)| {
        let mut shown: BTreeMap<&str, &Arc<Item>> = BTreeMap::new();
        let mut mismatched = Vec::new();
        let listed = members.iter().filter_map(|member| found.get(&member.name)?.as_ref().ok());
        for tool in listed.flat_map(|offered| offered.of_kind(ItemKind::Tool)) {
            let first = shown.entry(&tool.exposed).or_insert(tool);
            if !tool.accepts_same_arguments(first) {
                mismatched.push(json!({ "tool": &*tool.exposed, "source": tool.source, "shownSource": first.source }));
            }
        }
        let order: Vec<_> = members.iter().map(|member| &member.name).collect();
        json!({ "name": name, "sources": order, "tools": shown.len(), "mismatched": mismatched })
    };
    config.groups().into_iter().map(of).collect()
}

/// Returns the accepted items that have changed, each with its changes.
fn changed(broker: &Broker, offered: &SourceDefinitions, lock: &Lockfile) -> Vec<Value> {
    let changed = offered.items.iter().filter_map(|item| match lock.of(item, broker.identity(&item.source)?) {
        Acceptance::Changed(changes) => Some(json!({ "kind": item.kind, "name": &*item.exposed, "changes": changes })),
        Acceptance::Accepted | Acceptance::Unknown => None,
    });
    changed.collect()
}

/// Returns the kinds that a source did not list, and why.
fn list_errors(offered: &SourceDefinitions) -> Vec<Value> {
    let errors = offered.list_errors.iter();
    errors.map(|(kind, error)| json!({ "kind": kind, "error": error.to_string() })).collect()
}

/// Returns the tools whose input schemas are invalid, each with its problems, and how the schema is repaired, if a
/// profile asks for that.
fn schemas(config: &Config, source: &SourceConfig, offered: &SourceDefinitions) -> Vec<Value> {
    let wanted = config.profiles.values().any(|profile| profile.schemas == Schemas::Repair);
    let repairs = wanted && source.names != Naming::Plain;
    let tools = offered.of_kind(ItemKind::Tool).filter_map(|tool| {
        let schema = tool.definition.get("inputSchema").unwrap_or_else(Json::null);
        let (problems, repair) = (schema_problems(&schema), repairs.then(|| Repair::of(&schema)));
        let repair = repair.filter(|repair| repair.schema().is_some());
        let steps = repair.as_ref().map(|repair| json!({ "counts": repair.counts(), "steps": repair.steps() }));
        let tool = json!({ "tool": &*tool.exposed, "problems": problems, "repair": steps });
        (!problems.is_empty() || repair.is_some()).then_some(tool)
    });
    tools.collect()
}

fn endpoint(source: &SourceConfig) -> String {
    match &source.endpoint {
        Endpoint::Command { argv, .. } => argv.join(" "),
        Endpoint::Url { url, .. } => url.to_string(),
        Endpoint::Component { component, args, .. } => format!("{component} {}", args.join(" ")).trim_end().to_owned(),
        Endpoint::Native { name } => format!("`{name}` of this program"),
    }
}

/// Returns the names of the variables that the source sees, never their values.
fn environment(source: &SourceConfig) -> Vec<String> {
    let (made, env): (&[&str], _) = match &source.endpoint {
        Endpoint::Command { env, .. } => (&["PATH", "HOME", "LANG", "TMPDIR"], env),
        Endpoint::Component { env, .. } => (&[], env),
        Endpoint::Url { .. } | Endpoint::Native { .. } => return Vec::new(),
    };
    let listed = env.iter().map(|(name, value)| match value {
        ConfigValue::Plain(_) => name.clone(),
        ConfigValue::Secret(secret) => format!("{name} (secret {secret})"),
    });
    made.iter().map(|name| (*name).to_owned()).chain(listed).collect()
}

/// Returns what the source may touch and what enforces that, or null for a source that could not be prepared.
fn cell(broker: &Broker, source: &SourceConfig) -> Value {
    match &source.endpoint {
        Endpoint::Command { .. } | Endpoint::Component { .. } => broker.cell(&source.name).unwrap_or(Value::Null),
        Endpoint::Url { .. } => json!({ "summary": "nothing runs on this machine; private addresses are refused" }),
        Endpoint::Native { .. } => json!({ "summary": "none: it is part of this program" }),
    }
}

/// Returns the plugins in the order in which they are asked, with the phases in which they are.
fn plugins(broker: &Broker) -> Vec<Value> {
    let config = broker.config();
    let entries = [&config.policies, &config.transforms, &config.approvals].into_iter().flatten();
    let of = |((role, id), entry): ((&str, PluginIdentity), &PluginConfig)| {
        let on: Vec<_> = entry.on.iter().map(|phase| phase.as_str()).collect();
        json!({ "role": role, "plugin": id.name, "digest": id.digest, "on": on, "shadow": entry.shadow })
    };
    broker.plugins().into_iter().zip(entries).map(of).collect()
}

fn profiles(config: &Config) -> Vec<Value> {
    let of = config.profiles.iter();
    of.map(|(name, profile)| json!({ "name": name, "trust": profile.trust, "approve": profile.approve })).collect()
}

/// Waits for the sources. On a terminal, a line on standard error meanwhile names the ones that are waited for.
async fn progress<T>(broker: &Broker, work: impl Future<Output = T>) -> T {
    if !std::io::stderr().is_terminal() {
        return work.await;
    }
    let began = Instant::now();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => {
                output::status_line("");
                return done;
            }
            _ = tick.tick() => {
                let line = awaited(&broker.state(), began.elapsed());
                output::status_line(&output::truncate_to_terminal(&line));
            }
        }
    }
}

/// Returns the line that names the sources that have neither listed tools nor failed yet.
fn awaited(state: &BrokerState, since: Duration) -> String {
    let left = state.sources.iter().filter(|source| source.tools_available == 0 && source.error_count == 0);
    let names: Vec<&str> = left.map(|source| source.name.as_str()).collect();
    let (count, all, seconds) = (names.len(), state.sources.len(), since.as_secs());
    format!("{seconds} s: waiting for {count} of {all} sources to list what they offer: {}", names.join(" "))
}
