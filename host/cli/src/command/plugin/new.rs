//! `portcullis plugin new`: a folder with a plugin that works, its fixtures, and a configuration to try it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use serde_json::json;

use super::template::{self, Template};
use crate::command::init;
use crate::output::{self, BOLD, escape_hidden};

/// The languages for which there are templates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Language {
    Rust,
    #[value(name = "javascript", alias = "js")]
    JavaScript,
    Python,
}

/// The kinds of plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// Decides whether a call may go on
    Policy,
    /// Rewrites arguments and results
    Transform,
    /// Decides which earlier answers of a person count again
    Approval,
    /// Takes the records of the ledger elsewhere
    Audit,
    /// Offers tools: a source
    Tools,
}

/// Makes the folder. Nothing that is there already is changed.
pub(super) fn run(folder: &Path, language: Language, kind: Kind, json: bool) -> anyhow::Result<ExitCode> {
    let name = plugin_name(folder)?;
    if fs::symlink_metadata(folder).is_ok() {
        bail!("{} exists already: name a folder that does not", folder.display());
    }
    let template = Template::of(language, kind);
    let files = template.files(&name);
    for (path, text) in &files {
        let file = folder.join(path);
        match path == Path::new(template::CONFIG) {
            true => drop(init::make(&file, text)?),
            false => write(&file, text)?,
        }
    }
    let steps = template.steps(&name);
    if json {
        let files: Vec<&PathBuf> = files.iter().map(|(path, _)| path).collect();
        output::json(&json!({ "folder": folder, "files": files, "steps": steps }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let shown = escape_hidden(&folder.to_string_lossy()).into_owned();
    output::message(&format!("{shown} has {BOLD}{}{BOLD:#}; next:", template.source_file()));
    output::message(&format!("  cd {shown}"));
    steps.iter().for_each(|step| output::message(&format!("  {step}")));
    Ok(ExitCode::SUCCESS)
}

/// Returns the name of the plugin, which is that of its folder.
fn plugin_name(folder: &Path) -> anyhow::Result<String> {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let is_name = name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(plain)
        && !name.ends_with('-')
        && !name.contains("--");
    if !is_name {
        bail!(
            "{name:?} is not a name for a plugin: use lower-case letters, digits and single dashes, such as `no-deletes`"
        );
    }
    Ok(name.to_owned())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, text));
    made.with_context(|| format!("{} cannot be written", path.display()))
}
