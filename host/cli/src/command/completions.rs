//! `portcullis completions`

use std::process::ExitCode;

use anyhow::Context as _;

use crate::{completion, output};

/// Print the completion script of a shell
///
/// The script asks this program whenever the shell completes a word: for commands and options, and for the sources,
/// tools, profiles and plugins of the configuration that the command would use, if that is trusted. Print it again
/// after an upgrade.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis completions bash > ~/.local/share/bash-completion/completions/portcullis
  portcullis completions zsh > ~/.zfunc/_portcullis
  portcullis completions fish > ~/.config/fish/completions/portcullis.fish")]
pub(crate) struct Args {
    /// The shell
    shell: clap_complete::Shell,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let script = completion::script(&args.shell.to_string())?.context("this shell has no completions")?;
    output::text(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
