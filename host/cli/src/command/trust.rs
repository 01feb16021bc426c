//! `portcullis trust`

mod effect_list;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use portcullis::broker::refused_settings;
use portcullis::config::{Config, ConfigCandidate, ConfigError, TrustStatus, real_file, user_trust};
use portcullis::digest::Digest;
use portcullis::trust::TrustRecord;
use serde_json::json;

use self::effect_list::{EffectList, Mark};
use crate::cli::GlobalArgs;
use crate::output::{self, escape_hidden, shell_word};
use crate::settings_changes::SettingsLine;
use crate::{consent, runtime};

/// The file that is used if no other is named.
pub(crate) const FILE: &str = "portcullis.toml";

const QUESTION: &str = "Do you trust it?";

/// Trust a configuration in a folder, after a look at what it does
///
/// A portcullis.toml that is found in the working directory is used only if you trust it: with this command, or when
/// another command asks. You are shown what it would start, reach, read and write, as a difference to what you trusted
/// before. Any change of the file must be trusted again, and so must another data folder. A file that --config names,
/// and the one in your own configuration folder, need no trust.
///
/// If there is no data folder, it is made. With --yes nobody looks at the configuration, so the command refuses if
/// somebody should: if a data folder already exists that was not trusted with the file, or if a source of another
/// trusted configuration may have written the file.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis trust                        # shows ./portcullis.toml, and asks
  portcullis trust --yes                  # in a script: shows it, and does not ask
  portcullis trust --list
  portcullis trust --revoke ~/work/portcullis.toml")]
pub(crate) struct Args {
    /// The configuration [default: ./portcullis.toml]
    file: Option<PathBuf>,

    /// Trust it without asking
    #[arg(long)]
    yes: bool,

    /// Print the trusted configurations
    #[arg(long, conflicts_with_all = ["file", "yes", "revoke"])]
    list: bool,

    /// Stop trusting it
    #[arg(long, conflicts_with = "yes")]
    revoke: bool,
}

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    if args.list {
        return list(global).map(|()| ExitCode::SUCCESS);
    }
    let file = args.file.clone().or_else(|| global.config.clone()).unwrap_or_else(|| FILE.into());
    if args.revoke {
        return revoke(&file);
    }
    let found = ConfigCandidate::load(Some(&file))?;
    let before = found.trusted()?;
    let shown = escape_hidden(&found.file().to_string_lossy()).into_owned();
    if before.as_ref().is_some_and(|before| found.matches(before)) {
        output::message(&format!("{shown} is trusted already"));
        return Ok(ExitCode::SUCCESS);
    }
    show(&found, before.as_ref(), &refused_sentences(found.config()))?;
    if args.yes {
        require_no_review(&found, before.as_ref())?;
    } else {
        if !consent::can_ask() {
            bail!(
                "nobody can be asked whether {shown} is trusted: run `portcullis trust --yes {}` after a look at it",
                shell_word(&shown)
            );
        }
        if !consent::agreed(QUESTION)? {
            bail!("{shown} is not trusted");
        }
    }
    found.accept()?;
    output::message(&format!("{shown} is trusted as it is now"));
    Ok(ExitCode::SUCCESS)
}

/// The longest time that settings are tried before the question: an untrusted file may have any number of policies that
/// take long to compile.
const SETTINGS_TIME: Duration = Duration::from_secs(10);

/// Returns which plugins refuse their settings, as `check` says it: the configuration would be trusted, and not served.
/// Plugins that do not come with the program are not run before it is trusted.
fn refused_sentences(config: &Config) -> Vec<String> {
    let refused =
        runtime::block_on(async { Ok(tokio::time::timeout(SETTINGS_TIME, refused_settings(config)).await??) });
    match refused {
        Ok(refused) => refused.iter().map(ToString::to_string).collect(),
        Err(error) => vec![format!("settings of plugins were not checked: {error:#}")],
    }
}

/// Returns the configuration that a command is to use, if it is trusted. On a terminal the user is asked about one that
/// was found here.
pub(crate) fn into_usable(found: ConfigCandidate) -> Result<Config, ConfigError> {
    let before = match found.trust_status()? {
        TrustStatus::Unknown if consent::can_ask() => None,
        TrustStatus::Changed(before) if consent::can_ask() => Some(before),
        _ => return found.into_usable(),
    };
    show(&found, before.as_ref(), &[])?;
    match consent::agreed(QUESTION) {
        Ok(true) => found.accept(),
        // The same error as if nobody could be asked.
        _ => found.into_usable(),
    }
}

/// Trusts a file that this command has just written, if it has exactly this text, and says so.
pub(crate) fn keep_made(file: &Path, text: &str) {
    let shown = escape_hidden(&file.to_string_lossy()).into_owned();
    match trust_made(file, text) {
        Ok(true) => output::message(&format!("{shown} is trusted as it was written")),
        Ok(false) => {}
        Err(error) => output::message(&format!("{shown} is not trusted yet: {error}")),
    }
}

/// Trusts a file that this command has just written. Returns false if it does not have exactly this text: somebody else
/// has changed it.
///
/// # Errors
/// If a person must look at it first, or the trust cannot be recorded.
pub(crate) fn trust_made(file: &Path, text: &str) -> anyhow::Result<bool> {
    let found = ConfigCandidate::load(Some(file))?;
    if found.digest() != Digest::of(text.as_bytes()) {
        return Ok(false);
    }
    let before = found.trusted()?;
    data_is_seen(&found, before.as_ref())?;
    found.accept()?;
    Ok(true)
}

/// Returns an error if a person must review the configuration before it is trusted.
fn require_no_review(found: &ConfigCandidate, before: Option<&TrustRecord>) -> anyhow::Result<()> {
    data_is_seen(found, before)?;
    if let Some(writer) = found.writers()?.first() {
        let file = shell_word(&found.file().to_string_lossy());
        bail!(
            "{writer}: run `portcullis trust {file}` on a terminal and answer it, name the file with \
             `--config {file}` where it is used, or grant the source smaller folders"
        );
    }
    Ok(())
}

/// Refuses a data folder that was not trusted with the file: everything accepted in it would be used, though nobody has
/// reviewed it.
pub(crate) fn data_is_seen(found: &ConfigCandidate, before: Option<&TrustRecord>) -> anyhow::Result<()> {
    if !found.has_unknown_data_folder(before) {
        return Ok(());
    }
    let file = shell_word(&found.file().to_string_lossy());
    let data = escape_hidden(&found.config().data_dir.to_string_lossy()).into_owned();
    bail!(
        "{data} is there already, and what was accepted and remembered in it would count: run \
         `mv {} {}` for a fresh one, run `portcullis trust {file}` on a terminal and answer it, or name the file with \
         `--config {file}` where it is used",
        shell_word(&data),
        shell_word(&format!("{data}.old"))
    )
}

/// Shows the effects of a configuration as a difference to those that were trusted before, and reasons for a second
/// look: sentences about its settings first, since they do no harm, and what weakens it last, directly above the question.
fn show(found: &ConfigCandidate, before: Option<&TrustRecord>, settings: &[String]) -> Result<(), ConfigError> {
    let is_terminal = std::io::stderr().is_terminal();
    output::message(&described(found, before, settings)?.shown(is_terminal));
    Ok(())
}

fn described(
    found: &ConfigCandidate,
    before: Option<&TrustRecord>,
    settings: &[String],
) -> Result<EffectList, ConfigError> {
    let now = found.config().effects();
    // A configuration that nobody has looked at yet is shown in full.
    let seen = before.filter(|before| !before.unseen);
    let file = found.file().to_string_lossy();
    let mut listing = match seen {
        None => EffectList::about(&file, "is not trusted yet. It would do this:"),
        Some(before) => {
            EffectList::about(&file, &format!("is not what you trusted on {}. This is different:", before.at))
        }
    };
    let known: &[String] = seen.map_or(&[], |before| &before.effects);
    let mut gone: Vec<_> = known.iter().filter(|line| !now.contains(line)).collect();
    let mut new: Vec<_> = now.iter().filter(|line| !known.contains(line)).collect();
    let differs = !gone.is_empty() || !new.is_empty();
    settings.iter().for_each(|sentence| listing.add(Mark::Warning, sentence));
    let changed = changed_settings(&mut gone, &mut new);
    gone.into_iter().for_each(|line| listing.add(Mark::Gone, line));
    for (mark, line) in &changed {
        listing.add(*mark, line);
    }
    new.into_iter().for_each(|line| listing.add(Mark::New, line));
    if !differs && before.is_none_or(|before| before.digest != found.digest()) {
        listing.add(Mark::Detail, "nothing that it starts, reaches, reads or writes, but something else in the file");
    }
    if found.has_unknown_data_folder(before) {
        let data = found.config().data_dir.to_string_lossy();
        let since = if seen.is_some() { "is not the data folder that you trusted" } else { "is there already" };
        listing.add(Mark::Warning, &format!("{data} {since}: what was accepted and remembered in it counts"));
    }
    found.writers()?.iter().for_each(|writer| listing.add(Mark::Warning, &writer.to_string()));
    Ok(listing)
}

/// Takes settings of the same plugin that differ out of both lists, and returns lines that describe the changes within
/// them.
fn changed_settings(gone: &mut Vec<&String>, new: &mut Vec<&String>) -> Vec<(Mark, String)> {
    let mut changed = Vec::new();
    gone.retain(|before| {
        let Some(before) = SettingsLine::of(before) else { return true };
        let now = |line: &&String| SettingsLine::of(line).is_some_and(|now| now.about == before.about);
        let Some(place) = new.iter().position(now) else { return true };
        let line = new.remove(place);
        let Some(now) = SettingsLine::of(line) else { return true };
        changed.push((Mark::Changed, format!("{} other settings:", now.about)));
        changed.extend(before.changes_to(&now).into_iter().map(|change| (Mark::Detail, change)));
        false
    });
    changed
}

fn list(global: &GlobalArgs) -> anyhow::Result<()> {
    let all = user_trust()?.list()?;
    let state = |trusted: &TrustRecord| match ConfigCandidate::load(Some(Path::new(&trusted.path))) {
        Ok(found) if found.matches(trusted) => "as trusted",
        Ok(_) if trusted.unseen => "not trusted yet",
        Err(_) if !Path::new(&trusted.path).exists() => "gone",
        Ok(_) | Err(_) => "changed",
    };
    if global.json {
        let all = all.iter().map(|trusted| {
            json!({ "path": trusted.path, "digest": trusted.digest, "at": trusted.at, "state": state(trusted) })
        });
        return output::json(&json!({ "trusted": all.collect::<Vec<_>>() }));
    }
    if all.is_empty() {
        output::message("no configuration is trusted: trust one with `portcullis trust FILE`");
    }
    all.iter().try_for_each(|trusted| {
        let (path, at) = (escape_hidden(&trusted.path), escape_hidden(&trusted.at));
        output::text(&format!("{path}  {}  since {at}  {}\n", state(trusted), trusted.digest))
    })
}

fn revoke(file: &Path) -> anyhow::Result<ExitCode> {
    let file = real_file(file);
    let shown = escape_hidden(&file.to_string_lossy()).into_owned();
    if !user_trust()?.revoke(&file)? {
        bail!("{shown} is not trusted: `portcullis trust --list` shows what is");
    }
    output::message(&format!("{shown} is no longer trusted"));
    Ok(ExitCode::SUCCESS)
}
