//! `portcullis lock`

mod brokers;
mod selection;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{bail, ensure};
use clap::{Subcommand, ValueEnum};
use portcullis::broker::{AcceptedComponent, Broker, ComparedDefinition, FlagState, LockComparison, LockState};
use portcullis::config::{self, Config};
use portcullis::item::ItemKind;
use portcullis::lockfile::Lockfile;
use serde_json::{Value, json};

use self::brokers::Brokers;
use self::selection::Selection;
use super::packages;
use crate::cli::GlobalArgs;
use crate::output::{self, BAD, BOLD, escape_hidden};
use crate::{completion, flagged, runtime};

/// Accept definitions, and show what has changed since
///
/// An accepted tool runs without a question, as long as its definition and its source stay what they were. A tool,
/// prompt or resource that was accepted and has changed asks, and says what changed. Accepting a definition that is
/// quarantined releases it. The lock file is portcullis.lock in the data folder.
///
/// A wrapped server has a data folder and no configuration: `--data-dir` names that folder, and the brokers that run
/// there are asked what their servers list. Without a configuration it is the user's own folder, where `wrap` keeps its
/// data.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis lock diff
  portcullis lock accept                     # what its source says does no harm
  portcullis lock accept 'files__write_file' # by name, also what is destructive
  portcullis lock accept --kind prompt 'files__greet'
  portcullis lock accept files@sha256:…      # exactly one definition, also what is quarantined
  portcullis lock diff --data-dir DIR        # of a wrapped server that runs")]
pub(crate) struct Args {
    /// Use this data folder, and the brokers that run there, instead of a configuration
    #[arg(long, value_name = "DIR", global = true)]
    data_dir: Option<PathBuf>,

    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the accepted definitions, and the pinned packages and components
    Show,
    /// Accept definitions as they are now
    ///
    /// Without a name: every tool whose source says that it is neither destructive nor open to the world, and in which
    /// the scanner found nothing. A hint that is missing counts as yes, as in MCP. Other tools must be named, and what
    /// is quarantined by its digest.
    Accept {
        /// Names as agents see them, globs, or SOURCE@sha256:… for exactly one definition, as `portcullis check` shows
        /// it
        #[arg(value_name = "NAME", add = completion::tools())]
        tools: Vec<String>,

        /// The kind of item that the names refer to
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

/// The owner of a lock file: a configuration, or a data folder without one.
enum LockOwner {
    Configured(Box<Config>),
    Folder(PathBuf),
}

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let json = global.json;
    let config = match (owner(args, global)?, &args.action) {
        (LockOwner::Configured(config), Action::Show) => return show(&config.data_dir, json),
        (LockOwner::Folder(folder), Action::Show) => return show(&folder, json),
        (LockOwner::Folder(_), Action::Accept { packages: true, .. } | Action::Accept { components: true, .. }) => {
            bail!(
                "packages and components are pinned for a configuration: leave out --data-dir, and name it with --config"
            )
        }
        (LockOwner::Folder(folder), _) => {
            return runtime::block_on(async { act(args, &Brokers::running(&folder, args.kind()).await?, json).await });
        }
        (LockOwner::Configured(config), _) => *config,
    };
    match &args.action {
        Action::Accept { packages: true, .. } => runtime::with_broker(config, async |broker| {
            runtime::until_interrupted(packages::pin(&broker, &[], json)).await
        }),
        Action::Accept { components: true, .. } => components(&config, json),
        _ => runtime::with_broker(config, async |broker| {
            runtime::until_interrupted(async { act(args, &Brokers::started(broker, args.kind()).await?, json).await })
                .await
        }),
    }
}

async fn act(args: &Args, brokers: &Brokers, json: bool) -> anyhow::Result<ExitCode> {
    match &args.action {
        Action::Accept { tools, kind, .. } => accept(brokers, tools, (*kind).into(), json).await,
        Action::Diff | Action::Show => diff(brokers, json),
    }
}

impl Args {
    /// Returns the kind of the named items.
    fn kind(&self) -> ItemKind {
        match self.action {
            Action::Accept { kind, .. } => kind.into(),
            Action::Show | Action::Diff => ItemKind::Tool,
        }
    }
}

/// Returns the data folder that is named, or the configuration. Without one, it is the user's own data folder, since
/// wrapped servers need no configuration.
fn owner(args: &Args, global: &GlobalArgs) -> anyhow::Result<LockOwner> {
    if let Some(named) = &args.data_dir {
        ensure!(named.is_dir(), "{} is not a folder: name the data folder of the wrapped server", named.display());
        return Ok(LockOwner::Folder(named.clone()));
    }
    let user = config::user_data_dir().filter(|folder| folder.is_dir() && global.config.is_none());
    match (user, global.load()) {
        (_, Ok(config)) => Ok(LockOwner::Configured(Box::new(config))),
        (Some(user), Err(error)) if error.is_missing() => Ok(LockOwner::Folder(user)),
        (_, Err(error)) => Err(error.into()),
    }
}

fn show(folder: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let lock = Lockfile::load(folder)?;
    if json {
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
            escape_hidden(&entry.source),
            entry.tree,
            escape_hidden(&entry.pinned)
        ))?;
    }
    for entry in lock.components() {
        let (component, accepted) = (escape_hidden(&entry.component), escape_hidden(&entry.accepted));
        output::text(&format!("{component}  {}  {accepted}\n", entry.digest))?;
    }
    for entry in lock.items() {
        let (source, kind, name) = (escape_hidden(&entry.source), entry.kind.as_str(), escape_hidden(&entry.name));
        output::text(&format!("{source}  {kind} {name}  {}  {}\n", entry.digest, escape_hidden(&entry.accepted)))?;
    }
    if lock.items().is_empty() && lock.packages().is_empty() && lock.components().is_empty() {
        output::message("nothing was accepted yet (`portcullis lock accept`)");
    }
    Ok(ExitCode::SUCCESS)
}

async fn accept(brokers: &Brokers, names: &[String], kind: ItemKind, json: bool) -> anyhow::Result<ExitCode> {
    let compared = brokers.compared();
    let missing = missing(&compared);
    if let Some((source, kind, error)) = compared.unlisted.iter().find(|(_, failed, _)| *failed == kind) {
        bail!("source `{source}` did not list its {}s: {error}", kind.as_str());
    }
    let selection = Selection { definitions: &compared.definitions, kind, switch: brokers.switch() };
    let (chosen, left) = if names.is_empty() {
        selection.unnamed()
    } else {
        (selection.named(names).map_err(|error| beside(error, &missing))?, Vec::new())
    };
    brokers.accept(&chosen, kind, &by()).await?;
    if json {
        let accepted = chosen.iter().map(|item| json!({ member_name(item.kind): item.exposed, "digest": item.digest }));
        let accepted: Vec<_> = accepted.collect();
        let left: Vec<_> = left.iter().map(|item| &item.exposed).collect();
        output::json(&json!({ "accepted": accepted, "left": left }))?;
        let exit = if names.is_empty() { whole(&missing) } else { ExitCode::SUCCESS };
        return Ok(if chosen.is_empty() { ExitCode::FAILURE } else { exit });
    }
    for item in &chosen {
        output::text(&format!("accepted {}  {}\n", escape_hidden(&item.exposed), item.digest))?;
    }
    if !left.is_empty() {
        let names: Vec<_> = left.iter().map(|item| escape_hidden(&item.exposed).into_owned()).collect();
        output::message(&format!(
            "{} accepted, {} not, since they may destroy something, reach beyond their source or steer the model (`portcullis \
             lock diff{}` says what was found); name those you want: {}",
            chosen.len(),
            left.len(),
            brokers.switch(),
            names.join(" ")
        ));
    }
    let exit = if names.is_empty() { whole(&missing) } else { ExitCode::SUCCESS };
    if chosen.is_empty() && left.is_empty() {
        output::message(&format!("nothing was accepted: no source lists a {}", kind.as_str()));
    }
    Ok(if chosen.is_empty() { ExitCode::FAILURE } else { exit })
}

/// Pins every plugin and component to its present bytes.
fn components(config: &Config, json: bool) -> anyhow::Result<ExitCode> {
    let accepted = runtime::block_on(async { Ok(Broker::accept_components(config, &by()).await?) })?;
    if json {
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
        output::message("every plugin and component comes with the broker or has its digest in the configuration");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the name of the user who accepts, for the ledger.
fn by() -> String {
    format!("cli (uid {})", rustix::process::getuid().as_raw())
}

fn diff(brokers: &Brokers, json: bool) -> anyhow::Result<ExitCode> {
    let compared = brokers.compared();
    let missing = missing(&compared);
    let lock = Lockfile::load(brokers.folder())?;
    let is_flagged = |item: &ComparedDefinition| item.flag.is_some_and(|flag| flag != FlagState::Accepted);
    // Only tools need to be accepted, so only they are worth a line if they are not.
    let is_listed =
        |item: &&ComparedDefinition| item.state != LockState::New || item.kind == ItemKind::Tool || is_flagged(item);
    let listed: Vec<_> = compared.definitions.iter().filter(is_listed).collect();
    let changed = listed.iter().any(|item| item.state == LockState::Changed);
    let mut rows: Vec<Value> = Vec::new();
    for item in &listed {
        let mut row = json!({ member_name(item.kind): item.exposed, "state": item.state, "changes": item.changes, "pin": item.pin() });
        if let Some(row) = row.as_object_mut().filter(|_| is_flagged(item)) {
            row.insert("flag".to_owned(), json!(item.flag));
        }
        rows.push(row);
    }
    let answers = |source: &str| compared.definitions.iter().any(|item| item.source.as_str() == source);
    let gone = lock.items().iter().filter(|entry| {
        let is_it = |item: &ComparedDefinition| item.kind == entry.kind && item.name == entry.name;
        answers(&entry.source)
            && !compared.definitions.iter().any(|item| item.source.as_str() == entry.source && is_it(item))
    });
    rows.extend(gone.map(
        |entry| json!({ member_name(entry.kind): entry.name, "source": entry.source, "state": "gone", "changes": [] }),
    ));
    rows.extend(lock.packages().iter().filter(|entry| answers(&entry.source)).map(|entry| {
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
    if !json {
        let flagged = listed.iter().filter(|item| is_flagged(item)).filter_map(|item| item.flagged.clone());
        flagged::print_flagged(&flagged.collect(), brokers.switch())?;
    }
    if changed {
        let switch = brokers.switch();
        output::message(&format!(
            "what has changed asks again; `portcullis lock accept{switch} NAME` accepts it as it is now"
        ));
    }
    let whole = whole(&missing);
    Ok(if changed { ExitCode::FAILURE } else { whole })
}

/// Returns the member by which a row of the output names an item.
fn member_name(kind: ItemKind) -> &'static str {
    if kind == ItemKind::Source { "instructions" } else { kind.as_str() }
}

/// Returns a sentence for each source that does not answer.
fn missing(compared: &LockComparison) -> Vec<String> {
    compared.missing.iter().map(|(source, error)| format!("source `{source}`: {error}")).collect()
}

/// Adds to an error why sources are missing: one of them may offer the named item.
fn beside(error: anyhow::Error, missing: &[String]) -> anyhow::Error {
    match missing {
        [] => error,
        missing => anyhow::anyhow!("{error}; these sources are missing: {}", missing.join("; ")),
    }
}

/// Returns the exit code, and reports the missing sources if everything was asked for.
fn whole(missing: &[String]) -> ExitCode {
    missing.iter().for_each(|why| output::message(&format!("missing: {}", escape_hidden(why))));
    if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
