//! The open connections: which of them are closed to make room, and which have taken too long.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, Id, JoinSet};

use super::activity::{Activity, ConnectionPhase, TickClock};
use super::self_wakes::absorb_self_wakes;

/// The largest number of connections that may be open without a request in progress. A new one is always accepted;
/// beyond this limit, another one is closed for it. More than a machine's agents keep between their requests, and half
/// of the 1,024 descriptors that many systems give a program.
pub(super) const MAX_WAITING: usize = 512;

/// The number of connections that are closed at once when the system has no descriptors left. Accepting is tried again
/// a moment later, and other parts of the broker need some descriptors too.
const ROOM_AT_ONCE: usize = 16;

/// The interval at which connections are checked.
pub(super) const TICK: Duration = Duration::from_millis(500);

/// The longest time that the head of a request may take to arrive, from its first byte or from the beginning of the
/// connection, in ticks (5 s). A head is one packet or two; only a peer that means to hold the connection takes longer.
const HEAD_TICKS: u64 = 10;

/// The longest time that a connection may be idle between two requests, in ticks (60 s). Clients that keep connections
/// close them earlier, so that none is closed while a request is on its way.
const REST_TICKS: u64 = 120;

/// The open connections. The accept loop owns them, so that no request waits for a lock.
#[derive(Default)]
pub(super) struct Connections {
    tasks: JoinSet<()>,
    open: HashMap<Id, OpenConnection>,
    clock: TickClock,
    accepted: u64,
}

struct OpenConnection {
    activity: Arc<Activity>,
    network: IpAddr,
    /// Its number in the order in which connections were accepted.
    number: u64,
    task: AbortHandle,
}

impl Connections {
    /// Serves a connection, after making room for it.
    pub(super) fn add<F>(&mut self, peer: IpAddr, serve: impl FnOnce(Arc<Activity>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        while self.open.len() >= MAX_WAITING && self.waiting().count() >= MAX_WAITING && self.close_one() {}
        let activity = Activity::new(self.clock.clone());
        let task = self.tasks.spawn(absorb_self_wakes(serve(activity.clone())));
        self.accepted += 1;
        self.open.insert(task.id(), OpenConnection { activity, network: network(peer), number: self.accepted, task });
    }

    /// Closes up to [`ROOM_AT_ONCE`] connections without a request, because the system has no descriptors left. Returns
    /// how many.
    pub(super) fn make_room(&mut self) -> usize {
        (0..ROOM_AT_ONCE).take_while(|_| self.close_one()).count()
    }

    /// Closes the connections that have taken too long. To be called once a [`TICK`].
    pub(super) fn tick(&mut self) {
        let now = self.clock.tick();
        self.close_all(|phase, since| match phase {
            ConnectionPhase::Head => now.saturating_sub(since) > HEAD_TICKS,
            ConnectionPhase::Resting => now.saturating_sub(since) > REST_TICKS,
            ConnectionPhase::Unadmitted | ConnectionPhase::Serving | ConnectionPhase::Closing => false,
        });
    }

    /// Closes the connections over which no request has arrived yet, because no more requests are taken.
    pub(super) fn stop_waiting(&mut self) {
        self.close_all(|phase, _| phase == ConnectionPhase::Head);
    }

    /// Waits until a connection has ended, or for ever if there is none. Cancellation safe.
    pub(super) async fn ended(&mut self) {
        match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => drop(self.open.remove(&id)),
            Some(Err(error)) => drop(self.open.remove(&error.id())),
            None => std::future::pending().await,
        }
    }

    /// Waits until all connections have ended. Cancellation safe.
    pub(super) async fn all_ended(&mut self) {
        while !self.tasks.is_empty() {
            self.ended().await;
        }
    }

    /// Drops the connections that are still open.
    pub(super) async fn shutdown(mut self) {
        self.tasks.shutdown().await;
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Returns the connections without a request in progress, each with the tick at which its phase began.
    fn waiting(&self) -> impl Iterator<Item = (u64, &OpenConnection)> {
        self.open.values().filter_map(|open| match open.activity.now() {
            (ConnectionPhase::Serving | ConnectionPhase::Closing, _) => None,
            (ConnectionPhase::Head | ConnectionPhase::Unadmitted | ConnectionPhase::Resting, since) => {
                Some((since, open))
            }
        })
    }

    /// Closes the oldest connection without a request, among those of the network that has the most of them, so that a
    /// peer that opens many closes its own. Returns whether there was one.
    fn close_one(&self) -> bool {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        self.waiting().for_each(|(_, open)| *counts.entry(open.network).or_default() += 1);
        let oldest = self.waiting().min_by_key(|(since, open)| {
            let most = counts.get(&open.network).copied().unwrap_or_default();
            (std::cmp::Reverse(most), *since, open.number)
        });
        let Some((_, open)) = oldest else { return false };
        if open.activity.close() {
            open.task.abort();
        }
        // If a request began at this moment, the connection no longer counts as waiting, and the next try finds another
        // one.
        true
    }

    fn close_all(&self, over: impl Fn(ConnectionPhase, u64) -> bool) {
        for open in self.open.values() {
            let (phase, since) = open.activity.now();
            if over(phase, since) && open.activity.close() {
                open.task.abort();
            }
        }
    }
}

/// Returns the network that a peer's connections count for: an IPv4 address, or the first half of an IPv6 address,
/// because one customer of a provider has at least that much.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::activity::RequestInProgress;
    use super::*;
    use crate::principal::Principal;
    use crate::shared_limit::SharedLimit;

    /// Opens a connection that stays open, and returns its activity.
    fn open(connections: &mut Connections, peer: &str) -> Arc<Activity> {
        let mut kept = None;
        connections.add(peer.parse().unwrap(), |activity| {
            kept = Some(activity);
            std::future::pending()
        });
        kept.unwrap()
    }

    fn request(activity: &Arc<Activity>) -> RequestInProgress {
        let mut request = activity.begin();
        request.admit(&SharedLimit::new(10), &Principal::established("token"), "requests").unwrap();
        request
    }

    fn is_open(activity: &Activity) -> bool {
        activity.now().0 != ConnectionPhase::Closing
    }

    #[tokio::test]
    async fn the_oldest_without_a_request_makes_room_and_a_new_one_is_always_accepted() {
        let mut connections = Connections::default();
        let peers: Vec<_> = (0..MAX_WAITING).map(|_| open(&mut connections, "127.0.0.1")).collect();
        let [first, second, third, rest @ ..] = &*peers else { unreachable!() };
        let in_progress = request(first);
        let late = open(&mut connections, "127.0.0.1");
        assert!(is_open(second), "a connection with a request in progress takes no place among those that wait");
        open(&mut connections, "127.0.0.1");
        assert!(is_open(first) && !is_open(second) && is_open(third));
        connections.tick();
        drop(in_progress);
        // The connection that became idle last is closed last.
        for _ in 1..MAX_WAITING {
            open(&mut connections, "127.0.0.1");
        }
        assert!(!is_open(third) && !is_open(&late) && rest.iter().all(|peer| !is_open(peer)));
        assert!(is_open(first));
        while connections.len() > MAX_WAITING {
            connections.ended().await;
        }
    }

    #[tokio::test]
    async fn a_peer_that_opens_many_connections_loses_its_own() {
        let mut connections = Connections::default();
        let honest = open(&mut connections, "192.0.2.1");
        let others: Vec<_> =
            (0..2 * MAX_WAITING).map(|at| open(&mut connections, &format!("2001:db8::{at:x}"))).collect();
        assert!(is_open(&honest));
        assert_eq!(others.iter().filter(|peer| is_open(peer)).count(), MAX_WAITING - 1);
        assert!(is_open(others.last().unwrap()));
        assert_eq!(connections.make_room(), ROOM_AT_ONCE);
        assert!(is_open(&honest));
    }

    #[tokio::test]
    async fn a_request_head_has_five_seconds_and_an_idle_connection_a_minute() {
        let mut connections = Connections::default();
        let (silent, resting, serving) =
            (open(&mut connections, "::1"), open(&mut connections, "::1"), open(&mut connections, "::1"));
        drop(request(&resting));
        let in_progress = request(&serving);
        (0..HEAD_TICKS).for_each(|_| connections.tick());
        assert!(is_open(&silent));
        connections.tick();
        assert!(!is_open(&silent) && is_open(&resting));
        (0..REST_TICKS).for_each(|_| connections.tick());
        assert!(!is_open(&resting) && is_open(&serving));
        drop(in_progress);
        connections.stop_waiting();
        assert!(is_open(&serving), "its answer may still be on its way");
    }
}
