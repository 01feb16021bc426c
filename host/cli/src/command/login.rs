//! `portcullis login` and `portcullis logout`

use std::process::ExitCode;

use portcullis::login;
use portcullis::name::SourceName;
use portcullis::oauth::{self, LogoutOutcome};
use serde_json::json;

use crate::cli::GlobalArgs;
use crate::runtime::{self, Interrupted};
use crate::{completion, output};

/// Log in to a source that requires OAuth
///
/// Prints an address to open in a browser on this machine, which is then redirected to 127.0.0.1. The tokens are kept
/// sealed in the data folder, sent to that source alone, and renewed as long as its server allows; a running broker
/// uses them from its next request on. A source that needs more scopes later says so: log in again, which keeps the
/// scopes that were granted.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
A source that wants a login says so in `portcullis check`. Most need no configuration; a client that was registered by hand
stands in `oauth = { client-id = \"…\", issuer = \"https://…\" }` of the source.

Examples:
  portcullis login tickets
  portcullis login tickets --port 8976    # from another machine: ssh -L 8976:127.0.0.1:8976")]
pub(crate) struct Args {
    /// The name of the source
    #[arg(add = completion::sources())]
    source: SourceName,

    /// Listen for the browser at this port of 127.0.0.1 [default: a free one]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
}

/// Forget a login
///
/// The server that issued the tokens is asked to revoke them, if it supports that; otherwise they stay valid there
/// until they expire.
#[derive(Debug, clap::Args)]
pub(crate) struct LogoutArgs {
    /// The name of the source
    #[arg(add = completion::sources())]
    source: SourceName,
}

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let config = global.load()?;
    let show = |address: &str| {
        output::message(&format!(
            "open this in a browser on this machine:\n\n  {address}\n\nwaiting for it to come back…"
        ));
    };
    let logged_in = runtime::block_on(async {
        let interrupted = runtime::interruption()?;
        tokio::select! {
            logged_in = login::login(&config, &args.source, args.port, show) => Ok(logged_in?),
            () = interrupted => Err(Interrupted("interrupted; nothing has changed").into()),
        }
    })?;
    if global.json {
        output::json(&json!({
            "source": args.source,
            "issuer": logged_in.issuer,
            "scopes": logged_in.scopes,
            "expiresIn": logged_in.lasts.map(|lasts| lasts.as_secs()),
            "renews": logged_in.renews,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let lasts = match (logged_in.renews, logged_in.lasts) {
        (true, _) => "it is renewed automatically".to_owned(),
        (false, Some(lasts)) => format!("it lasts {} min", lasts.as_secs() / 60),
        (false, None) => "it lasts as long as its server says".to_owned(),
    };
    let (source, issuer) = (&args.source, output::escape_hidden(&logged_in.issuer).into_owned());
    output::message(&format!("logged in to {source} by {issuer}; {lasts}"));
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn logout(args: &LogoutArgs, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let (source, config) = (&args.source, global.load()?);
    let Some(logged_out) = runtime::block_on(async { Ok(oauth::logout(&config, source).await?) })? else {
        anyhow::bail!("there is no login of source {source}")
    };
    let why = match &logged_out {
        LogoutOutcome::Revoked => None,
        LogoutOutcome::NotRevoked(why) => Some(output::escape_hidden(why).into_owned()),
        _ => Some("its server does not support that".to_owned()),
    };
    if global.json {
        output::json(&json!({ "source": source, "revoked": why.is_none(), "why": why }))?;
        return Ok(ExitCode::SUCCESS);
    }
    output::message(&match why {
        None => format!("the login of {source} is forgotten, and its server has revoked the tokens"),
        Some(why) => format!(
            "the login of {source} is forgotten; its tokens were not revoked ({why}) and stay valid until they expire"
        ),
    });
    Ok(ExitCode::SUCCESS)
}
