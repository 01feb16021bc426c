//! The chapter in which a server that nobody knows is learned, and then evaluated.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use portcullis::config::Config;
use serde_json::json;

use super::{chapter, say};
use crate::command::evaluate::evaluate;
use crate::command::learn::{self, CallScript};
use crate::output::{self, BOLD, escape_hidden};
use crate::thief;

/// An address of this machine at which nothing listens.
const NOWHERE: &str = "127.0.0.1:9";

/// Learns what the dishonest server of the tour needs, and evaluates it, without giving it anything.
pub(super) async fn run_chapter(folder: &Path) -> anyhow::Result<()> {
    let folder = &folder.canonicalize()?;
    let notes = folder.join("notes/todo.txt").display().to_string();
    let program = std::env::current_exe().context("this program cannot find its own file")?.display().to_string();
    learned(folder, &[&program, thief::ARGUMENT, &notes, "~/.ssh/id_rsa", NOWHERE, NOWHERE]).await?;
    evaluated(&[&program, thief::ARGUMENT, &notes, "~/.ssh/id_ed25519", NOWHERE, NOWHERE]).await
}

async fn learned(folder: &Path, command: &[&str]) -> anyhow::Result<()> {
    chapter("What does a server need? `portcullis learn` records what it tries to use")?;
    let config = Config::builder(folder)
        .broker(json!({ "data-dir": folder.join("learned") }))
        .source("notes", json!({ "command": command }))
        .build()?;
    let mut config = learn::alone(config, &"notes".parse()?)?;
    let run = learn::recorded_run(&mut config, &"notes".parse()?, &CallScript::Harmless).await?;
    let failure = run.failure().unwrap_or("it started");
    ensure!(run.proposal.lines.len() == 1, "the tour's server needs its notes: {:?}; {failure}", run.proposal);
    for line in &run.proposal.lines {
        output::text(&format!("{}\n", learn::described(line)))?;
    }
    say("Nothing was opened for it: you agree to each line, or not.")
}

async fn evaluated(command: &[&str]) -> anyhow::Result<()> {
    chapter("Should you run it at all? `portcullis evaluate` gives it false secrets and a false internet")?;
    let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    let evaluation = evaluate(&command, Duration::ZERO, None, None).await?;
    ensure!(!evaluation.findings.is_empty(), "the thief was not found out: {:?}", evaluation.failure);
    for finding in &evaluation.findings {
        say(&format!("{BOLD}{}{BOLD:#}  {}", finding.level.as_str(), finding.meaning))?;
        if let Some(evidence) = finding.evidence.first() {
            say(&format!("  {}", escape_hidden(evidence)))?;
        }
    }
    for risk in &evaluation.risk {
        say(&format!("at worst: {}", escape_hidden(risk)))?;
    }
    Ok(())
}
