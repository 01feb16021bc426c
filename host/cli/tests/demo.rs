//! The tour, as a newcomer's first command runs it.
//!
//! Since this test belongs to the same package as the binary, `cargo test` also builds that, for the suite in `tests/`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

#[test]
fn the_tour_tells_its_story_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_portcullis"));
    let told = demo.arg("demo").current_dir(&folder).env("TMPDIR", folder.path()).env("HOME", folder.path()).output();
    let told = told.unwrap();
    let story = String::from_utf8(told.stdout).unwrap();
    assert!(told.status.success(), "{story}{}", String::from_utf8_lossy(&told.stderr));
    let chapters = [
        "source  42",
        "[rule]",
        "person  once",
        "[approval-refused]",
        "[plugin-deadline]",
        "[plugin-trap]",
        "thief   reads the notes it was granted: buy milk",
        "thief   reads a private key: No such file or directory",
        "It got what it was granted.",
        "  + write = [",
        "It gave out a secret that nobody asked for.",
        "at worst: ",
        "Verified: every record is as it was written.",
    ];
    let mut rest = story.as_str();
    for chapter in chapters {
        let Some((_, after)) = rest.split_once(chapter) else {
            panic!("{chapter:?} is missing, or out of order:\n{story}")
        };
        rest = after;
    }
    assert!(!story.contains('\u{1b}'), "colours in a pipe");
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "something was left behind");
}

#[test]
fn an_interrupted_tour_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_portcullis"));
    demo.arg("demo").current_dir(&folder).env("TMPDIR", folder.path()).env("HOME", folder.path());
    let mut demo = demo.stdout(Stdio::piped()).spawn().unwrap();
    let mut story = BufReader::new(demo.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(story.any(|line| line.contains("gives it false secrets")), "the tour ended before its last chapter");
    kill_process(Pid::from_child(&demo), Signal::INT).unwrap();
    // It writes on until the signal reaches it.
    story.for_each(drop);
    assert_eq!(demo.wait().unwrap().code(), Some(130));
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "something was left behind");
}
