//! Arguments and results that are recorded so that only the holder of an identity reads them.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::agent::{Agent, Era};
use crate::test_dir::{TestDir, files};

const SECRET: &str = "the-launch-code-is-0000";

/// Makes an identity in a file, and returns its recipient.
fn keygen(dir: &TestDir, file: &str) -> String {
    let made = dir.run(&["audit", "keygen", file, "--json"]);
    let made: Value = serde_json::from_str(&made.out).unwrap_or_else(|error| panic!("{error}: {}", made.err));
    made["recipient"].as_str().unwrap().to_owned()
}

/// Returns a folder whose broker seals bodies for the identity in the file `mine`, after one call with a secret.
fn sealed() -> (TestDir, String) {
    let dir = TestDir::new("");
    let recipient = keygen(&dir, "mine");
    dir.configure(&format!(
        "[sources.files]\ncommand = [\"@source@\", \"plain\"]\n[ledger]\nrecipients = [\"{recipient}\"]\n\
         [[policies]]\nplugin = \"builtin:rules\"\nsettings = {{ deny = [{{ tool = \"files__echo\", arguments = {{ n = 2 }} }}] }}\n\
         [profiles.default]\nrecord = \"sealed\"\napprove = \"never\"\n"
    ));
    let mut agent = Agent::start(&dir, Era::Modern);
    agent.list();
    for n in [1, 2] {
        agent.call("files__echo", &json!({ "text": SECRET, "n": n }), None);
    }
    agent.leave();
    let call = dir.records_of("call.intent")[0]["call"].as_str().unwrap().to_owned();
    (dir, call)
}

/// Asserts that a command succeeds, and returns what it printed.
fn ran(dir: &TestDir, arguments: &[&str]) -> String {
    let ran = dir.run(arguments);
    assert_eq!(ran.code, Some(0), "{arguments:?}: {}{}", ran.out, ran.err);
    ran.out
}

fn holds_secret(file: &Path) -> bool {
    fs::read(file).unwrap().windows(SECRET.len()).any(|part| part == SECRET.as_bytes())
}

#[test]
fn sealed_arguments_and_results_are_shown_to_the_holder_of_the_identity_alone() {
    let (dir, call) = sealed();
    keygen(&dir, "other");
    let found: Vec<_> = files(&dir.path("data")).into_iter().filter(|file| holds_secret(file)).collect();
    assert!(found.is_empty(), "{found:?}");
    for arguments in [&["audit", "show", &*call][..], &["audit", "show", &*call, "--identity", "other"]] {
        let shown = ran(&dir, arguments);
        assert!(!shown.contains(SECRET) && shown.contains("sealed: `--identity FILE` opens them"), "{shown}");
    }
    let shown = ran(&dir, &["audit", "show", &call, "--identity", "other", "--identity", "mine"]);
    assert_eq!(shown.matches(SECRET).count(), 2, "the arguments and the result: {shown}");
    dir.assert_good();
}

#[test]
fn policies_judge_sealed_calls_again_with_the_identity() {
    let (dir, call) = sealed();
    let closed = dir.run(&["replay", "--json"]);
    let closed: Value = serde_json::from_str(&closed.out).unwrap();
    assert_eq!((&closed["judged"], &closed["notJudged"]), (&json!(0), &json!({ "reads-payload": 2 })), "{closed:#}");
    let opened: Value = serde_json::from_str(&ran(&dir, &["replay", "--json", "--identity", "mine"])).unwrap();
    assert_eq!((&opened["judged"], &opened["notJudged"]), (&json!(2), &json!({})), "{opened:#}");
    assert_eq!(opened["differences"], json!([]), "{opened:#}");
    let explained = ran(&dir, &["policy", "explain", &call, "--identity", "mine"]);
    assert!(explained.contains("builtin:rules"), "{explained}");
    ran(&dir, &["audit", "export", "--fixtures", "-o", "cases.toml", "--identity", "mine"]);
    assert!(holds_secret(&dir.path("cases.toml")));
    ran(&dir, &["plugin", "test", "cases.toml"]);
}

#[test]
fn an_archive_has_the_keys_and_forgotten_bodies_stay_closed_while_the_chain_is_good() {
    let (dir, call) = sealed();
    ran(&dir, &["audit", "archive", "copy.zip"]);
    ran(&dir, &["audit", "restore", "copy.zip", "copy"]);
    let show = ["audit", "show", &call, "--identity", "mine"];
    let in_copy = ran(&dir, &[&show[..], &["--data-dir", "copy"]].concat());
    assert!(in_copy.contains(SECRET), "{in_copy}");

    // The key of an earlier day is forgotten; the one of today is in use, and stays.
    let keys = dir.data("keys");
    let today = fs::read_dir(&keys).unwrap().next().unwrap().unwrap().path();
    let chain = today.file_name().unwrap().to_str().unwrap().split_once('-').unwrap().0.to_owned();
    let earlier = keys.join(format!("{chain}-2020-01-01.1.age"));
    fs::copy(&today, &earlier).unwrap();
    assert!(
        dir.run(&["audit", "forget", "--before", "9999-01-01"])
            .err
            .contains("that were deleted: 1; that of today is in use and stays")
    );
    assert!(!earlier.exists() && today.exists());
    assert_eq!(dir.records_of("keys.removed").len(), 1);
    fs::remove_file(&today).unwrap();
    let shown = ran(&dir, &show);
    assert!(!shown.contains(SECRET), "{shown}");
    dir.assert_good();
}

#[test]
fn a_key_is_made_once_and_a_file_that_is_none_is_named() {
    let (dir, call) = sealed();
    let again = dir.run(&["audit", "keygen", "mine"]);
    assert!(again.code == Some(1) && again.err.contains("name a file that does not exist yet"), "{}", again.err);
    fs::write(dir.path("wrong"), "hello\n").unwrap();
    let useless = dir.run(&["audit", "export", "--identity", "mine"]);
    assert!(useless.code == Some(2) && useless.err.contains("--fixtures"), "{}", useless.err);
    let wrong = dir.run(&["audit", "show", &call, "--identity", "wrong"]);
    assert!(wrong.code == Some(1) && wrong.err.contains("wrong:1 is not an identity of age"), "{}", wrong.err);
}
