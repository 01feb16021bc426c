//! Puts a changed configuration in force while a broker serves: on SIGHUP, when its file changes or that of a plugin or
//! component that it names, and when the user trusts a change that was refused. Also a changed lock file.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use portcullis::broker::{Broker, ReloadSummary};
use portcullis::config::{Config, ConfigCandidate, ConfigError, PluginRef, TrustStatus, user_trust};
use portcullis::file_stamp::FileStamp;
use portcullis::name::SourceName;
use tokio::signal::unix::Signal;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::output;

/// The pause between two checks of the file. A change counts once the file has stayed the same from one check to the
/// next, so that a file which is still being written is not read. Polling works for files of every kind, also for those
/// of another machine and for links that are exchanged, which notifications of the system do not see.
const PAUSE: Duration = Duration::from_secs(1);

/// The states of several files; `None` for one that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileStates(BTreeMap<PathBuf, Option<FileStamp>>);

/// The arguments of a serving broker that apply to each configuration it reads.
#[derive(Debug, Clone)]
pub(crate) struct ServeArguments {
    /// The file of `--config`. Without one the file is searched for again, as it was at the start.
    pub(crate) named: Option<PathBuf>,
    /// The address of `--listen`.
    pub(crate) listen: Option<SocketAddr>,
    /// False for `--no-watch`.
    pub(crate) watched: bool,
}

impl ServeArguments {
    /// Returns the configuration as the arguments change it.
    pub(crate) fn applied(&self, mut config: Config) -> Config {
        config.serve.listen = self.listen.unwrap_or(config.serve.listen);
        config
    }
}

/// Applies the lock file of a broker whenever it has changed, for as long as the broker runs. One that a program
/// changes through a mapping of it is applied within 30 seconds, although its times do not show it.
pub(crate) async fn follow_lock_file(broker: Broker) {
    let mut looks = looks();
    let mut applied = broker.lock_file().await;
    loop {
        looks.tick().await;
        let now = broker.lock_file().await;
        let is_same = match (&now, &applied) {
            (Some(now), Some(applied)) => Arc::ptr_eq(now, applied) || now == applied,
            (now, applied) => now.is_none() && applied.is_none(),
        };
        if !is_same {
            applied = now;
            broker.apply_lock_file().await;
        }
    }
}

fn looks() -> Interval {
    let mut looks = interval(PAUSE);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}

/// Reloads the configuration of a broker for as long as it runs. A change that comes while another one is still being
/// loaded, such as from a registry that is slow, replaces it.
pub(crate) async fn follow(broker: Broker, arguments: ServeArguments, mut hangups: Signal) {
    let Some(file) = broker.config().file.clone() else { return };
    let mut looks = looks();
    let mut in_force = FileStates::of(watched(&broker.config(), &file));
    let mut last = in_force.clone();
    let mut untrusted: Option<UntrustedChange> = None;
    let mut loading = None;
    loop {
        tokio::select! {
            Some(refused) = OptionFuture::from(loading.as_mut()) => {
                (untrusted, loading) = (refused, None);
                in_force.watch(watched(&broker.config(), &file));
                last = in_force.clone();
                continue;
            }
            Some(()) = hangups.recv() => {
                // The configuration that is being loaded matches the files.
                if loading.is_some() && in_force.now() == in_force {
                    continue;
                }
            }
            _ = looks.tick(), if arguments.watched => {
                let now = in_force.now();
                let is_settled = std::mem::replace(&mut last, now.clone()) == now;
                let is_changed = now != in_force && is_settled;
                if !is_changed && !untrusted.as_mut().is_some_and(|change| change.is_trusted_now(&arguments)) {
                    continue;
                }
            }
        }
        // A change while the files are read counts, too.
        in_force = in_force.now();
        let change = UntrustedChange::at_this_time();
        if loading.take().is_some() {
            output::message("the configuration changed again while it was loading; the newer one is loaded instead");
        }
        let reloaded = reload(&broker, &arguments, &file);
        loading = Some(Box::pin(async move { reloaded.await.then_some(change) }));
    }
}

/// Returns the files whose changes are put in force: that of the configuration, and those of plugins and components
/// that it names without a digest. One with a digest cannot change.
fn watched(config: &Config, file: &Path) -> Vec<PathBuf> {
    let plugins = config.plugins().into_iter().filter_map(|plugin| match plugin {
        PluginRef::Path(path) => Some(path.clone()),
        PluginRef::Builtin(_) | PluginRef::Native(_) | PluginRef::Pinned(..) | PluginRef::Oci(_) => None,
    });
    std::iter::once(file.to_owned()).chain(plugins).collect()
}

/// Reloads the configuration, and returns whether it was refused because the user does not trust it.
async fn reload(broker: &Broker, arguments: &ServeArguments, file: &Path) -> bool {
    let (reloaded, is_untrusted) = match read(arguments.named.as_deref(), file) {
        Ok(config) => (broker.reload(arguments.applied(config)).await.map_err(|error| error.to_string()), false),
        Err(Refusal { reason, is_untrusted }) => {
            broker.refuse(&reason);
            (Err(reason), is_untrusted)
        }
    };
    output::message(&match reloaded {
        Ok(reloaded) => described(&reloaded),
        Err(reason) => format!("the configuration is not reloaded, and the one before stays: {reason}"),
    });
    is_untrusted
}

/// The reason why a configuration that was read again is not used.
struct Refusal {
    reason: String,
    is_untrusted: bool,
}

impl From<ConfigError> for Refusal {
    fn from(error: ConfigError) -> Self {
        Self { reason: error.to_string(), is_untrusted: false }
    }
}

/// Reads the configuration again. Nobody is asked whether to trust it.
fn read(named: Option<&Path>, file: &Path) -> Result<Config, Refusal> {
    let candidate = ConfigCandidate::load(named)?;
    let is_untrusted = candidate.trust_status()? != TrustStatus::Usable;
    let config = candidate.into_usable().map_err(|error| Refusal { is_untrusted, ..error.into() })?;
    if config.file.as_deref() != Some(file) {
        let found = config.file.unwrap_or_default();
        let reason = format!(
            "{} is gone, and the file that is found now is {}: put it back, or start the broker again",
            file.display(),
            found.display()
        );
        return Err(Refusal { reason, is_untrusted: false });
    }
    Ok(config)
}

/// A change that was refused because the user does not trust it, with the state of the records of trust at that time.
struct UntrustedChange(Option<FileStamp>);

impl UntrustedChange {
    /// Returns a change that was refused with the present records.
    fn at_this_time() -> Self {
        Self(user_trust().ok().and_then(|trust| FileStamp::at(&trust.path())))
    }

    /// Reports whether the user has trusted the change since the last look. Records that stay the same are not read.
    fn is_trusted_now(&mut self, arguments: &ServeArguments) -> bool {
        let now = Self::at_this_time();
        if std::mem::replace(&mut self.0, now.0) == now.0 {
            return false;
        }
        let candidate = ConfigCandidate::load(arguments.named.as_deref());
        candidate.and_then(|candidate| candidate.trust_status()).is_ok_and(|status| status == TrustStatus::Usable)
    }
}

/// Returns one line that describes the changes of a reload.
fn described(reloaded: &ReloadSummary) -> String {
    let ReloadSummary { added, removed, changed, other, tables, at_next_start, .. } = reloaded;
    let listed = |what: &str, names: Vec<String>| (!names.is_empty()).then(|| format!("{what} {}", names.join(", ")));
    let sources = |names: &BTreeSet<SourceName>| names.iter().map(ToString::to_string).collect();
    let parts = [
        listed("added", sources(added)),
        listed("removed", sources(removed)),
        listed("changed", sources(changed)),
        listed("changed tables:", tables.iter().cloned().collect()),
        (*other && tables.is_empty()).then(|| "other settings changed".to_owned()),
        listed("at the next start:", at_next_start.iter().map(ToString::to_string).collect()),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => "the configuration is reloaded: nothing is different".to_owned(),
        false => format!("the configuration is reloaded: {}", parts.join("; ")),
    }
}

impl FileStates {
    fn of(files: Vec<PathBuf>) -> Self {
        Self(files.into_iter().map(|file| (file.clone(), FileStamp::at(&file))).collect())
    }

    /// Returns the states that the same files have now.
    fn now(&self) -> Self {
        Self::of(self.0.keys().cloned().collect())
    }

    /// Goes on with these files. Those that were among them before keep their states.
    fn watch(&mut self, files: Vec<PathBuf>) {
        let mut states = Self::of(files);
        for (file, state) in &mut states.0 {
            if let Some(before) = self.0.get(file) {
                *state = *before;
            }
        }
        *self = states;
    }
}
