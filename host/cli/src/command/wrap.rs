//! `portcullis wrap`

use portcullis::config::Approve;

/// Put the broker in front of one command, over stdio, without a configuration file
///
/// Tool names stay as the command gives them, so that the agent notices nothing. The command sees no variable, file or
/// host that is not named here.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples, in the place of the command in a client's configuration:
  portcullis wrap --read . -- npx -y @modelcontextprotocol/server-filesystem .
  portcullis wrap --network api.example.com:443 --env LOG_LEVEL=info -- uvx some-server")]
pub(crate) struct Args {
    /// A file or folder the command may read; repeatable
    #[arg(long, value_name = "PATH")]
    pub(crate) read: Vec<String>,
    /// A file or folder the command may read and write; repeatable
    #[arg(long, value_name = "PATH")]
    pub(crate) write: Vec<String>,
    /// A host and port the command may reach; repeatable
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) network: Vec<String>,
    /// A variable the command sees; repeatable. Every process can read arguments: no place for secrets
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Name tools `source__tool` instead of plainly
    #[arg(long, value_name = "STYLE", value_parser = ["plain", "source"], default_value = "plain")]
    pub(crate) names: String,
    /// When a person is asked
    #[arg(long, value_name = "WHEN", value_parser = approve)]
    pub(crate) approve: Option<Approve>,
    /// Program and arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

fn variable(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').ok_or_else(|| format!("{text:?} is no NAME=VALUE"));
    pair.map(|(name, value)| (name.to_owned(), value.to_owned()))
}

fn approve(text: &str) -> Result<Approve, String> {
    match text {
        "risky" => Ok(Approve::Risky),
        "always" => Ok(Approve::Always),
        "never" => Ok(Approve::Never),
        _ => Err("possible are risky, always and never".to_owned()),
    }
}
