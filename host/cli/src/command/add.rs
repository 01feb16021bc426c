//! `portcullis add`

mod bundled;
mod described;
mod server_json;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use portcullis::config::{Config, NewSource, add_source, find_text, looks_secret, real_file, secret_arguments};
use portcullis::egress::{is_private, read_document};
use portcullis::name::SourceName;

use self::described::{DescribedSource, Settings};
use crate::bundle;
use crate::cell_proposals::UnmetNeeds;
use crate::cli::GlobalArgs;
use crate::command::{edit, init};
use crate::config_file::ConfigFile;
use crate::output::{self, escape_hidden, plain_shell_word};
use crate::{report, runtime};

/// Add a source to the configuration file
///
/// The source is a command after `--`; or the address of a server; a package, as `npm:NAME` or `pypi:NAME`, with
/// `@VERSION` if it matters, and its arguments after `--`; a server.json, as a file or an address; a bundle (`.mcpb`),
/// which is unpacked beside the file; or a component: a file that ends in `.wasm`, a registry reference that begins
/// with `oci://`, or `builtin:NAME`, with its arguments after `--`. The rest of the file stays as it is; without a file,
/// one is made here. Nothing is started: `portcullis check` starts the source once and shows its cell.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis add files --read ./docs -- npx -y @modelcontextprotocol/server-filesystem ./docs
  portcullis add files --read ./docs npm:@modelcontextprotocol/server-filesystem -- ./docs
  portcullis add tickets https://mcp.example.com/mcp
  portcullis add weather ./server.json --set units=metric
  portcullis add notes ./notes.mcpb --set folder=./notes
  portcullis add calc builtin:calculator
  portcullis add words ./words.wasm")]
pub(crate) struct Args {
    /// The name of the source
    name: SourceName,

    /// The address, the package, the description, the bundle or the component
    #[arg(value_name = "TARGET", required_unless_present = "command")]
    target: Option<String>,

    /// A value that a description or a bundle asks for; repeat it for several
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = variable)]
    settings: Vec<(String, String)>,

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

    /// Words of a command that was written without `--`: the error says how to write it
    #[arg(hide = true, num_args = 0.., allow_hyphen_values = true)]
    undivided: Vec<String>,

    /// The program and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// The exit code for invalid arguments, as for those that the parser refuses.
const INVALID: u8 = 2;

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    if !args.undivided.is_empty() {
        let typed = divided(args);
        let error = anyhow::anyhow!("a program and its arguments stand after `--`: write `{typed}`");
        report::failure(&error, global.json);
        return Ok(ExitCode::from(INVALID));
    }
    let (file, described) = match find_text(global.config.as_deref()) {
        Err(error) if error.is_missing() => {
            let file = real_file(Path::new(init::FILE));
            let described = source(args, &file)?;
            let text = add_source(init::HEAD, args.name.as_str(), &described.source)?;
            described.keep()?;
            (init::make(&file, &text)?, described)
        }
        Err(error) => return Err(error.into()),
        Ok(_) => {
            let file = ConfigFile::open(global.config.as_deref())?;
            let path = file.path().to_owned();
            let described = source(args, &path)?;
            edit::apply(file, |text| add_source(text, args.name.as_str(), &described.source))?;
            described.keep()?;
            (path, described)
        }
    };
    edit::report(global, &format!("source `{}` is added to", args.name), &file)?;
    for note in &described.notes {
        output::message(note);
    }
    for (key, secret) in described.source.secret_env.iter().chain(&described.source.secret_headers) {
        output::message(&format!("`{key}` is a secret: store it with `portcullis secret set {secret}`"));
    }
    for place in secrets_in(args) {
        output::message(&format!(
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
            output::message(&format!(
                "{}; `portcullis learn {}` runs it, proposes such lines with the reason for each, and writes those that you \
                 agree to",
                lack.switches(),
                args.name
            ));
        }
        output::message("`portcullis check` starts it once, and shows its tools and its cell");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the line to type in place of one without `--`.
fn divided(args: &Args) -> String {
    let flag = |name: &str, value: &str| format!("--{name} {}", plain_shell_word(value));
    let paths = |name: &'static str, paths: &[PathBuf]| {
        paths.iter().map(|path| flag(name, &path.to_string_lossy())).collect::<Vec<_>>()
    };
    let hosts = args.network.iter().map(|host| flag("network", host));
    // Values that may be secrets are not repeated.
    let pairs = [("env", &args.env), ("set", &args.settings)];
    let pairs =
        pairs.into_iter().flat_map(|(name, pairs)| pairs.iter().map(move |(key, _)| format!("--{name} {key}=…")));
    let flags = [paths("read", &args.read), paths("write", &args.write)].concat().into_iter().chain(hosts).chain(pairs);
    let target = args.target.iter().map(|target| plain_shell_word(target));
    let (before, program): (Vec<String>, Vec<String>) =
        target.partition(|_| args.target.as_deref().is_some_and(is_target));
    let words = args.undivided.iter().chain(&args.command).map(|word| plain_shell_word(word));
    let start = ["portcullis", "add", args.name.as_str()].map(str::to_owned).into_iter();
    let line = start.chain(flags).chain(before).chain(["--".to_owned()]).chain(program).chain(words);
    line.collect::<Vec<_>>().join(" ")
}

/// Reports whether a word names something other than a program: an address, a package, a description, a bundle or a
/// component.
fn is_target(word: &str) -> bool {
    let schemes = ["https://", "http://", "builtin:", "oci://"];
    let is_file = || word.ends_with(".json") || word.ends_with(".wasm") || bundle::is_bundle(word);
    schemes.iter().any(|scheme| word.starts_with(scheme)) || package(word).is_some() || is_file()
}

/// Returns the source in the form to write.
fn source(args: &Args, file: &Path) -> anyhow::Result<DescribedSource> {
    let mut settings = Settings::new(&args.settings);
    let mut described = match &args.target {
        Some(target) => of_target(target, args, file, &mut settings)?,
        None => DescribedSource { source: of_command(args, file)?, ..DescribedSource::default() },
    };
    settings.finish()?;
    // A variable that the user gives stands in the place of the description's.
    let is_given = |variable: &String| args.env.iter().any(|(given, _)| given == variable);
    described.source.env.retain(|(variable, _)| !is_given(variable));
    described.source.secret_env.retain(|(variable, _)| !is_given(variable));
    described.source.env.extend(args.env.clone());
    let mut cell = cell(args, file)?;
    for (key, values) in std::mem::take(&mut described.source.cell) {
        cell.iter_mut().filter(|(own, _)| *own == key).for_each(|(_, all)| all.extend(values.clone()));
    }
    described.source.cell = cell;
    Ok(described)
}

fn of_command(args: &Args, file: &Path) -> anyhow::Result<NewSource> {
    let mut new = NewSource { command: args.command.clone(), ..NewSource::default() };
    if let Some(program) = new.command.first_mut().filter(|program| program.contains('/')) {
        *program = written(Path::new(program.as_str()), file)?;
    }
    new.cwd = working_directory(args, args.command.get(1..).unwrap_or_default(), file)?;
    Ok(new)
}

/// Returns the folder in which a program with these arguments must start: relative ones mean the folder in which the
/// command is written, also to the program.
fn working_directory(args: &Args, arguments: &[String], file: &Path) -> anyhow::Result<Option<String>> {
    let here = std::env::current_dir().context("the working directory is not known")?;
    let granted = |word: &str| args.read.iter().chain(&args.write).any(|path| here.join(path) == here.join(word));
    let is_path = |word: &String| {
        !word.starts_with(['-', '/']) && (word.contains(['/', '.']) || granted(word)) && here.join(word).exists()
    };
    arguments.iter().any(is_path).then(|| written(Path::new("."), file)).transpose()
}

fn of_target(target: &str, args: &Args, file: &Path, settings: &mut Settings) -> anyhow::Result<DescribedSource> {
    let (name, shown) = (args.name.as_str(), escape_hidden(target));
    let is_url = target.starts_with("https://") || target.starts_with("http://");
    if let Some(mut command) = package(target) {
        if command.last().is_some_and(|word| !is_package(word)) {
            bail!("{shown} is not the name of a package");
        }
        command.extend_from_slice(&args.command);
        let cwd = working_directory(args, &args.command, file)?;
        let source = NewSource { command, cwd, ..NewSource::default() };
        return Ok(DescribedSource { source, ..DescribedSource::default() });
    }
    if target.ends_with(".json") {
        let text = match is_url {
            true => {
                let url = url::Url::parse(target).with_context(|| format!("{shown} is not an address"))?;
                let read = runtime::block_on(async { Ok(read_document(&url, server_json::MAX_BYTES).await) })?;
                read.map_err(|error| anyhow::anyhow!(error))?
            }
            false => std::fs::read(target).with_context(|| format!("cannot read {shown}"))?,
        };
        let described = server_json::source(&text, name, &args.command, settings);
        let mut described = described.with_context(|| shown.into_owned())?;
        described.source.cwd = working_directory(args, &described.source.command, file)?;
        return Ok(described);
    }
    let is_component =
        ["builtin:", "oci://"].iter().any(|scheme| target.starts_with(scheme)) || target.ends_with(".wasm");
    if let Some(word) = args.command.first().filter(|_| is_url || !is_component) {
        bail!("{shown} takes no arguments, and {word:?} is one: leave out what follows `--`");
    }
    if bundle::is_bundle(target) {
        return bundled::source(Path::new(target), name, file, settings);
    }
    let mut new = NewSource { args: args.command.clone(), ..NewSource::default() };
    match target {
        url if is_url => {
            // A private address that was written is meant.
            new.private = url::Url::parse(url).is_ok_and(|url| is_private(&url));
            new.url = Some(url.to_owned());
        }
        named if named.starts_with("builtin:") || named.starts_with("oci://") => new.component = Some(named.to_owned()),
        path if path.ends_with(".wasm") => new.component = Some(written(Path::new(path), file)?),
        _ => bail!(
            "`{shown}` is neither an address (`https://…`), a package (`npm:…`, `pypi:…`), a description (`…/server.json`), a \
             bundle (`FILE.mcpb`) nor a component (`FILE.wasm`, `oci://…`, `builtin:…`); for a command write `portcullis add \
             {name} -- {shown} …`"
        ),
    }
    Ok(DescribedSource { source: new, ..DescribedSource::default() })
}

/// Reports whether a word can be a package with its version. One that begins with a dash is an option.
fn is_package(word: &str) -> bool {
    !word.is_empty() && !word.starts_with('-') && !word.chars().any(|c| c.is_whitespace() || c.is_control())
}

/// Returns the command that starts a package, if a word names one.
fn package(target: &str) -> Option<Vec<String>> {
    let (runner, package): (&[&str], _) = match target.split_once(':') {
        Some(("npm", package)) => (&["npx", "-y"], package),
        Some(("pypi", package)) => (&["uvx"], package),
        _ if target.starts_with('@') && target.contains('/') => (&["npx", "-y"], target),
        _ => return None,
    };
    Some(runner.iter().copied().chain([package]).map(str::to_owned).collect())
}

/// Returns what the source's cell opens.
fn cell(args: &Args, file: &Path) -> anyhow::Result<Vec<(&'static str, Vec<String>)>> {
    let paths = |paths: &[PathBuf]| paths.iter().map(|path| written(path, file)).collect::<anyhow::Result<Vec<_>>>();
    Ok(vec![("read", paths(&args.read)?), ("write", paths(&args.write)?), ("network", args.network.clone())])
}

/// Returns a path in the form for the file: relative paths are relative to the file there, and to the working directory
/// here.
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

/// Returns the places of the command and its variables that seem to hold secrets, without the values.
fn secrets_in(args: &Args) -> Vec<String> {
    let variables = args.env.iter().filter(|(name, value)| looks_secret(name, value));
    let variables = variables.map(|(name, _)| format!("`env.{name}`"));
    // With a target, all words are arguments; a command begins with its program.
    let argv: Vec<String> = args.target.iter().chain(&args.command).cloned().collect();
    let words = secret_arguments(&argv).into_iter().map(|place| format!("the argument {place}"));
    variables.chain(words).collect()
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
