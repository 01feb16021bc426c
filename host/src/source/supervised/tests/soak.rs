//! Ten minutes of random faults on a paused clock: every task and connection that was begun ends.

use std::sync::atomic::Ordering;
use std::time::Duration;

use portcullis_test_support::Chance;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::world::{Bench, Mood};
use crate::call::Outcome;
use crate::config::ConnectionReuse;
use crate::source::Source as _;
use crate::source::testing::RecordingClient;

const MOODS: [Mood; 9] = [
    Mood::Well,
    Mood::Well,
    Mood::Well,
    Mood::Absent,
    Mood::Changed,
    Mood::Dies,
    Mood::Forgets,
    Mood::Mute,
    Mood::Slow,
];

const SESSIONS: usize = 60;
const SOURCES: usize = 20;

#[tokio::test(start_paused = true)]
async fn after_ten_minutes_of_faults_no_task_and_no_connection_is_left() {
    let before = Handle::current().metrics().num_alive_tasks();
    for seed in [1, 0x5eed] {
        let mut chance = Chance(seed);
        let benches: Vec<_> = (0..SOURCES)
            .map(|n| {
                let moods: Vec<_> = (0..1000).map(|_| chance.of(&MOODS)).collect();
                Bench::with(&moods, |supervision| {
                    supervision.timeout = Duration::from_secs(5);
                    supervision.idle = Duration::from_secs(30);
                    supervision.remote = n % 2 == 0;
                    supervision.eager = n % 5 == 0;
                    supervision.lifecycle = if n % 7 == 0 { ConnectionReuse::PerCall } else { ConnectionReuse::Warm };
                })
            })
            .collect();
        let end = Instant::now() + Duration::from_secs(600);
        let sessions = (0..SESSIONS).map(|n| {
            let (mut chance, benches) = (Chance(seed ^ ((n as u64 + 1) << 20)), &benches);
            async move {
                let mut outcomes = [0; 3];
                while Instant::now() < end {
                    let recorder = RecordingClient::new();
                    for _ in 0..10 {
                        let bench = &benches[chance.below(SOURCES)];
                        let limit = Duration::from_millis(100 + chance.below(10_000) as u64);
                        // Some agents give up.
                        match tokio::time::timeout(limit, bench.call(&recorder.client())).await {
                            Ok(Outcome::Answered(_)) => outcomes[0] += 1,
                            Ok(_) => outcomes[1] += 1,
                            Err(_) => outcomes[2] += 1,
                        }
                        tokio::time::sleep(Duration::from_millis(chance.below(20_000) as u64)).await;
                    }
                    benches.iter().for_each(|bench| bench.source.end_session(&recorder.session));
                }
                outcomes
            }
        });
        let outcomes = futures_util::future::join_all(sessions).await;
        for kind in 0..3 {
            assert!(outcomes.iter().any(|outcomes| outcomes[kind] > 0), "all that can happen did: {outcomes:?}");
        }
        for bench in &benches {
            bench.source.close().await;
            assert_eq!(bench.world.open.load(Ordering::SeqCst), 0, "a connection is left");
        }
        drop(benches);
        // Tasks that were told to end have had time to do so.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(Handle::current().metrics().num_alive_tasks(), before, "a task is left");
    }
}
