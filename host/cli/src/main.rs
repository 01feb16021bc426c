//! The command line of Portcullis: arguments → `Config` → `Broker`, and what people read of it.

mod cli;
mod command;
mod isolation;
mod output;
mod report;
mod run;
#[cfg(test)]
mod tests;
mod thief;

use std::process::ExitCode;

use clap::Parser as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn main() -> ExitCode {
    // A process source is launched through this very program; there is nothing to do before that.
    portcullis_jail::main_if_asked();
    thief::main_if_asked();
    raise_descriptors();
    let cli = cli::Cli::parse();
    output::log(cli.command.log_level());
    let json = cli.global.json;
    match command::run(cli) {
        Ok(code) => code,
        Err(error) => report::failure(&error, json),
    }
}

/// Agents, sources and the files of components need more descriptors than many systems give a program at first. What it may have
/// at most is for whoever set that. Cells have a limit of their own.
fn raise_descriptors() {
    let most = getrlimit(Resource::Nofile).maximum;
    // Without it there are fewer, and what needs more says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
}
