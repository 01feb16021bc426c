//! A table of the front's sessions by key, in which each caller has a share.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use tokio::time::Instant;

use super::reply::HttpRefusal;
use super::sessions::{MAX_OF_ONE, MAX_SESSIONS};
use crate::principal::Principal;
use crate::protocol::RpcError;
use crate::sync::{Mutex, MutexGuard};

/// A table whose entries are removed after they have not been used for a time.
pub(super) struct ExpiringTable<K, V> {
    entries: Mutex<HashMap<K, Arc<SessionEntry<V>>>>,
    idle: Duration,
    principal: PrincipalOf<K, V>,
}

/// A function that returns the principal of an entry.
type PrincipalOf<K, V> = for<'a> fn(&'a K, &'a V) -> &'a Principal;

pub(super) struct SessionEntry<V> {
    pub(super) value: V,
    used: Mutex<Instant>,
}

/// An entry that was found or made.
pub(super) struct FoundEntry<V> {
    pub(super) entry: EntryInUse<V>,
    /// The entry that was removed to make room for it.
    pub(super) evicted: Option<Arc<SessionEntry<V>>>,
}

impl<K: Hash + Eq + Clone, V> ExpiringTable<K, V> {
    pub(super) fn new(idle: Duration, principal: PrincipalOf<K, V>) -> Self {
        Self { entries: Mutex::default(), idle, principal }
    }

    pub(super) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<EntryInUse<V>>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.lock().get(key).cloned().map(EntryInUse)
    }

    /// Returns the entry of that key, created for this principal if it does not exist.
    pub(super) fn entry(
        &self,
        key: K,
        principal: &Principal,
        make: impl FnOnce() -> V,
    ) -> Result<FoundEntry<V>, HttpRefusal> {
        let mut entries = self.lock();
        if let Some(entry) = entries.get(&key) {
            return Ok(FoundEntry { entry: EntryInUse(Arc::clone(entry)), evicted: None });
        }
        let evicted = self.entry_to_evict(&entries, principal)?.and_then(|key| entries.remove(&key));
        let entry = SessionEntry::new(make());
        entries.insert(key, Arc::clone(&entry));
        Ok(FoundEntry { entry: EntryInUse(entry), evicted })
    }

    /// Checks that there is room for another entry of this principal, or that room can be made.
    pub(super) fn room_for(&self, principal: &Principal) -> Result<(), HttpRefusal> {
        self.entry_to_evict(&self.lock(), principal).map(drop)
    }

    /// Returns the entry that must be removed to make room for another one of this principal: the one that was not used
    /// for the longest time, among the principal's own if it has its share, otherwise among those of the principal with
    /// the most. An entry in use is never removed.
    fn entry_to_evict(
        &self,
        entries: &HashMap<K, Arc<SessionEntry<V>>>,
        principal: &Principal,
    ) -> Result<Option<K>, HttpRefusal> {
        if entries.len() < MAX_OF_ONE {
            return Ok(None);
        }
        let mut counts: HashMap<&Principal, usize> = HashMap::new();
        for (key, entry) in entries {
            *counts.entry((self.principal)(key, &entry.value)).or_default() += 1;
        }
        if counts.get(principal).is_some_and(|count| *count >= MAX_OF_ONE) {
            return self.longest_unused(entries, Some(principal)).map(Some).ok_or_else(|| full(MAX_OF_ONE, " by you"));
        }
        if entries.len() < MAX_SESSIONS {
            return Ok(None);
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(principal, _)| principal);
        let leaving = self.longest_unused(entries, most).or_else(|| self.longest_unused(entries, None));
        leaving.map(Some).ok_or_else(|| full(MAX_SESSIONS, ""))
    }

    fn longest_unused(&self, entries: &HashMap<K, Arc<SessionEntry<V>>>, of: Option<&Principal>) -> Option<K> {
        let may_go = |(key, entry): &(&K, &Arc<SessionEntry<V>>)| {
            // Users are counted under the table's lock, so that no use can begin meanwhile.
            Arc::strong_count(entry) == 1 && of.is_none_or(|of| *(self.principal)(key, &entry.value) == *of)
        };
        entries.iter().filter(may_go).min_by_key(|(_, entry)| entry.used()).map(|(key, _)| key.clone())
    }

    /// Removes the entry of that key if `over` returns true for it. A user of the entry keeps it.
    pub(super) fn remove_if(&self, key: &K, over: impl FnOnce(&V) -> bool) {
        let mut entries = self.lock();
        if entries.get(key).is_some_and(|entry| over(&entry.value)) {
            entries.remove(key);
        }
    }

    /// Removes and returns the entries that are not in use and have not been for the idle time. Users are counted under
    /// the table's lock, so that no use can begin meanwhile.
    pub(super) fn take_idle(&self) -> Vec<Arc<SessionEntry<V>>> {
        let now = Instant::now();
        let idle = |entry: &Arc<SessionEntry<V>>| Arc::strong_count(entry) == 1 && now - entry.used() >= self.idle;
        self.lock().extract_if(|_, entry| idle(entry)).map(|(_, entry)| entry).collect()
    }

    /// Removes and returns the entries for which `over` returns true. A user of one keeps it.
    pub(super) fn take_if(&self, over: impl Fn(&K, &V) -> bool) -> Vec<Arc<SessionEntry<V>>> {
        self.lock().extract_if(|key, entry| over(key, &entry.value)).map(|(_, entry)| entry).collect()
    }

    /// Removes and returns the entries that are not in use and for which `over` returns true.
    pub(super) fn take_unused(&self, over: impl Fn(&K, &V) -> bool) -> Vec<Arc<SessionEntry<V>>> {
        let over = |key: &K, entry: &Arc<SessionEntry<V>>| Arc::strong_count(entry) == 1 && over(key, &entry.value);
        self.lock().extract_if(|key, entry| over(key, entry)).map(|(_, entry)| entry).collect()
    }

    pub(super) fn take_all(&self) -> Vec<Arc<SessionEntry<V>>> {
        self.lock().drain().map(|(_, entry)| entry).collect()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<K, Arc<SessionEntry<V>>>> {
        self.entries.lock()
    }
}

impl<V> SessionEntry<V> {
    fn new(value: V) -> Arc<Self> {
        Arc::new(Self { value, used: Mutex::new(Instant::now()) })
    }

    fn used(&self) -> Instant {
        *self.used.lock()
    }
}

fn full(count: usize, whose: &str) -> HttpRefusal {
    let message = format!(
        "{count} sessions are in use{whose} already, as many as there may be; end one, or wait until one is idle"
    );
    HttpRefusal::new(StatusCode::SERVICE_UNAVAILABLE, RpcError::INTERNAL, message)
}

/// An entry in use, which does not age meanwhile.
pub(crate) struct EntryInUse<V>(Arc<SessionEntry<V>>);

impl<V> Deref for EntryInUse<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.0.value
    }
}

impl<V> Drop for EntryInUse<V> {
    fn drop(&mut self) {
        *self.0.used.lock() = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// The principal's name, and a number.
    type Key = (Principal, usize);

    fn table(idle: Duration) -> ExpiringTable<Key, ()> {
        ExpiringTable::new(idle, |(principal, _), ()| principal)
    }

    fn enter(table: &ExpiringTable<Key, ()>, principal: &str, number: usize) -> Result<EntryInUse<()>, HttpRefusal> {
        let principal = Principal::established(principal);
        Ok(table.entry((principal.clone(), number), &principal, || ())?.entry)
    }

    fn has(table: &ExpiringTable<Key, ()>, principal: &str, number: usize) -> bool {
        table.lock().contains_key(&(Principal::established(principal), number))
    }

    #[tokio::test(start_paused = true)]
    async fn an_entry_ages_only_while_nobody_uses_it() {
        let idle = Duration::from_secs(60);
        let table = table(idle);
        let used = enter(&table, "ann", 1).unwrap();
        tokio::time::advance(idle * 2).await;
        assert!(table.take_idle().is_empty());
        drop(used);
        tokio::time::advance(idle / 2).await;
        assert!(table.take_idle().is_empty());
        assert!(table.get(&(Principal::established("ann"), 1)).is_some());
        tokio::time::advance(idle).await;
        assert_eq!(table.take_idle().len(), 1);
        assert!(table.get(&(Principal::established("ann"), 1)).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_sessions_make_room_for_the_next_and_used_ones_stay() {
        let table = table(Duration::ZERO);
        let used = enter(&table, "ann", 0).unwrap();
        for number in 1..MAX_OF_ONE + 100 {
            drop(enter(&table, "ann", number).unwrap());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(table.lock().len(), MAX_OF_ONE);
        assert!(has(&table, "ann", 0), "it is in use");
        assert!(!has(&table, "ann", 1) && has(&table, "ann", MAX_OF_ONE + 99), "the oldest went first");
        drop(used);
    }

    #[tokio::test(start_paused = true)]
    async fn one_caller_leaves_room_for_others_and_whoever_has_most_goes_first() {
        let table = table(Duration::ZERO);
        // Bob's entries were used before all others.
        (0..MAX_SESSIONS - MAX_OF_ONE).for_each(|number| drop(enter(&table, "bob", number).unwrap()));
        tokio::time::advance(Duration::from_millis(1)).await;
        let anns: Vec<_> = (0..MAX_OF_ONE).map(|number| enter(&table, "ann", number).unwrap()).collect();
        assert_eq!(table.lock().len(), MAX_SESSIONS);
        let refused = enter(&table, "ann", MAX_OF_ONE).err().unwrap();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "all of hers are in use");
        assert!(enter(&table, "ann", 0).is_ok(), "known ones are found");
        drop(anns);
        drop(enter(&table, "eve", 0).unwrap());
        assert!((0..MAX_SESSIONS - MAX_OF_ONE).all(|number| has(&table, "bob", number)), "he has few");
        assert_eq!(table.lock().len(), MAX_SESSIONS);
    }
}
