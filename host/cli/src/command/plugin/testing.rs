//! `portcullis plugin test`: runs plugins on fixtures, with the limits and permissions of production.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use portcullis::broker::user_plugin_host;
use portcullis::plugin::{PluginError, PluginHost};
use serde_json::json;

use super::decision::DecidingPlugins;
use super::fixture::Fixture;
use crate::output::{self, BAD, BOLD, escape_hidden};
use crate::runtime;

/// The folder whose fixtures are used if none are named.
const FOLDER: &str = "fixtures";

/// Runs the cases of these files, or of the folder `fixtures`. The exit code is 1 if a case differs.
pub(super) fn run(files: &[PathBuf], json: bool) -> anyhow::Result<ExitCode> {
    let files = if files.is_empty() { found(Path::new(FOLDER))? } else { files.to_vec() };
    let (cases, differing) = runtime::block_on(async {
        let host = user_plugin_host()?;
        let (mut cases, mut differing) = (0_usize, 0_usize);
        for file in &files {
            let fixture = Fixture::read(file)?;
            differing += tested(&host, &fixture, json).await?;
            cases += fixture.cases.len();
        }
        anyhow::Ok((cases, differing))
    })?;
    if !json {
        let style = if differing == 0 { BOLD } else { BAD };
        output::text(&format!("{style}{} of {cases} cases are as expected{style:#}\n", cases - differing))?;
    }
    Ok(if differing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the fixtures of a folder, in the order of their names.
fn found(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|error| {
        anyhow!("the folder `{}` cannot be read ({error}), and no file of fixtures is named", folder.display())
    })?;
    let files: Result<Vec<_>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut files = files?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    if files.is_empty() {
        bail!("there is no .toml file in the folder `{}`", folder.display());
    }
    files.sort();
    Ok(files)
}

/// Runs the cases of one file, and returns how many differ from what they expect.
async fn tested(host: &PluginHost, fixture: &Fixture, json: bool) -> anyhow::Result<usize> {
    let file = fixture.file.display().to_string();
    let plugins = DecidingPlugins::load(host, &fixture.config).await.map_err(|error| {
        let is_missing = matches!(
            error.downcast_ref(),
            Some(PluginError::Read { error, .. }) if error.kind() == std::io::ErrorKind::NotFound
        );
        let way_out = if is_missing { ": build the plugin first, or correct its path" } else { "" };
        error.context(format!("{file}{way_out}"))
    })?;
    let mut differing = 0;
    for case in &fixture.cases {
        let view = case.call.view().with_context(|| format!("{file}: the case {:?}", case.name))?;
        let decision = plugins.decide(&view).await;
        let differences = case.differences(&decision);
        differing += usize::from(!differences.is_empty());
        if json {
            let line =
                json!({ "file": file, "case": case.name, "ok": differences.is_empty(), "differences": differences });
            output::json_line(&line.to_string())?;
            continue;
        }
        let (style, word) = if differences.is_empty() { (BOLD, "ok") } else { (BAD, "differs") };
        output::text(&format!("{style}{word:7}{style:#}  {}\n", escape_hidden(&case.name)))?;
        for line in differences {
            output::text(&format!("         {}\n", escape_hidden(&line)))?;
        }
    }
    Ok(differing)
}
