//! `portcullis version`

use std::process::ExitCode;

use portcullis::config::{user_config_dir, user_data_dir, user_state_dir};
use serde_json::json;

use crate::cli::GlobalArgs;
use crate::output;

/// Print the version, and with --json also this machine's target and the user's folders
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let version = env!("CARGO_PKG_VERSION");
    if global.json {
        output::json(&json!({
            "version": version,
            "system": std::env::consts::OS,
            "architecture": std::env::consts::ARCH,
            "configFolder": user_config_dir(),
            "dataFolder": user_data_dir(),
            "stateFolder": user_state_dir(),
        }))?;
    } else {
        output::text(&format!("portcullis {version}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
