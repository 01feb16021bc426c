//! `portcullis init`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use portcullis::config::{Config, real_file, user_trust};

use crate::cli::GlobalArgs;
use crate::command::{edit, trust};
use crate::config_file;
use crate::output::{self, escape_hidden};

/// The file that is made unless another is named.
pub(crate) const FILE: &str = "portcullis.toml";

/// The mode of a file that is made: whatever the user's mask allows, others may not write it, or it would be refused.
const MODE: u32 = 0o644;

/// The first lines of every file that is made.
pub(crate) const HEAD: &str = "\
# The configuration of Portcullis. `portcullis schema` lists every key, and `portcullis check` tries everything.
";

/// The rest of the file that `init` makes.
const BODY: &str = r#"
# A source is a program, an address or a component. `portcullis add NAME -- COMMAND` writes such an entry.
[sources.calc]
component = "builtin:calculator"

# A program sees nothing of this machine but what its cell opens: no file, no host, no variable.
# [sources.files]
# command = ["npx", "-y", "@modelcontextprotocol/server-filesystem", "./docs"]
# cwd = "."
# cell = { read = ["./docs"] }

# `portcullis secret set tickets-token` keeps the value out of this file.
# [sources.tickets]
# url = "https://mcp.example.com/mcp"
# headers = { Authorization = { secret = "tickets-token" } }

# What an agent may see, and when a person is asked: "risky" calls (the default), "always" or "never".
[profiles.default]
approve = "risky"
"#;

/// Write a commented configuration to begin with
///
/// Makes `portcullis.toml` in this folder, or the file that `--config` names, and trusts it as it is written. A file
/// that exists is left as it is.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis init && portcullis check")]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let named = global.config.as_deref().unwrap_or(Path::new(FILE));
    if global.config.is_none() {
        // A file that is only found counts once it is trusted, and then the user's state folder must be there.
        drop(user_trust()?.lock_edits().map_err(|error| {
            let path = named.display();
            anyhow!(
                "{path} is not written, because it could not be trusted: {error}; set HOME or XDG_STATE_HOME to a folder \
                 that you may write, or name the file with `--config {path}` here and where it is used"
            )
        })?);
    }
    let file = make(named, &format!("{HEAD}{BODY}"))?;
    edit::report(global, "a configuration is written to", &file)?;
    if !global.json {
        output::message("next: `portcullis add NAME -- COMMAND`, then `portcullis check`");
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes a configuration file with this text, which the user trusts, and returns its path.
///
/// # Errors
/// If it exists, or cannot be written.
pub(crate) fn make(file: &Path, text: &str) -> anyhow::Result<PathBuf> {
    let file = create(file, text)?;
    trust::keep_made(&file, text);
    Ok(file)
}

/// Makes a configuration file with this text, and returns its path.
///
/// # Errors
/// If it exists, or cannot be written.
pub(crate) fn create(file: &Path, text: &str) -> anyhow::Result<PathBuf> {
    let shown = escape_hidden(&file.to_string_lossy()).into_owned();
    // The written text must be readable, or the next command fails.
    Config::parse(text, file)?;
    match config_file::make(file, text.as_bytes(), MODE) {
        Ok(()) => Ok(real_file(file)),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("{shown} exists and is left as it is: change it with `portcullis add` and `portcullis set`")
        }
        Err(error) => bail!("{shown} cannot be made: {error}"),
    }
}
