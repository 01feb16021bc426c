//! Completion of names in a shell: those of the configuration that a command would use.
//!
//! The shell runs this program for each completion. It reads files and nothing else: no source is started, no broker is
//! asked, and nothing is written. A configuration that is not trusted has no names here.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::CommandFactory as _;
use clap_complete::engine::ValueCompleter as _;
use clap_complete::env::Shells;
use clap_complete::{ArgValueCandidates, ArgValueCompleter, CompleteEnv, CompletionCandidate, PathCompleter};
use portcullis::broker::described_tools;
use portcullis::config::{Config, ConfigCandidate, TrustStatus, named_by_environment};
use portcullis::plugin::builtin_names;

use crate::cli::Cli;

/// The variable by which the script of a shell asks for completions: its value names the shell.
const VARIABLE: &str = "PORTCULLIS_COMPLETE";

/// The end of the script for zsh. A script in a folder of `fpath` is first run by the completion that needs it, which
/// it would not answer by only announcing its function.
const FIRST_OF_ZSH: &[u8] =
    b"if [ \"$funcstack[1]\" = _portcullis ]; then _clap_dynamic_completer_portcullis \"$@\"; fi\n";

/// Answers the script of a shell and ends, if the program was started by one. Otherwise does nothing.
pub(crate) fn main_if_asked() {
    CompleteEnv::with_factory(Cli::command).var(VARIABLE).complete();
}

/// Returns the script that makes a shell ask this program, or `None` for a shell that is not known.
///
/// # Errors
/// None that happens: the script is written to memory.
pub(crate) fn script(shell: &str) -> std::io::Result<Option<Vec<u8>>> {
    let shells = Shells::builtins();
    let Some(shell) = shells.completer(shell) else { return Ok(None) };
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "portcullis", "portcullis", "portcullis", &mut script)?;
    if shell.is("zsh") {
        script.extend(FIRST_OF_ZSH);
    }
    Ok(Some(script))
}

/// Completes the name of a source that is in use.
pub(crate) fn sources() -> ArgValueCandidates {
    from_config(|config| config.sources.keys().map(ToString::to_string).collect())
}

/// Completes the name of a source that is disabled.
pub(crate) fn disabled_sources() -> ArgValueCandidates {
    from_config(|config| config.disabled.keys().map(ToString::to_string).collect())
}

/// Completes the name of a source, in use or disabled.
pub(crate) fn all_sources() -> ArgValueCandidates {
    from_config(|config| config.sources.keys().chain(config.disabled.keys()).map(ToString::to_string).collect())
}

/// Completes the name of a profile.
pub(crate) fn profiles() -> ArgValueCandidates {
    from_config(|config| config.profiles.keys().map(ToString::to_string).collect())
}

/// Completes the name of a tool that a source offered when it last connected.
pub(crate) fn tools() -> ArgValueCandidates {
    from_config(|config| described_tools(config).into_iter().collect())
}

/// Completes a plugin: a built-in one, one that the configuration names, or a file.
pub(crate) fn plugins() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let configured = config().map(|config| config.plugins().iter().map(ToString::to_string).collect::<Vec<_>>());
        let builtin = builtin_names().map(|name| format!("builtin:{name}"));
        let mut names: Vec<_> = builtin.chain(configured.unwrap_or_default()).collect();
        names.sort();
        names.dedup();
        names.retain(|name| is_plain(name) && name.as_bytes().starts_with(current.as_encoded_bytes()));
        let files = PathCompleter::file().complete(current);
        names.into_iter().map(CompletionCandidate::new).chain(files).collect()
    })
}

fn from_config(names: impl Fn(&Config) -> Vec<String> + Send + Sync + 'static) -> ArgValueCandidates {
    ArgValueCandidates::new(move || {
        let names = config().map(|config| names(&config)).unwrap_or_default();
        names.into_iter().filter(|name| is_plain(name)).map(CompletionCandidate::new).collect()
    })
}

/// Reports whether a name has no special meaning to a shell, which puts it on the command line unchanged.
fn is_plain(name: &str) -> bool {
    !name.starts_with('-') && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-./:@".contains(c))
}

/// Returns the configuration that the command on the shell's line would use, if it may be used.
fn config() -> Option<Config> {
    // The shell's script passes the line after these dashes.
    let line = std::env::args_os().skip_while(|word| word != "--").skip(1);
    let named = named_on(line).or_else(named_by_environment);
    if named.as_ref().is_some_and(|named| !named.is_file()) {
        return None;
    }
    let found = ConfigCandidate::load(named.as_deref()).ok()?;
    let usable = found.trust_status().is_ok_and(|status| status == TrustStatus::Usable);
    usable.then(|| found.config().clone())
}

/// Returns the file that `--config` names on a line. Some shells pass `--config=FILE` as three words.
fn named_on(line: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    let mut words = line.take_while(|word| word != "--");
    while let Some(word) = words.next() {
        if word == "--config" {
            return words.find(|word| word != "=").map(PathBuf::from);
        }
        if let Some(file) = word.to_str().and_then(|word| word.strip_prefix("--config=")) {
            return Some(file.into());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completed_name_means_nothing_else_to_the_shell() {
        for plain in ["files__read", "a.b/c", "builtin:rules", "oci://host/name@sha256:ab"] {
            assert!(is_plain(plain), "{plain}");
        }
        for odd in ["--config", "a b", "$(id)", "a;b", "`id`", "a\nb", "~", "*", "'", "é"] {
            assert!(!is_plain(odd), "{odd}");
        }
    }

    #[test]
    fn the_configuration_is_the_one_that_the_line_names() {
        let named = |line: &str| named_on(line.split(' ').map(OsString::from));
        for line in [
            "portcullis --config a.toml call",
            "portcullis call --config=a.toml x",
            "portcullis --config = a.toml call",
        ] {
            assert_eq!(named(line), Some("a.toml".into()), "{line}");
        }
        assert_eq!(named("portcullis wrap -- server --config b.toml"), None);
        assert_eq!(named("portcullis call"), None);
    }
}
