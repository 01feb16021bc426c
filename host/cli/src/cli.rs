//! The arguments.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::command::{
    approvals, audit, call, check, completions, demo, import, lock, login, logs, plugin, restart, schema, secret,
    serve, status, tools, trust, wrap,
};

/// A deny-by-default broker for the Model Context Protocol.
///
/// An agent connects to one MCP endpoint; behind it stand tool sources. Every call passes policies and approval, and is
/// recorded before it is made. Start with `portcullis demo`.
#[derive(Debug, Parser)]
#[command(
    name = "portcullis",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// The configuration [default: ./portcullis.toml if you trust it, then the user's configuration folder]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Print data as JSON, for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

impl Global {
    /// The configuration that the arguments name, or one that was found and counts. On a terminal it is asked about.
    pub(crate) fn load(&self) -> Result<portcullis::config::Config, portcullis::config::ConfigError> {
        trust::counted(portcullis::config::Found::look(self.config.as_deref())?)
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
    Logs(logs::Args),
    Lock(lock::Args),
    Approvals(approvals::Args),
    Audit(audit::Args),
    Plugin(plugin::Args),
    Import(import::Args),
    Secret(secret::Args),
    Login(login::Args),
    Logout(login::LogoutArgs),
    Schema(schema::Args),
    Completions(completions::Args),
}

impl Command {
    /// From which level on the program's own log is shown. A command that ends by itself reports as its result what a
    /// server can only log, and the tour tells the failures that it causes.
    pub(crate) fn log_level(&self) -> &'static str {
        match self {
            Self::Serve(_) | Self::Wrap(_) => "warn",
            Self::Demo(_) => "off",
            _ => "error",
        }
    }
}
