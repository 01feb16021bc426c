//! `portcullis add`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use portcullis::config::{Config, ConfigCandidate, NewSource, add_source};
use portcullis::name::SourceName;

use crate::cli::Global;
use crate::command::{edit, init};
use crate::known::UnmetNeeds;
use crate::output::{self, escape_hidden};

/// Add a source to the configuration file
///
/// The source is a command after `--`, the address of a server, or a component: a file that ends in `.wasm`, a registry
/// reference that begins with `oci://`, or `builtin:NAME`. The rest of the file stays as it is; without a file, one is
/// made here. Nothing is started: `portcullis check` starts the source once and shows its cell.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis add files --read ./docs -- npx -y @modelcontextprotocol/server-filesystem ./docs
  portcullis add tickets https://mcp.example.com/mcp
  portcullis add calc builtin:calculator
  portcullis add words ./words.wasm")]
pub(crate) struct Args {
    /// The name of the source
    name: SourceName,

    /// The address or the component
    #[arg(value_name = "URL|COMPONENT", required_unless_present = "command", conflicts_with = "command")]
    target: Option<String>,

    /// A file or folder that the source may read
    #[arg(long, value_name = "PATH")]
    read: Vec<PathBuf>,

    /// A file or folder that the source may read and write
    #[arg(long, value_name = "PATH")]
    write: Vec<PathBuf>,

    /// A host that the source may reach
    #[arg(long, value_name = "HOST:PORT")]
    network: Vec<String>,

    /// An environment variable that the source sees
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,

    /// The program and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

pub(crate) fn run(args: &Args, global: &Global) -> anyhow::Result<ExitCode> {
    let file = match ConfigCandidate::load(global.config.as_deref()) {
        Err(error) if error.is_missing() => init::make(Path::new(init::FILE), init::HEAD)?,
        found => found?.file().to_owned(),
    };
    let new = source(args, &file)?;
    edit::apply(&file, |text| add_source(text, args.name.as_str(), &new))?;
    edit::report(global, &format!("source `{}` is added to", args.name), &file)?;
    if !global.json {
        // A proposal: nothing is opened that was not asked for.
        let config = Config::parse(&std::fs::read_to_string(&file)?, &file)?;
        if let Some(lack) = config.sources.get(&args.name).and_then(UnmetNeeds::of) {
            output::note(&format!("{}; `portcullis learn {}` adds what it needs", lack.switches(), args.name));
        }
        output::note("`portcullis check` starts it once, and shows its tools and its cell");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the source as it is to be written.
fn source(args: &Args, file: &Path) -> anyhow::Result<NewSource> {
    let mut new = NewSource { command: args.command.clone(), env: args.env.clone(), ..NewSource::default() };
    if let Some(target) = &args.target {
        let shown = escape_hidden(target);
        match target {
            url if url.starts_with("https://") || url.starts_with("http://") => new.url = Some(url.clone()),
            named if named.starts_with("builtin:") || named.starts_with("oci://") => {
                new.component = Some(named.clone())
            }
            path if path.ends_with(".wasm") => new.component = Some(written(Path::new(path), file)?),
            _ => bail!(
                "`{shown}` is neither an address (`https://…`) nor a component (`FILE.wasm`, `oci://…`, `builtin:…`); for \
                 a command write `portcullis add {} -- {shown} …`",
                args.name
            ),
        }
    }
    new.cell = cell(args, file)?;
    Ok(new)
}

/// Returns what the source's cell opens.
fn cell(args: &Args, file: &Path) -> anyhow::Result<Vec<(&'static str, Vec<String>)>> {
    let paths = |paths: &[PathBuf]| paths.iter().map(|path| written(path, file)).collect::<anyhow::Result<Vec<_>>>();
    Ok(vec![("read", paths(&args.read)?), ("write", paths(&args.write)?), ("network", args.network.clone())])
}

/// Returns a path as it is written in the file: relative paths are relative to the file there, and to the working
/// directory here.
fn written(path: &Path, file: &Path) -> anyhow::Result<String> {
    let here = std::env::current_dir().context("the working directory is not known")?;
    let beside = file.parent().is_some_and(|folder| folder.canonicalize().ok() == here.canonicalize().ok());
    let path = if beside { path.to_owned() } else { here.join(path) };
    let text = path.to_str().with_context(|| format!("{:?} is not UTF-8, as a configuration is", path))?;
    let bare = beside && path.is_relative() && !text.starts_with('.');
    Ok(if bare { format!("./{text}") } else { text.to_owned() })
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
