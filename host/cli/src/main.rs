//! The command line of Portcullis: arguments → `Config` → `Broker`, and what people read of it.

mod cli;
mod command;
mod output;
mod report;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let json = cli.global.json;
    match command::run(cli) {
        Ok(code) => code,
        Err(error) => report::failure(&error, json),
    }
}
