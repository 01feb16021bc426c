//! `portcullis login` and `portcullis logout`

use std::process::ExitCode;

use portcullis::login;
use portcullis::name::SourceName;
use portcullis::oauth::{self, LoggedOut};
use serde_json::json;

use crate::cli::Global;
use crate::{output, run};

/// Log in to a source that wants OAuth
///
/// Prints an address to open in a browser on this machine, which comes back to 127.0.0.1. What comes of it is kept sealed in the
/// data folder, sent to that source alone, and renewed as long as its server allows; a running broker uses it from its next
/// request on. A source that wants more scopes later says so: log in again, and nothing that was granted is lost.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
A source that wants a login says so in `portcullis check`. Most need no configuration; a client that was registered by hand
stands in `oauth = { client-id = \"…\", issuer = \"https://…\" }` of the source.

Examples:
  portcullis login tickets
  portcullis login tickets --port 8976    # from another machine: ssh -L 8976:127.0.0.1:8976")]
pub(crate) struct Args {
    /// The source
    source: SourceName,

    /// Listen for the browser at this port of 127.0.0.1 [default: one that is free]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
}

/// Forget a login
///
/// Its tokens are taken back at the server that issued them, if that offers it; else they stay good there until they expire.
#[derive(Debug, clap::Args)]
pub(crate) struct LogoutArgs {
    /// The source
    source: SourceName,
}

pub(crate) fn run(args: &Args, global: &Global) -> anyhow::Result<ExitCode> {
    let config = global.load()?;
    let show = |address: &str| {
        output::note(&format!(
            "open this in a browser on this machine:\n\n  {address}\n\nwaiting for it to come back…"
        ));
    };
    let logged_in = run::block_on(async {
        tokio::select! {
            logged_in = login::login(&config, &args.source, args.port, show) => Ok(logged_in?),
            _ = run::asked_to_end() => anyhow::bail!("given up; nothing has changed"),
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
        (true, _) => "it is renewed by itself".to_owned(),
        (false, Some(lasts)) => format!("it lasts {} min", lasts.as_secs() / 60),
        (false, None) => "it lasts as long as its server says".to_owned(),
    };
    let (source, issuer) = (&args.source, output::visible(&logged_in.issuer).into_owned());
    output::note(&format!("logged in to {source} by {issuer}; {lasts}"));
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn logout(args: &LogoutArgs, global: &Global) -> anyhow::Result<ExitCode> {
    let (source, config) = (&args.source, global.load()?);
    let Some(logged_out) = run::block_on(async { Ok(oauth::logout(&config, source).await?) })? else {
        anyhow::bail!("there is no login of source {source}")
    };
    let why = match &logged_out {
        LoggedOut::Revoked => None,
        LoggedOut::NotRevoked(why) => Some(output::visible(why).into_owned()),
        _ => Some("its server does not offer it".to_owned()),
    };
    if global.json {
        output::json(&json!({ "source": source, "revoked": why.is_none(), "why": why }))?;
        return Ok(ExitCode::SUCCESS);
    }
    output::note(&match why {
        None => format!("the login of {source} is forgotten, and its server has taken the tokens back"),
        Some(why) => format!(
            "the login of {source} is forgotten; its tokens were not taken back ({why}) and stay good until they expire"
        ),
    });
    Ok(ExitCode::SUCCESS)
}
