//! The runtime, the signals and the data folders that the commands which need a broker share.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use portcullis::broker::{Broker, BuildError};
use portcullis::cell::{InstallSteps, Installations};
use portcullis::config::{self, Config, ConfigError};
use portcullis::control::{self, ControlError, ControlRequest};
use portcullis::name::{ProfileName, SourceName};
use portcullis_jail::Launcher;
use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::GlobalArgs;
use crate::output::{self, escape_hidden};
use crate::standard_error;

/// Runs a future to its end on a separate runtime.
pub(crate) fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("the runtime cannot be started")?;
    let done = runtime.block_on(future);
    // A read of standard input cannot be cancelled: if this waited for it, a signal would not end the program until the
    // agent left, too.
    runtime.shutdown_background();
    done
}

/// Runs a future that serves agents to its end on a separate runtime. A standard error that nobody reads stops none of
/// its threads.
pub(crate) fn serve<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    standard_error::write_in_background().context("the thread for standard error cannot be started")?;
    block_on(future)
}

/// Builds a broker that launches process sources through this very program.
pub(crate) async fn broker(config: Config) -> anyhow::Result<Broker> {
    if config.state_dir.is_none() {
        let why = config::no_home();
        tracing::warn!("{why}, so compiled plugins are not kept: set HOME or XDG_STATE_HOME");
    }
    let file = config.file.clone();
    let broker = Broker::build(config, Launcher::SelfExec).await.map_err(|error| match (&error, file) {
        (BuildError::NoSources | BuildError::AllDisabled, Some(file)) => anyhow!("{}: {error}", file.display()),
        _ => error.into(),
    })?;
    tokio::spawn(print_installations(broker.installations()));
    Ok(broker)
}

/// Says on standard error which packages are installed, step by step.
async fn print_installations(installations: Installations) {
    let (mut changes, mut told) = (installations.watch(), InstallSteps::new());
    while changes.changed().await.is_ok() {
        let steps = changes.borrow_and_update().clone();
        for (source, step) in steps.iter().filter(|(source, step)| told.get(*source) != Some(step)) {
            // The line of a command that waits is written again soon.
            if std::io::stderr().is_terminal() {
                output::status_line("");
            }
            output::message(&format!("source `{source}`: {step}"));
        }
        told = steps;
    }
}

/// Builds a broker, runs `work` with it, and shuts it down whatever the result.
pub(crate) fn with_broker<T, F>(config: Config, work: impl FnOnce(Broker) -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    block_on(use_broker(config, work))
}

/// Builds a broker, runs `work` with it, and shuts it down whatever the result, on the runtime of the caller.
pub(crate) async fn use_broker<T, F>(config: Config, work: impl FnOnce(Broker) -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    let broker = broker(config).await?;
    let done = work(broker.clone()).await;
    broker.shutdown().await;
    done
}

/// The answer of one broker, with its chain.
pub(crate) type BrokerAnswer = (String, Result<Value, ControlError>);

/// Sends a request to every broker that runs in these data folders, and returns their answers.
pub(crate) fn ask_brokers(folders: &[PathBuf], request: &ControlRequest) -> anyhow::Result<Vec<BrokerAnswer>> {
    block_on(async {
        let mut answers = Vec::new();
        for folder in folders {
            answers.extend(control::all(folder, request).await?);
        }
        Ok(answers)
    })
}

/// Returns the sources with these names. A name that is not configured is an error that suggests a similar one.
pub(crate) fn sources(config: &Config, named: &[String]) -> anyhow::Result<Vec<SourceName>> {
    let known = |name: &String| match config.sources.keys().find(|known| known.as_str() == name) {
        Some(known) => Ok(known.clone()),
        None => Err(no_source(config, name)),
    };
    named.iter().map(known).collect()
}

/// Returns the error about a source that is disabled or not configured, with the way out or a similar name.
pub(crate) fn no_source(config: &Config, name: &str) -> anyhow::Error {
    let shown = escape_hidden(name);
    if config.disabled.keys().any(|disabled| disabled.as_str() == name) {
        return anyhow!("the source `{shown}` is disabled; use it again with `portcullis enable {shown}`");
    }
    let names: Vec<_> = config.sources.keys().map(SourceName::as_str).collect();
    let near = config::most_similar(name, names.iter().copied()).map(|near| format!("did you mean `{near}`?"));
    let near = near.unwrap_or_else(|| format!("there is {}", names.join(", ")));
    anyhow!("no source `{shown}` is configured; {near}")
}

/// Returns the named profile, or `default`.
pub(crate) fn profile(name: Option<&str>) -> anyhow::Result<ProfileName> {
    Ok(name.unwrap_or("default").parse()?)
}

/// An error that says that the user has ended the command, with Ctrl-C or another signal, and how far it got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interrupted(pub(crate) &'static str);

impl Interrupted {
    /// The exit code of an interrupted command, which other programs get from SIGINT.
    pub(crate) const EXIT_CODE: u8 = 128 + 2;
}

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Interrupted {}

/// Runs `work` until it is done or a command is asked to end. Work that is given up is dropped, so what must be ended
/// in order, such as a broker, is ended by the caller.
///
/// # Errors
/// [`Interrupted`], or the error of `work`. From the first call on, a signal ends nothing that does not listen for it.
pub(crate) async fn until_interrupted<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let interrupted = interruption()?;
    tokio::select! {
        done = work => done,
        () = interrupted => Err(Interrupted("interrupted").into()),
    }
}

/// Listens for the signals that end a command: those of Ctrl-C and of a terminal that closes, and SIGTERM. Returns a
/// future that completes with the first of them that arrives after this call.
pub(crate) fn interruption() -> anyhow::Result<impl Future<Output = ()>> {
    let stop = stop_signal()?;
    let mut hangups = hangups()?;
    Ok(async move {
        tokio::select! {
            () = stop => {}
            _ = hangups.recv() => {}
        }
    })
}

/// Listens for the signals that end a broker that serves: that of Ctrl-C, and SIGTERM. Returns a future that completes
/// with the first of them that arrives after this call. A closed terminal does not end such a broker; see [`hangups`].
pub(crate) fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    let mut interrupts = signals(SignalKind::interrupt())?;
    let mut terminations = signals(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupts.recv() => {}
            _ = terminations.recv() => {}
        }
    })
}

/// Keeps SIGHUP from ending the program, and returns each. Operators send it for a reload, and a closed terminal sends
/// it too.
pub(crate) fn hangups() -> anyhow::Result<Signal> {
    signals(SignalKind::hangup())
}

fn signals(kind: SignalKind) -> anyhow::Result<Signal> {
    signal(kind).context("cannot listen for signals")
}

/// Returns the data folder of the configuration. A running broker continues while its file has an error, so the folder
/// of such a file is returned too, with a warning.
pub(crate) fn data_dir(global: &GlobalArgs) -> Result<PathBuf, ConfigError> {
    let error = match global.load() {
        Ok(config) => return Ok(config.data_dir),
        Err(error) => error,
    };
    let Some(known) = config::known_data_dir(global.config.as_deref()) else { return Err(error) };
    let shown = escape_hidden(&known.to_string_lossy()).into_owned();
    output::message(&format!("warning: {error}\nits data folder {shown} is used nevertheless"));
    Ok(known)
}

/// Returns the data folders that a command about brokers looks into: the named one, or else that of the configuration
/// and the user's own (where `wrap` keeps its ledger).
pub(crate) fn data_dirs(global: &GlobalArgs, named: Option<&PathBuf>) -> anyhow::Result<Vec<PathBuf>> {
    if let Some(named) = named {
        return Ok(vec![named.clone()]);
    }
    let user = config::user_data_dir().filter(|folder| folder.is_dir());
    let mut folders = match data_dir(global) {
        Ok(folder) => vec![folder],
        Err(error) if global.config.is_some() || user.is_none() => return Err(error.into()),
        // Wrapped servers need no configuration, so the user's folder may still have some.
        Err(error) if error.is_missing() => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    folders.extend(user.filter(|user| !folders.contains(user)));
    Ok(folders)
}
