//! `portcullis status`

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use portcullis::config::data_dir_switch;
use portcullis::control::{self, ControlRequest};
use serde_json::{Value, json};

use crate::cli::GlobalArgs;
use crate::flagged::{print_flagged, print_off};
use crate::moment;
use crate::output::{self, BAD, BOLD, escape_hidden};
use crate::runtime;

/// Show the running brokers: their sources, sessions and open questions
///
/// The exit code is 1 if no broker runs, if a source of one is broken, if a sink, a witness, a receiver of questions or
/// a collector does not take what it is sent, if one has refused a changed configuration, or if one refuses calls
/// because its ledger cannot record them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Look only into this data folder
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Keep running, and show the state again whenever it changes; with --json, one document per line
    #[arg(long)]
    watch: bool,
}

/// The interval at which `--watch` asks: short enough for a person, and a broker answers from memory.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let folders = runtime::data_dirs(global, args.data_dir.as_ref())?;
    runtime::block_on(async {
        let brokers = ask(&folders).await?;
        if args.watch {
            return watch(&folders, brokers, global.json).await;
        }
        let good = !brokers.is_empty() && !brokers.iter().any(is_broken);
        if global.json {
            output::json(&json!(brokers))?;
        } else {
            print_all(&brokers)?;
        }
        Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// Returns the status that every broker reports.
async fn ask(folders: &[PathBuf]) -> anyhow::Result<Vec<Value>> {
    let mut brokers = Vec::new();
    for folder in folders {
        for (chain, answer) in control::all(folder, &ControlRequest::Status).await? {
            brokers.push(answer.unwrap_or_else(|error| json!({ "chain": chain, "error": error.to_string() })));
        }
    }
    Ok(brokers)
}

/// Shows every change until it is interrupted.
async fn watch(folders: &[PathBuf], mut brokers: Vec<Value>, json: bool) -> anyhow::Result<ExitCode> {
    let mut shown = None;
    loop {
        // Values that change all the time do not count as a change.
        let still = brokers.iter().cloned().map(|mut broker| {
            broker.as_object_mut().and_then(|broker| broker.remove("uptimeSeconds"));
            for source in broker.get_mut("sources").and_then(Value::as_array_mut).into_iter().flatten() {
                source.as_object_mut().and_then(|source| source.remove("calls"));
            }
            for receiver in broker.get_mut("receivers").and_then(Value::as_array_mut).into_iter().flatten() {
                receiver.as_object_mut().filter(|it| it["failing"] == true).and_then(|it| it.remove("failures"));
            }
            broker
        });
        let still: Vec<_> = still.collect();
        if shown.as_ref() != Some(&still) {
            match json {
                true => output::json_line(&json!(brokers).to_string())?,
                false => {
                    output::clear()?;
                    print_all(&brokers)?;
                }
            }
            shown = Some(still);
        }
        tokio::time::sleep(LOOK).await;
        brokers = ask(folders).await?;
    }
}

pub(super) fn is_broken(broker: &Value) -> bool {
    let mut sources = broker["sources"].as_array().into_iter().flatten();
    let is_set = |member: &str| !broker[member].is_null();
    is_set("error")
        || failing_receivers(broker).next().is_some()
        || is_set("refusing")
        || is_set("configRefused")
        || sources.any(|source| !source["error"].is_null())
}

/// Returns the receivers of a broker whose last delivery failed.
fn failing_receivers(broker: &Value) -> impl Iterator<Item = &Value> {
    broker["receivers"].as_array().into_iter().flatten().filter(|receiver| receiver["failing"] == true)
}

/// Returns a sentence for each receiver of a broker that does not accept its messages.
pub(super) fn failing_receivers_in_words(broker: &Value) -> Vec<String> {
    let words = |receiver| format!("{} {}", receiver_name(receiver), receiver_in_words(receiver));
    failing_receivers(broker).map(words).collect()
}

fn receiver_name(receiver: &Value) -> String {
    let text = |key: &str| escape_hidden(receiver[key].as_str().unwrap_or("-")).into_owned();
    format!("{} {}", text("kind"), text("name"))
}

/// Describes the deliveries to a receiver, some of which failed.
fn receiver_in_words(receiver: &Value) -> String {
    let at = |key: &str| receiver[key].as_u64().map(moment::local).unwrap_or_default();
    let failures = match receiver["failures"].as_u64().unwrap_or_default() {
        1 => "1 delivery".to_owned(),
        count => format!("{count} deliveries"),
    };
    let error = escape_hidden(receiver["lastError"].as_str().unwrap_or("-"));
    match receiver["failing"] == true {
        true => format!("has failed since {}, {failures} so far: {error}", at("since")),
        false => format!(
            "works again since {}; {failures} failed, the last ones from {}: {error}",
            at("recovered"),
            at("since")
        ),
    }
}

fn print_all(brokers: &[Value]) -> anyhow::Result<()> {
    if brokers.is_empty() {
        output::message("no broker runs here");
    }
    brokers.iter().try_for_each(print)
}

fn print(broker: &Value) -> anyhow::Result<()> {
    let text = |value: &Value| match value {
        Value::String(text) => escape_hidden(text).into_owned(),
        Value::Null => "-".to_owned(),
        other => escape_hidden(&other.to_string()).into_owned(),
    };
    output::text(&format!(
        "{BOLD}broker {}{BOLD:#}  pid {}  up {} s  {}  {}  {}\n",
        text(&broker["chain"]),
        broker["pid"],
        broker["uptimeSeconds"],
        output::counted(broker["sessions"].as_array().map_or(0, Vec::len), "session"),
        output::counted(broker["asks"].as_u64().unwrap_or_default(), "open question"),
        text(&broker["config"]),
    ))?;
    if let Some(reason) = broker.pointer("/refusing/reason").and_then(Value::as_str) {
        let lost = broker.pointer("/refusing/lost").unwrap_or(&Value::Null);
        output::text(&format!("  {BAD}calls are refused{BAD:#}: {}  {lost} records lost\n", escape_hidden(reason)))?;
    }
    if let Some(reason) = broker["configRefused"].as_str() {
        let reason = escape_hidden(reason);
        output::text(&format!("  {BAD}the changed configuration is not in force{BAD:#}: {reason}\n"))?;
    }
    for receiver in broker["receivers"].as_array().into_iter().flatten().filter(|receiver| receiver["failures"] != 0) {
        let (name, words) = (receiver_name(receiver), receiver_in_words(receiver));
        output::text(&match receiver["failing"] == true {
            true => format!("  {BAD}{name}{BAD:#}  {words}\n"),
            false => format!("  {name}  {words}\n"),
        })?;
    }
    for source in broker["sources"].as_array().into_iter().flatten() {
        let line = format!(
            "  {}  {}  {}  {}{}{}{}  {}{}",
            text(&source["name"]),
            text(&source["kind"]),
            text(&source["state"]),
            tools(source),
            source["quarantined"]
                .as_u64()
                .filter(|count| *count > 0)
                .map(|count| format!("  {count} quarantined"))
                .unwrap_or_default(),
            source["error_count"]
                .as_u64()
                .filter(|errors| *errors > 0)
                .map(|errors| format!("  {}", output::counted(errors, "error")))
                .unwrap_or_default(),
            source["group"].as_str().map(|group| format!("  group {}", escape_hidden(group))).unwrap_or_default(),
            cell(&source["cell"]),
            source["error"].as_str().map(escape_hidden).unwrap_or_default(),
        );
        output::text(&format!("{}\n", line.trim_end()))?;
        for missing in source["missing"].as_array().into_iter().flatten() {
            output::text(&format!("    {}\n", text(missing)))?;
        }
        // A wrapped server has no configuration that would name the folder.
        let folder = broker["dataDir"].as_str().filter(|_| broker["config"].is_null());
        let switch = folder.map(|folder| data_dir_switch(Path::new(folder))).unwrap_or_default();
        print_flagged(&source["flagged"], &switch)?;
        print_off(&source["off"])?;
    }
    for name in broker["disabled"].as_array().into_iter().flatten() {
        output::text(&format!("  {}  disabled\n", text(name)))?;
    }
    Ok(())
}

/// Returns how many tools a source has, or that nobody has asked it yet.
fn tools(source: &Value) -> String {
    match source["tools"].is_null() && source["error"].is_null() {
        true => "tools not listed yet".to_owned(),
        false => output::counted(source["tools_available"].as_u64().unwrap_or_default(), "tool"),
    }
}

/// Returns the tier, and the aspects that the kernel does not enforce for the whole source.
fn cell(cell: &Value) -> String {
    let isolation = &cell["isolation"];
    let Some(tier) = isolation["tier"].as_str() else { return String::new() };
    let aspects = isolation["aspects"].as_array().into_iter().flatten();
    let weak = aspects.filter(|aspect| aspect["strength"] != "enforced");
    let weak: Vec<String> =
        weak.map(|aspect| format!("{} {}", aspect["subject"], aspect["strength"]).replace('"', "")).collect();
    let but = if weak.is_empty() { String::new() } else { format!(" ({})", weak.join(", ")) };
    format!("{tier} cell{but}  ")
}
