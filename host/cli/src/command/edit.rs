//! `portcullis remove`, `enable`, `disable` and `set`: changes of the configuration file that keep its comments and
//! order.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use portcullis::config::{Config, EditError, most_similar, remove_source, set_value};
use portcullis::name::SourceName;
use serde_json::json;

use crate::cli::GlobalArgs;
use crate::completion;
use crate::config_file::{ConfigFile, explain_trust};
use crate::output::{self, escape_hidden};

/// Remove a source from the configuration file
///
/// The rest of the file stays as it is. A profile or group that names the source has to be changed first. A broker that
/// serves the file puts the change in force.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis remove files")]
pub(crate) struct RemoveArgs {
    /// The name of the source
    #[arg(add = completion::all_sources())]
    source: String,
}

/// Use a disabled source again
///
/// A broker that serves the file puts the change in force.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis enable files")]
pub(crate) struct EnableArgs {
    /// The name of the source
    #[arg(add = completion::disabled_sources())]
    source: String,
}

/// Keep a source in the configuration file without using it
///
/// Writes `enabled = false`: the source is neither started nor shown. A broker that serves the
/// file puts the change in force.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis disable files")]
pub(crate) struct DisableArgs {
    /// The name of the source
    #[arg(add = completion::sources())]
    source: String,
}

/// Set one value in the configuration file
///
/// KEY is a dotted key as in TOML, and `portcullis schema` lists all keys. VALUE is TOML; anything that is not valid
/// TOML is taken as a string, so few values need quotes. The file is changed only if it is valid afterwards.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis set sources.files.timeout 30s
  portcullis set sources.files.cell.read '[\"./docs\"]'
  portcullis set profiles.default.approve always")]
pub(crate) struct SetArgs {
    /// The dotted key
    key: String,

    /// The value
    value: String,
}

pub(crate) fn remove(args: &RemoveArgs, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let said = format!("source `{}` is removed from", escape_hidden(&args.source));
    change(global, &said, |text| remove_source(text, &args.source))
}

pub(crate) fn enable(args: &EnableArgs, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    set_enabled(global, &args.source, true)
}

pub(crate) fn disable(args: &DisableArgs, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    set_enabled(global, &args.source, false)
}

pub(crate) fn set(args: &SetArgs, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let said = format!("`{}` is set in", escape_hidden(&args.key));
    change(global, &said, |text| set_value(text, &args.key, &args.value))
}

fn set_enabled(global: &GlobalArgs, source: &str, enabled: bool) -> anyhow::Result<ExitCode> {
    let said = format!("source `{}` is {} in", escape_hidden(source), if enabled { "enabled" } else { "disabled" });
    // A quoted key may hold any character.
    let key = format!("sources.{}.enabled", serde_json::Value::from(source));
    change(global, &said, |text| set_value(text, &key, if enabled { "true" } else { "false" }))
}

/// Changes the text of the configuration file and reports it. The file is left unchanged if the new text is not valid.
pub(crate) fn change(
    global: &GlobalArgs,
    said: &str,
    edit: impl FnOnce(&str) -> Result<String, EditError>,
) -> anyhow::Result<ExitCode> {
    let file = ConfigFile::open(global.config.as_deref())?;
    let path = file.path().to_owned();
    apply(file, edit)?;
    report(global, said, &path)
}

/// Changes the text of a file. Nothing is written unless the new text is a valid configuration.
pub(crate) fn apply(file: ConfigFile, edit: impl FnOnce(&str) -> Result<String, EditError>) -> anyhow::Result<()> {
    let shown = escape_hidden(&file.path().to_string_lossy()).into_owned();
    let changed = edit(file.text())
        .map_err(|error| suggest(error, file.text(), file.path()))
        .with_context(|| format!("{shown} is left as it is"))?;
    file.replace(&changed)
}

/// Adds to an error about a source that is not there the name of the one that was meant.
fn suggest(error: EditError, text: &str, file: &Path) -> anyhow::Error {
    let EditError::NoSource(name) = &error else { return error.into() };
    let Ok(config) = Config::parse(text, file) else { return error.into() };
    let known = config.sources.keys().chain(config.disabled.keys()).map(SourceName::as_str);
    match most_similar(name, known) {
        Some(near) => anyhow::anyhow!("{error}; did you mean `{near}`?"),
        None => error.into(),
    }
}

/// Reports the change, with the file.
pub(crate) fn report(global: &GlobalArgs, said: &str, file: &Path) -> anyhow::Result<ExitCode> {
    if global.json {
        output::json(&json!({ "file": file.to_string_lossy() }))?;
    } else {
        output::message(&format!("{said} {}", escape_hidden(&file.to_string_lossy())));
        explain_trust(global.config.as_deref());
    }
    Ok(ExitCode::SUCCESS)
}
