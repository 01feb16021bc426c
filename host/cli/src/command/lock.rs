//! `portcullis lock`

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use clap::Subcommand;
use globset::Glob;
use portcullis::broker::{AcceptedComponent, Broker};
use portcullis::item::Item;
use portcullis::lockfile::{Acceptance, Lockfile};
use serde_json::json;

use crate::cli::Global;
use crate::output::{self, BAD, BOLD, visible};
use crate::run;

/// Accept tool definitions, and show what has changed since
///
/// An accepted tool runs without a question, as long as its definition and its source stay what they were. A tool that
/// has changed asks again and says what changed. The lock file is portcullis.lock in the data folder.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis lock diff
  portcullis lock accept                     # what no source calls destructive
  portcullis lock accept 'files__write_file' # by name, also what is destructive")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the accepted tools, and the pinned packages and components
    Show,
    /// Accept tools as they are now
    ///
    /// Without a name: every tool that its source does not call destructive or open to the world. Such tools must be
    /// named.
    Accept {
        /// Names of tools as agents see them, or globs
        #[arg(value_name = "TOOL")]
        tools: Vec<String>,

        /// Instead of tools: resolve the package of every npx and uvx source again, and pin what the registry has now
        #[arg(long, conflicts_with = "tools")]
        packages: bool,

        /// Instead of tools: pin every plugin and component that is a file to its present bytes, and every one with a
        /// tag to what its registry has for that tag
        #[arg(long, conflicts_with_all = ["tools", "packages"])]
        components: bool,
    },
    /// Compare every tool with what was accepted; exit code 1 if an accepted one has changed. Packages keep their pins,
    /// so the tools listed are those of the pinned versions
    Diff,
}

type Discovered = BTreeMap<String, Vec<Arc<Item>>>;

pub(crate) fn run(args: &Args, global: &Global) -> anyhow::Result<ExitCode> {
    match &args.action {
        Action::Show => show(global),
        Action::Accept { packages: true, .. } => {
            run::with_broker(global.load()?, async |broker| packages(&broker, global.json).await)
        }
        Action::Accept { components: true, .. } => components(global),
        Action::Accept { tools, .. } => {
            run::with_broker(global.load()?, async |broker| accept(&broker, tools, global.json).await)
        }
        Action::Diff => run::with_broker(global.load()?, async |broker| diff(&broker, global.json).await),
    }
}

fn show(global: &Global) -> anyhow::Result<ExitCode> {
    let lock = Lockfile::load(&global.load()?.data_dir)?;
    if global.json {
        output::json(&json!({ "tools": lock.tools(), "packages": lock.packages(), "components": lock.components() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for entry in lock.packages() {
        let (requested, name, version) = (visible(&entry.requested), visible(&entry.name), visible(&entry.version));
        let count = entry.units.len();
        output::text(&format!(
            "{}  {requested} → {name} {version} with {count} packages  {}  {}\n",
            entry.source, entry.tree, entry.pinned
        ))?;
    }
    for entry in lock.components() {
        output::text(&format!("{}  {}  {}\n", visible(&entry.component), entry.digest, entry.accepted))?;
    }
    for entry in lock.tools() {
        output::text(&format!("{}  {}  {}  {}\n", entry.source, visible(&entry.tool), entry.digest, entry.accepted))?;
    }
    if lock.tools().is_empty() && lock.packages().is_empty() && lock.components().is_empty() {
        output::note("nothing was accepted yet (`portcullis lock accept`)");
    }
    Ok(ExitCode::SUCCESS)
}

async fn accept(broker: &Broker, names: &[String], json: bool) -> anyhow::Result<ExitCode> {
    let discovered = discover(broker).await?;
    let all: Vec<_> = discovered.values().flatten().cloned().collect();
    let (chosen, left): (Vec<_>, Vec<_>) = if names.is_empty() {
        all.into_iter().partition(|tool| !tool.hints.may_do_harm())
    } else {
        let mut chosen = Vec::new();
        for name in names {
            let glob = Glob::new(name)?.compile_matcher();
            let before = chosen.len();
            chosen.extend(all.iter().filter(|tool| glob.is_match(&*tool.exposed)).cloned());
            if chosen.len() == before {
                bail!("no tool is called {name:?} (`portcullis tools` lists them)");
            }
        }
        (chosen, Vec::new())
    };
    broker.accept(&chosen, &by()).await?;
    if json {
        let accepted: Vec<_> =
            chosen.iter().map(|tool| json!({ "tool": &*tool.exposed, "digest": tool.digest })).collect();
        let left: Vec<_> = left.iter().map(|tool| &*tool.exposed).collect();
        output::json(&json!({ "accepted": accepted, "left": left }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for tool in &chosen {
        output::text(&format!("accepted {}  {}\n", visible(&tool.exposed), tool.digest))?;
    }
    if !left.is_empty() {
        let left: Vec<_> = left.iter().map(|tool| visible(&tool.exposed).into_owned()).collect();
        output::note(&format!(
            "not accepted, since they may destroy something or reach beyond their source; name those you want: {}",
            left.join(" ")
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Pins every plugin and component to its present bytes.
fn components(global: &Global) -> anyhow::Result<ExitCode> {
    let config = global.load()?;
    let accepted = run::block_on(async { Ok(Broker::accept_components(&config, &by()).await?) })?;
    if global.json {
        output::json(&json!(accepted))?;
        return Ok(ExitCode::SUCCESS);
    }
    for AcceptedComponent { component, before, now } in &accepted {
        let before = match before {
            None => "new".to_owned(),
            Some(before) if before == now => "as before".to_owned(),
            Some(before) => format!("was {before}"),
        };
        output::text(&format!("pinned {}  {now}  ({before})\n", visible(component)))?;
    }
    if accepted.is_empty() {
        output::note("every plugin and component comes with the broker or has its digest in the configuration");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns who accepts, for the ledger.
fn by() -> String {
    format!("cli (uid {})", rustix::process::getuid().as_raw())
}

/// Pins every package to what its registry has now.
async fn packages(broker: &Broker, json: bool) -> anyhow::Result<ExitCode> {
    let renewed = broker.renew_packages().await?;
    if json {
        let rows: Vec<_> = renewed
            .iter()
            .map(|(source, (before, now))| {
                let before = before.as_ref().map(|before| json!({ "version": before.version, "tree": before.tree }));
                json!({ "source": source, "before": before, "now": now })
            })
            .collect();
        output::json(&json!(rows))?;
        return Ok(ExitCode::SUCCESS);
    }
    for (source, (before, now)) in &renewed {
        let before = match before {
            None => "new".to_owned(),
            Some(before) if before.tree == now.tree => "as before".to_owned(),
            Some(before) if before.version == now.version => "the same version with other dependencies".to_owned(),
            Some(before) => format!("was {}", visible(&before.version)),
        };
        output::text(&format!("pinned {source}  {} {}  ({before})\n", visible(&now.name), visible(&now.version)))?;
    }
    if renewed.is_empty() {
        output::note("no source is started with npx or uvx");
    }
    Ok(ExitCode::SUCCESS)
}

async fn diff(broker: &Broker, json: bool) -> anyhow::Result<ExitCode> {
    let discovered = discover(broker).await?;
    let mut rows = Vec::new();
    let mut changed = false;
    for tool in discovered.values().flatten() {
        let (word, changes) = match broker.acceptance(tool)? {
            Acceptance::Unknown => ("new", Vec::new()),
            Acceptance::Accepted => ("accepted", Vec::new()),
            Acceptance::Changed(changes) => ("changed", changes),
        };
        changed |= word == "changed";
        rows.push(json!({ "tool": &*tool.exposed, "state": word, "changes": changes }));
    }
    let lock = Lockfile::load(&broker.config().data_dir)?;
    let gone = lock.tools().iter().filter(|entry| {
        discovered.get(&entry.source).is_some_and(|tools| !tools.iter().any(|tool| *tool.name == *entry.tool))
    });
    rows.extend(
        gone.map(|entry| json!({ "tool": entry.tool, "source": entry.source, "state": "gone", "changes": [] })),
    );
    rows.extend(lock.packages().iter().filter(|entry| discovered.contains_key(&entry.source)).map(|entry| {
        let package = format!("{} {} (pinned {})", entry.name, entry.version, entry.pinned);
        json!({ "package": package, "source": entry.source, "state": "accepted", "changes": [] })
    }));
    if json {
        output::json(&json!(rows))?;
    }
    for row in rows.iter().filter(|row| !json && row["state"] != "accepted") {
        let style = if row["state"] == "changed" { BAD } else { BOLD };
        let what = row["tool"].as_str().or(row["package"].as_str()).unwrap_or_default();
        let tool = visible(what).into_owned();
        output::text(&format!("{style}{:8}{style:#}  {tool}\n", row["state"].as_str().unwrap_or_default()))?;
        for change in row["changes"].as_array().into_iter().flatten() {
            output::text(&format!("          {}\n", visible(change.as_str().unwrap_or_default())))?;
        }
    }
    if changed {
        output::note("a tool that has changed asks again; `portcullis lock accept TOOL` accepts it as it is now");
    }
    Ok(if changed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns the tools of every source. If a source fails, that is an error: a lock file of some sources would look
/// complete.
async fn discover(broker: &Broker) -> anyhow::Result<Discovered> {
    let mut tools = BTreeMap::new();
    for (name, found) in broker.discover().await {
        let found = found.map_err(|error| anyhow::anyhow!("source `{name}`: {error}"))?;
        tools.insert(name.to_string(), found.to_vec());
    }
    Ok(tools)
}
