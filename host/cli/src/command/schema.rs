//! `portcullis schema`

use std::process::ExitCode;

use crate::output;

/// Print the JSON Schema of portcullis.toml
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis schema > portcullis.schema.json
  # then, as the first line of portcullis.toml, for editors that know Taplo:
  #:schema ./portcullis.schema.json")]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> anyhow::Result<ExitCode> {
    output::json(&portcullis::config::schema())?;
    Ok(ExitCode::SUCCESS)
}
