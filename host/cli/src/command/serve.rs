//! `portcullis serve`

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use portcullis::broker::Broker;
use portcullis::control::{self, ControlRequest};
use portcullis::front::http::{FrontError, HttpFront, MCP_PATH, token};
use portcullis::front::stdio::{serve_local, serve_stdio};
use portcullis::name::ProfileName;

use crate::cli::GlobalArgs;
use crate::reload::{self, ServeArguments};
use crate::{completion, isolation, output, questions, runtime};

/// Serve the configured sources as one MCP endpoint
///
/// Listens for HTTP at http://127.0.0.1:8765/mcp unless the configuration or --listen says otherwise; callers need the
/// bearer token, which is made on first use and kept in the data folder. With --stdio, serves one agent over standard
/// input and output. Sources start when the first agent asks for tools. A change to the configuration file takes effect
/// at once, or on SIGHUP; a file with an error is refused, and `portcullis status` says why. Ctrl-C lets open calls
/// finish, then ends; calls that take longer get an error that says so.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis serve
  portcullis serve --stdio --profile reviewer
  portcullis serve --listen 127.0.0.1:9000")]
pub(crate) struct Args {
    /// Serve one agent over standard input and output instead of HTTP
    #[arg(long)]
    pub(crate) stdio: bool,

    /// Listen at this address instead of the one in [serve]
    #[arg(long, value_name = "ADDR", conflicts_with = "stdio")]
    pub(crate) listen: Option<SocketAddr>,

    /// Reload the configuration on SIGHUP only, and not when its file or that of a plugin changes
    #[arg(long)]
    pub(crate) no_watch: bool,

    /// Serve callers under this profile [default: default]
    #[arg(long, value_name = "P", add = completion::profiles())]
    pub(crate) profile: Option<String>,
}

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let arguments = ServeArguments { named: global.config.clone(), listen: args.listen, watched: !args.no_watch };
    let config = arguments.applied(global.load()?);
    let profile = runtime::profile(args.profile.as_deref())?;
    if config.sources.is_empty() {
        let file = config.file.unwrap_or_default();
        bail!("{}: there is nothing to serve: no source is configured (add a [sources.NAME] table)", file.display());
    }
    if !config.profiles.contains_key(&profile) {
        let known: Vec<_> = config.profiles.keys().map(ProfileName::as_str).collect();
        bail!("--profile {profile}: no such profile is configured; the configuration has {}", known.join(", "));
    }
    runtime::serve(async {
        let hangups = runtime::hangups()?;
        let broker = runtime::broker(config).await?;
        isolation::banner(&broker).await;
        tokio::spawn(reload::follow_lock_file(broker.clone()));
        tokio::spawn(questions::print(broker.clone()));
        tokio::spawn(reload::follow(broker.clone(), arguments, hangups));
        let local = tokio::spawn(serve_local(broker.clone(), std::future::pending()));
        let served = match args.stdio {
            true => stdio(broker.clone(), profile).await,
            false => http(broker.clone(), profile).await,
        };
        local.abort();
        broker.shutdown().await;
        served.map(|()| ExitCode::SUCCESS)
    })
}

pub(super) async fn stdio(broker: Broker, profile: ProfileName) -> anyhow::Result<()> {
    let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
    Ok(serve_stdio(broker, profile, input, output, runtime::stop_signal()?).await?)
}

async fn http(broker: Broker, profile: ProfileName) -> anyhow::Result<()> {
    let serve = broker.config().serve.clone();
    let data_dir = broker.config().data_dir.clone();
    // A reader of the message that the broker serves may ask it to stop.
    let stop = runtime::stop_signal()?;
    let front = match HttpFront::bind(&broker, profile).await {
        Err(FrontError::InUse(address)) => bail!("{}", in_use(address, &data_dir).await),
        bound => bound?,
    };
    output::message(&format!("serving http://{}{MCP_PATH}", front.address()));
    if let Some(jwt) = &serve.jwt {
        output::message(&format!("tokens of {} are accepted too", jwt.issuer));
    }
    match (serve.dangerous_no_token, &serve.token) {
        (true, _) => output::message("warning: dangerous-no-token: every program on this machine can call"),
        (false, Some(_)) => output::message("callers need the bearer token that [serve] names"),
        (false, None) => output::message(&format!("the bearer token is in {}", token::file(&data_dir).display())),
    }
    if !front.address().ip().is_loopback() {
        output::message(
            "warning: other machines reach this address, and nothing encrypts tokens and calls: let the broker listen at \
             127.0.0.1, behind a server with a certificate (in the book: Run it as a service)",
        );
    }
    front.serve(stop).await;
    Ok(())
}

/// Says why an address is in use: by a broker with the same data folder, if one runs.
async fn in_use(address: SocketAddr, data_dir: &Path) -> String {
    let own = u64::from(std::process::id());
    let all = control::all(data_dir, &ControlRequest::Status).await.unwrap_or_default();
    let mut pids = all.iter().filter_map(|(_, answer)| answer.as_ref().ok()?["pid"].as_u64()).filter(|pid| *pid != own);
    match pids.next() {
        Some(pid) => format!(
            "address {address} is in use, and a broker with this data folder runs already (pid {pid}): `portcullis status` \
             shows it; stop that one, or listen at another address with `--listen`"
        ),
        None => FrontError::InUse(address).to_string(),
    }
}
