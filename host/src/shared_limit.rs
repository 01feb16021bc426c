//! Limits that callers share: requests in progress, streams, bytes of bodies.

use crate::principal::Principal;
use crate::sync::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

/// A limit that several principals share. A principal may hold as much as is still free afterwards.
///
/// A single principal therefore gets half of the limit, the next one half of what is left, and so on: room is left for
/// another one until little more than nothing is free. A fixed share would be too small for the only user of most
/// brokers, or leave no room next to two greedy ones.
#[derive(Debug)]
pub(crate) struct SharedLimit {
    limit: u64,
    held: Mutex<Held>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Held {
    all: u64,
    by: HashMap<Principal, u64>,
}

impl SharedLimit {
    /// Returns a limit with nothing in use.
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, held: Mutex::default(), freed: Notify::new() })
    }

    /// Takes `count` for a principal, or returns `None` if that is more than its share.
    pub(crate) fn try_take(self: &Arc<Self>, principal: &Principal, count: u64) -> Option<LimitShare> {
        let mut held = self.lock();
        let all = held.all.checked_add(count)?;
        let free = self.limit.checked_sub(all)?;
        match held.by.get_mut(principal) {
            Some(own) if own.saturating_add(count) > free => return None,
            None if count > free => return None,
            Some(own) => *own += count,
            None => {
                held.by.insert(principal.clone(), count);
            }
        }
        held.all = all;
        Some(LimitShare { limit: self.clone(), principal: principal.clone(), count })
    }

    /// Returns a share of nothing yet, which every principal can have.
    pub(crate) fn empty_share(self: &Arc<Self>, principal: &Principal) -> LimitShare {
        LimitShare { limit: self.clone(), principal: principal.clone(), count: 0 }
    }

    /// Takes `count` for a principal, or returns `None` after having waited for `timeout`. Cancellation safe.
    pub(crate) async fn take(
        self: &Arc<Self>,
        principal: &Principal,
        count: u64,
        timeout: Duration,
    ) -> Option<LimitShare> {
        let taken = async {
            loop {
                // Registered before the attempt, so that nothing freed after it is missed.
                let mut freed = std::pin::pin!(self.freed.notified());
                freed.as_mut().enable();
                if let Some(share) = self.try_take(principal, count) {
                    return share;
                }
                freed.await;
            }
        };
        tokio::time::timeout(timeout, taken).await.ok()
    }

    fn release(&self, principal: &Principal, count: u64) {
        {
            let mut held = self.lock();
            held.all = held.all.saturating_sub(count);
            if let Some(own) = held.by.get_mut(principal) {
                *own = own.saturating_sub(count);
                if *own == 0 {
                    held.by.remove(principal);
                }
            }
        }
        self.freed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock()
    }
}

/// A limit as one of the principals that share it has it.
#[derive(Debug, Clone)]
pub(crate) struct PrincipalRoom {
    limit: Arc<SharedLimit>,
    principal: Principal,
}

impl PrincipalRoom {
    /// Returns the room that a principal has within a limit.
    pub(crate) fn new(limit: &Arc<SharedLimit>, principal: &Principal) -> Self {
        Self { limit: limit.clone(), principal: principal.clone() }
    }

    /// Takes some bytes, or returns `None` if that is more than the principal's share.
    pub(crate) fn try_take(&self, bytes: usize) -> Option<LimitShare> {
        self.limit.try_take(&self.principal, bytes as u64)
    }

    /// Returns a share of nothing yet.
    pub(crate) fn empty_share(&self) -> LimitShare {
        self.limit.empty_share(&self.principal)
    }
}

/// A part of a limit, which is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct LimitShare {
    limit: Arc<SharedLimit>,
    principal: Principal,
    count: u64,
}

impl LimitShare {
    /// Takes `count` more, or returns false if that is more than the principal's share.
    pub(crate) fn grow(&mut self, count: u64) -> bool {
        let Some(mut more) = self.limit.try_take(&self.principal, count) else { return false };
        self.count += std::mem::take(&mut more.count);
        true
    }

    /// Takes the difference to `count`, or returns false if that is more than the principal's share.
    pub(crate) fn grow_to(&mut self, count: u64) -> bool {
        let missing = count.saturating_sub(self.count);
        missing == 0 || self.grow(missing)
    }

    /// Gives back all but `count`.
    pub(crate) fn shrink(&mut self, count: u64) {
        if let Some(surplus) = self.count.checked_sub(count).filter(|surplus| *surplus > 0) {
            self.count = count;
            self.limit.release(&self.principal, surplus);
        }
    }

    /// Returns how much it is.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the principal that holds it.
    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }
}

impl Drop for LimitShare {
    fn drop(&mut self) {
        self.limit.release(&self.principal, self.count);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn principals() -> [Principal; 2] {
        ["token:a", "token:b"].map(Principal::established)
    }

    #[test]
    fn one_principal_gets_half_and_the_next_always_finds_room() {
        let limit = SharedLimit::new(12);
        let [greedy, other] = principals();
        let take = |principal: &Principal| std::iter::from_fn(|| limit.try_take(principal, 1)).collect::<Vec<_>>();
        let first = take(&greedy);
        assert_eq!(first.len(), 6);
        let second = take(&other);
        assert_eq!(second.len(), 3);
        drop(first);
        assert_eq!(take(&greedy).len(), 4, "as many as are free beside the other's three");
        drop(second);
        assert!(limit.try_take(&other, 7).is_none(), "one large part counts like many small ones");
        assert!(limit.try_take(&other, 6).is_some());
        assert!(limit.try_take(&other, u64::MAX).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_freed_place_goes_to_a_waiting_principal_and_waiting_has_a_limit() {
        let limit = SharedLimit::new(8);
        let [one, other] = principals();
        let mut held = limit.try_take(&one, 4).unwrap();
        let timeout = Duration::from_secs(10);
        assert!(limit.take(&one, 1, timeout).await.is_none());
        let waiting = tokio::spawn({
            let (limit, one) = (limit.clone(), one.clone());
            async move { limit.take(&one, 2, timeout).await.is_some() }
        });
        tokio::task::yield_now().await;
        held.shrink(1);
        assert!(waiting.await.unwrap());
        assert!(held.grow(1) && !held.grow(3), "it has two, and could have four");
        drop(held);
        assert!(limit.try_take(&other, 4).is_some());
        assert_eq!(limit.lock().all, 0);
        assert!(limit.lock().by.is_empty());
    }
}
