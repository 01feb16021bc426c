//! `portcullis connect`

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use portcullis::control::{self, ControlRequest};
use serde_json::{Value, json};

use crate::cli::GlobalArgs;
use crate::config_file::PRIVATE_BITS;
use crate::connect::changed::DiffSide;
use crate::connect::client::{Client, FileSyntax};
use crate::connect::client_file::ClientFile;
use crate::connect::{changed, edit, entry};
use crate::consent;
use crate::output::{self, escape_hidden};
use crate::runtime;

/// Write the entry with which a client reaches this broker into the client's own file
///
/// Shows the change and asks. Everything else in the file stays, a copy of the file as it was is kept next to it, and
/// --undo removes exactly our entry. The client starts this program with the absolute path of the configuration, which
/// therefore needs no further trust when it changes. If the configuration has a `[serve]` table with `listen`, the entry
/// is the address of the running broker with its token instead.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis connect claude-code
  portcullis connect cursor --project
  portcullis connect codex --yes          # in a script
  portcullis connect goose --print        # the entry alone, to paste
  portcullis connect cursor --undo")]
pub(crate) struct Args {
    /// The client
    #[arg(value_enum)]
    client: Client,

    /// Write the file of the project in this folder instead of the user's own; the broker is always started by the
    /// client then, since a project's file is shared and must hold no token
    #[arg(long)]
    project: bool,

    /// The name of the entry
    #[arg(long, value_name = "NAME", default_value = "portcullis", value_parser = entry_name)]
    name: String,

    /// Let the client start the broker even if the configuration says where it listens
    #[arg(long, conflicts_with = "undo")]
    stdio: bool,

    /// Take the entry out again
    #[arg(long)]
    undo: bool,

    /// Print the entry and change nothing
    #[arg(long, conflicts_with_all = ["undo", "yes"])]
    print: bool,

    /// Do not ask
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let client = args.client;
    if args.undo {
        return undo(args, &open(args)?, global);
    }
    let access = access(args, global)?;
    let entry = access.entry(client);
    if args.print {
        let snippet = entry::snippet(client, &args.name, &entry)?;
        match global.json {
            true => output::json(&json!({ "entry": entry }))?,
            false => output::text(&snippet)?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let file = open(args)?;
    let refused = || format!("{} is left as it is", file.shown());
    let old = edit::entry(file.text(), client, &args.name).with_context(refused)?;
    if let Some(old) = &old
        && !entry::is_ours(old)
    {
        bail!(
            "{} has an entry `{}` that `connect` did not write, and is left as it is: choose another name with --name",
            file.shown(),
            args.name
        );
    }
    if old.as_ref() == Some(&entry) {
        return done(global, &file, false, "has the entry already, and is left as it is");
    }
    let changed = edit::with_entry(file.text(), client, &args.name, &entry).with_context(refused)?;
    let before = old.as_ref().map_or_else(|| file.text().to_owned(), |old| hidden(file.text(), old));
    let (before, after) = (access.hide_token(&before), access.hide_token(&changed));
    agree(args, &file, &before, &after)?;
    let bits = access.has_token().then_some(PRIVATE_BITS);
    let was_shared = file.is_shared();
    // A copy from before our first entry is the one to go back to.
    if old.is_none() || file.backup_text().is_none() {
        file.back_up(bits)?;
    }
    file.replace(&changed, bits)?;
    if bits.is_some() && was_shared && !global.json {
        output::message(&format!("{} can be read by you alone now, since it holds the token", file.shown()));
    }
    let written = done(global, &file, true, "has the entry now; restart the client")?;
    if matches!(access, entry::BrokerAccess::Http { .. }) && !global.json && !a_broker_runs(global)? {
        output::message(
            "no broker runs there yet: `portcullis serve` starts it; with --stdio the client starts it itself",
        );
    }
    Ok(written)
}

/// Reports whether a broker runs on the data folder of the configuration.
fn a_broker_runs(global: &GlobalArgs) -> anyhow::Result<bool> {
    let folder = global.load()?.data_dir;
    let brokers = runtime::block_on(async { Ok(control::all(&folder, &ControlRequest::Status).await) })?;
    Ok(brokers.is_ok_and(|brokers| !brokers.is_empty()))
}

/// Takes the entry out: restores the copy if nothing else has changed since, or else removes only the entry.
fn undo(args: &Args, file: &ClientFile, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let (client, name) = (args.client, args.name.as_str());
    let refused = || format!("{} is left as it is", file.shown());
    let Some(entry) = edit::entry(file.text(), client, name).with_context(refused)? else {
        return done(global, file, false, "has no such entry, and is left as it is");
    };
    ensure!(
        entry::is_ours(&entry),
        "{} has an entry `{name}` that `connect` did not write, and is left as it is: remove it by hand",
        file.shown()
    );
    let made_from = |before: &str| edit::with_entry(before, client, name, &entry).is_ok_and(|made| made == file.text());
    let backup = file.backup_text();
    if let Some(before) = backup.filter(|before| made_from(before)) {
        agree(args, file, &hidden(file.text(), &entry), &before)?;
        file.replace(&before, None)?;
        ClientFile::remove(&file.backup())?;
        return done(global, file, true, "is as it was before");
    }
    if made_from("") {
        agree(args, file, &hidden(file.text(), &entry), "")?;
        ClientFile::remove(file.real())?;
        return done(global, file, true, "is removed, since it held nothing else");
    }
    let changed = edit::without_entry(file.text(), client, name).with_context(refused)?;
    agree(args, file, &hidden(file.text(), &entry), &changed)?;
    file.replace(&changed, None)?;
    done(global, file, true, "has no such entry any more")
}

/// Returns how the client is to reach the broker.
fn access(args: &Args, global: &GlobalArgs) -> anyhow::Result<entry::BrokerAccess> {
    let config = global.load()?;
    let file = config.file.clone().unwrap_or_default();
    let text = std::fs::read_to_string(&file).with_context(|| format!("{} cannot be read", file.display()))?;
    let listens = text.parse::<toml_edit::DocumentMut>().is_ok_and(|document| {
        document.get("serve").and_then(toml_edit::Item::as_table_like).is_some_and(|serve| serve.contains_key("listen"))
    });
    // Claude Desktop reads only programs from its file.
    if listens && !args.stdio && !args.project && args.client != Client::ClaudeDesktop {
        return entry::BrokerAccess::http(&config);
    }
    entry::BrokerAccess::stdio(&config)
}

fn open(args: &Args) -> anyhow::Result<ClientFile> {
    let client = args.client;
    let (path, folder) = match args.project {
        true => {
            let folder = std::env::current_dir().context("the working directory is not known")?;
            let path = client.project_file(&folder);
            (
                path.with_context(|| format!("{} has no file of a project: leave out --project", client.name()))?,
                Some(folder),
            )
        }
        false => (client.user_file()?, None),
    };
    if client.syntax() == FileSyntax::Yaml {
        bail!(
            "{} is YAML, which is not edited here because its comments would be lost: \
             `portcullis connect {} --print` prints the entry, for you to paste or to take out",
            escape_hidden(&path.to_string_lossy()),
            client.name()
        );
    }
    ClientFile::open(path, folder.as_deref())
}

/// Shows what changes, and nothing else of the file, and asks unless `--yes` was given.
fn agree(args: &Args, file: &ClientFile, before: &str, after: &str) -> anyhow::Result<()> {
    let made = if file.exists() { "" } else { " (a new file)" };
    output::message(&format!("{}{made}:", file.shown()));
    let parts = changed::parts(before, after);
    for (sign, part) in &parts {
        let sign = match sign {
            DiffSide::Removed => '-',
            DiffSide::Inserted => '+',
        };
        for line in part.lines().filter(|line| !line.trim().is_empty()) {
            output::message(&format!("  {sign} {}", escape_hidden(&line.replace('\t', "    "))));
        }
    }
    if parts.is_empty() {
        output::message("  only the token changes");
    }
    if args.yes {
        return Ok(());
    }
    ensure!(
        consent::can_ask(),
        "nobody can be asked whether to write it, so nothing is changed: add --yes after a look at the change"
    );
    ensure!(consent::agreed("Write it?")?, "nothing is changed");
    Ok(())
}

/// Returns a text without the token of an entry, to be shown.
fn hidden(text: &str, entry: &Value) -> String {
    let header = ["headers", "http_headers"].into_iter().find_map(|key| entry.get(key)?.get("Authorization")?.as_str());
    match header.and_then(|header| header.strip_prefix("Bearer ")).filter(|token| !token.is_empty()) {
        Some(token) => text.replace(token, "…"),
        None => text.to_owned(),
    }
}

fn done(global: &GlobalArgs, file: &ClientFile, changed: bool, said: &str) -> anyhow::Result<ExitCode> {
    if global.json {
        output::json(&json!({ "file": file.real().to_string_lossy(), "changed": changed }))?;
    } else {
        output::message(&format!("{} {said}", file.shown()));
        let backup = file.backup();
        if changed && Path::new(&backup).exists() {
            output::message(&format!("what was there before is in {}", escape_hidden(&backup.to_string_lossy())));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the name if every client accepts it.
fn entry_name(name: &str) -> Result<String, String> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    match !name.is_empty() && name.len() <= 64 && name.chars().all(good) {
        true => Ok(name.to_owned()),
        false => Err("a name has 1 to 64 letters, digits, `-` and `_`".to_owned()),
    }
}
