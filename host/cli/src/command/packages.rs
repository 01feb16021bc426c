//! `portcullis install`, `portcullis outdated`, `portcullis upgrade`: the packages of `npx` and `uvx` sources

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use portcullis::broker::{Broker, SourceDefinitions};
use portcullis::cell::{CellError, PackageUpdate};
use portcullis::item::Item;
use portcullis::lockfile::differences;
use portcullis::name::SourceName;
use serde_json::{Value, json};

use crate::cli::GlobalArgs;
use crate::output::{self, BAD, BOLD, escape_hidden};
use crate::{completion, consent, runtime};

/// The largest number of changed dependencies that are shown of one package.
const MAX_CHANGES: usize = 12;

/// Install the packages of npx and uvx sources beforehand
///
/// Nothing is started. A package is installed as it is pinned; one that is not pinned yet is pinned to what its
/// registry has now. What is installed already is left as it is, and an installation that was interrupted begins again.
/// The exit code is 1 if a package cannot be installed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis install
  portcullis install files")]
pub(crate) struct InstallArgs {
    /// The sources [default: all]
    #[arg(value_name = "SOURCE", add = completion::sources())]
    sources: Vec<String>,
}

/// List the packages for which the registry has a version other than the pinned one
///
/// Nothing is installed, pinned or started. The exit code is 1 if a package is outdated or cannot be looked up.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis outdated
  portcullis outdated files")]
pub(crate) struct OutdatedArgs {
    /// The sources [default: all]
    #[arg(value_name = "SOURCE", add = completion::sources())]
    sources: Vec<String>,
}

/// Pin packages to what their registries have now
///
/// Shows which versions change, dependencies included, and whether the registry names attestations of them, and asks
/// before anything is installed. Then the servers are started, what they offer otherwise than before is shown, and you
/// are asked whether to keep them. Accepted definitions that have changed ask until they are accepted again. A broker
/// that runs uses the new version when it next starts the source (`portcullis restart SOURCE`).
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis upgrade
  portcullis upgrade files --yes")]
pub(crate) struct UpgradeArgs {
    /// The sources [default: all]
    #[arg(value_name = "SOURCE", add = completion::sources())]
    sources: Vec<String>,

    /// Upgrade without a question, and without starting the servers
    #[arg(long)]
    yes: bool,
}

pub(crate) fn install(args: &InstallArgs, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let config = global.load()?;
    let sources = runtime::sources(&config, &args.sources)?;
    runtime::with_broker(config, async |broker| {
        let installed = runtime::until_interrupted(async { Ok(broker.install_packages(&sources).await) }).await?;
        let good = installed.values().all(Result::is_ok);
        if global.json {
            print_rows(&installed, |report| json!({ "package": report }))?;
            return Ok(exit(good));
        }
        for (source, found) in &installed {
            match found {
                Ok(report) => output::text(&format!(
                    "{source}  {} {} with {} packages\n",
                    escape_hidden(&report.name),
                    escape_hidden(&report.version),
                    report.packages
                ))?,
                Err(error) => failed(source, error)?,
            }
        }
        if installed.is_empty() {
            output::message("no source is started with npx or uvx");
        }
        Ok(exit(good))
    })
}

pub(crate) fn outdated(args: &OutdatedArgs, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let config = global.load()?;
    let sources = runtime::sources(&config, &args.sources)?;
    runtime::with_broker(config, async |broker| {
        let found = runtime::until_interrupted(async { Ok(broker.package_updates(&sources).await) }).await?;
        let current = |update: &PackageUpdate| update.pinned.is_some() && update.changes.is_empty();
        let good = found.values().all(|found| found.as_ref().is_ok_and(current));
        if global.json {
            print_rows(&found, |update| json!({ "package": update }))?;
            return Ok(exit(good));
        }
        for (source, found) in &found {
            match found {
                Ok(update) if current(update) => {}
                Ok(update) => show(source, update)?,
                Err(error) => failed(source, error)?,
            }
        }
        if good {
            output::message("every package is as its registry has it now");
        }
        Ok(exit(good))
    })
}

pub(crate) fn upgrade(args: &UpgradeArgs, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let config = global.load()?;
    let sources = runtime::sources(&config, &args.sources)?;
    if !args.yes && global.json {
        bail!(
            "`upgrade` asks before it installs anything, and with `--json` nobody is asked: look with `portcullis outdated \
             --json`, then give `--yes`"
        );
    }
    if !args.yes && !consent::can_ask() {
        bail!(
            "`upgrade` asks before it installs anything, and there is no terminal: look with `portcullis outdated`, then give `--yes`"
        );
    }
    runtime::with_broker(config, async |broker| {
        if !args.yes {
            let found = runtime::until_interrupted(async { Ok(broker.package_updates(&sources).await) }).await?;
            let mut changes = false;
            for (source, found) in &found {
                match found {
                    Ok(update) if update.pinned.is_some() && update.changes.is_empty() => {}
                    Ok(update) => {
                        changes = true;
                        show(source, update)?;
                    }
                    Err(error) => failed(source, error)?,
                }
            }
            let good = found.values().all(Result::is_ok);
            if !changes {
                if good {
                    output::message("every package is as its registry has it now");
                }
                return Ok(exit(good));
            }
            if !consent::agreed_or_interrupted("Install these, and list what they offer?").await? {
                return Ok(ExitCode::FAILURE);
            }
            let changing: Vec<SourceName> =
                found.into_iter().filter(|(_, found)| found.is_ok()).map(|(it, _)| it).collect();
            let kept = tried(&broker, &changing).await?;
            return Ok(exit(good && kept));
        }
        runtime::until_interrupted(pin(&broker, &sources, global.json)).await
    })
}

/// Pins packages to what their registries have now, and asks whether to keep them. Without a yes they are pinned as
/// before, also if the command is interrupted meanwhile. Returns whether all of them have new pins.
async fn tried(broker: &Broker, sources: &[SourceName]) -> anyhow::Result<bool> {
    let before = broker.pinned_packages(sources)?;
    let kept = match renewed(broker, sources).await {
        Ok(Some(good)) => return Ok(good),
        Ok(None) => Ok(false),
        Err(error) => Err(error),
    };
    broker.restore_packages(before)?;
    output::message("the packages are pinned as before");
    kept
}

/// Pins packages again, shows the changes in their servers' offers, and asks. Returns whether all could be pinned, or
/// `None` if the answer is no.
async fn renewed(broker: &Broker, sources: &[SourceName]) -> anyhow::Result<Option<bool>> {
    let mut config = broker.config().as_ref().clone();
    config.sources.retain(|name, _| sources.contains(name));
    let definitions = async || {
        let listed = async |broker: Broker| runtime::until_interrupted(async { Ok(broker.definitions().await) }).await;
        runtime::use_broker(config.clone(), listed).await
    };
    let before = definitions().await?;
    let renewed = runtime::until_interrupted(async { Ok(broker.renew_packages(sources).await) }).await?;
    renewed
        .iter()
        .try_for_each(|(source, found)| found.as_ref().map_or_else(|error| failed(source, error), |_| Ok(())))?;
    let after = definitions().await?;
    for source in renewed.iter().filter(|(_, found)| found.is_ok()).map(|(source, _)| source) {
        output::text(&format!("{BOLD}{source}{BOLD:#}\n"))?;
        match (before.get(source), after.get(source)) {
            (Some(Ok(before)), Some(Ok(after))) => {
                for line in definition_changes(before, after) {
                    output::text(&format!("  {}\n", escape_hidden(&line)))?;
                }
            }
            (_, Some(Err(error))) => {
                output::text(&format!("  {BAD}it does not start{BAD:#}: {}\n", escape_hidden(&error.to_string())))?;
            }
            (Some(Err(error)), _) => {
                let error = error.to_string();
                output::text(&format!(
                    "  there is nothing to compare with, as it did not start before: {}\n",
                    escape_hidden(&error)
                ))?;
            }
            _ => {}
        }
    }
    let good = renewed.values().all(Result::is_ok);
    Ok(consent::agreed_or_interrupted("Keep these?").await?.then_some(good))
}

/// Returns what a source offers otherwise than before, one line for each change.
fn definition_changes(before: &SourceDefinitions, after: &SourceDefinitions) -> Vec<String> {
    let place = |item: &Arc<Item>| (item.kind, item.name.clone());
    let old: BTreeMap<_, _> = before.items.iter().map(|item| (place(item), item)).collect();
    let new: BTreeMap<_, _> = after.items.iter().map(|item| (place(item), item)).collect();
    let mut lines = Vec::new();
    for ((kind, name), item) in &new {
        let kind = kind.as_str();
        match old.get(&(item.kind, name.clone())) {
            None => lines.push(format!("+ {kind} {name}")),
            Some(before) if before.digest != item.digest => {
                let changes = differences(before.definition.as_str(), item.definition.as_str());
                lines.push(format!("~ {kind} {name}: {}", changes.join("; ")));
            }
            Some(_) => {}
        }
    }
    let gone = old.keys().filter(|place| !new.contains_key(*place));
    lines.extend(gone.map(|(kind, name)| format!("- {} {name}", kind.as_str())));
    if lines.is_empty() {
        lines.push("it offers the same as before".to_owned());
    }
    lines
}

/// Pins packages to what their registries have now, and reports the earlier pins.
pub(super) async fn pin(broker: &Broker, sources: &[SourceName], json: bool) -> anyhow::Result<ExitCode> {
    let renewed = broker.renew_packages(sources).await;
    let good = renewed.values().all(Result::is_ok);
    if json {
        print_rows(&renewed, |(before, now)| {
            let before = before.as_ref().map(|before| json!({ "version": before.version, "tree": before.tree }));
            json!({ "before": before, "now": now })
        })?;
        return Ok(exit(good));
    }
    for (source, found) in &renewed {
        let (before, now) = match found {
            Ok(found) => found,
            Err(error) => {
                failed(source, error)?;
                continue;
            }
        };
        let before = match before {
            None => "new".to_owned(),
            Some(before) if before.tree == now.tree => "as before".to_owned(),
            Some(before) if before.version == now.version => "the same version with other dependencies".to_owned(),
            Some(before) => format!("was {}", escape_hidden(&before.version)),
        };
        output::text(&format!(
            "pinned {source}  {} {}  ({before})\n",
            escape_hidden(&now.name),
            escape_hidden(&now.version)
        ))?;
    }
    if renewed.is_empty() {
        output::message("no source is started with npx or uvx");
    }
    Ok(exit(good))
}

/// Prints one JSON object for each source: the result as `row` renders it, or the error.
fn print_rows<T>(found: &BTreeMap<SourceName, Result<T, CellError>>, row: impl Fn(&T) -> Value) -> anyhow::Result<()> {
    let rows = found.iter().map(|(source, found)| {
        let mut row = match found {
            Ok(found) => row(found),
            Err(error) => json!({ "error": error.to_string() }),
        };
        if let Value::Object(members) = &mut row {
            members.insert("source".to_owned(), json!(source));
        }
        row
    });
    output::json(&json!(rows.collect::<Vec<_>>()))
}

fn show(source: &SourceName, update: &PackageUpdate) -> anyhow::Result<()> {
    let pinned = update.pinned.as_deref().map_or("not pinned yet".into(), |version| escape_hidden(version));
    let (name, newest) = (escape_hidden(&update.name), escape_hidden(&update.newest));
    output::text(&format!("{BOLD}{source}{BOLD:#}  {name}  {pinned} → {newest}\n"))?;
    for change in update.changes.iter().take(MAX_CHANGES) {
        output::text(&format!("  {}\n", escape_hidden(change)))?;
    }
    let more = update.changes.len().saturating_sub(MAX_CHANGES);
    if more > 0 {
        output::text(&format!("  and {more} more\n"))?;
    }
    update.provenance.iter().try_for_each(|line| output::text(&format!("  {}\n", escape_hidden(line))))
}

fn failed(source: &SourceName, error: &CellError) -> anyhow::Result<()> {
    output::text(&format!("{BOLD}{source}{BOLD:#}  {BAD}{}{BAD:#}\n", escape_hidden(&error.to_string())))
}

fn exit(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
