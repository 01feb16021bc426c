//! The command-line arguments.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::command::{
    add, approvals, audit, call, check, clear, completions, connect, demo, doctor, edit, evaluate, import, init, learn,
    lock, login, logs, man, packages, plugin, policy, replay, restart, scan, schema, secret, serve, stats, status,
    tools, trust, version, wrap,
};

/// A deny-by-default broker for the Model Context Protocol.
///
/// An agent connects to one MCP endpoint, and the broker behind it to all configured sources. Every call passes
/// policies and approval, and is recorded before it is made. Start with `portcullis demo`.
#[derive(Debug, Parser)]
#[command(
    name = "portcullis",
    version,
    arg_required_else_help = true,
    max_term_width = 100,
    after_long_help = "\
Exit codes:
  0    the command did what was asked, and what it reports is good
  1    it failed, or what it reports is not good: a call failed, a required source is missing, a ledger was tampered with
  2    the arguments are invalid; for `audit verify`, `scan`, `evaluate`, `replay` and `policy prove`, the input cannot be judged
  130  it was interrupted, with Ctrl-C or another signal, before it was done
  141  the reader of its output went away, as with `portcullis audit | head`

Environment:
  PORTCULLIS_CONFIG  the configuration, as --config names it
  PORTCULLIS_LOG     what the program logs on standard error, such as `info` or `portcullis=debug`
  NO_COLOR           no colours

Files:
  portcullis.toml                        the configuration, here or in a folder above
  ~/.config/portcullis/portcullis.toml   the user's own
  .portcullis/                           the ledger, accepted tools and secrets, next to the configuration
  ~/.local/state/portcullis/             compiled plugins, and which configurations are trusted"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The options that every command takes.
#[derive(Debug, Clone, Args)]
pub(crate) struct GlobalArgs {
    /// The configuration [default: $PORTCULLIS_CONFIG; portcullis.toml here or in the nearest folder above if you trust
    /// it; the one in the user's configuration folder]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Print data as JSON, for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

impl GlobalArgs {
    /// Loads the configuration that the arguments name, or the one that was found. On a terminal the user is asked
    /// whether to trust the latter.
    pub(crate) fn load(&self) -> Result<portcullis::config::Config, portcullis::config::ConfigError> {
        trust::into_usable(portcullis::config::ConfigCandidate::load(self.config.as_deref())?)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::Args),
    Serve(serve::Args),
    Wrap(wrap::Args),
    Check(check::Args),
    Tools(tools::Args),
    Trust(trust::Args),
    Call(call::Args),
    Status(status::Args),
    Restart(restart::Args),
    Clear(clear::Args),
    Logs(logs::Args),
    Lock(lock::Args),
    Approvals(approvals::Args),
    Audit(audit::Args),
    Stats(stats::Args),
    Plugin(plugin::Args),
    Policy(policy::Args),
    Replay(replay::Args),
    Init(init::Args),
    Add(add::Args),
    Remove(edit::RemoveArgs),
    Enable(edit::EnableArgs),
    Disable(edit::DisableArgs),
    Set(edit::SetArgs),
    Import(import::Args),
    Install(packages::InstallArgs),
    Outdated(packages::OutdatedArgs),
    Upgrade(packages::UpgradeArgs),
    Connect(connect::Args),
    Secret(secret::Args),
    Login(login::Args),
    Logout(login::LogoutArgs),
    Learn(learn::Args),
    Evaluate(evaluate::Args),
    Scan(scan::Args),
    Schema(schema::Args),
    Completions(completions::Args),
    Man(man::Args),
    Doctor(doctor::Args),
    Version(version::Args),
}

impl Command {
    /// Returns the lowest level of the program's own log that is shown. A command that ends on its own reports as its
    /// result what a server can only log, and the tour explains the failures that it causes.
    pub(crate) fn log_level(&self) -> &'static str {
        match self {
            Self::Serve(_) | Self::Wrap(_) => "warn",
            Self::Demo(_) => "off",
            _ => "error",
        }
    }
}
