//! `portcullis plugin`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use portcullis::config::PluginRef;
use portcullis::digest::Digest;
use portcullis::oci::ComponentReference;
use portcullis::plugin::{PluginHost, with_description};
use serde_json::json;

use crate::cli::GlobalArgs;
use crate::completion;
use crate::config_file;
use crate::output::{self, BOLD, escape_hidden};
use crate::runtime;

mod call_facts;
mod decision;
mod fixture;
mod new;
mod registry;
mod rehearsal;
mod sign;
mod template;
mod testing;

/// Write, test, inspect and compile plugins, for their authors and users
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis plugin new no-deletes && cd no-deletes
  cargo build --release --target wasm32-unknown-unknown && portcullis plugin test
  portcullis plugin run ./p.wasm files__write '{\"path\":\"/etc/passwd\"}' --settings '{\"under\":\"/srv\"}'")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a folder with a new plugin: its source, tests, and a configuration to try it
    New {
        /// The folder; its name is the plugin's
        folder: PathBuf,

        /// The language
        #[arg(long, value_enum, default_value_t = new::Language::Rust)]
        lang: new::Language,

        /// The kind of plugin
        #[arg(long, value_enum, default_value_t = new::Kind::Policy)]
        kind: new::Kind,
    },
    /// Run the cases of fixtures, and compare what the plugins decide with what is expected
    ///
    /// A fixture is a TOML file with `[[policies]]` and `[[transforms]]` as in portcullis.toml, and `[[cases]]`. The
    /// plugins have the permissions and limits that a broker gives them, and one that fails denies. The exit code is 1
    /// if a case differs.
    Test {
        /// The fixtures [default: the .toml files of the folder `fixtures`]
        files: Vec<PathBuf>,
    },
    /// Let a policy or transform decide about one call, and show what it asked for
    Run(rehearsal::Args),
    /// Measure the time of a policy's or transform's decisions about one call, against its limits
    Bench(rehearsal::BenchArgs),
    /// Load a plugin as a broker does, with these settings and grants, and say whether it starts
    Check(rehearsal::PluginArgs),
    /// Show what a plugin is and what it imports, without running it
    ///
    /// The list of imports is the list of permissions: a plugin can touch nothing else.
    Inspect {
        /// A .wasm file, builtin:NAME, or oci://REGISTRY/NAME@sha256:…
        #[arg(add = completion::plugins())]
        plugin: String,
    },
    /// Write a plugin's description of itself into its file, for `inspect`, `check` and editors
    ///
    /// The description is a JSON object with `name`, `version`, `phases`, and `settings`, a JSON Schema without `$ref`.
    /// A plugin with a schema is loaded only with settings that fit it.
    Describe {
        /// The .wasm file, which is changed
        #[arg(value_name = "FILE.wasm")]
        file: PathBuf,

        /// The file with the description
        #[arg(value_name = "DESCRIPTION.json")]
        description: PathBuf,
    },
    /// Push a plugin to a registry, and print the name for configurations, with its digest
    ///
    /// A folder is pushed as the WIT package that its .wit files make, for authors of plugins. The account at the
    /// registry is that of Docker's config.json, which `docker login` writes.
    Push {
        /// A .wasm file, builtin:NAME, or a folder with a WIT package
        #[arg(add = completion::plugins())]
        plugin: String,

        /// The reference, with a tag: oci://REGISTRY/NAME:TAG
        #[arg(value_name = "REFERENCE")]
        to: ComponentReference,
    },
    /// Sign a plugin with a key, for brokers whose configuration has `plugin-keys`
    ///
    /// The signature is one of cosign with a key. That of a file FILE is written to FILE.sig, as `cosign sign-blob` does;
    /// in a registry it is an artifact next to the component, as `cosign sign` makes it.
    Sign {
        /// A file, or oci://REGISTRY/NAME:TAG or oci://REGISTRY/NAME@sha256:…
        plugin: String,

        /// The file with the private key: ECDSA over P-256 in PEM (PKCS #8), without a password
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
    },
    /// Fetch a plugin from a registry into a file, with the account of Docker's config.json
    Pull {
        /// The reference: oci://REGISTRY/NAME:TAG or oci://REGISTRY/NAME@sha256:…
        #[arg(value_name = "REFERENCE")]
        from: ComponentReference,

        /// The file to write
        #[arg(value_name = "FILE.wasm")]
        file: PathBuf,
    },
    /// Compile a plugin for a program without a compiler, and print the name for that program's configuration
    ///
    /// The name contains a digest. Only a program with the same version of Portcullis loads the file, and only with
    /// this digest.
    Compile {
        /// A .wasm file, builtin:NAME, or oci://REGISTRY/NAME@sha256:…
        #[arg(add = completion::plugins())]
        plugin: String,

        /// The file to write
        #[arg(value_name = "FILE.cwasm")]
        file: PathBuf,

        /// Compile for another processor instead of this one, with nothing to install: aarch64-unknown-linux-gnu from
        /// x86-64, x86_64-unknown-linux-gnu from ARM, or pulley64, an interpreter for all others
        #[arg(long)]
        target: Option<String>,
    },
}

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    match &args.action {
        Action::New { folder, lang, kind } => new::run(folder, *lang, *kind, global.json),
        Action::Test { files } => testing::run(files, global.json),
        Action::Run(args) => rehearsal::run(args, global.json),
        Action::Bench(args) => rehearsal::bench(args, global.json),
        Action::Check(args) => rehearsal::check(args, global.json),
        Action::Describe { file, description } => describe(file, description, global.json),
        Action::Push { plugin, to } => registry::push(&named(plugin)?, to, global.json),
        Action::Pull { from, file } => registry::pull(from, file, global.json),
        Action::Sign { plugin, key } => sign::run(&named(plugin)?, key, global.json),
        Action::Inspect { plugin } => inspect(&named(plugin)?, global.json),
        Action::Compile { plugin, file, target } => compile(&named(plugin)?, file, target.as_deref(), global.json),
    }
}

/// Returns the plugin that the command line names.
pub(crate) fn named(plugin: &str) -> anyhow::Result<PluginRef> {
    Ok(match plugin.strip_prefix("builtin:") {
        Some(name) => PluginRef::Builtin(name.to_owned()),
        None if plugin.starts_with("oci:") => PluginRef::Oci(plugin.parse()?),
        None => PluginRef::Path(std::path::absolute(Path::new(plugin)).unwrap_or_else(|_| PathBuf::from(plugin))),
    })
}

fn compile(plugin: &PluginRef, file: &Path, target: Option<&str>, json: bool) -> anyhow::Result<ExitCode> {
    if file.extension().is_none_or(|extension| extension != "cwasm") {
        bail!("{} does not end in .cwasm, the extension of compiled code", file.display());
    }
    let compiled = runtime::block_on(async { Ok(PluginHost::new(None)?.precompile(plugin, target).await?) })?;
    config_file::put(file, &compiled).with_context(|| format!("cannot write {}", file.display()))?;
    let digest = Digest::of(&compiled);
    if json {
        output::json(&json!({ "file": file, "digest": digest, "size": compiled.len() }))?;
    } else {
        output::text(&format!("{}@{digest}\n", escape_hidden(&file.to_string_lossy())))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(file: &Path, description: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let wasm = std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let text = std::fs::read_to_string(description);
    let text = text.with_context(|| format!("{} cannot be read", description.display()))?;
    let described = with_description(&file.display().to_string(), wasm, &text)
        .with_context(|| format!("{} is not a valid description", description.display()))?;
    config_file::put(file, &described).with_context(|| format!("cannot write {}", file.display()))?;
    let digest = Digest::of(&described);
    if json {
        output::json(&json!({ "file": file, "digest": digest, "size": described.len() }))?;
    } else {
        output::text(&format!(
            "{} is described, and has the digest {digest}\n",
            escape_hidden(&file.to_string_lossy())
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn inspect(plugin: &PluginRef, json: bool) -> anyhow::Result<ExitCode> {
    let inspection = runtime::block_on(async { Ok(PluginHost::new(None)?.inspect(plugin).await?) })?;
    let value = serde_json::to_value(&inspection)?;
    if json {
        output::json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    for (key, value) in value.as_object().into_iter().flatten() {
        match value {
            serde_json::Value::Array(items) => {
                output::text(&format!("{BOLD}{key}{BOLD:#}\n"))?;
                for item in items {
                    let line = item.as_str().map_or_else(|| import(item), str::to_owned);
                    output::text(&format!("  {}\n", escape_hidden(&line)))?;
                }
            }
            serde_json::Value::Object(members) => {
                output::text(&format!("{BOLD}{key}{BOLD:#}\n"))?;
                for (member, value) in members {
                    let text = value
                        .as_str()
                        .map_or_else(|| serde_json::to_string_pretty(value), |text| Ok(text.to_owned()))?;
                    let lines: Vec<_> = text.lines().map(escape_hidden).collect();
                    output::text(&format!("  {member:8}  {}\n", lines.join("\n            ")))?;
                }
            }
            value => {
                let line = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                output::text(&format!("{BOLD}{key:8}{BOLD:#}  {}\n", escape_hidden(&line)))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns an import with what it requires.
fn import(item: &serde_json::Value) -> String {
    let name = item["name"].as_str().unwrap_or_default();
    match (item["refused"].as_str(), item["grant"].as_str()) {
        (Some(reason), _) => format!("{name}  refused: {reason}"),
        (None, Some(grant)) => format!("{name}  needs `grant = [\"{grant}\"]`"),
        (None, None) => name.to_owned(),
    }
}
