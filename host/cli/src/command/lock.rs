//! `portcullis lock`

mod selection;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Subcommand, ValueEnum};
use portcullis::broker::{AcceptedComponent, Broker, FlaggedDefinition, SourceDefinitions};
use portcullis::item::ItemKind;
use portcullis::lockfile::{Acceptance, Lockfile};
use serde_json::json;

use self::selection::Selection;
use super::packages;
use crate::cli::Global;
use crate::completion;
use crate::output::{self, BAD, BOLD, escape_hidden};
use crate::runtime;

/// Accept definitions, and show what has changed since
///
/// An accepted tool runs without a question, as long as its definition and its source stay what they were. A tool,
/// prompt or resource that was accepted and has changed asks, and says what changed. Accepting a definition that is
/// quarantined releases it. The lock file is portcullis.lock in the data folder.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis lock diff
  portcullis lock accept                     # what no source calls destructive
  portcullis lock accept 'files__write_file' # by name, also what is destructive
  portcullis lock accept --kind prompt 'files__greet'
  portcullis lock accept files@sha256:…      # exactly one definition, also what is quarantined")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the accepted definitions, and the pinned packages and components
    Show,
    /// Accept definitions as they are now
    ///
    /// Without a name: every tool that its source does not call destructive or open to the world, and in which the
    /// scanner found nothing. Other tools must be named, and what is quarantined by its digest.
    Accept {
        /// Names as agents see them, globs, or SOURCE@sha256:… for exactly one definition, as `portcullis check` shows
        /// it
        #[arg(value_name = "NAME", add = completion::tools())]
        tools: Vec<String>,

        /// What the names stand for
        #[arg(long, value_enum, default_value_t = Kind::Tool)]
        kind: Kind,

        /// Instead of definitions: resolve the package of every npx and uvx source again, and pin what the registry has
        /// now
        #[arg(long, conflicts_with = "tools")]
        packages: bool,

        /// Instead of definitions: pin every plugin and component that is a file to its present bytes, and every one
        /// with a tag to what its registry has for that tag
        #[arg(long, conflicts_with_all = ["tools", "packages"])]
        components: bool,
    },
    /// Compare every tool with what was accepted; exit code 1 if an accepted one has changed. Packages keep their pins,
    /// so the tools listed are those of the pinned versions
    Diff,
}

/// The kinds of items that can be accepted by name.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Tool,
    Prompt,
    Resource,
    Template,
}

impl From<Kind> for ItemKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Tool => Self::Tool,
            Kind::Prompt => Self::Prompt,
            Kind::Resource => Self::Resource,
            Kind::Template => Self::Template,
        }
    }
}

type Discovered = BTreeMap<String, SourceDefinitions>;

pub(crate) fn run(args: &Args, global: &Global) -> anyhow::Result<ExitCode> {
    match &args.action {
        Action::Show => show(global),
        Action::Accept { packages: true, .. } => {
            runtime::with_broker(global.load()?, async |broker| packages::pin(&broker, &[], global.json).await)
        }
        Action::Accept { components: true, .. } => components(global),
        Action::Accept { tools, kind, .. } => runtime::with_broker(global.load()?, async |broker| {
            accept(&broker, tools, (*kind).into(), global.json).await
        }),
        Action::Diff => runtime::with_broker(global.load()?, async |broker| diff(&broker, global.json).await),
    }
}

fn show(global: &Global) -> anyhow::Result<ExitCode> {
    let lock = Lockfile::load(&global.load()?.data_dir)?;
    if global.json {
        let of = |kind| lock.items().iter().filter(|entry| entry.kind == kind).collect::<Vec<_>>();
        output::json(&json!({
            "tools": of(ItemKind::Tool),
            "prompts": of(ItemKind::Prompt),
            "resources": of(ItemKind::Resource),
            "templates": of(ItemKind::Template),
            "instructions": of(ItemKind::Source),
            "packages": lock.packages(),
            "components": lock.components(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for entry in lock.packages() {
        let (requested, name, version) =
            (escape_hidden(&entry.requested), escape_hidden(&entry.name), escape_hidden(&entry.version));
        let count = entry.units.len();
        output::text(&format!(
            "{}  {requested} → {name} {version} with {count} packages  {}  {}\n",
            entry.source, entry.tree, entry.pinned
        ))?;
    }
    for entry in lock.components() {
        output::text(&format!("{}  {}  {}\n", escape_hidden(&entry.component), entry.digest, entry.accepted))?;
    }
    for entry in lock.items() {
        let (kind, name) = (entry.kind.as_str(), escape_hidden(&entry.name));
        output::text(&format!("{}  {kind} {name}  {}  {}\n", entry.source, entry.digest, entry.accepted))?;
    }
    if lock.items().is_empty() && lock.packages().is_empty() && lock.components().is_empty() {
        output::note("nothing was accepted yet (`portcullis lock accept`)");
    }
    Ok(ExitCode::SUCCESS)
}

async fn accept(broker: &Broker, names: &[String], kind: ItemKind, json: bool) -> anyhow::Result<ExitCode> {
    let (discovered, missing) = discover(broker).await;
    let flagged = flagged(broker)?;
    for (source, offered) in &discovered {
        if let Some((_, error)) = offered.list_errors.iter().find(|(failed, _)| *failed == kind) {
            bail!("source `{source}` did not list its {}s: {error}", kind.as_str());
        }
    }
    let selection = Selection { discovered: &discovered, flagged: &flagged, kind };
    let (chosen, left) = if names.is_empty() {
        selection.unnamed()
    } else {
        (selection.named(names).map_err(|error| beside(error, &missing))?, Vec::new())
    };
    broker.accept(&chosen, &by()).await?;
    if json {
        let accepted =
            chosen.iter().map(|item| json!({ member_name(item.kind): &*item.exposed, "digest": item.digest }));
        let accepted: Vec<_> = accepted.collect();
        let left: Vec<_> = left.iter().map(|item| &*item.exposed).collect();
        output::json(&json!({ "accepted": accepted, "left": left }))?;
        let exit = if names.is_empty() { whole(&missing) } else { ExitCode::SUCCESS };
        return Ok(if chosen.is_empty() { ExitCode::FAILURE } else { exit });
    }
    for item in &chosen {
        output::text(&format!("accepted {}  {}\n", escape_hidden(&item.exposed), item.digest))?;
    }
    if !left.is_empty() {
        let names: Vec<_> = left.iter().map(|item| escape_hidden(&item.exposed).into_owned()).collect();
        output::note(&format!(
            "{} accepted, {} not, since they may destroy something, reach beyond their source or steer the model (`portcullis check` \
             says what was found); name those you want: {}",
            chosen.len(),
            left.len(),
            names.join(" ")
        ));
    }
    let exit = if names.is_empty() { whole(&missing) } else { ExitCode::SUCCESS };
    if chosen.is_empty() && left.is_empty() {
        output::note(&format!("nothing was accepted: no source lists a {}", kind.as_str()));
    }
    Ok(if chosen.is_empty() { ExitCode::FAILURE } else { exit })
}

/// Returns what the scanner found in what all sources listed.
fn flagged(broker: &Broker) -> anyhow::Result<Vec<FlaggedDefinition>> {
    let each: Vec<_> = broker.config().sources.keys().map(|source| broker.flagged(source)).collect::<Result<_, _>>()?;
    Ok(each.concat())
}

/// Pins every plugin and component to its present bytes.
fn components(global: &Global) -> anyhow::Result<ExitCode> {
    let config = global.load()?;
    let accepted = runtime::block_on(async { Ok(Broker::accept_components(&config, &by()).await?) })?;
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
        output::text(&format!("pinned {}  {now}  ({before})\n", escape_hidden(component)))?;
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

async fn diff(broker: &Broker, json: bool) -> anyhow::Result<ExitCode> {
    let (discovered, missing) = discover(broker).await;
    let lock = Lockfile::load(&broker.config().data_dir)?;
    let mut rows = Vec::new();
    let mut changed = false;
    for item in discovered.values().flat_map(|offered| &offered.items) {
        let acceptance = broker.identity(&item.source).map(|identity| lock.of(item, identity));
        let (word, changes) = match acceptance.unwrap_or(Acceptance::Unknown) {
            // Only tools need to be accepted, so only they are worth a line if they are not.
            Acceptance::Unknown if item.kind != ItemKind::Tool => continue,
            Acceptance::Unknown => ("new", Vec::new()),
            Acceptance::Accepted => ("accepted", Vec::new()),
            Acceptance::Changed(changes) => ("changed", changes),
        };
        changed |= word == "changed";
        rows.push(json!({ member_name(item.kind): &*item.exposed, "state": word, "changes": changes }));
    }
    let gone = lock.items().iter().filter(|entry| {
        let is_listed = |offered: &SourceDefinitions| offered.of_kind(entry.kind).any(|item| *item.name == *entry.name);
        discovered.get(&entry.source).is_some_and(|offered| !is_listed(offered))
    });
    rows.extend(gone.map(
        |entry| json!({ member_name(entry.kind): entry.name, "source": entry.source, "state": "gone", "changes": [] }),
    ));
    rows.extend(lock.packages().iter().filter(|entry| discovered.contains_key(&entry.source)).map(|entry| {
        let package = format!("{} {} (pinned {})", entry.name, entry.version, entry.pinned);
        json!({ "package": package, "source": entry.source, "state": "accepted", "changes": [] })
    }));
    if json {
        output::json(&json!(rows))?;
    }
    for row in rows.iter().filter(|row| !json && row["state"] != "accepted") {
        let style = if row["state"] == "changed" { BAD } else { BOLD };
        let keys = ["tool", "prompt", "resource", "template", "instructions", "package"];
        let what = keys.iter().find_map(|key| row[*key].as_str()).unwrap_or_default();
        let tool = escape_hidden(what).into_owned();
        output::text(&format!("{style}{:8}{style:#}  {tool}\n", row["state"].as_str().unwrap_or_default()))?;
        for change in row["changes"].as_array().into_iter().flatten() {
            output::text(&format!("          {}\n", escape_hidden(change.as_str().unwrap_or_default())))?;
        }
    }
    if changed {
        output::note("what has changed asks again; `portcullis lock accept NAME` accepts it as it is now");
    }
    let whole = whole(&missing);
    Ok(if changed { ExitCode::FAILURE } else { whole })
}

/// Returns the member by which a row of the output names an item.
fn member_name(kind: ItemKind) -> &'static str {
    if kind == ItemKind::Source { "instructions" } else { kind.as_str() }
}

/// Returns what each source offers, and for those that do not answer a sentence that says why.
async fn discover(broker: &Broker) -> (Discovered, Vec<String>) {
    let (mut all, mut missing) = (BTreeMap::new(), Vec::new());
    for (name, found) in broker.definitions().await {
        match found {
            Ok(found) => drop(all.insert(name.to_string(), found)),
            Err(error) => missing.push(format!("source `{name}`: {error}")),
        }
    }
    (all, missing)
}

/// Adds to an error why sources are missing, one of which may offer what was named.
fn beside(error: anyhow::Error, missing: &[String]) -> anyhow::Error {
    match missing {
        [] => error,
        missing => anyhow::anyhow!("{error}; these sources are missing: {}", missing.join("; ")),
    }
}

/// Returns the exit code, and says which sources are missing if the whole was asked for.
fn whole(missing: &[String]) -> ExitCode {
    missing.iter().for_each(|why| output::note(&format!("missing: {}", escape_hidden(why))));
    if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
