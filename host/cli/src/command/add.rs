//! `portcullis add`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use portcullis::config::{Config, NewSource, add_source, find_text, looks_secret, real_file, secret_arguments};
use portcullis::name::SourceName;

use crate::cli::Global;
use crate::command::{edit, init};
use crate::config_file::ConfigFile;
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
    let file = match find_text(global.config.as_deref()) {
        Err(error) if error.is_missing() => {
            let file = real_file(Path::new(init::FILE));
            let text = add_source(init::HEAD, args.name.as_str(), &source(args, &file)?)?;
            init::make(&file, &text)?
        }
        Err(error) => return Err(error.into()),
        Ok(_) => {
            let file = ConfigFile::open(global.config.as_deref())?;
            let path = file.path().to_owned();
            let new = source(args, &path)?;
            edit::apply(file, |text| add_source(text, args.name.as_str(), &new))?;
            path
        }
    };
    edit::report(global, &format!("source `{}` is added to", args.name), &file)?;
    for place in secrets_in(args) {
        output::note(&format!(
            "{place} looks like a secret and stands in the file: keep it with `portcullis secret set NAME` and write \
             `{{ secret = \"NAME\" }}` for the value of a variable"
        ));
    }
    if !global.json {
        // A proposal: nothing is opened that was not asked for.
        let config = Config::parse(&std::fs::read_to_string(&file)?, &file)?;
        if let Some(lack) =
            config.sources.get(&args.name).and_then(|source| UnmetNeeds::of(source, &config.own_files()))
        {
            output::note(&format!("{}; `portcullis learn {}` adds what it needs", lack.switches(), args.name));
        }
        output::note("`portcullis check` starts it once, and shows its tools and its cell");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the source as it is to be written.
fn source(args: &Args, file: &Path) -> anyhow::Result<NewSource> {
    let here = std::env::current_dir().context("the working directory is not known")?;
    let mut new = NewSource { env: args.env.clone(), ..NewSource::default() };
    new.command = args.command.clone();
    if let Some(program) = new.command.first_mut().filter(|program| program.contains('/')) {
        *program = written(Path::new(program.as_str()), file)?;
    }
    // Relative words mean the folder in which the command is written, also to the program.
    let is_relative_path = |word: &&String| is_relative_path(word, &here);
    if args.command.iter().skip(1).any(|word| is_relative_path(&word)) {
        new.cwd = Some(written(Path::new("."), file)?);
    }
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
    if path.starts_with("~") {
        bail!("{} begins with `~`, which only a shell replaces: write the whole path", path.display());
    }
    let here = std::env::current_dir().context("the working directory is not known")?;
    let beside = file.parent().is_some_and(|folder| folder.canonicalize().ok() == here.canonicalize().ok());
    if beside && path == Path::new(".") {
        return Ok(".".to_owned());
    }
    let path = if beside { path.to_owned() } else { std::path::absolute(here.join(path))? };
    let text = path.to_str().with_context(|| format!("{path:?} is not UTF-8, as a configuration is"))?;
    let bare = beside && path.is_relative() && !text.starts_with('.');
    Ok(if bare { format!("./{text}") } else { text.to_owned() })
}

/// Reports whether an argument names something in the working directory.
fn is_relative_path(word: &str, here: &Path) -> bool {
    !word.starts_with(['-', '/']) && word.contains(['/', '.']) && here.join(word).exists()
}

/// Returns the places of the command and its variables that seem to hold secrets, without the values.
fn secrets_in(args: &Args) -> Vec<String> {
    let variables = args.env.iter().filter(|(name, value)| looks_secret(name, value));
    let variables = variables.map(|(name, _)| format!("`env.{name}`"));
    let words = secret_arguments(&args.command).into_iter().map(|place| format!("the argument {place}"));
    variables.chain(words).collect()
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
