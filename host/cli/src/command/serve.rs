//! `portcullis serve`

use std::net::SocketAddr;

/// Run the broker
///
/// Over HTTP at the configured address, or over stdio for a client that starts it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis serve
  portcullis serve --listen 127.0.0.1:9000
  portcullis serve --stdio --profile review")]
pub(crate) struct Args {
    /// Speak to one client over standard input and output
    #[arg(long, conflicts_with = "listen")]
    pub(crate) stdio: bool,
    /// Address and port, in place of the configured one
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    /// Under which profile callers are served
    #[arg(long, default_value = "default")]
    pub(crate) profile: String,
}
