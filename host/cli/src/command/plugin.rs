//! `portcullis plugin`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use portcullis::config::PluginRef;
use portcullis::plugin::Plugins;

use crate::cli::Global;
use crate::output::{self, BOLD, visible};
use crate::run;

/// For authors and users of plugins
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show what a plugin is and what it wants, without running it
    ///
    /// The list of imports is the list of permissions: a plugin can touch nothing else.
    Inspect {
        /// A .wasm file, builtin:NAME, or oci://REGISTRY/NAME@sha256:…
        plugin: String,
    },
}

pub(crate) fn run(args: &Args, global: &Global) -> anyhow::Result<ExitCode> {
    let Action::Inspect { plugin } = &args.action;
    let plugin = match plugin.strip_prefix("builtin:") {
        Some(name) => PluginRef::Builtin(name.to_owned()),
        None if plugin.starts_with("oci:") => PluginRef::Oci(plugin.parse()?),
        None => PluginRef::Path(std::path::absolute(Path::new(plugin)).unwrap_or_else(|_| PathBuf::from(plugin))),
    };
    let inspection = run::block_on(async { Ok(Plugins::new(None)?.inspect(&plugin).await?) })?;
    let value = serde_json::to_value(&inspection)?;
    if global.json {
        output::json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    for (key, value) in value.as_object().into_iter().flatten() {
        match value {
            serde_json::Value::Array(items) => {
                output::text(&format!("{BOLD}{key}{BOLD:#}\n"))?;
                for item in items {
                    let line = item.as_str().map_or_else(|| import(item), str::to_owned);
                    output::text(&format!("  {}\n", visible(&line)))?;
                }
            }
            value => {
                let line = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                output::text(&format!("{BOLD}{key:8}{BOLD:#}  {}\n", visible(&line)))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// An import, with what it takes to have it.
fn import(item: &serde_json::Value) -> String {
    let name = item["name"].as_str().unwrap_or_default();
    match (item["refused"].as_str(), item["grant"].as_str()) {
        (Some(reason), _) => format!("{name}  refused: {reason}"),
        (None, Some(grant)) => format!("{name}  needs `grant = [\"{grant}\"]`"),
        (None, None) => name.to_owned(),
    }
}
