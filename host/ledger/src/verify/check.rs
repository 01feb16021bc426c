//! The check of a single record, given the hash of the record before it. Records are checked on all processors.

use portcullis_core::protocol::{Json, canonical};
use serde_json::Value;

use super::plain_json;
use crate::chain::{self, ChainTip};
use crate::intent;
use crate::record::{ChainedRecord, EventKind, RecordHash, RecordMembers, VERSION, hash};

/// A record that was checked on its own. Whether it has its place in its chain is not checked yet.
#[derive(Debug)]
pub(super) struct CheckedRecord {
    pub(super) seq: u64,
    /// The hash that is stored with it.
    pub(super) hash: RecordHash,
    /// The run that it belongs to, with its number in it.
    pub(super) run: Option<(RunKey, u64)>,
    /// Its content, or the fault in it.
    pub(super) content: Result<CheckedContent, String>,
}

/// The identifier of a run, as far as it is compared.
pub(super) type RunKey = [u8; 26];

/// The part of a record that the verification of its chain and of others needs.
#[derive(Debug, Clone)]
pub(super) enum CheckedContent {
    /// The end of its chain.
    Stopped,
    /// The end of another chain.
    Seal { chain: String, at: ChainTip, text: String },
    /// The removal of another chain's first records: the number of the last, and the digest of the remaining data.
    Removal { chain: String, last: u64, digest: String, text: String },
    /// An intent that its call did not wait for.
    QueuedIntent,
    /// Anything else.
    Other,
}

impl CheckedRecord {
    /// Checks a record, as stored with its hash, after a record with the hash `before`.
    pub(super) fn of(chain: &str, seq: u64, text: &[u8], found: &[u8], before: &RecordHash) -> Self {
        let hash = hash(before, text);
        let content = std::str::from_utf8(text).map_err(|_| "its text is not UTF-8".to_owned());
        let content = content.and_then(|text| Ok((text, read(text)?)));
        let content = content.as_ref().map(|(text, members)| (*text, members)).map_err(Clone::clone);
        Self::of_members((chain, seq), content, (&hash, found))
    }

    /// Checks a record whose members were read, after a record with the hash `before`.
    pub(super) fn of_read(
        chain: &str,
        record: &ChainedRecord,
        members: Option<&RecordMembers<'_>>,
        before: &RecordHash,
    ) -> Self {
        let text = record.text.as_str();
        let hash = hash(before, text.as_bytes());
        // An unreadable text is parsed again to find the reason.
        let members =
            members.ok_or_else(|| read(text).map_or_else(|reason| reason, |_| "it cannot be read".to_owned()));
        Self::of_members((chain, record.seq), members.map(|members| (text, members)), (&hash, &record.hash))
    }

    fn of_members(
        (chain, seq): (&str, u64),
        content: Result<(&str, &RecordMembers<'_>), String>,
        (expected, found): (&RecordHash, &[u8]),
    ) -> Self {
        let mut run = None;
        let content = match content {
            _ if expected.as_slice() != found => {
                Err("its hash does not fit its text and the record before it".to_owned())
            }
            content => content.and_then(|(text, members)| {
                check(chain, seq, text, members)?;
                run = members.run.and_then(|run| run.as_bytes().try_into().ok()).zip(members.run_seq);
                Ok(CheckedContent::of(members, text))
            }),
        };
        // A hash of another length fits no text.
        Self { seq, hash: found.try_into().unwrap_or(*expected), run, content }
    }
}

impl CheckedContent {
    /// Reads what a record says that is needed.
    pub(super) fn of(record: &RecordMembers<'_>, text: &str) -> Self {
        let is = |kind: EventKind| record.kind == kind.as_str();
        let about_others = || {
            let body: Value = serde_json::from_str(record.body.get()).ok()?;
            let member = |key: &str| body.get(key)?.as_str().map(str::to_owned);
            let (chain, seq, text) = (member("chain")?, body.get("seq")?.as_u64()?, text.to_owned());
            if is(EventKind::ChainSealed) {
                let hash = chain::hash_of(&member("hash")?)?;
                Some(Self::Seal { chain, at: ChainTip { seq, hash }, text })
            } else {
                Some(Self::Removal { chain, last: seq, digest: member("digest")?, text })
            }
        };
        if is(EventKind::BrokerStopped) {
            Self::Stopped
        } else if is(EventKind::ChainSealed) || is(EventKind::RecordsRemoved) {
            about_others().unwrap_or(Self::Other)
        } else if intent::is_queued(record) {
            Self::QueuedIntent
        } else {
            Self::Other
        }
    }
}

/// Reads the members of a record.
fn read(text: &str) -> Result<RecordMembers<'_>, String> {
    serde_json::from_str(text).map_err(|error| format!("its text is not a record: {error}"))
}

/// Checks that a text is the one that a record of a chain has.
fn check(chain: &str, seq: u64, text: &str, record: &RecordMembers<'_>) -> Result<(), String> {
    if !plain_json::is_canonical(text) {
        let json = Json::parse(text.to_owned()).map_err(|error| format!("its text is not a record: {error}"))?;
        if canonical(&json).as_deref() != Ok(text) {
            return Err("its text is not in canonical form".into());
        }
    }
    if record.v != VERSION {
        return Err(format!("it has format {} and this version knows {VERSION}", record.v));
    }
    if (record.chain, record.seq) != (chain, seq) {
        return Err(format!("its text says that it is record {} of chain {}", record.seq, record.chain));
    }
    if record.run.is_none() && record.run_seq.is_some() {
        return Err("it has a number in a run, and belongs to none".into());
    }
    if seq == 1 && record.kind != EventKind::BrokerStarted.as_str() {
        return Err("a chain begins with broker.started".into());
    }
    Ok(())
}
