//! What the commands that need a broker share: the runtime, the log, the signals, the folders.

use std::path::PathBuf;

use anyhow::Context as _;
use portcullis::broker::Broker;
use portcullis::config::{self, Config};
use portcullis::name::ProfileName;
use portcullis_jail::Launcher;

use crate::cli::Global;

/// Runs a future to its end on a runtime of its own.
pub(crate) fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("the runtime cannot be started")?;
    let done = runtime.block_on(future);
    // A read of standard input cannot be cancelled: waiting for it, a signal would end nothing until the agent goes, too.
    runtime.shutdown_background();
    done
}

/// Builds a broker whose process sources are launched through this very program.
pub(crate) async fn broker(config: Config) -> anyhow::Result<Broker> {
    if config.state_dir.is_none() {
        tracing::warn!("no home is known, so compiled plugins are not kept: set HOME or XDG_STATE_HOME");
    }
    Ok(Broker::build(config, Launcher::SelfExec).await?)
}

/// Builds a broker, lets `work` have it, and closes it whatever came of that.
pub(crate) fn with_broker<T, F>(config: Config, work: impl FnOnce(Broker) -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    block_on(async {
        let broker = broker(config).await?;
        let done = work(broker.clone()).await;
        broker.shutdown().await;
        done
    })
}

/// The named profile, or `default`.
pub(crate) fn profile(name: Option<&str>) -> anyhow::Result<ProfileName> {
    Ok(name.unwrap_or("default").parse()?)
}

/// Ready when somebody wants a command to end: Ctrl-C, TERM, or the terminal going away.
pub(crate) async fn asked_to_end() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}

/// Ready when a broker that serves is to end: Ctrl-C or TERM. That the terminal goes away is no reason; see [`outlive_terminal`].
pub(crate) async fn asked_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let asked = async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        std::io::Result::Ok(())
    };
    if let Err(error) = asked.await {
        tracing::error!(%error, "signals cannot be listened for");
    }
}

/// Keeps SIGHUP from ending the program. It is what operators send for a reload, and what a terminal sends that is closed.
pub(crate) fn outlive_terminal() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangup = signal(SignalKind::hangup()).context("SIGHUP cannot be listened for")?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            tracing::warn!(
                "SIGHUP: the configuration is not reloaded while the broker runs; restart it to apply changes"
            );
        }
    });
    Ok(())
}

/// The data folders that a command about brokers looks into: the one that was named, or the configuration's and the user's
/// own (where `wrap` keeps its ledger).
pub(crate) fn data_dirs(global: &Global, named: Option<&PathBuf>) -> anyhow::Result<Vec<PathBuf>> {
    if let Some(named) = named {
        return Ok(vec![named.clone()]);
    }
    let user = config::user_data_dir().filter(|folder| folder.is_dir());
    let mut folders = match global.load() {
        Ok(config) => vec![config.data_dir],
        Err(error) if global.config.is_some() || user.is_none() => return Err(error.into()),
        // Without a configuration there may still be wrapped servers.
        Err(error) if error.is_missing() => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    folders.extend(user.filter(|user| !folders.contains(user)));
    Ok(folders)
}
