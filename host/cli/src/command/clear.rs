//! `portcullis clear`

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use portcullis::control::{ControlError, ControlRequest};
use serde_json::json;

use crate::cli::GlobalArgs;
use crate::output::{self, escape_hidden};
use crate::runtime;

/// Clear what a session has seen, for policies about information flow
///
/// The session then counts as one that has seen nothing, until it sees the next result. The model still has what it
/// read: do this after you have looked at it. Sessions of one modern caller are cleared together. The ledger records
/// who did it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis clear 01JD0000000000000000000001")]
pub(crate) struct Args {
    /// The identifier of the session, as `portcullis status --json` and the ledger have it
    session: String,

    /// Look only into this data folder
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let folders = runtime::data_dirs(global, args.data_dir.as_ref())?;
    let by = format!("cli (uid {})", rustix::process::getuid().as_raw());
    let request = ControlRequest::Clear { session: args.session.clone(), by };
    let answers = runtime::ask_brokers(&folders, &request)?;
    let mut absent = None;
    for (chain, answer) in answers {
        match answer {
            Ok(cleared) => {
                let labels = cleared.get("labels").cloned().unwrap_or_default();
                if global.json {
                    output::json(&json!({ "chain": chain, "session": args.session, "labels": labels }))?;
                } else {
                    let labels = labels.as_array().into_iter().flatten().filter_map(|label| label.as_str());
                    let labels: Vec<_> = labels.collect();
                    let had = if labels.is_empty() { "none".to_owned() } else { labels.join(", ") };
                    output::text(&format!("{}  cleared; its labels were: {had}\n", escape_hidden(&args.session)))?;
                }
                return Ok(ExitCode::SUCCESS);
            }
            // Another broker may have the session.
            Err(ControlError::Absent(why)) => absent = Some(why),
            Err(error) => bail!("{}", escape_hidden(&error.to_string())),
        }
    }
    let nobody =
        || "no broker runs here, so there is no session; `portcullis status` shows the brokers that run".to_owned();
    bail!("{}", escape_hidden(&absent.unwrap_or_else(nobody)))
}
