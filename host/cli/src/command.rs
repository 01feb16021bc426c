//! The commands, each with its arguments, its help, and its action. Commands that belong together share a module.

pub(crate) mod add;
pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod call;
pub(crate) mod check;
pub(crate) mod clear;
pub(crate) mod completions;
pub(crate) mod connect;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod edit;
pub(crate) mod evaluate;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod learn;
pub(crate) mod lock;
pub(crate) mod login;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod packages;
pub(crate) mod plugin;
pub(crate) mod policy;
pub(crate) mod replay;
pub(crate) mod restart;
pub(crate) mod scan;
pub(crate) mod schema;
pub(crate) mod secret;
pub(crate) mod serve;
pub(crate) mod stats;
pub(crate) mod status;
pub(crate) mod tools;
pub(crate) mod trust;
pub(crate) mod version;
pub(crate) mod wrap;

use std::process::ExitCode;

use crate::cli::{Cli, Command};

/// Runs the command. The exit code is 0 only if the result is good.
pub(crate) fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let Cli { global, command } = cli;
    match command {
        Command::Demo(args) => demo::run(&args, &global),
        Command::Serve(args) => serve::run(&args, &global),
        Command::Wrap(args) => wrap::run(&args, &global),
        Command::Check(args) => check::run(&args, &global),
        Command::Tools(args) => tools::run(&args, &global),
        Command::Trust(args) => trust::run(&args, &global),
        Command::Call(args) => call::run(&args, &global),
        Command::Status(args) => status::run(&args, &global),
        Command::Clear(args) => clear::run(&args, &global),
        Command::Restart(args) => restart::run(&args, &global),
        Command::Logs(args) => logs::run(&args, &global),
        Command::Lock(args) => lock::run(&args, &global),
        Command::Approvals(args) => approvals::run(&args, &global),
        Command::Audit(args) => audit::run(&args, &global),
        Command::Stats(args) => stats::run(&args, &global),
        Command::Plugin(args) => plugin::run(&args, &global),
        Command::Policy(args) => policy::run(&args, &global),
        Command::Replay(args) => replay::run(&args, &global),
        Command::Init(args) => init::run(&args, &global),
        Command::Add(args) => add::run(&args, &global),
        Command::Remove(args) => edit::remove(&args, &global),
        Command::Enable(args) => edit::enable(&args, &global),
        Command::Disable(args) => edit::disable(&args, &global),
        Command::Set(args) => edit::set(&args, &global),
        Command::Connect(args) => connect::run(&args, &global),
        Command::Import(args) => import::run(&args, &global),
        Command::Install(args) => packages::install(&args, &global),
        Command::Outdated(args) => packages::outdated(&args, &global),
        Command::Upgrade(args) => packages::upgrade(&args, &global),
        Command::Secret(args) => secret::run(&args, &global),
        Command::Login(args) => login::run(&args, &global),
        Command::Logout(args) => login::logout(&args, &global),
        Command::Learn(args) => learn::run(&args, &global),
        Command::Evaluate(args) => evaluate::run(&args, &global),
        Command::Scan(args) => scan::run(&args, &global),
        Command::Schema(args) => schema::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Doctor(args) => doctor::run(&args, &global),
        Command::Version(args) => version::run(&args, &global),
    }
}
