//! What the fuzzers run: each function takes any bytes and panics if a promise about them is broken.
//!
//! `cargo fuzz` runs them coverage-guided where there is a nightly compiler (`tests/fuzz`); the tests below run them on
//! stable, over the corpus and over mutations of it.

#![expect(clippy::panic, reason = "a broken promise is what a fuzzer is told by a panic")]

use std::path::Path;

use portcullis::config::Config;
use portcullis::digest::{Digest, canonical};
use portcullis::message::{Json, Message};

/// A message is refused, or written out again as the same message: once written, it stays byte for byte.
pub fn envelope(data: &[u8]) {
    let Ok(message) = Message::parse(data.to_vec()) else { return };
    let line = message.to_line();
    assert!(!line.contains(&b'\n'), "a line holds a line feed");
    match Message::parse(line.clone()) {
        Ok(again) => assert_eq!(again.to_line(), line, "a message changes when it is passed on"),
        Err(error) => panic!("what was written cannot be read: {error}"),
    }
}

/// A value has a canonical form, which is its own, or is refused; looking for a member never changes it.
pub fn canonical_json(data: &[u8]) {
    let Ok(json) = Json::parse(data.to_vec()) else { return };
    if let Ok(form) = canonical(&json) {
        let Ok(again) = Json::parse(form.clone()) else { panic!("a canonical form is no JSON") };
        assert_eq!(canonical(&again).as_deref(), Ok(form.as_str()), "a canonical form has another one");
        assert_eq!(Digest::of_json(&json), Digest::of_json(&again));
    }
    if let Some(edited) = json.with("name", &Json::null()) {
        assert_eq!(edited.get("name"), Some(Json::null()), "a member that was set is not there");
    }
}

/// A configuration is refused with at least one problem, or parsed; never a panic.
pub fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(error) = Config::parse(text, Path::new("/nowhere/portcullis.toml")) {
        assert!(!error.problems().is_empty() && !error.to_string().is_empty(), "an error that says nothing");
    }
}

#[cfg(test)]
mod smoke {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use std::path::PathBuf;

    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};

    fn corpus(name: &str) -> Vec<Vec<u8>> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
        let mut seeds: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        seeds.sort();
        seeds.iter().map(|seed| std::fs::read(seed).unwrap()).collect()
    }

    /// Runs a target over its corpus, and over 2,000 mutations: bytes changed, pieces of two seeds joined.
    fn smoke(name: &str, target: fn(&[u8])) {
        let seeds = corpus(name);
        assert!(seeds.len() >= 3, "{name} has no corpus");
        seeds.iter().for_each(|seed| target(seed));
        let any_seed = || (0..seeds.len()).prop_map(|at| seeds[at].clone());
        let mutation =
            (any_seed(), any_seed(), any::<(u16, u16)>(), proptest::collection::vec(any::<(u16, u8)>(), 0..6));
        let mut runner = TestRunner::new(Config { cases: 2_000, failure_persistence: None, ..Config::default() });
        let done = runner.run(&mutation, |(a, b, (cut, join), changes)| {
            let mut bytes = a[..usize::from(cut) % (a.len() + 1)].to_vec();
            bytes.extend_from_slice(&b[usize::from(join) % (b.len() + 1)..]);
            for (at, byte) in changes {
                let len = bytes.len();
                if len > 0 {
                    bytes[usize::from(at) % len] = byte;
                }
            }
            target(&bytes);
            Ok(())
        });
        done.unwrap();
    }

    #[test]
    fn envelopes() {
        smoke("envelope", super::envelope);
    }

    #[test]
    fn canonical_forms() {
        smoke("envelope", super::canonical_json);
    }

    #[test]
    fn configurations() {
        smoke("configuration", super::configuration);
    }
}
