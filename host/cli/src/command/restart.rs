//! `portcullis restart`

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use portcullis::control::{ControlError, ControlRequest};
use serde_json::{Value, json};

use crate::cli::GlobalArgs;
use crate::completion;
use crate::output::{self, escape_hidden};
use crate::runtime;

/// Stop a source of the running brokers and start it again
///
/// Its open calls have 2 s to end. It is given the secrets that are set now. The subscriptions of sessions to the source
/// are restored. The ledger records who asked for the restart. The exit code is 1 if no running broker has the source,
/// or if it does not come back.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis restart files
  portcullis restart files --json")]
pub(crate) struct Args {
    /// The name of the source
    #[arg(add = completion::sources())]
    source: String,

    /// Look only into this data folder
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let folders = runtime::data_dirs(global, args.data_dir.as_ref())?;
    let by = format!("cli (uid {})", rustix::process::getuid().as_raw());
    let request = ControlRequest::Restart { source: args.source.clone(), by };
    let answers = runtime::ask_brokers(&folders, &request)?;
    let Some((_, first)) = answers.first() else {
        bail!("no broker runs here, so there is no source to restart; `portcullis status` shows the brokers that run");
    };
    let (mut good, mut told, mut unknown) = (true, Vec::new(), None);
    for (chain, answer) in &answers {
        match answer {
            Ok(restarted) => told.push(json!({ "chain": chain, "source": args.source, "state": restarted["state"] })),
            // Another broker may have the source.
            Err(ControlError::Absent(why)) => unknown = Some(why.clone()),
            Err(error) => {
                good = false;
                told.push(json!({ "chain": chain, "source": args.source, "error": error.to_string() }));
            }
        }
    }
    if told.is_empty() {
        let why = unknown.or_else(|| first.as_ref().err().map(ToString::to_string));
        bail!("{}", escape_hidden(&why.unwrap_or_default()));
    }
    if global.json {
        output::json(&json!(told))?;
    } else {
        told.iter().try_for_each(print)?;
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(told: &Value) -> anyhow::Result<()> {
    let text = |key: &str| escape_hidden(told[key].as_str().unwrap_or_default()).into_owned();
    let outcome = match (told["error"].as_str(), told["state"].as_str()) {
        (Some(error), _) => escape_hidden(error).into_owned(),
        (None, Some("ready")) => "ready".to_owned(),
        (None, Some("idle")) => "ended; it is started when it is needed".to_owned(),
        (None, state) => {
            format!("ended; it is {}; run `portcullis status` to see its progress", state.unwrap_or("away"))
        }
    };
    output::text(&format!("{}  broker {}  {outcome}\n", text("source"), text("chain")))
}
