//! `portcullis check`

use std::process::ExitCode;

use portcullis::config::{CellConfig, Config, Endpoint, SourceConfig, Value};
use serde_json::{Value as Data, json};

use crate::cli::Global;
use crate::output::{self, BAD, BOLD, visible};
use crate::run;

/// Check the configuration, the plugins and every source: what would start, in which cell
///
/// Reads the configuration, loads and configures every plugin, starts every source once and lists its tools. Exit code 1 if
/// anything that is required fails.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args, global: &Global) -> anyhow::Result<ExitCode> {
    let (report, good) = run::with_broker(global, async |broker| {
        let config = broker.config();
        let mut good = true;
        let mut sources = Vec::new();
        for (name, found) in broker.discover().await {
            let Some(source) = config.sources.get(&name) else { continue };
            good &= found.is_ok() || !source.required;
            sources.push(json!({
                "name": name,
                "source": endpoint(source),
                "folder": folder(source),
                "environment": environment(source),
                "cell": cell(source),
                "required": source.required,
                "tools": found.as_ref().ok().map(|tools| tools.len()),
                "error": found.as_ref().err().map(ToString::to_string),
            }));
        }
        let report = json!({
            "configuration": config.file,
            "dataDir": config.data_dir,
            "plugins": broker.plugins().into_iter().map(|(role, id)| {
                json!({ "role": role, "plugin": id.name, "digest": id.digest })
            }).collect::<Vec<_>>(),
            "sources": sources,
            "profiles": profiles(config),
        });
        Ok((report, good))
    })?;
    if global.json {
        output::json(&report)?;
    } else {
        print(&report)?;
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn endpoint(source: &SourceConfig) -> String {
    match &source.endpoint {
        Endpoint::Command { argv, .. } => argv.join(" "),
        Endpoint::Url { url, .. } => url.to_string(),
        Endpoint::Component { component, .. } => component.to_string(),
    }
}

/// Where a process starts: what relative paths among its arguments are relative to.
fn folder(source: &SourceConfig) -> Option<String> {
    match &source.endpoint {
        Endpoint::Command { cwd: Some(cwd), .. } => Some(cwd.display().to_string()),
        Endpoint::Command { cwd: None, .. } => Some("a private home (`cwd` names another)".to_owned()),
        _ => None,
    }
}

/// Names of the variables that the source sees; never their values.
fn environment(source: &SourceConfig) -> Vec<String> {
    match &source.endpoint {
        Endpoint::Command { env, .. } => {
            let listed = env.iter().map(|(name, value)| match value {
                Value::Plain(_) => name.clone(),
                Value::Secret(secret) => format!("{name} (secret {secret})"),
            });
            ["PATH", "HOME", "LANG", "TMPDIR"].into_iter().map(str::to_owned).chain(listed).collect()
        }
        _ => Vec::new(),
    }
}

/// What the cell declares, and what is made of it.
fn cell(source: &SourceConfig) -> Data {
    let declared = source.cell != CellConfig::default();
    let enforced = match &source.endpoint {
        Endpoint::Command { .. } => {
            "NOT ENFORCED by this version: files, network, memory and processor are open to this process; environment \
             cleared, descriptors closed, own process group killed whole"
        }
        Endpoint::Url { .. } => "nothing runs here; addresses that are private are refused",
        Endpoint::Component { .. } => "sealed: no files, no network, no environment; memory and time bounded",
    };
    json!({ "declared": declared, "enforced": enforced })
}

fn profiles(config: &Config) -> Vec<Data> {
    let of = config.profiles.iter();
    of.map(|(name, profile)| json!({ "name": name, "trust": profile.trust, "approve": profile.approve })).collect()
}

fn print(report: &Data) -> anyhow::Result<()> {
    let text = |value: &Data| match value {
        Data::String(text) => visible(text).into_owned(),
        other => visible(&other.to_string()).into_owned(),
    };
    output::text(&format!(
        "configuration  {}\ndata folder    {}\n",
        text(&report["configuration"]),
        text(&report["dataDir"])
    ))?;
    for plugin in report["plugins"].as_array().into_iter().flatten() {
        output::text(&format!(
            "{:13}  {}  {}\n",
            text(&plugin["role"]),
            text(&plugin["plugin"]),
            text(&plugin["digest"])
        ))?;
    }
    for profile in report["profiles"].as_array().into_iter().flatten() {
        let (name, trust, approve) = (text(&profile["name"]), text(&profile["trust"]), text(&profile["approve"]));
        output::text(&format!("profile        {name}  trust {trust}  approve {approve}\n"))?;
    }
    for source in report["sources"].as_array().into_iter().flatten() {
        output::text(&format!("\n{BOLD}{}{BOLD:#}  {}\n", text(&source["name"]), text(&source["source"])))?;
        match source["error"].as_str() {
            Some(error) => output::text(&format!("  {BAD}fails{BAD:#}        {}\n", visible(error)))?,
            None => output::text(&format!("  tools        {}\n", source["tools"]))?,
        }
        if source["folder"].is_string() {
            output::text(&format!("  starts in    {}\n", text(&source["folder"])))?;
        }
        let names: Vec<_> = source["environment"].as_array().into_iter().flatten().map(text).collect();
        if !names.is_empty() {
            output::text(&format!("  environment  {}\n", names.join(" ")))?;
        }
        let cell = &source["cell"];
        output::text(&format!("  cell         {}\n", text(&cell["enforced"])))?;
        if cell["declared"] == true && text(&cell["enforced"]).starts_with("NOT") {
            output::text("               the `cell` table is read and checked, and not yet applied\n")?;
        }
    }
    Ok(())
}
