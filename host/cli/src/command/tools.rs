//! `portcullis tools`

use std::process::ExitCode;
use std::sync::Arc;

use portcullis::broker::Broker;
use portcullis::config::Config;
use portcullis::item::{ToolAnnotations, title_of};
use portcullis::name::ProfileName;
use portcullis::principal::Principal;
use portcullis::protocol::Json;
use serde_json::json;

use crate::cli::GlobalArgs;
use crate::command::call::{Terminal, to_error};
use crate::completion;
use crate::output::{self, escape_hidden};
use crate::running::RunningSession;
use crate::runtime;

/// The most characters of a description that a line shows.
const MAX_DESCRIPTION_CHARS: usize = 80;

/// List the tools that a profile sees, as an agent would see them
///
/// A broker that runs with this configuration is asked; without one, each source is started once.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show the tools of this profile [default: default]
    #[arg(long, value_name = "P", add = completion::profiles())]
    profile: Option<String>,
}

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let profile = runtime::profile(args.profile.as_deref())?;
    let config = global.load()?;
    let tools = runtime::block_on(async {
        match RunningSession::open(&config, &profile, Arc::new(Terminal)).await? {
            Some(mut running) => running.tools().await,
            None => in_own_broker(config, &profile).await,
        }
    })?;
    if global.json {
        output::json(&json!(tools))?;
        return Ok(ExitCode::SUCCESS);
    }
    let name = |tool: &Json| tool.get_str("name").unwrap_or_default();
    let width = tools.iter().map(|tool| name(tool).len()).max().unwrap_or(0);
    for tool in &tools {
        let description = tool.get_str("description").unwrap_or_default();
        let title = title_of(tool).map(|title| format!("{title}: ")).unwrap_or_default();
        let hints = Vec::from_iter(ToolAnnotations::of(tool).words()).join(", ");
        let hints = if hints.is_empty() { hints } else { format!("  ({hints})") };
        let first: String =
            description.lines().next().unwrap_or_default().chars().take(MAX_DESCRIPTION_CHARS).collect();
        let line =
            format!("{:width$}  {}{}{hints}", escape_hidden(&name(tool)), escape_hidden(&title), escape_hidden(&first));
        output::text(line.trim_end())?;
        output::text("\n")?;
    }
    if tools.is_empty() {
        output::message("no tool is visible under this profile (`portcullis check` says what each source offers)");
    }
    Ok(ExitCode::SUCCESS)
}

async fn in_own_broker(config: Config, profile: &ProfileName) -> anyhow::Result<Vec<Json>> {
    runtime::use_broker(config, async |broker| runtime::until_interrupted(list(&broker, profile)).await).await
}

async fn list(broker: &Broker, profile: &ProfileName) -> anyhow::Result<Vec<Json>> {
    // Here nobody comes back for a source that is slow, so each is waited for until it is there or has failed.
    for (source, why) in broker.connect_all().await? {
        output::message(&format!("source `{source}` is missing: {}", escape_hidden(&why.to_string())));
    }
    let session =
        broker.open_session(profile, &Principal::established("cli"), "portcullis-cli").await.map_err(to_error)?;
    let tools = session.tools().await.map_err(to_error);
    session.close().await;
    tools.map(|tools| tools.to_vec())
}
