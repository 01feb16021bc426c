//! `portcullis learn`

mod cell_lines;
mod drive;
mod show;
mod variables;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use portcullis::broker::Broker;
use portcullis::cell::{AttemptAvailability, AttemptSubject, CellUsage, RecordedAttempt, Recording};
use portcullis::config::{Approve, CellConfig, Config, Destructive, Endpoint, ProfileConfig, add_to_cell};
use portcullis::name::SourceName;
use portcullis::secret::ConfigValue;
use portcullis_learn::{CellLine, Proposal, SourceFacts};
use serde_json::json;

use crate::cli::GlobalArgs;
use crate::config_file::ConfigFile;
use crate::output::{self, escape_hidden};
use crate::{completion, consent, runtime};
pub(crate) use cell_lines::has;
use cell_lines::{add, minimal, opens};
pub(crate) use drive::CallScript;
use drive::{CallResult, DriveResult};
pub(crate) use show::described;
use variables::WantedVariables;

/// The largest number of recorded runs. Each opens what the one before was seen to lack.
const MAX_ROUNDS: usize = 6;

/// The longest time that a call may take. A call that takes longer waits for something that the cell does not have.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Find out what a server needs, and propose its cell
///
/// Runs the source in its cell as it is configured, records which files, programs and hosts it tries to use, and calls
/// its tools with arguments made from their schemas, or makes the calls of FILE. In a cell without `write` and
/// `network` it calls every tool; in any other, those that say `readOnlyHint: true`, and those that do not say
/// `destructiveHint: true` and whose names contain no word such as `write`, `delete`, `send` or `run`. A round calls at
/// most 64 tools, and begins no call after 10 s.
///
/// What the cell lacks is proposed with the evidence for each line, and tried in another round if you agree; files that
/// hold credentials are named and never proposed. In the end the server runs once more without the recorder, every call
/// is made again, and the lines are written to the configuration if you agree.
///
/// Policies, approvals and sinks are not asked: the calls are yours. They are recorded in the ledger. The exit code is
/// 1 if the server does not start, or if a call that worked in the last round fails in the end.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis learn files
  portcullis learn github --calls calls.jsonl
  portcullis learn search --yes --json

Each line of FILE is a call: {\"tool\": \"read_file\", \"arguments\": {\"path\": \"/data/a.md\"}}.")]
pub(crate) struct Args {
    /// The source, by its name in the configuration
    #[arg(add = completion::all_sources())]
    source: SourceName,

    /// The calls to make, one as JSON on each line
    #[arg(long, value_name = "FILE")]
    calls: Option<PathBuf>,

    /// Agree to the proposed hosts and to the proposed paths that the command names, and write them
    #[arg(long)]
    yes: bool,
}

/// The result of learning a source.
struct Learned {
    /// The lines that the cell lacked, over all rounds.
    lines: Vec<CellLine>,
    /// The attempts that were seen and are not proposed, each with the reason.
    withheld: Vec<CellLine>,
    /// The number of files and folders of Python's bytecode that it could not write in the last recorded round.
    bytecode: usize,
    /// Variables that the source's messages name or its code reads, and that it is not given.
    variables: WantedVariables,
    /// The last recorded round.
    recorded: DriveResult,
    /// The same calls without the recorder.
    enforced: DriveResult,
    /// The system calls that it made and that every cell denies.
    denied: BTreeSet<&'static str>,
    /// The number of attempts that could not be recorded.
    unrecorded: u64,
    /// The most that it used at one time, over all rounds.
    usage: CellUsage,
    /// True if a person has not agreed to all lines.
    open: bool,
    /// The cell of the last run.
    cell: CellConfig,
}

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let script = args.calls.as_deref().map(CallScript::read).transpose()?.unwrap_or(CallScript::Harmless);
    let config = alone(global.load()?, &args.source)?;
    let file = config.file.clone();
    let (learned, agreed) = runtime::block_on(async {
        let learned = learn(config, &args.source, &script, args.yes).await?;
        // A person sees what they are asked about, on standard error, also with JSON output.
        show::learned(&learned);
        // A cell that does not work is not written: the next start would fail.
        let writable = learned.still_works() && !learned.lines.is_empty() && !learned.open;
        let agreed = writable && (args.yes || agree("Write these lines?").await?);
        Ok((learned, agreed))
    })?;
    let works = learned.still_works();
    let written = match &file {
        Some(file) if agreed => {
            write(file, &args.source, &learned)?;
            Some(file.as_path())
        }
        _ => None,
    };
    show::written(&learned, written);
    if global.json {
        output::json(&learned.to_json(&args.source, written))?;
    }
    Ok(if works { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns a line as a switch of `wrap`.
pub(crate) fn switch(line: &CellLine) -> String {
    show::switch(line)
}

/// Prints the switches of `wrap` that the recorded sources of a broker lack, after an agent has used them.
pub(crate) fn switches(broker: &Broker) {
    for name in broker.config().sources.keys() {
        let facts = SourceFacts { inside: inside(broker, name), ..source_facts(broker, name) };
        let attempts = broker.recording(name).map(|recording| recording.attempts()).unwrap_or_default();
        let mut proposal = Proposal::of(&attempts, &facts);
        proposal.guess_ports();
        proposal.withhold(&broker.config().own_files());
        show::switches(&proposal);
    }
}

/// Returns the configuration with only this source, without anything that could answer or refuse its calls.
pub(crate) fn alone(mut config: Config, name: &SourceName) -> anyhow::Result<Config> {
    let Some(mut source) = config.sources.remove(name) else {
        return Err(runtime::no_source(&config, name.as_str()));
    };
    if !matches!(source.endpoint, Endpoint::Command { .. }) {
        bail!("`{name}` is not started by a `command`: only a program has a cell that can be learned");
    }
    source.eager = false;
    source.timeout = source.timeout.min(CALL_TIMEOUT);
    config.sources = [(name.clone(), source)].into();
    let plugins = [&mut config.policies, &mut config.transforms, &mut config.approvals, &mut config.sinks];
    plugins.into_iter().for_each(Vec::clear);
    config.remote_sinks.clear();
    // The default profile, except that nobody is asked: the calls are the user's own.
    let mut fresh = Config::builder("/").source("any", json!({ "command": ["any"] })).build()?.profiles;
    let default = fresh.remove(&"default".parse()?).context("every configuration has a default profile")?;
    let default = ProfileConfig { approve: Approve::Never, destructive: Destructive::Ask, ..default };
    config.profiles = [("default".parse()?, default)].into();
    Ok(config)
}

/// A run of a source in a recorded cell.
pub(crate) struct RecordedRun {
    driven: DriveResult,
    facts: SourceFacts,
    recording: Arc<Recording>,
    usage: CellUsage,
    /// The lines that the cell lacked for the attempts.
    pub(crate) proposal: Proposal,
}

impl RecordedRun {
    /// Returns why the source did not start, if it did not.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.driven.failure.as_deref()
    }
}

/// Runs the source once in its recorded cell and makes the calls of a script.
pub(crate) async fn recorded_run(
    config: &mut Config,
    name: &SourceName,
    script: &CallScript,
) -> anyhow::Result<RecordedRun> {
    cell(config, name)?.recorded = true;
    let broker = runtime::broker(config.clone()).await?;
    let facts = source_facts(&broker, name);
    // A cell that opens nothing beyond itself cannot do any harm, so every tool may be called in it.
    let harmless_cell = broker
        .config()
        .sources
        .get(name)
        .is_some_and(|source| source.cell.write.is_empty() && source.cell.network.is_empty());
    let driven = async { Ok(drive::drive(&broker, name, script, harmless_cell, &facts.named).await) };
    let driven = runtime::until_interrupted(driven).await;
    let facts = SourceFacts { inside: inside(&broker, name), ..facts };
    let recording = broker.recording(name).unwrap_or_default();
    let (attempts, usage) = (recording.attempts(), recording.usage());
    broker.shutdown().await;
    let driven = driven?;
    let mut proposal = Proposal::of(&attempts, &facts);
    proposal.guess_ports();
    proposal.withhold(&config.own_files());
    Ok(RecordedRun { driven, facts, recording, usage, proposal })
}

/// Runs the source in rounds, each with what the one before was seen to lack, and then without the recorder.
async fn learn(mut config: Config, name: &SourceName, script: &CallScript, yes: bool) -> anyhow::Result<Learned> {
    let (mut lines, mut variables, mut open) = (Vec::new(), WantedVariables::of(&config, name), false);
    let (mut denied, mut unrecorded, mut usage) = (BTreeSet::new(), 0, CellUsage::default());
    let mut round = 1;
    let (recorded, withheld, bytecode) = loop {
        let RecordedRun { driven, facts, recording, usage: used, mut proposal } =
            recorded_run(&mut config, name, script).await?;
        denied.extend(recording.attempts().iter().filter_map(denied_call));
        unrecorded += recording.others();
        usage = usage.max(used);
        if yes {
            proposal.withhold_unnamed(&facts);
        }
        if let Some(cell) = cell_of(&config, name) {
            proposal.withhold_overlapping(&cell.read, &cell.write);
        }
        driven.texts().for_each(|text| variables.add_message(text));
        variables.add_code(&recording.attempts(), &facts.named);
        let fresh: Vec<CellLine> = proposal
            .lines
            .into_iter()
            .filter(|line| !cell_of(&config, name).is_some_and(|cell| has(cell, line)))
            .collect();
        if fresh.is_empty() {
            break (driven, proposal.withheld, proposal.bytecode);
        }
        show::round(round, &fresh);
        if round == MAX_ROUNDS || (!yes && !agree("Run it again with these?").await?) {
            open = true;
            lines.extend(fresh);
            break (driven, proposal.withheld, proposal.bytecode);
        }
        for line in &fresh {
            add(cell(&mut config, name)?, line);
        }
        lines.extend(fresh);
        round += 1;
    };
    cell(&mut config, name)?.recorded = false;
    let broker = runtime::broker(config.clone()).await?;
    let enforced = runtime::until_interrupted(async { Ok(drive::repeat(&broker, name, &recorded).await) }).await;
    broker.shutdown().await;
    let enforced = enforced?;
    let cell = cell(&mut config, name)?.clone();
    Ok(Learned {
        lines: minimal(lines),
        withheld,
        bytecode,
        variables,
        recorded,
        enforced,
        denied,
        unrecorded,
        usage,
        open,
        cell,
    })
}

/// Returns the name of a system call that the cell denied.
fn denied_call(attempt: &RecordedAttempt) -> Option<&'static str> {
    match attempt.subject {
        AttemptSubject::Call(name) if attempt.availability == AttemptAvailability::Denied => Some(name),
        _ => None,
    }
}

fn cell<'a>(config: &'a mut Config, name: &SourceName) -> anyhow::Result<&'a mut CellConfig> {
    Ok(&mut config.sources.get_mut(name).context("the source is gone")?.cell)
}

fn cell_of<'a>(config: &'a Config, name: &SourceName) -> Option<&'a CellConfig> {
    config.sources.get(name).map(|source| &source.cell)
}

/// Returns the files and folders that the source's command and variables name.
fn source_facts(broker: &Broker, name: &SourceName) -> SourceFacts {
    // A home that is a link would be compared with real paths.
    let home = std::env::home_dir().filter(|home| home.is_absolute()).and_then(|home| home.canonicalize().ok());
    let config = broker.config();
    let source = config.sources.get(name).map(|source| &source.endpoint);
    let Some(Endpoint::Command { argv, cwd, env }) = source else {
        return SourceFacts { home, ..SourceFacts::default() };
    };
    let plain = env.values().filter_map(|value| match value {
        ConfigValue::Plain(text) => Some(text),
        ConfigValue::Secret(_) => None,
    });
    let base = cwd.clone().unwrap_or_else(|| PathBuf::from("/"));
    let words =
        argv.iter().skip(1).chain(plain).map(|word| word.rsplit_once('=').map_or(word.as_str(), |(_, value)| value));
    let mut facts = SourceFacts { home, ..SourceFacts::default() };
    let paths = words.filter(|word| word.contains('/') || word.starts_with('.')).map(|word| base.join(word));
    paths.for_each(|path| facts.name(&path));
    facts
}

/// Returns the paths that the cell opened in this round: the grants, and the needs of the program.
fn inside(broker: &Broker, name: &SourceName) -> Vec<PathBuf> {
    let Some(described) = broker.described(name) else { return Vec::new() };
    let grant = &described.grant;
    described.needs.read.iter().chain(&grant.read).chain(&grant.write).cloned().collect()
}

/// Asks at the terminal. Where there is none, the answer is no.
async fn agree(question: &'static str) -> anyhow::Result<bool> {
    Ok(consent::can_ask() && consent::agreed_or_interrupted(question).await?)
}

/// Adds the lines to the configuration file. A file that was trusted stays trusted in its new form.
fn write(path: &Path, source: &SourceName, learned: &Learned) -> anyhow::Result<()> {
    let shown = escape_hidden(&path.to_string_lossy()).into_owned();
    let file = ConfigFile::open(Some(path))?;
    let lines: Vec<(&str, &str)> = learned.lines.iter().map(|line| (line.key.as_str(), line.value.as_str())).collect();
    let changed =
        add_to_cell(file.text(), source.as_str(), &lines).with_context(|| format!("{shown} is left as it is"))?;
    // The written cell must be the one that was tried, or the next start fails.
    let parsed = Config::parse(&changed, path).with_context(|| format!("{shown} is left as it is"))?;
    let same = cell_of(&parsed, source).is_some_and(|cell| opens(cell) == opens(&learned.cell));
    anyhow::ensure!(same, "{shown} is left as it is: its `cell` names paths in another way; add the lines by hand");
    file.replace(&changed)
}

impl Learned {
    /// Reports whether the source starts, and whether every call that worked under the recorder works without.
    fn still_works(&self) -> bool {
        self.enforced.failure.is_none() && self.recorded.failure.is_none() && self.broken().next().is_none()
    }

    /// Returns the calls that worked under the recorder and fail without, as they failed.
    fn broken(&self) -> impl Iterator<Item = &CallResult> {
        self.enforced
            .calls
            .iter()
            .zip(&self.recorded.calls)
            .filter(|(now, then)| then.ok && !now.ok)
            .map(|(now, _)| now)
    }

    fn to_json(&self, source: &SourceName, written: Option<&Path>) -> serde_json::Value {
        let calls = self.recorded.calls.iter().zip(&self.enforced.calls);
        let calls = calls.map(|(then, now)| {
            let (tool, arguments, failure) =
                (&then.tool, &then.arguments, now.failure.as_ref().or(then.failure.as_ref()));
            json!({ "tool": tool, "arguments": arguments, "recorded": then.ok, "enforced": now.ok, "failure": failure })
        });
        json!({
            "source": source,
            "lines": self.lines,
            "withheld": self.withheld,
            "bytecode": self.bytecode,
            "variables": self.variables.to_json(),
            "denied": self.denied,
            "unrecorded": self.unrecorded,
            "memory": self.usage.memory,
            "threads": self.usage.threads,
            "calls": calls.collect::<Vec<_>>(),
            "failure": self.enforced.failure.as_ref().or(self.recorded.failure.as_ref()),
            "works": self.still_works(),
            "written": written.map(Path::to_string_lossy),
        })
    }
}
