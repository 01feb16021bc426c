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

fn main() -> ExitCode {
    // A process source is launched through this very program; there is nothing to do before that.
    portcullis_jail::main_if_asked();
    thief::main_if_asked();
    let cli = cli::Cli::parse();
    output::log(cli.command.log_level());
    let json = cli.global.json;
    match command::run(cli) {
        Ok(code) => code,
        Err(error) => report::failure(&error, json),
    }
}
