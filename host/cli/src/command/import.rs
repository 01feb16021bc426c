//! `portcullis import`

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use crate::cli::Global;
use crate::command::trust;
use crate::{known, output};

/// More than any client writes. The library's own limit is lower, so it refuses a file that is cut off here.
const MAX_BYTES: u64 = 4 << 20;

/// Turn another client's mcpServers JSON into a portcullis.toml
///
/// Reads the files of Claude Desktop, Claude Code, Cursor and VS Code, and mcp_servers.json. The configuration is
/// printed; nothing is started. The cell of a widely used server is proposed as it was measured. If standard output is
/// a file named portcullis.toml, that file is trusted as it was written, unless it opens something: then `check` shows
/// what, and asks. Values that look like secrets are left out: the commands that set them, and everything else that
/// needs your attention, are printed to standard error.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis import ~/.cursor/mcp.json > portcullis.toml
  portcullis import .vscode/mcp.json
  cat claude_desktop_config.json | portcullis import -")]
pub(crate) struct Args {
    /// The JSON file, or `-` for standard input
    file: PathBuf,
}

pub(crate) fn run(args: &Args, global: &Global) -> anyhow::Result<ExitCode> {
    let shown = output::escape_hidden(&args.file.to_string_lossy()).into_owned();
    let text = read(&args.file).with_context(|| format!("{shown} cannot be read"))?;
    let mut imported =
        portcullis::config::import::import(&text).with_context(|| format!("{shown} cannot be imported"))?;
    let file = std::env::current_dir().context("the working directory is gone")?.join(trust::FILE);
    let written = std::mem::take(&mut imported.toml);
    // What is no configuration yet, because a file beside it is missing, is printed as it was imported.
    let (toml, proposals) = known::propose(&written, &file).unwrap_or_else(|_| (written.clone(), Vec::new()));
    let is_proposal = toml != written;
    imported.notes.extend(proposals);
    imported.toml = toml;
    if global.json {
        let secrets = imported.secrets.iter().map(|s| serde_json::json!({ "name": s.name, "origin": s.origin }));
        output::json(&serde_json::json!({
            "toml": imported.toml, "secrets": secrets.collect::<Vec<_>>(), "notes": imported.notes,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    output::text(&imported.toml)?;
    match is_proposal {
        true => {
            output::note("cells were proposed, so the file is not trusted yet: `portcullis check` shows them and asks")
        }
        false => trust::keep_printed(&imported.toml),
    }
    for note in &imported.notes {
        output::note(&format!("note: {note}"));
    }
    if !imported.secrets.is_empty() {
        output::note("set these secrets before the sources start (each command reads the value from standard input):");
    }
    for secret in &imported.secrets {
        output::note(&format!("  portcullis secret set {}    # {}", secret.name, secret.origin));
    }
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin().take(MAX_BYTES).read_to_string(&mut text)?;
    } else {
        std::fs::File::open(file)?.take(MAX_BYTES).read_to_string(&mut text)?;
    }
    Ok(text)
}
