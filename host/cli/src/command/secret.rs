//! `portcullis secret`

use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use portcullis::config::{find_text, uses_of_secret};
use portcullis::secret::{MAX_VALUE_BYTES, SecretStore};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use secrecy::SecretString;
use secrecy::zeroize::Zeroizing;

use crate::cli::GlobalArgs;
use crate::output::{self, escape_hidden};
use crate::runtime;

/// Manage the secrets that sources get
///
/// A source gets a secret where the configuration says `{ secret = "NAME" }`. Values are kept in the data folder of the
/// configuration, in a file that only you can read.
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_long_help = "\
Examples:
  portcullis secret set files-key            # asks, and shows nothing of what is typed
  pass show files | portcullis secret set files-key
  portcullis secret list
  portcullis secret remove files-key"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Store a value, read from standard input since every process can see arguments
    Set {
        /// The name: ASCII letters, digits, `-`, `_` and `.`
        name: String,
    },
    /// Print the names of all secrets
    List,
    /// Remove a value that the configuration does not use
    ///
    /// A broker does not start without a value that it needs, and a source is missing without its own. So a value that
    /// the configuration names is not removed: take the entry out of the file first.
    Remove {
        /// The name that it was set under
        name: String,

        /// Remove it also if the configuration names it
        #[arg(long)]
        force: bool,
    },
}

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let secrets = SecretStore::open(&runtime::data_dir(global)?)?;
    match &args.what {
        What::Set { name } => {
            portcullis::secret::check_name(name)?;
            secrets.set(name, &read_value(name).context("the value cannot be read")?)?;
            output::message(&format!("secret {name} is set"));
        }
        What::Remove { name, force } => {
            if !force {
                check_unused(name, &secrets, global)?;
            }
            secrets.remove(name)?;
            output::message(&format!("secret {name} is removed"));
        }
        What::List => list(&secrets.list()?, global.json)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses to remove a secret that the configuration names.
fn check_unused(name: &str, secrets: &SecretStore, global: &GlobalArgs) -> anyhow::Result<()> {
    // The file is where the data folder was found, whether it is valid or not.
    let Ok((file, text)) = find_text(global.config.as_deref()) else { return Ok(()) };
    let uses = uses_of_secret(&text, name);
    if uses.is_empty() || !secrets.list()?.iter().any(|known| known == name) {
        return Ok(());
    }
    let uses: String = uses.iter().map(|place| format!("\n  {}", escape_hidden(place))).collect();
    bail!(
        "secret {name} is in use, and a broker would not start, or a source be missing, without it: {} names it under{uses}\n\
         take it out of the file first, or use `portcullis secret remove {name} --force`; `portcullis secret set {name}` gives it \
         another value",
        file.display()
    )
}

fn list(names: &[String], json: bool) -> anyhow::Result<()> {
    if json {
        return output::json(&serde_json::json!({ "secrets": names }));
    }
    if names.is_empty() {
        output::message("there are no secrets: keep one with `portcullis secret set NAME`");
    }
    names.iter().try_for_each(|name| output::text(&format!("{name}\n")))
}

/// The time that is waited for more lines of a pasted text: a terminal may pass it on in pieces.
const MORE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Reads a line from the terminal without echo, or everything from a pipe, without the last line break.
fn read_value(name: &str) -> std::io::Result<SecretString> {
    let stdin = std::io::stdin();
    let mut value = Zeroizing::new(String::new());
    if stdin.is_terminal() {
        let unseen = Unseen::new()?;
        output::message(&format!("value of {name} (not shown): "));
        stdin.lock().read_line(&mut value)?;
        if unseen.has_more()? {
            return Err(std::io::Error::other(format!(
                "it has more than one line, and of what is typed or pasted a single one is read: pipe it, as in \
                 `portcullis secret set {name} < FILE`"
            )));
        }
    } else {
        // One byte more than is allowed, and a line break, so that a longer value is refused rather than cut.
        stdin.lock().take(MAX_VALUE_BYTES as u64 + 3).read_to_string(&mut value)?;
    }
    let line = value.strip_suffix('\n').unwrap_or(&value);
    Ok(line.strip_suffix('\r').unwrap_or(line).into())
}

/// The terminal without echo, until this is dropped.
struct Unseen(Termios);

impl Unseen {
    fn new() -> std::io::Result<Self> {
        let before = tcgetattr(std::io::stdin())?;
        let mut unseen = before.clone();
        unseen.local_modes.remove(LocalModes::ECHO);
        tcsetattr(std::io::stdin(), OptionalActions::Flush, &unseen)?;
        Ok(Self(before))
    }

    /// Reports whether more than a line was typed, also if the rest is not a complete line.
    fn has_more(&self) -> std::io::Result<bool> {
        let stdin = std::io::stdin();
        let mut by_key = self.0.clone();
        by_key.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
        tcsetattr(&stdin, OptionalActions::Now, &by_key)?;
        let mut watched = [PollFd::new(&stdin, PollFlags::IN)];
        poll(&mut watched, Some(&MORE))?;
        Ok(watched.iter().any(|keys| keys.revents().contains(PollFlags::IN)))
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        // Unread input is a part of the secret, not a command for the shell. Nothing can be done about a terminal that
        // is gone.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.0);
    }
}
