//! The command line of Portcullis: it turns arguments into a `Config` and a `Broker`, and prints for people and
//! programs.

mod bundle;
mod call_query;
mod cell_proposals;
mod cli;
mod command;
mod completion;
mod config_file;
mod connect;
mod consent;
mod docker_credentials;
mod flagged;
mod identity;
mod isolation;
mod joint_verdict;
mod json_text;
mod manual;
mod moment;
mod output;
mod path_guess;
mod policy_hosts;
mod questions;
mod recorded_call;
mod reload;
mod report;
mod running;
mod runtime;
mod settings_changes;
mod standard_error;
#[cfg(test)]
mod tests;
mod thief;

use std::process::ExitCode;

use clap::Parser as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn main() -> ExitCode {
    // A process source is launched through this very program, and that must come before anything else.
    portcullis_jail::main_if_asked();
    thief::main_if_asked();
    completion::main_if_asked();
    raise_descriptors();
    give_large_blocks_back();
    let mut cli = cli::Cli::parse();
    cli.global.config = cli.global.config.take().or_else(portcullis::config::named_by_environment);
    output::log(cli.command.log_level());
    let json = cli.global.json;
    // The message of a panic is also written.
    let _finish = standard_error::FinishOnDrop;
    match command::run(cli) {
        Ok(code) => code,
        Err(error) => report::failure(&error, json),
    }
}

/// Raises the limit on open descriptors to its maximum: agents, sources and the files of components need more than many
/// systems give a program at first. The maximum stays what the system's administrator has set. Cells have a limit of
/// their own.
fn raise_descriptors() {
    let most = getrlimit(Resource::Nofile).maximum;
    // If this fails, there are fewer descriptors, and what needs more reports an error.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
}

/// Has the C library give each large block of memory its own pages, which are returned to the system with it. By
/// default it stops doing so for blocks of up to 32 MiB once one of that size was freed, and keeps the memory of a
/// burst of large messages for ever.
#[cfg(target_env = "gnu")]
fn give_large_blocks_back() {
    /// The size of a large block in bytes: more than ordinary calls need.
    const LARGE: libc::c_int = 1024 * 1024;
    #[allow(unsafe_code, reason = "the only way to set this after the program has started")]
    // SAFETY: it takes two numbers, and no other thread has been started.
    unsafe {
        // If this is refused, everything works, but more memory is kept.
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * LARGE);
    }
}

/// Does nothing: other C libraries, and the one of static programs, already return large blocks.
#[cfg(not(target_env = "gnu"))]
fn give_large_blocks_back() {}
