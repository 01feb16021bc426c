#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use proptest::prelude::*;

use super::*;

const EVENTS: [ConnectionEvent; 12] = [
    ConnectionEvent::Begun,
    ConnectionEvent::Opened,
    ConnectionEvent::Refused,
    ConnectionEvent::HandedOver,
    ConnectionEvent::Lost,
    ConnectionEvent::Expired,
    ConnectionEvent::Closed,
    ConnectionEvent::Silent,
    ConnectionEvent::Answered,
    ConnectionEvent::TimedOut(MAX_TIMEOUTS),
    ConnectionEvent::Restarted,
    ConnectionEvent::Stopped,
];

/// The states that may follow each state.
const EDGES: [(SourceStatus, &[SourceStatus]); 7] = [
    (SourceStatus::Idle, &[SourceStatus::Starting, SourceStatus::Stopped]),
    (
        SourceStatus::Starting,
        &[
            SourceStatus::Ready,
            SourceStatus::BackingOff,
            SourceStatus::Failed,
            SourceStatus::Idle,
            SourceStatus::Stopped,
        ],
    ),
    (
        SourceStatus::Ready,
        &[
            SourceStatus::Degraded,
            SourceStatus::BackingOff,
            SourceStatus::Failed,
            SourceStatus::Idle,
            SourceStatus::Stopped,
        ],
    ),
    (
        SourceStatus::Degraded,
        &[
            SourceStatus::Ready,
            SourceStatus::BackingOff,
            SourceStatus::Failed,
            SourceStatus::Idle,
            SourceStatus::Stopped,
        ],
    ),
    (SourceStatus::BackingOff, &[SourceStatus::Starting, SourceStatus::Idle, SourceStatus::Stopped]),
    (SourceStatus::Failed, &[SourceStatus::Starting, SourceStatus::Idle, SourceStatus::Stopped]),
    (SourceStatus::Stopped, &[]),
];

/// A machine with its own clock.
struct Story(ConnectionState, Instant);

impl Story {
    fn new() -> Self {
        Self(ConnectionState::default(), Instant::now())
    }

    fn on(&mut self, event: ConnectionEvent) -> SourceStatus {
        self.0.on(event, self.1, 0.0);
        self.0.status()
    }

    fn pause(&self) -> Duration {
        self.0.not_before().map_or(Duration::ZERO, |at| at - self.1)
    }

    /// Waits for the pause to pass, and begins.
    fn begin(&mut self) -> Duration {
        let pause = self.pause();
        self.1 += pause;
        assert_eq!(self.on(ConnectionEvent::Begun), SourceStatus::Starting);
        pause
    }
}

#[test]
fn five_attempts_half_a_second_apart_and_doubling_then_one_a_minute() {
    let mut story = Story::new();
    story.begin();
    let mut pauses = Vec::new();
    while story.on(ConnectionEvent::Refused) == SourceStatus::BackingOff {
        pauses.push(story.begin().as_millis());
    }
    assert_eq!(pauses, [500, 1000, 2000, 4000, 8000]);
    assert_eq!(story.0.status(), SourceStatus::Failed);
    assert_eq!(story.begin(), COOL_DOWN, "half open");
    assert_eq!(story.on(ConnectionEvent::Refused), SourceStatus::Failed, "one try");
    assert_eq!(story.begin(), COOL_DOWN);
    assert_eq!(story.on(ConnectionEvent::Opened), SourceStatus::Ready);
}

#[test]
fn a_crash_loop_opens_the_circuit_and_a_stable_minute_renews_the_attempts() {
    let mut story = Story::new();
    story.begin();
    for _ in 0..MAX_ATTEMPTS {
        story.on(ConnectionEvent::Opened);
        story.1 += STABLE - Duration::from_millis(1);
        assert_eq!(story.on(ConnectionEvent::Lost), SourceStatus::BackingOff);
        story.begin();
    }
    story.on(ConnectionEvent::Opened);
    story.1 += STABLE - Duration::from_millis(1);
    assert_eq!(story.on(ConnectionEvent::Lost), SourceStatus::Failed, "it came back each time, and never stayed");
    story.begin();
    story.on(ConnectionEvent::Opened);
    story.1 += STABLE;
    assert_eq!(story.on(ConnectionEvent::Lost), SourceStatus::BackingOff);
    assert_eq!(story.pause(), FIRST_PAUSE);
}

#[test]
fn a_connection_that_ends_normally_is_begun_again_at_once() {
    for event in [ConnectionEvent::Expired, ConnectionEvent::Closed] {
        let mut story = Story::new();
        story.begin();
        story.on(ConnectionEvent::Opened);
        assert_eq!(story.on(event), SourceStatus::Idle);
        assert_eq!(story.begin(), Duration::ZERO);
    }
}

#[test]
fn an_attempt_that_is_given_up_leaves_nothing_begun() {
    for event in [ConnectionEvent::Closed, ConnectionEvent::Restarted, ConnectionEvent::HandedOver] {
        let mut story = Story::new();
        story.begin();
        assert_eq!(story.on(event), SourceStatus::Idle, "{event:?}");
    }
}

#[test]
fn a_session_that_is_forgotten_as_soon_as_it_is_opened_is_a_crash_loop() {
    let mut story = Story::new();
    story.begin();
    story.on(ConnectionEvent::Opened);
    assert_eq!(story.on(ConnectionEvent::Expired), SourceStatus::Idle, "once is chance");
    let mut pauses = Vec::new();
    for _ in 0..MAX_ATTEMPTS {
        pauses.push(story.begin());
        story.on(ConnectionEvent::Opened);
        story.1 += SETTLED - Duration::from_millis(1);
        story.on(ConnectionEvent::Expired);
    }
    assert_eq!(story.0.status(), SourceStatus::Failed, "{pauses:?}");
    assert!(pauses.iter().skip(1).all(|pause| *pause >= FIRST_PAUSE), "{pauses:?}");
    assert_eq!(story.begin(), COOL_DOWN);
    story.on(ConnectionEvent::Opened);
    story.1 += SETTLED;
    assert_eq!(story.on(ConnectionEvent::Expired), SourceStatus::Idle, "it stood");
}

#[test]
fn a_stable_minute_renews_the_attempts_whatever_ends_it() {
    for event in [ConnectionEvent::Expired, ConnectionEvent::Closed, ConnectionEvent::Lost] {
        let mut story = Story::new();
        story.begin();
        for _ in 0..MAX_ATTEMPTS {
            assert_eq!(story.on(ConnectionEvent::Refused), SourceStatus::BackingOff);
            story.begin();
        }
        story.on(ConnectionEvent::Opened);
        story.1 += STABLE;
        story.on(event);
        story.begin();
        assert_eq!(story.on(ConnectionEvent::Refused), SourceStatus::BackingOff, "after {event:?}");
    }
}

#[test]
fn consecutive_timeouts_degrade_a_source_until_it_answers() {
    let mut story = Story::new();
    story.begin();
    story.on(ConnectionEvent::Opened);
    assert_eq!(story.on(ConnectionEvent::TimedOut(MAX_TIMEOUTS - 1)), SourceStatus::Ready, "slow calls");
    assert!(!story.0.is_doubted());
    assert_eq!(story.on(ConnectionEvent::TimedOut(MAX_TIMEOUTS)), SourceStatus::Degraded);
    assert!(story.0.is_doubted());
    assert_eq!(story.on(ConnectionEvent::Answered), SourceStatus::Ready);
    assert!(!story.0.is_doubted());
    story.on(ConnectionEvent::TimedOut(MAX_TIMEOUTS));
    assert_eq!(story.on(ConnectionEvent::Lost), SourceStatus::BackingOff, "it is a crash like any other");
    assert_eq!((story.pause(), story.0.is_doubted()), (FIRST_PAUSE, false));
}

#[test]
fn a_restart_renews_the_attempts_and_waits_for_no_pause() {
    let mut story = Story::new();
    story.begin();
    while story.on(ConnectionEvent::Refused) == SourceStatus::BackingOff {
        story.begin();
    }
    assert_eq!(story.0.status(), SourceStatus::Failed);
    assert_eq!(story.on(ConnectionEvent::Restarted), SourceStatus::Idle);
    assert_eq!(story.begin(), Duration::ZERO);
    assert_eq!(story.on(ConnectionEvent::Refused), SourceStatus::BackingOff, "all attempts are there again");
}

proptest! {
    #[test]
    fn no_order_of_events_breaks_the_rules(
        steps in prop::collection::vec((0..EVENTS.len() - 1, 0_u64..90_000, 0.0..1.0_f64), 0..200),
        stopped_at in 0_usize..300,
    ) {
        let mut machine = ConnectionState::default();
        let mut now = Instant::now();
        let mut tries_since_pause = 0;
        for (step, (event, millis, chance)) in steps.into_iter().enumerate() {
            now += Duration::from_millis(millis);
            let event = if step == stopped_at { ConnectionEvent::Stopped } else { EVENTS[event] };
            let (before, due) = (machine.status(), machine.not_before());
            let left = machine.on(event, now, chance);
            let after = machine.status();
            prop_assert_eq!(left.is_some(), before != after, "a transition is told once, and only if there was one");
            prop_assert!(left.is_none_or(|left| left == before));
            if before != after {
                let (_, next) = EDGES.iter().find(|(from, _)| *from == before).unwrap();
                prop_assert!(next.contains(&after), "{:?} became {:?}", before, after);
            }
            prop_assert!(step < stopped_at || after == SourceStatus::Stopped, "stopped is stopped");
            prop_assert_eq!(machine.not_before().is_some(), matches!(after, SourceStatus::BackingOff | SourceStatus::Failed));
            if after == SourceStatus::Starting && before != after {
                prop_assert!(due.is_none_or(|due| due <= now), "nothing is begun before its time");
                tries_since_pause += u32::from(before == SourceStatus::BackingOff);
                prop_assert!(tries_since_pause <= MAX_ATTEMPTS, "more attempts than there are");
            }
            if before != after && matches!(after, SourceStatus::BackingOff | SourceStatus::Failed) {
                let pause = machine.not_before().unwrap() - now;
                let longest = if after == SourceStatus::Failed { COOL_DOWN } else { Duration::from_secs(8) };
                prop_assert!(pause <= longest && pause >= FIRST_PAUSE.mul_f64(1.0 - JITTER), "{:?}", pause);
            }
            // After a stable connection, all attempts are available again.
            if machine.spent == 0 {
                tries_since_pause = 0;
            }
        }
    }
}
