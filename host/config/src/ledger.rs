//! Validates `[ledger]`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use portcullis_core::age::{NotAnAgeKey, Recipient};

use super::build::ProblemCollector;
use super::error::UnlocatedProblem;
use super::profile::Detail;
use super::raw::{Located, RawLedger};
use super::syslog::SyslogAddress;
use super::{callers, value};

/// The limits of the time for which records are kept: a shorter one would be a ledger that remembers nothing.
const RETENTION_LEAST: Duration = Duration::from_secs(24 * 60 * 60);
const RETENTION_MOST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The beginning of a witness that is a git repository, before its path.
const GIT: &str = "git:";

/// The settings of the ledger: `[ledger]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct LedgerConfig {
    /// The calls that wait until their intent is on disk.
    pub durability: Durability,
    /// The time for which records are kept, from a day to 100 years; `None` keeps them for ever.
    pub retention: Option<Duration>,
    /// The places that get each signed checkpoint, in addition to the data folder.
    pub witnesses: Vec<WitnessConfig>,
    /// The recipients for whom bodies are sealed.
    #[serde(serialize_with = "super::digest::texts")]
    pub recipients: Vec<Recipient>,
}

/// The calls that wait until their intent is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Every call that can have an effect: all but those of a source whose cell can neither write nor reach a network.
    #[default]
    Effects,
    /// Every call.
    All,
}

/// A place that keeps signed checkpoints of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub enum WitnessConfig {
    /// A file, to which each is added.
    File(#[serde(serialize_with = "super::digest::path")] PathBuf),
    /// A server, to which each is posted.
    Server(#[serde(serialize_with = "super::digest::text")] url::Url),
    /// A git repository, in which each is committed.
    Git(#[serde(serialize_with = "super::digest::path")] PathBuf),
    /// A syslog receiver, to which each is a message.
    Syslog(SyslogAddress),
}

/// Validates the settings of the ledger; every problem is added to `problems`. `sealed` are the places where profiles
/// ask for sealed bodies.
pub(super) fn ledger<'a>(
    raw: &RawLedger,
    base: &Path,
    sealed: impl Iterator<Item = &'a Located<Detail>>,
    problems: &mut ProblemCollector,
) -> LedgerConfig {
    let retention = raw.retention.as_ref();
    let retention = retention.and_then(|at| problems.keep(value::duration_within(at, RETENTION_LEAST, RETENTION_MOST)));
    let witnesses = raw.witnesses.iter().filter_map(|at| problems.keep(witness(at, base))).collect();
    let recipients = raw.recipients.iter().filter_map(|at| problems.keep(recipient(at))).collect();
    if raw.recipients.is_empty() {
        problems.0.extend(sealed.map(|at| {
            UnlocatedProblem::new(at.span(), "there is nobody to seal bodies for").help(
                "add `recipients = [\"age1…\"]` to [ledger]; `portcullis audit keygen FILE` makes a key and prints the line",
            )
        }));
    }
    LedgerConfig { durability: raw.durability.unwrap_or_default(), retention, witnesses, recipients }
}

/// Reads a recipient of sealed bodies.
fn recipient(at: &Located<String>) -> Result<Recipient, UnlocatedProblem> {
    at.parse().map_err(|error: NotAnAgeKey| {
        UnlocatedProblem::new(at.span(), error.to_string())
            .help("`portcullis audit keygen FILE` makes a key and prints the line for this file")
    })
}

/// Reads where checkpoints are sent: an address, or a path.
fn witness(at: &Located<String>, base: &Path) -> Result<WitnessConfig, UnlocatedProblem> {
    if SyslogAddress::is_meant(at) {
        return SyslogAddress::parse(at, base).map(WitnessConfig::Syslog);
    }
    if let Some(repository) = at.strip_prefix(GIT) {
        return value::path(&at.part(repository), base).map(WitnessConfig::Git);
    }
    if at.contains("://") {
        return callers::web(at, "https://witness.example.com/checkpoints").map(WitnessConfig::Server);
    }
    value::path(at, base).map(WitnessConfig::File)
}
