//! The storage of the ledger: a full disk, a locked database, a changed byte.

use std::fs;
use std::process::Command;

use rusqlite::Connection;
use serde_json::json;

use crate::agent::{Agent, Era};
use crate::crash::calls;
use crate::test_dir::{TestDir, broker, finish};

const FILES: &str = "[sources.files]\ncommand = [\"@source@\", \"plain\"]\n@cell@\n\
                     [profiles.default]\napprove = \"never\"\nrecord = \"full\"\n";

/// Returns a command that runs `portcullis` with a limit on the size of files, in KiB. For a file that grows, that is
/// like a full disk.
pub(crate) fn cramped(dir: &TestDir, kib: u32, arguments: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    let broker = broker();
    // dash counts in units of 512 bytes.
    command.arg("-c").arg(format!("trap '' XFSZ; ulimit -f {}; exec {} {arguments}", 2 * kib, broker.display()));
    dir.prepare(&mut command);
    command
}

#[test]
fn calls_are_refused_when_the_disk_is_full_and_no_answered_call_is_lost() {
    let dir = TestDir::new(FILES);
    // The first run writes the compiled plugins and everything else that is written only once.
    let mut agent = Agent::start(&dir, Era::Modern);
    agent.list();
    agent.leave();
    let mut agent = Agent::of(cramped(&dir, 512, "serve --stdio"), Era::Modern, json!({}));
    let padding = "x".repeat(4096);
    let mut answered = Vec::new();
    let refused = loop {
        let number = answered.len();
        let seen = agent.call("files__add", &json!({ "a": number, "b": 0, "padding": padding }), None);
        if seen["ok"].is_null() {
            break seen;
        }
        answered.push(number as u64);
        assert!(number < 10_000, "the limit has no effect");
    };
    assert_eq!(refused["refused"], "ledger-unavailable", "after {} calls: {refused}", answered.len());
    let more = agent.call("files__add", &json!({ "a": 77_777, "b": 0, "padding": padding }), None);
    assert_eq!(more["refused"], "ledger-unavailable", "{more}");
    agent.running.says("the ledger cannot be written, and calls are refused");
    let (_, err) = agent.running.end();
    assert!(!err.contains("panicked"), "{err}");
    assert_eq!(dir.processes(), Vec::<String>::new());

    // The limit is gone.
    let verified = dir.run(&["audit", "verify"]);
    assert_ne!(verified.code, Some(1), "{}", verified.out);
    let recorded = calls(&dir);
    for number in &answered {
        assert!(recorded.contains_key(number), "call {number} was answered and is not recorded");
    }
    let ran = recorded.keys().filter(|number| **number == 77_777).count();
    assert_eq!(ran, 0, "a call that is not recorded does not run");
    let mut agent = Agent::start(&dir, Era::Modern);
    assert_eq!(agent.call("files__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));
    agent.leave();
    dir.assert_good();
}

#[test]
fn a_disk_that_is_full_at_startup_is_reported() {
    // Without a component, because the limit also applies to its memory, which is a file to the kernel.
    let dir = TestDir::new(FILES);
    let ran = finish(cramped(&dir, 16, "serve --stdio"));
    assert_eq!((ran.code, &*ran.out), (Some(1), ""), "{}", ran.err);
    assert!(ran.err.contains("error: ") && ran.err.contains("ledger"), "{}", ran.err);
    assert_eq!(dir.processes(), Vec::<String>::new());
    // With space again, the broker starts.
    let mut agent = Agent::start(&dir, Era::Modern);
    assert_eq!(agent.call("files__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn a_locked_database_prevents_startup_and_calls_until_it_is_unlocked() {
    let dir = TestDir::new(FILES);
    let mut agent = Agent::start(&dir, Era::Modern);
    assert_eq!(agent.call("files__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));

    let other = Connection::open(dir.data("ledger.sqlite")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let ran = dir.run(&["serve", "--stdio"]);
    assert_eq!((ran.code, &*ran.out), (Some(1), ""), "{}", ran.err);
    assert!(ran.err.contains("ledger.sqlite") && ran.err.contains("lock"), "{}", ran.err);
    let refused = agent.call("files__add", &json!({ "a": 2, "b": 2 }), None);
    assert_eq!(refused["refused"], "ledger-unavailable", "{refused}");

    other.execute_batch("ROLLBACK").unwrap();
    drop(other);
    assert_eq!(agent.call("files__add", &json!({ "a": 3, "b": 2 }), None), json!({ "ok": "5" }));
    agent.leave();
    assert_eq!(dir.records_of("ledger.gap").len(), 1, "the gap in the records is recorded");
    assert_eq!(dir.records_of("call.intent").len(), 2);
    dir.assert_nothing_left();
}

#[test]
fn verify_names_the_record_in_which_one_byte_was_changed() {
    let dir = TestDir::new(FILES);
    let mut agent = Agent::start(&dir, Era::Legacy);
    for n in 0..3 {
        agent.call("files__add", &json!({ "a": n, "b": 0, "note": format!("number {n}") }), None);
    }
    agent.leave();
    dir.assert_good();
    let bad = dir.records_of("call.intent")[1].clone();
    let file = dir.data("ledger.sqlite");
    let beside = fs::metadata(dir.data("ledger.sqlite-wal")).map_or(0, |file| file.len());
    assert_eq!(beside, 0, "all of it is in the one file");
    let bytes = fs::read(&file).unwrap();
    // The position of the arguments of the second call.
    let at: Vec<_> =
        bytes.windows(8).enumerate().filter(|(_, window)| window == b"number 1").map(|(at, _)| at).collect();
    assert!(!at.is_empty());
    let mut changed = bytes.clone();
    changed[at[0] + 7] = b'9';
    fs::write(&file, changed).unwrap();
    let ran = dir.run(&["audit", "verify"]);
    let named = format!("record {} of chain {}", bad["seq"], bad["chain"].as_str().unwrap());
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert!(ran.out.starts_with("tampered with") && ran.out.contains(&named), "{named}: {}", ran.out);

    fs::write(&file, bytes).unwrap();
    dir.assert_good();
}
