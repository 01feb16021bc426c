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
    give_large_blocks_back();
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

/// Has the C library give each large block of memory pages of its own, which go back to the system with it. Left alone, it stops
/// doing so for blocks of up to 32 MiB once one of that size was freed, and a burst of large messages is kept for good.
#[cfg(target_env = "gnu")]
fn give_large_blocks_back() {
    /// In bytes: beyond what calls take that are not large.
    const LARGE: libc::c_int = 1024 * 1024;
    #[allow(unsafe_code, reason = "the only way to set this after the program has started")]
    // SAFETY: it takes two numbers, and no other thread has been started.
    unsafe {
        // Where it is refused, all works and more memory is kept.
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * LARGE);
    }
}

/// Other C libraries give large blocks back by themselves.
#[cfg(not(target_env = "gnu"))]
fn give_large_blocks_back() {}
