//! `portcullis schema`

use std::process::ExitCode;

use portcullis::plugin::builtin_descriptions;
use serde_json::{Value, json};

use crate::output;

/// The tables of a configuration that can name a built-in plugin, each with the key that does so.
const TABLES: [(&str, &str); 5] = [
    ("Policy", "plugin"),
    ("Transform", "plugin"),
    ("Approval", "plugin"),
    ("Sink", "plugin"),
    ("Source", "component"),
];

/// Print the JSON Schema of portcullis.toml, with the settings of the built-in plugins
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis schema > portcullis.schema.json
  # then, as the first line of portcullis.toml, for editors that know Taplo:
  #:schema ./portcullis.schema.json")]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> anyhow::Result<ExitCode> {
    let described = builtin_descriptions()?;
    let settings: Vec<_> =
        described.into_iter().filter_map(|(name, description)| Some((name, description.settings?))).collect();
    output::json(&with_settings(portcullis::config::schema(), &settings))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the schema of a configuration with those of the settings of built-in plugins.
fn with_settings(mut schema: Value, settings: &[(&str, Value)]) -> Value {
    if let Some(definitions) = schema.get_mut("$defs").and_then(Value::as_object_mut) {
        for (table, key) in TABLES {
            let conditions: Vec<_> = settings.iter().map(|(name, of_it)| condition(key, name, of_it)).collect();
            if let Some(table) = definitions.get_mut(table).and_then(Value::as_object_mut) {
                table.insert("allOf".to_owned(), conditions.into());
            }
        }
        definitions.extend(settings.iter().map(|(name, of_it)| (definition(name), of_it.clone())));
    }
    schema
}

/// Returns the schema of a table: if its key names this plugin, its settings are that plugin's.
fn condition(key: &str, name: &str, settings: &Value) -> Value {
    let names_it = json!({ "properties": { key: { "const": format!("builtin:{name}") } }, "required": [key] });
    let required: &[&str] = if settings.get("required").is_some() { &["settings"] } else { &[] };
    let reference = json!({ "$ref": format!("#/$defs/{}", definition(name)) });
    json!({ "if": names_it, "then": { "properties": { "settings": reference }, "required": required } })
}

fn definition(name: &str) -> String {
    format!("settings-of-{name}")
}
