//! Many sessions with many sources that fail at random: nothing leaks, and every call has one outcome.
//!
//! The test takes a few seconds. With `PORTCULLIS_SOAK=600` it takes 600 seconds, with 200 sessions and 50 sources;
//! `PORTCULLIS_SOAK_SEED` repeats a run by the seed that it printed.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use portcullis_test_support::Chance;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::recovery::write;
use crate::test_dir::{TestDir, until};
use crate::web::{Server, Session};

/// The faults from which those of a source's connections are drawn.
const FAULTS: [&str; 14] = [
    "well",
    "well",
    "well",
    "well",
    "drip",
    "wrong-id",
    "duplicate",
    "restless",
    "half",
    "exit-in-call",
    "exit-in-call",
    "exit-at-start",
    "hang-call",
    "late",
];

/// The number of connections of a source for which faults are drawn.
const STORE: usize = 1000;

/// The number of descriptors that may be open at one time and not at another: sockets of agents, files of the ledger,
/// a process that starts.
const SLACK: usize = 16;

struct Size {
    sessions: usize,
    sources: usize,
    /// The duration of each of the two halves.
    lasts: Duration,
}

fn size() -> Size {
    match std::env::var("PORTCULLIS_SOAK").ok().and_then(|seconds| seconds.parse::<u64>().ok()) {
        Some(seconds) => Size { sessions: 200, sources: 50, lasts: Duration::from_secs(seconds / 2) },
        None => Size { sessions: 8, sources: 4, lasts: Duration::from_secs(3) },
    }
}

#[test]
fn under_random_faults_nothing_leaks_and_every_call_has_one_outcome() {
    let size = size();
    let seed = std::env::var("PORTCULLIS_SOAK_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 | 1);
    println!("PORTCULLIS_SOAK_SEED={seed}");
    let mut chance = Chance(seed);

    let dir = TestDir::new("");
    let mut config = "[profiles.default]\napprove = \"never\"\n".to_owned();
    for source in 0..size.sources {
        let manner = ["", "", "lifecycle = \"per-call\"", "discovery = \"live\""][source % 4];
        config.push_str(&format!(
            "[sources.s{source}]\ncommand = [\"@source@\", \"faulty\", \"@dir@/open/{source}\"]\n@cell@\n\
             required = false\ntimeout = \"1s\"\nidle = \"1s\"\n{manner}\n"
        ));
    }
    dir.configure(&config);
    let server = Server::start(&dir);
    // Some agents have connections of their own, and each connection needs its own cell. A machine with 16 GiB could
    // not hold those of more agents.
    let can = |n: usize| if n < 20 && n % 2 == 1 { json!({ "roots": {} }) } else { json!({}) };
    let sessions: Vec<_> = (0..size.sessions).map(|n| Mutex::new(server.endpoint.session(&can(n)))).collect();
    let calls = AtomicUsize::new(0);

    let mut half = |number: u64| {
        for source in 0..size.sources {
            let faults: Vec<_> = (0..STORE).map(|_| chance.of(&FAULTS)).collect();
            write(&dir, &source.to_string(), &faults.join("\n"));
        }
        let end = Instant::now() + size.lasts;
        std::thread::scope(|scope| {
            for (n, session) in sessions.iter().enumerate() {
                let (seed, calls) = (seed ^ ((n as u64 + 1) << 32) ^ number, &calls);
                scope.spawn(move || {
                    let (mut chance, mut session) = (Chance(seed | 1), session.lock().unwrap());
                    while Instant::now() < end {
                        call(&mut session, chance.below(size.sources), calls);
                    }
                });
            }
        });
        // Without faults again, every session can call every source.
        for source in 0..size.sources {
            write(&dir, &source.to_string(), "well");
        }
        std::thread::scope(|scope| {
            for session in &sessions {
                let calls = &calls;
                scope.spawn(move || {
                    (0..size.sources).for_each(|source| call(&mut session.lock().unwrap(), source, calls))
                });
            }
        });
        descriptors(server.running.pid())
    };
    let before = half(1);
    half(2);
    until("as many descriptors as before", || descriptors(server.running.pid()) <= before + SLACK);

    drop(sessions);
    server.running.signal(Signal::TERM);
    let (code, err) = server.running.end();
    assert_eq!(code, Some(0), "{err}");
    dir.await_no_process();
    dir.assert_nothing_left();
    let mut outcomes: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for record in dir.records() {
        let call = record["call"].to_string();
        match record["kind"].as_str().unwrap() {
            "call.intent" => outcomes.entry(call).or_default().0 += 1,
            "tool.completed" => outcomes.entry(call).or_default().1 += 1,
            _ => {}
        }
    }
    let odd: Vec<_> = outcomes.iter().filter(|(_, count)| **count != (1, 1)).collect();
    assert!(odd.is_empty(), "{odd:?}");
    let calls = calls.load(Ordering::Relaxed);
    assert!(!outcomes.is_empty() && outcomes.len() <= calls, "{} of {calls}", outcomes.len());
    println!("{calls} calls, of which {} reached a source", outcomes.len());
}

/// Makes one call, which must be answered whatever its outcome is.
fn call(session: &mut Session, source: usize, calls: &AtomicUsize) {
    calls.fetch_add(1, Ordering::Relaxed);
    let seen: Value = session.call(&format!("s{source}__echo"), &json!({ "n": 1 })).expect("the broker runs");
    assert!(seen["ok"].is_string() || !seen["refused"].is_null(), "{seen}");
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}
