//! The connections that belong to one session each: their number is limited, and the least needed one is closed to make
//! room for another.

use std::collections::HashMap;
use std::sync::Arc;

use super::slot::ConnectionSlot;
use crate::call::SessionId;

/// The number of own connections that a principal's sessions must have before a further session is given the tools that
/// were listed to another one which declared the same capabilities, instead of connecting only to list them again.
pub(super) const REUSE_FROM: usize = 16;

/// The connection slots of the sessions that need their own.
pub(super) struct SessionSlots {
    /// All slots, including those without a connection: they keep the settings that the next connection must be told.
    slots: HashMap<SessionId, Arc<ConnectionSlot>>,
    /// The slots that have a connection, or make one.
    placed: HashMap<SessionId, Arc<ConnectionSlot>>,
    /// The largest number of these.
    most: usize,
}

/// The error that all places are taken by connections that are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AllSlotsInUse {
    /// The principal that wants another has its full share, which is this number, all in use.
    Share(usize),
    /// All places, which are this number, are in use by several principals.
    All(usize),
}

/// Returns the part of the connections of a source that one principal may have, so that there is room for another where
/// there can be two.
pub(super) fn share_of(most: usize) -> usize {
    (most * 3 / 4).max(1)
}

impl SessionSlots {
    /// Makes the slots of a source; at most this number have a connection.
    pub(super) fn new(most: usize) -> Self {
        Self { slots: HashMap::new(), placed: HashMap::new(), most }
    }

    /// Returns the largest number of connections that the sessions of one principal may have, so that there is room for
    /// another principal where there can be two.
    pub(super) fn share(&self) -> usize {
        share_of(self.most)
    }

    pub(super) fn get(&self, session: &SessionId) -> Option<&Arc<ConnectionSlot>> {
        self.slots.get(session)
    }

    pub(super) fn get_or_insert(
        &mut self,
        session: &SessionId,
        make: impl FnOnce() -> Arc<ConnectionSlot>,
    ) -> Arc<ConnectionSlot> {
        Arc::clone(self.slots.entry(session.clone()).or_insert_with(make))
    }

    pub(super) fn remove(&mut self, session: &SessionId) -> Option<Arc<ConnectionSlot>> {
        self.placed.remove(session);
        self.slots.remove(session)
    }

    pub(super) fn drain(&mut self) -> Vec<Arc<ConnectionSlot>> {
        self.placed.clear();
        self.slots.drain().map(|(_, slot)| slot).collect()
    }

    /// Returns the slots that have a connection, or make one.
    pub(super) fn placed(&self) -> Vec<Arc<ConnectionSlot>> {
        self.placed.values().cloned().collect()
    }

    /// Returns how many of these the sessions of a principal have.
    pub(super) fn count(&self, principal: &str) -> usize {
        self.placed.values().filter(|slot| slot.owner().is_some_and(|owner| *owner.principal == *principal)).count()
    }

    /// Gives a slot a place. Returns whether the place is new, and the slot that must give up its own for it: the least
    /// needed slot of this principal if it has its full share, otherwise of the principal that has the most.
    ///
    /// # Errors
    /// [`AllSlotsInUse`] if every slot that could give up its place is in use.
    pub(super) fn place(
        &mut self,
        slot: &Arc<ConnectionSlot>,
    ) -> Result<(bool, Option<Arc<ConnectionSlot>>), AllSlotsInUse> {
        let Some(owner) = slot.owner() else { return Ok((false, None)) };
        if self.placed.contains_key(&owner.session) {
            return Ok((false, None));
        }
        let leaving = if self.count(&owner.principal) >= self.share() {
            Some(self.least_needed(Some(&owner.principal)).ok_or(AllSlotsInUse::Share(self.share()))?)
        } else if self.placed.len() >= self.most {
            let mut counts: HashMap<&str, usize> = HashMap::new();
            for placed in self.placed.values().filter_map(|slot| slot.owner()) {
                *counts.entry(&placed.principal).or_default() += 1;
            }
            let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(principal, _)| principal);
            Some(self.least_needed(most).or_else(|| self.least_needed(None)).ok_or(AllSlotsInUse::All(self.most))?)
        } else {
            None
        };
        let leaving = leaving.and_then(|session| self.placed.remove(&session));
        self.placed.insert(owner.session.clone(), Arc::clone(slot));
        Ok((true, leaving))
    }

    /// Takes back the place of a slot. Reports whether it had one.
    pub(super) fn release(&mut self, slot: &ConnectionSlot) -> bool {
        slot.owner().is_some_and(|owner| self.placed.remove(&owner.session).is_some())
    }

    fn least_needed(&self, of: Option<&str>) -> Option<SessionId> {
        let candidates = self.placed.values().filter_map(|slot| {
            let owner = slot.owner().filter(|owner| of.is_none_or(|principal| *owner.principal == *principal))?;
            Some((slot.eviction_rank()?, &owner.session))
        });
        candidates.min_by_key(|(eviction_rank, _)| *eviction_rank).map(|(_, session)| session.clone())
    }
}
