//! `portcullis import`

mod input;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use portcullis::config::import::{ExpansionContext, HEAD, TAIL, WantedSecret, import};
use portcullis::config::{
    Config, ConfigCandidate, TrustStatus, environment_variable, find_text, real_file, user_trust, uses_of_secret,
};
use portcullis::secret::SecretStore;
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::cell_proposals::{self, Proposed, UnknownServer};
use crate::cli::GlobalArgs;
use crate::command::{init, trust};
use crate::config_file::ConfigFile;
use crate::connect::client::Client;
use crate::output::{self, escape_hidden, shell_word};
use input::Input;

/// Take over the servers of another client
///
/// Reads the files of Claude Code, Claude Desktop, Cursor, VS Code, Codex, Gemini CLI, Zed, Windsurf and Goose, and a
/// bare mcp_servers.json, whatever they are called; with a client's name, those in its usual places. Each server
/// becomes a source of the configuration, or of a new portcullis.toml in this folder. Its cell is proposed: as it was
/// measured for a widely used server, or else guessed from its arguments, with the reason as a comment. Values that
/// look like secrets are kept in the store of secrets and not in the file. The file is trusted as it is written but for
/// the proposed cells, which `check` shows before it asks. What comes from a project's file, from a file that you name
/// or from standard input gets nothing of your environment, and is trusted once you have seen it. Nothing is started,
/// and the client's file stays as it is.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis import cursor
  portcullis import .vscode/mcp.json --dry-run
  cat claude_desktop_config.json | portcullis import -")]
pub(crate) struct Args {
    /// The file, `-` for standard input, or the name of a client
    #[arg(value_name = "FILE|CLIENT")]
    from: Option<PathBuf>,

    /// Print what the configuration would be, and write nothing
    #[arg(long)]
    dry_run: bool,
}

/// The configuration to which the servers are added.
struct Destination {
    file: PathBuf,
    /// The text as read, or `None` if there is no file.
    text: Option<String>,
}

/// The result of all inputs together.
#[derive(Default)]
struct Collected {
    /// The sources from the user's own files.
    own: String,
    /// The sources from files that somebody else may have written.
    others: String,
    /// The files that `others` comes from, safe to show.
    origins: Vec<String>,
    secrets: Vec<WantedSecret>,
    notes: Vec<String>,
    to_do: Vec<String>,
    present: usize,
    /// The files of clients that servers were taken from, safe to show.
    files: Vec<String>,
}

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let inputs = input::inputs(args.from.as_deref())?;
    let destination = Destination::find(global)?;
    let before = destination.config()?;
    let mut collected = collect(&inputs, &destination)?;
    let sources = collected.sources();
    if sources.is_empty() {
        if collected.present == 0 {
            bail!("none of the servers can be taken over:\n{}", collected.notes.join("\n"));
        }
        return ImportReport {
            args,
            global,
            file: &destination.file,
            proposed: None,
            collected: &collected,
            stored: &[],
        }
        .report();
    }
    let text = destination.with(&sources);
    let proposed = cell_proposals::propose(&text, &destination.file, &before)?;
    collected.notes.extend(proposed.notes.iter().cloned());
    let stored = if args.dry_run { Vec::new() } else { write(global, &destination, &proposed, &mut collected)? };
    let (file, proposed) = (&*destination.file, Some(&proposed));
    ImportReport { args, global, file, proposed, collected: &collected, stored: &stored }.report()
}

/// Imports each input. An unreadable input does not affect the others.
fn collect(inputs: &[Input], destination: &Destination) -> anyhow::Result<Collected> {
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    let mut all = Collected::default();
    for input in inputs {
        let shown = &input.shown;
        let withheld = RefCell::new(BTreeSet::new());
        let variable = |name: &str| {
            let value = environment_variable(name)?;
            if !input.is_own {
                withheld.borrow_mut().insert(name.to_owned());
            }
            input.is_own.then_some(value)
        };
        let before = destination.with(&all.sources());
        let config = Config::parse(&before, &destination.file).with_context(|| destination.left_as_it_is())?;
        let stored = if input.is_own { Vec::new() } else { SecretStore::open(&config.data_dir)?.list()? };
        let is_taken =
            |name: &str| stored.iter().any(|known| known == name) || !uses_of_secret(&before, name).is_empty();
        let around = ExpansionContext {
            workspace: Some(&input.workspace),
            home: home.as_deref(),
            variable: &variable,
            may_read: &|file| input.may_read(file),
            is_taken: &is_taken,
        };
        let text = input.text.as_ref().map_err(|error| anyhow::anyhow!("{shown} cannot be read: {error:#}"));
        let imported = text.and_then(|text| {
            import(text, &around, &destination.file, Some(&config))
                .with_context(|| format!("{shown} cannot be imported"))
        });
        match imported {
            Ok(imported) => {
                if input.is_own {
                    all.own.push_str(&imported.sources);
                } else if !imported.sources.is_empty() {
                    all.others.push_str(&imported.sources);
                    all.origins.push(shown.clone());
                    let names: Vec<String> = withheld.take().into_iter().collect();
                    if !names.is_empty() {
                        all.notes.push(format!(
                            "{shown} asks for {} of your environment and gets nothing of it, since somebody else may have \
                             written it: what a source is to have, set with `portcullis secret set`, as below",
                            names.join(", ")
                        ));
                    }
                }
                all.secrets.extend(imported.secrets);
                all.notes.extend(imported.notes);
                all.to_do.extend(imported.to_do);
                all.present += imported.present;
                if input.is_clients && !imported.sources.is_empty() {
                    all.files.push(shown.clone());
                }
            }
            Err(error) if inputs.len() == 1 => return Err(error),
            Err(error) => all.notes.push(format!("{error:#}")),
        }
    }
    Ok(all)
}

impl Collected {
    fn sources(&self) -> String {
        format!("{}{}", self.own, self.others)
    }
}

impl Destination {
    fn find(global: &GlobalArgs) -> anyhow::Result<Self> {
        match find_text(global.config.as_deref()) {
            Ok((file, text)) => Ok(Self { file, text: Some(text) }),
            Err(error) => {
                let named = global.config.as_deref().unwrap_or(Path::new(init::FILE));
                if named.symlink_metadata().is_ok() || !(error.is_missing() || global.config.is_some()) {
                    return Err(error.into());
                }
                Ok(Self { file: real_file(named), text: None })
            }
        }
    }

    /// Reports whether there is no file, or nothing in it.
    fn is_empty(&self) -> bool {
        self.text.as_ref().is_none_or(|text| text.trim().is_empty())
    }

    /// Returns the text of the configuration with further sources.
    fn with(&self, sources: &str) -> String {
        match self.text.as_ref().filter(|_| !self.is_empty()) {
            Some(text) => format!("{}\n{sources}", text.trim_end()),
            None => format!("{HEAD}{sources}{TAIL}"),
        }
    }

    fn config(&self) -> anyhow::Result<Config> {
        Config::parse(&self.with(""), &self.file).with_context(|| self.left_as_it_is())
    }

    fn left_as_it_is(&self) -> String {
        format!("{} is left as it is", escape_hidden(&self.file.to_string_lossy()))
    }
}

/// Writes the user's own sources, then the secrets, then the other sources and the proposed cells. The first are
/// trusted if the file was, or is new; the last count only after a person has seen them. Returns the names of the
/// secrets that are stored.
fn write(
    global: &GlobalArgs,
    destination: &Destination,
    proposed: &Proposed,
    collected: &mut Collected,
) -> anyhow::Result<Vec<String>> {
    let file = &destination.file;
    let text = &destination.with(&collected.own);
    match &destination.text {
        None => drop(init::create(file, text)?),
        Some(read) => ConfigFile::open(Some(file))?.still_with(read)?.replace(text)?,
    }
    let is_trusted = destination.is_empty()
        && trust::trust_made(file, text).unwrap_or_else(|error| {
            let shown = escape_hidden(&file.to_string_lossy()).into_owned();
            collected.notes.push(format!("{shown} is not trusted yet: {error}"));
            false
        });
    // Nothing is put into a data folder that was not trusted.
    let stored = match is_usable(global) {
        true => store(&Config::parse(text, file)?.data_dir, collected)?,
        false => Vec::new(),
    };
    if proposed.text != *text {
        ConfigFile::open(Some(file))?.still_with(text)?.without_trust().replace(&proposed.text)?;
        if is_trusted {
            // Nobody has reviewed anything yet, so nothing is called a change.
            user_trust()?.mark_unseen(&real_file(file))?;
        }
    }
    if !collected.origins.is_empty() && is_usable(global) {
        collected.notes.push(format!(
            "the configuration needs no trust, so what comes from {} counts from now on: look at it, and switch off what \
             you do not want with `portcullis disable NAME`",
            collected.origins.join(", ")
        ));
    }
    Ok(stored)
}

/// Reports whether the configuration that a command would use may be used in its present form.
fn is_usable(global: &GlobalArgs) -> bool {
    trust_status(global) == Some(TrustStatus::Usable)
}

fn trust_status(global: &GlobalArgs) -> Option<TrustStatus> {
    ConfigCandidate::load(global.config.as_deref()).and_then(|found| found.trust_status()).ok()
}

/// Stores the values of the secrets, and returns their names. A secret that is there already is kept.
fn store(data_dir: &Path, collected: &mut Collected) -> anyhow::Result<Vec<String>> {
    let store = SecretStore::open(data_dir)?;
    let known = store.list()?;
    let mut stored = Vec::new();
    for secret in &collected.secrets {
        let Some(value) = &secret.value else { continue };
        if known.contains(&secret.name) {
            let same = store.get(&secret.name).is_ok_and(|old| old.expose_secret() == value.expose_secret());
            if !same {
                collected.notes.push(format!("the secret {} has another value already, which is kept", secret.name));
            }
        } else if let Err(error) = store.set(&secret.name, value) {
            collected.notes.push(format!("the secret {} cannot be stored: {error}", secret.name));
            continue;
        }
        stored.push(secret.name.clone());
    }
    Ok(stored)
}

/// Returns, for each unknown server, the command that finds out what it needs. Disabled servers are left out.
fn to_learn(proposed: &Proposed, file: &Path) -> anyhow::Result<Vec<String>> {
    let after = Config::parse(&proposed.text, file)?;
    let started = proposed.unknown.iter().filter(|server| after.sources.contains_key(&server.name));
    let command = |UnknownServer { name, is_guessed }: &UnknownServer| {
        let why = match is_guessed {
            true => "its cell is only a guess from its arguments",
            false => "it is not known, so it sees no file and no host",
        };
        format!("portcullis learn {name}    # finds out what {name} needs: {why}")
    };
    Ok(started.map(command).collect())
}

/// An import that was made, or would be without `--dry-run`.
struct ImportReport<'a> {
    args: &'a Args,
    global: &'a GlobalArgs,
    file: &'a Path,
    /// The file as it is to be, unless it has all of the servers.
    proposed: Option<&'a Proposed>,
    collected: &'a Collected,
    /// The names of the secrets that are stored.
    stored: &'a [String],
}

impl ImportReport<'_> {
    /// Prints what was done and what is left to do.
    fn report(&self) -> anyhow::Result<ExitCode> {
        let Self { args, global, file, proposed, collected, stored } = *self;
        let shown = escape_hidden(&file.to_string_lossy()).into_owned();
        let to_do = self.left_to_do()?;
        if global.json {
            let secrets = collected.secrets.iter().map(
            |secret| json!({ "name": secret.name, "origin": secret.origin, "stored": stored.contains(&secret.name) }),
        );
            output::json(&json!({
                "file": file.to_string_lossy(), "written": !args.dry_run && proposed.is_some(),
                "toml": proposed.map(|proposed| &proposed.text), "secrets": secrets.collect::<Vec<_>>(),
                "notes": collected.notes, "to-do": to_do,
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        for note in &collected.notes {
            output::message(&format!("note: {}", escape_hidden(note)));
        }
        let Some(proposed) = proposed else {
            output::message(&format!("{shown} is left as it is: it has all of these servers"));
            return Ok(ExitCode::SUCCESS);
        };
        if args.dry_run {
            output::text(&proposed.text)?;
            output::message(&format!("nothing is written; without --dry-run, this is {shown}"));
        } else {
            output::message(&format!("the servers are sources of {shown} now"));
            if !stored.is_empty() {
                output::message(&format!("secrets are stored, and not in the file: {}", stored.join(", ")));
            }
            let ask = format!("`portcullis trust {}` shows what it opens, and asks", shell_word(&shown));
            match trust_status(global) {
                Some(TrustStatus::Usable) => {}
                Some(TrustStatus::Changed(before)) if !before.unseen => {
                    output::message(&format!("it is not trusted as it is now: {ask}"));
                }
                _ => output::message(&format!("nothing of it is trusted yet: {ask}")),
            }
        }
        output::message("left to do:");
        for command in &to_do {
            output::message(&format!("  {}", escape_hidden(command)));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the commands and steps that are left after the import, in their order.
    fn left_to_do(&self) -> anyhow::Result<Vec<String>> {
        let Self { args, global, file, proposed, collected, stored } = *self;
        let missing: Vec<&WantedSecret> =
            collected.secrets.iter().filter(|secret| !stored.contains(&secret.name)).collect();
        let mut to_do: Vec<String> = Vec::new();
        if !collected.origins.is_empty() && (args.dry_run || !is_usable(global)) {
            let origins = collected.origins.join(", ");
            to_do.push(format!(
                "portcullis trust {}    # shows what comes from {origins}, which somebody else may have written",
                shell_word(&escape_hidden(&file.to_string_lossy()))
            ));
        }
        to_do.extend(
            missing
                .iter()
                .filter(|secret| !args.dry_run || secret.value.is_none())
                .map(|secret| format!("portcullis secret set {}    # {}", secret.name, secret.origin)),
        );
        to_do.extend(collected.to_do.iter().cloned());
        to_do.push("portcullis check".to_owned());
        to_do.extend(proposed.map(|proposed| to_learn(proposed, file)).transpose()?.unwrap_or_default());
        let client = args.from.as_deref().and_then(|from| Client::named(from.to_str()?));
        to_do.extend(client.map(|client| format!("portcullis connect {}", client.name())));
        to_do.extend(collected.files.iter().map(|from| {
            format!("remove these servers from {from}    # until then the client starts them itself, without a cell")
        }));
        Ok(to_do)
    }
}
