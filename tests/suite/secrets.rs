//! Secrets: when sources get another value, and what removes one.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent::{Agent, Era};
use crate::test_dir::{TestDir, finish, signal, until};

/// Sets a secret, as a pipe does.
fn keep(dir: &TestDir, name: &str, value: &str) {
    fs::write(dir.path("value"), value).unwrap();
    let mut command = dir.command(&["secret", "set", name]);
    command.stdin(fs::File::open(dir.path("value")).unwrap());
    assert_eq!(finish(command).code, Some(0));
}

#[test]
fn a_source_that_starts_again_gets_the_secrets_that_are_set_then() {
    let dir = TestDir::new(
        "profiles.default.approve = \"never\"\n[sources.files]\ncommand = [\"@source@\", \"echo\"]\n\
         env = { KEY = { secret = \"key\" } }\n@cell@\n",
    );
    keep(&dir, "key", "first");
    let mut agent = Agent::alone(&dir, Era::Modern);
    let mut key = || {
        let seen = agent.call("files__look", &json!({}), None);
        let look = seen["ok"].as_str().and_then(|text| serde_json::from_str::<Value>(text).ok()).unwrap_or(seen);
        look["environment"]["KEY"].clone()
    };
    assert_eq!(key(), "first");
    keep(&dir, "key", "second");
    assert_eq!(key(), "first", "a source that runs keeps what it was given");
    let restarted = dir.run(&["restart", "files"]);
    assert_eq!((restarted.code, key()), (Some(0), json!("second")), "{}{}", restarted.out, restarted.err);
    // A source that ends on its own is started again with the values that are set then.
    keep(&dir, "key", "third");
    let running: Vec<_> = dir.processes().into_iter().filter(|process| process.trim_end().ends_with(" echo")).collect();
    assert!(!running.is_empty(), "{:?}", dir.processes());
    for process in running {
        signal(process.split(' ').next().unwrap().parse().unwrap(), Signal::KILL);
    }
    until("the source has started again", || key() == "third");
    assert_eq!(dir.records_of("source.started").len(), 3);
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn a_secret_that_the_configuration_names_is_removed_only_if_that_is_insisted_on() {
    let dir = TestDir::new(
        "[serve.callers.ci]\nprofile = \"default\"\ntoken = { secret = \"key\" }\n[sources.files]\ncommand = [\"@source@\", \"plain\"]\n\
         env = { KEY = { secret = \"key\" } }\n",
    );
    for name in ["key", "other"] {
        keep(&dir, name, "a-token-that-is-long-enough");
    }
    let listed = || dir.run(&["secret", "list"]).out;
    let refused = dir.run(&["secret", "remove", "key"]);
    assert_eq!((refused.code, &*listed()), (Some(1), "key\nother\n"), "{}", refused.err);
    for said in ["[serve] callers.ci.token", "[sources.files] env.KEY", "portcullis.toml", "secret remove key --force"]
    {
        assert!(refused.err.contains(said), "{said} is not in {}", refused.err);
    }
    assert_eq!(dir.run(&["secret", "remove", "other"]).code, Some(0), "nothing names it");
    assert_eq!(dir.run(&["secret", "remove", "key", "--force"]).code, Some(0));
    assert_eq!(listed(), "");
    let unset = dir.run(&["secret", "remove", "key"]);
    assert!(unset.code == Some(1) && unset.err.contains("is not set"), "{}", unset.err);
}
