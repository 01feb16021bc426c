//! `portcullis man`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use portcullis::config::most_similar;

use crate::{manual, output};

/// Print the manual page of a command
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis man | man -l -
  portcullis man audit show | man -l -
  portcullis man --to ~/.local/share/man/man1")]
pub(crate) struct Args {
    /// The command, such as `audit show` [default: the program itself]
    #[arg(value_name = "WORD")]
    words: Vec<String>,

    /// Write the pages of all commands into this folder instead
    #[arg(long, value_name = "DIR", conflicts_with = "words")]
    to: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.to {
        Some(folder) => write_all(folder)?,
        None => print(&args.words)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print(words: &[String]) -> anyhow::Result<()> {
    let wanted = std::iter::once("portcullis").chain(words.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    let pages = manual::pages()?;
    let Some(page) = pages.iter().find(|page| page.command == wanted) else {
        // The first word is the same in all, and would make every command look similar.
        let known = pages.iter().filter_map(|page| page.command.strip_prefix("portcullis "));
        let near = most_similar(&words.join(" "), known);
        let near = near.map(|near| format!("did you mean `portcullis {near}`?"));
        bail!(
            "there is no command `{}`; {}",
            output::escape_hidden(&wanted),
            near.unwrap_or_else(|| "`portcullis help` lists the commands".to_owned())
        );
    };
    output::text(&String::from_utf8_lossy(&page.text))
}

fn write_all(folder: &Path) -> anyhow::Result<()> {
    let shown = output::escape_hidden(&folder.to_string_lossy()).into_owned();
    std::fs::create_dir_all(folder).with_context(|| format!("{shown} cannot be created"))?;
    let pages = manual::pages()?;
    for page in &pages {
        std::fs::write(folder.join(&page.file), &page.text)
            .with_context(|| format!("{shown}/{} cannot be written", page.file))?;
    }
    output::message(&format!("{} pages are in {shown}", pages.len()));
    Ok(())
}
