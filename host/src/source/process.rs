//! Sources that are programs, spoken to over their standard streams.
//!
//! A program inherits nothing: its environment is the broker's four variables and what is listed, its descriptors are the
//! three standard streams, and it leads a session and process group of its own, which is killed whole at the end. What it
//! can reach beyond that (files, network) is not limited here.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use portcullis_jail::Launcher;

use super::link::{Deadlines, Link};
use super::supervised::{Dial, Supervised};
use super::transport::Transport;
use super::{Discovery, Relay, Source, SourceError};
use crate::call::Outcome;
use crate::config::{Endpoint, SourceConfig, Value};
use crate::gate::Permit;
use crate::name::SourceName;
use pipe::Pipe;

mod child;
mod environment;
mod lines;
mod pipe;
mod stderr;

/// Characters of the command that messages show.
const SHOWN_CHARS: usize = 120;

/// A source with a `command`. Nothing is started before the first [`Source::discover`] or [`Source::call`]; after a crash
/// the next of them starts it again. Dropping the source kills the process and its group.
pub struct ProcessSource {
    supervised: Supervised<Program>,
}

/// The program, and how it is started.
struct Program {
    name: SourceName,
    argv: Vec<String>,
    cwd: Option<PathBuf>,
    env: Vec<(String, String)>,
    /// Values that must not reach the log.
    secrets: Vec<String>,
    data_dir: PathBuf,
    launcher: Launcher,
}

impl ProcessSource {
    /// Describes the source; opens nothing. `env` are the listed variables with secrets resolved, all that the program
    /// sees beside PATH, HOME, LANG and TMPDIR. HOME and TMPDIR are folders under `data_dir/sources/NAME`, standard error
    /// goes to `data_dir/logs/NAME.log`.
    ///
    /// # Errors
    /// [`SourceError::Start`] if the configuration describes no program.
    pub fn new(
        config: &SourceConfig,
        data_dir: &Path,
        env: Vec<(String, String)>,
        launcher: Launcher,
    ) -> Result<Self, SourceError> {
        let Endpoint::Command { argv, cwd, env: listed } = &config.endpoint else {
            return Err(SourceError::Start(format!("source `{}` has no `command`", config.name)));
        };
        let is_secret = |name: &str| matches!(listed.get(name), Some(Value::Secret(_)));
        let secrets = env.iter().filter(|(name, _)| is_secret(name)).map(|(_, value)| value.clone()).collect();
        let program = Program {
            name: config.name.clone(),
            argv: argv.clone(),
            cwd: cwd.clone(),
            env,
            secrets,
            data_dir: data_dir.to_owned(),
            launcher,
        };
        Ok(Self { supervised: Supervised::new(program, config.timeout) })
    }
}

#[async_trait]
impl Dial for Program {
    async fn dial(&self, deadlines: Deadlines) -> Result<(Link, Discovery), SourceError> {
        let folder = self.data_dir.join("sources").join(self.name.as_str());
        let launch = environment::launch(self.name.as_str(), &self.argv, self.cwd.as_deref(), &self.env, &folder)?;
        let log = self.data_dir.join("logs").join(format!("{}.log", self.name));
        let command = launch.command(&self.launcher);
        let pipe = Pipe::start(command, self.label(), log, self.secrets.clone()).await;
        let pipe = Arc::new(pipe.map_err(|error| {
            SourceError::Start(format!("{} could not be started by {:?}: {error}", self.label(), self.launcher))
        })?);
        let transport: Arc<dyn Transport> = Arc::<Pipe>::clone(&pipe);
        Link::open(transport, deadlines).await.map_err(|error| self.explain(error, &pipe))
    }
}

impl Program {
    /// Says which command it was and what it wrote to standard error.
    fn explain(&self, error: SourceError, pipe: &Pipe) -> SourceError {
        let label = self.label();
        match error {
            SourceError::Timeout { method, seconds } => SourceError::Start(format!(
                "{label} started but did not answer `{method}` within {seconds} s; is it an MCP server that speaks \
                 over standard input and output?{}",
                pipe.remarks()
            )),
            SourceError::Protocol(why) => SourceError::Protocol(format!("{label}: {why}")),
            // How it ended says more than where that was noticed.
            SourceError::Closed(why) => SourceError::Closed(pipe.obituary().unwrap_or(why)),
            error => error,
        }
    }

    fn label(&self) -> String {
        let command: String = self.argv.join(" ").chars().take(SHOWN_CHARS).collect();
        format!("`{}`", stderr::escape(&command))
    }
}

#[async_trait]
impl Source for ProcessSource {
    async fn discover(&self) -> Result<Discovery, SourceError> {
        self.supervised.discover().await
    }

    async fn call(&self, permit: Permit, relay: Option<Relay>) -> Outcome {
        self.supervised.call(permit, relay).await
    }

    async fn close(&self) {
        self.supervised.close().await;
    }
}

impl std::fmt::Debug for ProcessSource {
    // The environment holds secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Program { name, argv, .. } = &self.supervised.dial;
        f.debug_struct("ProcessSource").field("name", name).field("argv", argv).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
