//! One module per command: its arguments, its help, what it does.

pub(crate) mod completions;
pub(crate) mod import;
pub(crate) mod schema;
pub(crate) mod secret;
// Their arguments alone so far; they run nothing until the broker is there.
#[cfg(test)]
pub(crate) mod serve;
#[cfg(test)]
pub(crate) mod wrap;

use std::process::ExitCode;

use crate::cli::{Cli, Command};

/// Runs the command. The exit code is 0 only where the answer is good.
pub(crate) fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let Cli { global, command } = cli;
    match command {
        Command::Import(args) => import::run(&args, &global),
        Command::Secret(args) => secret::run(&args, &global),
        Command::Schema(args) => schema::run(&args),
        Command::Completions(args) => completions::run(&args),
    }
}
