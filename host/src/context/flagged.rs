//! Handles definitions with findings: each is quarantined, or warned of, until a person has accepted it.

use std::sync::Arc;

use super::Upstream;
use super::scan_cache::Flags;
use crate::config::ScanMode;
use crate::digest::Digest;
use crate::item::{Item, ItemKind};
use crate::lockfile::{self, Acceptance, Lockfile};
use crate::name::SourceName;
use crate::scan::{Finding, Severity};

/// The largest number of reports that are remembered, so that none is repeated. Beyond that all are forgotten, as only
/// a source that changes its definitions all the time gets there.
const MAX_REPORTED: usize = 65_536;

/// The consequence of the findings in a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlagState {
    /// No session sees it or can use it.
    Quarantined,
    /// Sessions see it.
    Warned,
    /// A person has accepted exactly this definition, so sessions see it.
    Accepted,
}

/// A definition in which the scanner found something, or a source's instructions.
#[derive(Debug, Clone, serde::Serialize)]
pub struct FlaggedDefinition {
    /// The source.
    pub source: SourceName,
    /// The kind of the item; [`ItemKind::Source`] for instructions.
    pub kind: ItemKind,
    /// The name, URI or URI template that agents would see. Escape it before showing it.
    pub name: Arc<str>,
    /// The digest of the definition.
    pub definition: Digest,
    /// The pin by which `portcullis lock accept` names exactly this definition: the source, `@` and the digest.
    pub pin: String,
    /// The consequence of the findings.
    pub state: FlagState,
    /// At most 8 findings, the gravest first. Notes are left out.
    pub findings: Arc<[Finding]>,
}

/// An item with findings, as the source listed it last.
#[derive(Debug)]
pub(super) struct FlaggedItem {
    item: Arc<Item>,
    findings: Arc<[Finding]>,
}

impl FlaggedItem {
    pub(super) fn all<'a>(items: impl Iterator<Item = &'a Arc<Item>>, flags: &Flags) -> Vec<Self> {
        let flagged = items.filter_map(|item| Some((item, flags.get(&item.digest)?)));
        flagged.map(|(item, findings)| Self { item: item.clone(), findings: findings.clone() }).collect()
    }
}

impl Upstream {
    /// Reports whether no session may see an item, because of the findings in it.
    pub(crate) fn quarantines(&self, item: &Item, flags: &Flags, acceptance: &Acceptance) -> bool {
        flags.get(&item.digest).is_some_and(|findings| self.state_of(findings, acceptance) == FlagState::Quarantined)
    }

    /// Returns the definitions that were flagged in the last list of each kind, for the kinds that were listed.
    pub(crate) fn flagged(&self, lock: &Lockfile) -> Vec<FlaggedDefinition> {
        let last = self.flagged.lock();
        last.values().flatten().map(|flagged| self.judged(&flagged.item, &flagged.findings, lock)).collect()
    }

    /// Returns the items that were flagged in the last list of each kind, for the kinds that were listed.
    pub(crate) fn flagged_items(&self) -> Vec<Arc<Item>> {
        self.flagged.lock().values().flatten().map(|flagged| Arc::clone(&flagged.item)).collect()
    }

    /// Returns the flagged ones among these items that were not returned before.
    pub(crate) fn newly_flagged<'a>(
        &self,
        items: impl Iterator<Item = &'a Arc<Item>>,
        flags: &Flags,
        lock: &Lockfile,
    ) -> Vec<FlaggedDefinition> {
        let flagged = items.filter_map(|item| Some(self.judged(item, flags.get(&item.digest)?, lock)));
        let mut flagged: Vec<_> = flagged.filter(|flagged| flagged.state != FlagState::Accepted).collect();
        let mut reported = self.reported.lock();
        if reported.len() >= MAX_REPORTED {
            reported.clear();
        }
        flagged.retain(|flagged| reported.insert((flagged.kind, flagged.definition, flagged.state)));
        flagged
    }

    fn judged(&self, item: &Item, findings: &Arc<[Finding]>, lock: &Lockfile) -> FlaggedDefinition {
        FlaggedDefinition {
            source: self.config.name.clone(),
            kind: item.kind,
            name: item.exposed.clone(),
            definition: item.digest,
            pin: lockfile::pin(&self.config.name, item.digest),
            state: self.state_of(findings, &lock.of(item, self.identity)),
            findings: findings.clone(),
        }
    }

    fn state_of(&self, findings: &[Finding], acceptance: &Acceptance) -> FlagState {
        let grave = findings.iter().any(|finding| finding.severity == Severity::Grave);
        match acceptance {
            Acceptance::Accepted => FlagState::Accepted,
            Acceptance::Unknown | Acceptance::Changed(_) if grave && self.config.scan == ScanMode::Quarantine => {
                FlagState::Quarantined
            }
            Acceptance::Unknown | Acceptance::Changed(_) => FlagState::Warned,
        }
    }
}
