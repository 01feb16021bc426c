//! `portcullis wrap`

use std::env::VarError;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use portcullis::config::{Approve, Config, Naming, WrapOptions};
use portcullis::protocol::Era;

use crate::cell_proposals::UnmetNeeds;
use crate::cli::GlobalArgs;
use crate::command::{learn, serve};
use crate::{isolation, output, questions, reload, runtime};

/// Put the broker in front of one command, over stdio, without a configuration file
///
/// This is a small change in a client's configuration: `npx -y some-server` becomes `portcullis wrap -- npx -y
/// some-server`. Names stay as they are, the server's questions to the user and its requests for roots reach the agent,
/// and the server starts in the folder where its client would have started it. Of the environment it sees PATH, HOME,
/// LANG, TMPDIR and what --env names; Python also sees PYTHONHASHSEED=0, so that it describes its tools alike at each
/// start. Ledger, questions and accepted tools are kept in the user's data folder; --config is not read.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis wrap -- npx -y @modelcontextprotocol/server-everything
  portcullis wrap --read ./docs -- npx -y @modelcontextprotocol/server-filesystem ./docs
  portcullis wrap --env API_KEY --network api.example.com:443 --approve never -- uvx some-server")]
pub(crate) struct Args {
    /// A file or folder that the server may read; no other one exists for it
    #[arg(long, value_name = "P")]
    pub(crate) read: Vec<String>,

    /// A file or folder that the server may read and write
    #[arg(long, value_name = "P")]
    pub(crate) write: Vec<String>,

    /// A host and port that the server may reach; it has no other network
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) network: Vec<String>,

    /// An environment variable of the server: NAME=VALUE, or NAME for the value that it has here
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,

    /// A part of the agent's `_meta` that reaches the server: a key, `user_context` or `request_id`
    #[arg(long, value_name = "KEY")]
    pub(crate) context: Vec<String>,

    /// The only era of MCP that is spoken with the server [default: the agent's]
    #[arg(long, value_name = "ERA")]
    pub(crate) era: Option<SpokenEra>,

    /// How tools are named for the agent [default: as the server names them]
    #[arg(long, value_name = "STYLE")]
    pub(crate) names: Option<NamingArg>,

    /// Let the server use the agent's model, if the agent offers that
    #[arg(long)]
    pub(crate) sampling: bool,

    /// When to ask a person [default: risky]
    #[arg(long, value_name = "WHEN")]
    pub(crate) approve: Option<ApproveArg>,

    /// Record what the server tries while the agent uses it, and print the switches that its cell lacks when it ends
    #[arg(long)]
    pub(crate) learn: bool,

    /// Where the ledger and questions are kept [default: the user's data folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,

    /// The server's program and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum SpokenEra {
    /// With `initialize`, up to 2025-11-25
    Legacy,
    /// Without it, from 2026-07-28
    Modern,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum NamingArg {
    /// As the server names them
    Plain,
    /// `server__tool`
    Source,
    /// `mcp__server__tool`
    Mcp,
}

#[derive(Debug, Clone, Copy, PartialEq, clap::ValueEnum)]
pub(crate) enum ApproveArg {
    /// Before risky calls
    Risky,
    /// Before every call
    Always,
    /// Never, which the ledger records
    Never,
}

pub(crate) fn run(args: &Args, _: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let wrap = WrapOptions {
        argv: args.command.clone(),
        read: args.read.clone(),
        write: args.write.clone(),
        network: args.network.clone(),
        env: args.env.clone(),
        names: args.names.map(|names| match names {
            NamingArg::Plain => Naming::Plain,
            NamingArg::Source => Naming::Source,
            NamingArg::Mcp => Naming::Mcp,
        }),
        era: args.era.map(|era| match era {
            SpokenEra::Legacy => Era::Legacy,
            SpokenEra::Modern => Era::Modern,
        }),
        context: args.context.clone(),
        sampling: args.sampling,
        approve: args.approve.map(|when| match when {
            ApproveArg::Risky => Approve::Risky,
            ApproveArg::Always => Approve::Always,
            ApproveArg::Never => Approve::Never,
        }),
        data_dir: args.data_dir.as_ref().map(std::path::absolute).transpose()?,
        base: std::env::current_dir().context("the working directory is gone")?,
    };
    let mut config = Config::for_wrap(&wrap)?;
    config.sources.values_mut().for_each(|source| source.cell.recorded = args.learn);
    runtime::serve(async {
        let own = config.own_files();
        for lack in config.sources.values().filter_map(|source| UnmetNeeds::of(source, &own)) {
            output::message(&lack.switches());
        }
        // There is no file that could be reloaded.
        let mut hangups = runtime::hangups()?;
        tokio::spawn(async move { while hangups.recv().await.is_some() {} });
        let broker = runtime::broker(config).await?;
        tokio::spawn(reload::follow_lock_file(broker.clone()));
        tokio::spawn(questions::print(broker.clone()));
        isolation::banner(&broker).await;
        let served = serve::stdio(broker.clone(), runtime::profile(None)?).await;
        broker.shutdown().await;
        if args.learn {
            learn::switches(&broker);
        }
        served.map(|()| ExitCode::SUCCESS)
    })
}

/// Reads a variable with its value, or with the one that it has in the environment of this command.
#[expect(clippy::disallowed_methods, reason = "the person names the variable of their own environment")]
fn variable(text: &str) -> Result<(String, String), String> {
    if let Some((name, value)) = text.split_once('=') {
        return Ok((name.to_owned(), value.to_owned()));
    }
    let value = std::env::var(text).map_err(|error| match error {
        VarError::NotPresent => format!("{text} is not set here; write {text}=VALUE"),
        VarError::NotUnicode(_) => format!("the value of {text} is not UTF-8"),
    })?;
    Ok((text.to_owned(), value))
}
