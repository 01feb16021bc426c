//! The storage of the ledger: a full disk, a locked database, a changed byte.

use std::fs;
use std::process::Command;

use rusqlite::Connection;
use serde_json::json;

use crate::agent::{Agent, Era};
use crate::crash::calls;
use crate::test_dir::{TestDir, broker, finish, frames};

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
    dir.await_no_process();

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
    dir.await_no_process();
    // With space again, the broker starts.
    let mut agent = Agent::start(&dir, Era::Modern);
    assert_eq!(agent.call("files__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn a_ledger_on_a_disk_without_space_names_the_folder_and_says_so() {
    let dir = TestDir::new("[sources.calc]\ncomponent = \"builtin:calculator\"\n");
    assert_eq!(dir.run(&["tools"]).code, Some(0));
    std::fs::remove_dir_all(dir.data("")).unwrap();
    std::fs::create_dir(dir.data("")).unwrap();
    let mut command = Command::new("unshare");
    let full = format!(
        "mount -t tmpfs -o size=64k,mode=700 tmpfs .portcullis || exit 77; dd if=/dev/zero of=.portcullis/filler bs=4k 2>&-; \
         exec {} --config portcullis.toml tools",
        broker().display()
    );
    command.args(["--user", "--map-root-user", "--mount", "/bin/sh", "-c", &full]);
    dir.prepare(&mut command);
    let ran = finish(command);
    if ran.code == Some(77) || ran.err.starts_with("unshare: ") {
        println!("no file system can be mounted here, so this proves nothing: {}", ran.err);
        return;
    }
    let said = ran.err.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
    let folder = dir.data("").display().to_string();
    assert!(ran.code == Some(1) && said.contains(folder.trim_end_matches('/')), "{said}");
    assert!(said.contains("its disk is full (0 bytes free)") && said.contains("make room"), "{said}");
}

#[test]
fn a_locked_database_prevents_startup_and_stops_no_broker_that_runs() {
    let dir = TestDir::new(FILES);
    let mut agent = Agent::start(&dir, Era::Modern);
    assert_eq!(agent.call("files__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));

    let other = Connection::open(dir.data("ledger.sqlite")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let ran = dir.run(&["serve", "--stdio"]);
    assert_eq!((ran.code, &*ran.out), (Some(1), ""), "{}", ran.err);
    assert!(ran.err.contains("ledger.sqlite") && ran.err.contains("lock"), "{}", ran.err);
    assert_eq!(agent.call("files__add", &json!({ "a": 2, "b": 2 }), None), json!({ "ok": "4" }));

    other.execute_batch("ROLLBACK").unwrap();
    drop(other);
    assert_eq!(agent.call("files__add", &json!({ "a": 3, "b": 2 }), None), json!({ "ok": "5" }));
    agent.leave();
    assert_eq!(dir.records_of("call.intent").len(), 3);
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
    let file = dir.segment();
    let bytes = fs::read(&file).unwrap();
    let frames = frames(&file);
    // The second call's intent was appended after the outcome of the first, if not together with it.
    let bad = dir.records_of("call.intent")[1].clone();
    let first = |frame: &&u64| {
        let at = usize::try_from(**frame).unwrap() + 24;
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    };
    let frame = frames.iter().rev().find(|frame| (1..=bad["seq"].as_u64().unwrap()).contains(&first(frame))).unwrap();
    let mut changed = bytes.clone();
    changed[usize::try_from(*frame).unwrap() + 40] ^= 1;
    fs::write(&file, &changed).unwrap();
    let ran = dir.run(&["audit", "verify"]);
    let named = format!("record {} of chain {}", first(&frame), bad["chain"].as_str().unwrap());
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert!(ran.out.starts_with("tampered with") && ran.out.contains(&named), "{named}: {}", ran.out);

    fs::write(&file, bytes).unwrap();
    dir.assert_good();
}
