//! `portcullis status`

use std::path::PathBuf;
use std::process::ExitCode;

use portcullis::control::{self, Request};
use serde_json::{Value, json};

use crate::cli::Global;
use crate::output::{self, BOLD, visible};
use crate::run;

/// Show the running brokers: their sources, sessions and open questions
///
/// Exit code 1 if no broker runs, or a source of one has failed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Look only into this data folder
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, global: &Global) -> anyhow::Result<ExitCode> {
    let folders = run::data_dirs(global, args.data_dir.as_ref())?;
    let brokers = run::block_on(async {
        let mut brokers = Vec::new();
        for folder in folders {
            for (chain, answer) in control::all(&folder, &Request::Status).await? {
                brokers.push(answer.unwrap_or_else(|error| json!({ "chain": chain, "error": error.to_string() })));
            }
        }
        Ok(brokers)
    })?;
    let failed = |broker: &Value| {
        let sources = broker["sources"].as_array().into_iter().flatten();
        !broker["error"].is_null() || sources.into_iter().any(|source| source["state"] == "failed")
    };
    let good = !brokers.is_empty() && !brokers.iter().any(failed);
    if global.json {
        output::json(&json!(brokers))?;
    } else if brokers.is_empty() {
        output::note("no broker runs here");
    } else {
        brokers.iter().try_for_each(print)?;
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(broker: &Value) -> anyhow::Result<()> {
    let text = |value: &Value| match value {
        Value::String(text) => visible(text).into_owned(),
        Value::Null => "-".to_owned(),
        other => visible(&other.to_string()).into_owned(),
    };
    output::text(&format!(
        "{BOLD}broker {}{BOLD:#}  pid {}  up {} s  {} sessions  {} open questions  {}\n",
        text(&broker["chain"]),
        broker["pid"],
        broker["uptimeSeconds"],
        broker["sessions"].as_array().map_or(0, Vec::len),
        broker["asks"],
        text(&broker["config"]),
    ))?;
    for source in broker["sources"].as_array().into_iter().flatten() {
        let line = format!(
            "  {}  {}  {}  {} tools  {}{}",
            text(&source["name"]),
            text(&source["kind"]),
            text(&source["state"]),
            text(&source["tools"]),
            cell(&source["cell"]),
            source["error"].as_str().map(visible).unwrap_or_default(),
        );
        output::text(&format!("{}\n", line.trim_end()))?;
    }
    Ok(())
}

/// The tier, and what of it is not enforced by the kernel for the whole source.
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
