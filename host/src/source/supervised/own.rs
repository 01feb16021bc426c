//! The connections that sessions have to themselves: so many at a time, and the one that is missed least goes for the next.

use std::collections::HashMap;
use std::sync::Arc;

use super::slot::ConnectionSlot;
use crate::call::SessionId;

/// How many sessions may have a connection (most often a process) of their own to one source at a time, or calls where each has
/// one. What agents of one machine or team use at once, and not what would exhaust it.
pub(super) const MAX_OWN: usize = 256;

/// How many of them the sessions of one principal may have, so that there is always room for another.
pub(super) const MAX_OF_ONE: usize = MAX_OWN / 4 * 3;

/// From how many on those who only look are told what was listed to others, if that can be: a crowd need not connect to hear the
/// same.
pub(super) const CROWD: usize = 16;

/// The lines of the sessions that have used the source by themselves.
#[derive(Default)]
pub(super) struct Own {
    /// All, also those whose connection rests: they know what the next one must know.
    lines: HashMap<SessionId, Arc<ConnectionSlot>>,
    /// Those that have a connection, or make one.
    placed: HashMap<SessionId, Arc<ConnectionSlot>>,
}

/// All places are taken by connections that are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// By the sessions of the principal who wants another.
    Share,
    /// By several principals.
    All,
}

impl Own {
    pub(super) fn get(&self, session: &SessionId) -> Option<&Arc<ConnectionSlot>> {
        self.lines.get(session)
    }

    pub(super) fn get_or_insert(
        &mut self,
        session: &SessionId,
        make: impl FnOnce() -> Arc<ConnectionSlot>,
    ) -> Arc<ConnectionSlot> {
        Arc::clone(self.lines.entry(session.clone()).or_insert_with(make))
    }

    pub(super) fn remove(&mut self, session: &SessionId) -> Option<Arc<ConnectionSlot>> {
        self.placed.remove(session);
        self.lines.remove(session)
    }

    pub(super) fn drain(&mut self) -> Vec<Arc<ConnectionSlot>> {
        self.placed.clear();
        self.lines.drain().map(|(_, line)| line).collect()
    }

    /// The lines that have a connection, or make one.
    pub(super) fn placed(&self) -> Vec<Arc<ConnectionSlot>> {
        self.placed.values().cloned().collect()
    }

    /// How many of them the sessions of a principal have.
    pub(super) fn count(&self, principal: &str) -> usize {
        self.placed.values().filter(|line| line.owner().is_some_and(|owner| *owner.principal == *principal)).count()
    }

    /// Gives a line a place. Whether it is a new one, and the line that has to go for it: of the principal's own if they have
    /// their share, else of whoever has most, the one that is missed least.
    ///
    /// # Errors
    /// If every line that might go is in use.
    pub(super) fn place(&mut self, line: &Arc<ConnectionSlot>) -> Result<(bool, Option<Arc<ConnectionSlot>>), Full> {
        let Some(owner) = line.owner() else { return Ok((false, None)) };
        if self.placed.contains_key(&owner.session) {
            return Ok((false, None));
        }
        let leaving = if self.count(&owner.principal) >= MAX_OF_ONE {
            Some(self.missed_least(Some(&owner.principal)).ok_or(Full::Share)?)
        } else if self.placed.len() >= MAX_OWN {
            let mut counts: HashMap<&str, usize> = HashMap::new();
            for placed in self.placed.values().filter_map(|line| line.owner()) {
                *counts.entry(&placed.principal).or_default() += 1;
            }
            let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(principal, _)| principal);
            Some(self.missed_least(most).or_else(|| self.missed_least(None)).ok_or(Full::All)?)
        } else {
            None
        };
        let leaving = leaving.and_then(|session| self.placed.remove(&session));
        self.placed.insert(owner.session.clone(), Arc::clone(line));
        Ok((true, leaving))
    }

    /// Takes the place of a line back. Whether it had one.
    pub(super) fn release(&mut self, line: &ConnectionSlot) -> bool {
        line.owner().is_some_and(|owner| self.placed.remove(&owner.session).is_some())
    }

    fn missed_least(&self, of: Option<&str>) -> Option<SessionId> {
        let candidates = self.placed.values().filter_map(|line| {
            let owner = line.owner().filter(|owner| of.is_none_or(|principal| *owner.principal == *principal))?;
            Some((line.worth()?, &owner.session))
        });
        candidates.min_by_key(|(worth, _)| *worth).map(|(_, session)| session.clone())
    }
}
