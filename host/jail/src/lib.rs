//! The launcher that becomes a tool source's process.
//!
//! The broker never starts a source itself. It starts this launcher, a fresh and single-threaded process, which takes off
//! whatever it could have inherited and then becomes the source by `exec`. [`Launch`] is the broker's side: what is to be
//! started, as a command line. [`main_if_asked`] is the launcher's side.
#![expect(
    clippy::disallowed_methods,
    reason = "this is where processes are started, and their environment is looked at"
)]

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;

mod become_source;

/// The first argument that turns the program into the launcher. Nobody types it.
const ASK: &str = "__jail";

/// Which program is the launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launcher {
    /// The running program itself, whose `main` calls [`main_if_asked`] first.
    SelfExec,
    /// Another program that does so, such as the `portcullis-jail` binary.
    Path(PathBuf),
}

/// What is to be started. A fresh value names no environment variable and no descriptor beside the three standard ones:
/// what is not listed here does not reach the source.
#[derive(Debug, Clone)]
pub struct Launch {
    /// An absolute path; no search path is asked.
    pub program: PathBuf,
    /// Its arguments, without the program.
    pub arguments: Vec<OsString>,
    /// The whole environment.
    pub environment: Vec<(String, OsString)>,
    /// The working directory.
    pub directory: PathBuf,
}

impl Launch {
    /// The command that starts the launcher, which becomes the program. The caller sets the three standard streams.
    ///
    /// The thread that spawns the command must live as long as the source: when it ends, the kernel kills the source.
    #[must_use]
    pub fn command(&self, launcher: &Launcher) -> Command {
        let mut command = Command::new(launcher.program());
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.arg(ASK).arg(std::process::id().to_string()).arg(&self.directory);
        command.arg(self.environment.len().to_string());
        command.args(self.environment.iter().map(|(name, _)| name));
        command.arg(&self.program).args(&self.arguments);
        command
    }
}

impl Launcher {
    fn program(&self) -> OsString {
        match self {
            // The link, not the path it shows: it still leads to the running program after that was replaced on disk.
            Self::SelfExec if cfg!(target_os = "linux") => "/proc/self/exe".into(),
            Self::SelfExec => std::env::current_exe().unwrap_or_default().into(),
            Self::Path(path) => path.into(),
        }
    }
}

/// Becomes the source if the program was started as the launcher, and then never returns; else does nothing.
///
/// Must be the first statement of `main`, before any thread is started or any descriptor opened. A step that fails is
/// reported as one line on standard error with its errno, and the process ends with status 126, or 127 if the source's
/// program could not be executed.
pub fn main_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().as_deref() != Some(OsStr::new(ASK)) {
        return;
    }
    let failure = match Asked::parse(arguments) {
        Some(asked) => become_source::run(&asked),
        None => become_source::Failure::Asked,
    };
    eprintln!("portcullis-jail: {failure}");
    std::process::exit(failure.status());
}

/// What [`Launch::command`] wrote, read back.
struct Asked {
    /// The broker.
    parent: i32,
    directory: PathBuf,
    /// Names of the variables that the source may see.
    environment: Vec<OsString>,
    program: OsString,
    arguments: Vec<OsString>,
}

impl Asked {
    fn parse(mut words: impl Iterator<Item = OsString>) -> Option<Self> {
        let parent = words.next()?.to_str()?.parse().ok()?;
        let directory = words.next()?.into();
        let count: usize = words.next()?.to_str()?.parse().ok()?;
        let environment: Vec<_> = words.by_ref().take(count).collect();
        let program = words.next()?;
        let complete = environment.len() == count;
        complete.then(|| Self { parent, directory, environment, program, arguments: words.collect() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_is_asked_is_what_was_launched() {
        let launch = Launch {
            program: "/bin/server".into(),
            arguments: vec!["__jail".into(), String::new().into(), "--flag".into()],
            environment: vec![("PATH".into(), "/bin".into()), ("KEY".into(), "secret".into())],
            directory: "/some where".into(),
        };
        let command = launch.command(&Launcher::Path("/launcher".into()));
        assert!(
            command.get_args().all(|word| !word.to_string_lossy().contains("secret")),
            "a command line is world-readable: values belong in the environment"
        );
        let asked = Asked::parse(command.get_args().skip(1).map(OsStr::to_owned)).unwrap();
        assert_eq!(asked.parent, i32::try_from(std::process::id()).unwrap());
        assert_eq!(asked.directory, launch.directory);
        assert_eq!(asked.environment, ["PATH", "KEY"]);
        assert_eq!((asked.program, asked.arguments), (launch.program.into(), launch.arguments));
    }

    #[test]
    fn a_cut_command_line_is_refused() {
        for words in
            [&["1"][..], &["1", "/"], &["1", "/", "2", "PATH"], &["1", "/", "1", "PATH"], &["x", "/", "0", "p"]]
        {
            assert!(Asked::parse(words.iter().map(OsString::from)).is_none(), "{words:?}");
        }
    }
}
