//! The packages of `npx` and `uvx` sources: installed beforehand, compared with their registries, pinned anew.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent::Running;
use crate::installing::find;
use crate::osv::{dir, release};
use crate::terminal::Terminal;
use crate::test_dir::{TestDir, until};

/// Fetches two packages into `$cache`, as far as they are not there, and stops for ever once it has fetched the first
/// one.
const FETCH: &str = r##"
for one in far-server dep; do
  if [ -e "$cache/$one" ]; then echo "$one" >> reused; continue; fi
  : > "$cache/$one"
  echo "$one" >> fetched
  while [ "$one" = far-server ]; do : > waiting; sleep 0.05; done
done
"##;

/// A uv that reaches no index.
const UV: &str = r##"#!/bin/sh
case "$1 $2" in
"pip compile") printf 'far-server==1.0.0 \\\n    --hash=sha256:aa\ndep==2.1.0 \\\n    --hash=sha256:bb\n' > requirements.txt ;;
"venv "*) mkdir -p venv/bin ;;
"pip install") cache=$UV_CACHE_DIR
@fetch@
: > venv/bin/far-server
chmod 755 venv/bin/far-server ;;
esac
"##;

/// Runs a command and returns its exit code and what it prints.
fn run(dir: &TestDir, arguments: &[&str]) -> (Option<i32>, String) {
    let ran = dir.run(arguments);
    (ran.code, format!("{}{}", ran.out, ran.err))
}

fn pinned(dir: &TestDir) -> Value {
    let shown = dir.run(&["lock", "show", "--json"]).out;
    serde_json::from_str::<Value>(&shown).unwrap()["packages"][0]["version"].clone()
}

#[test]
fn a_package_is_installed_beforehand_and_nothing_is_started() {
    let dir = dir();
    let (code, said) = run(&dir, &["install"]);
    assert!(code == Some(0) && said.contains("far-server 1.0.0 with 2 packages"), "{said}");
    assert_eq!(pinned(&dir), "1.0.0");
    assert_eq!(dir.records_of("source.started"), Vec::<Value>::new());
    // The registry's present versions do not matter to a pinned and installed package.
    release(&dir, "1.1.0");
    assert_eq!(run(&dir, &["install", "far"]).0, Some(0));
    assert_eq!(pinned(&dir), "1.0.0");
    let (code, said) = run(&dir, &["install", "fra"]);
    assert!(code == Some(1) && said.contains("did you mean `far`?"), "{said}");
    dir.assert_nothing_left();
}

#[test]
fn an_upgrade_shows_what_changes_and_what_is_offered_then_and_can_be_taken_back() {
    let dir = dir();
    assert_eq!(run(&dir, &["outdated"]).0, Some(1), "nothing is pinned yet");
    run(&dir, &["install"]);
    let (code, said) = run(&dir, &["outdated"]);
    assert!(code == Some(0) && said.contains("as its registry has it now"), "{said}");
    release(&dir, "1.1.0");
    let (code, said) = run(&dir, &["outdated"]);
    assert!(code == Some(1) && said.contains("1.0.0 → 1.1.0") && said.contains("+ far-server@1.1.0"), "{said}");
    assert_eq!(pinned(&dir), "1.0.0", "looking changes nothing");

    let (code, said) = run(&dir, &["upgrade"]);
    assert!(code == Some(1) && said.contains("there is no terminal") && said.contains("--yes"), "{said}");
    let mut terminal = Terminal::run(dir.command(&["upgrade", "far"]));
    assert!(terminal.shows("Type `yes` or `no`").contains("1.0.0 → 1.1.0"));
    terminal.press("n\n");
    assert_eq!((terminal.ended(), pinned(&dir)), (Some(1), json!("1.0.0")));
    // Ctrl-C is no yes, and the broker ends in order.
    for (keeps, code, version) in [(None, 130, "1.0.0"), (Some("n\n"), 1, "1.0.0"), (Some("y\n"), 0, "1.1.0")] {
        let mut terminal = Terminal::run(dir.command(&["upgrade"]));
        assert!(terminal.shows("Type `yes` or `no`").contains("attestations"));
        terminal.press("y\n");
        let shown = terminal.shows("Keep these? Type `yes` or `no`");
        // The registry of the test has no older versions, so that the second time nothing can be compared.
        let says = if code == 130 { "it offers the same as before" } else { "there is nothing to compare with" };
        assert!(shown.contains(says), "{shown}");
        match keeps {
            Some(keys) => terminal.press(keys),
            None => terminal.interrupt(),
        }
        assert_eq!((terminal.ended(), pinned(&dir)), (Some(code), json!(version)));
    }
    dir.assert_nothing_left();
}

#[test]
fn a_package_that_cannot_be_looked_up_takes_no_other_along() {
    let dir = dir();
    let far = format!("[sources.far]\ncommand = [\"{0}/bin/npx\", \"-y\", \"far-server\"]\n", dir.path("").display());
    // No index answers there, so this one cannot be resolved.
    dir.configure(&format!("{far}[sources.away]\ncommand = [\"{}\", \"gone-server\"]\n", "/nowhere/uvx"));
    let (code, said) = run(&dir, &["install"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("far-server 1.0.0") && said.contains("away"), "{said}");
    let rows: Vec<Value> = serde_json::from_str(&dir.run(&["outdated", "--json"]).out).unwrap();
    assert_eq!((&rows[1]["source"], &rows[1]["package"]["pinned"]), (&json!("far"), &json!("1.0.0")), "{rows:?}");
    assert!(rows[0]["error"].is_string(), "{rows:?}");

    // An upgrade of the other is not all that was asked for.
    release(&dir, "1.1.0");
    let json = dir.run(&["upgrade", "--json"]);
    assert!(json.code == Some(1) && json.out.is_empty() && json.err.contains("`--yes`"), "{}{}", json.out, json.err);
    let mut terminal = Terminal::run(dir.command(&["upgrade"]));
    terminal.shows("Type `yes` or `no`");
    terminal.press("y\n");
    terminal.shows("Keep these? Type `yes` or `no`");
    terminal.press("y\n");
    assert_eq!((terminal.ended(), pinned(&dir)), (Some(1), json!("1.1.0")));
    dir.assert_nothing_left();
}

/// Returns a folder with a source whose installer fetches in this way.
fn fetching(manager: &str) -> TestDir {
    let dir = dir();
    let (from, installer, text) = match manager {
        "npm" => {
            let npm = fs::read_to_string(dir.path("bin/npm")).unwrap();
            ("npx", "npm", npm.replacen("ci) ", &format!("ci) cache=$npm_config_cache\n{FETCH}"), 1))
        }
        _ => ("uvx", "uv", UV.replace("@fetch@", FETCH)),
    };
    for name in [from, installer] {
        fs::write(dir.path("bin").join(name), &text).unwrap();
        fs::set_permissions(dir.path("bin").join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::create_dir_all(dir.path("home/.config/pip")).unwrap();
    fs::write(dir.path("home/.config/pip/pip.conf"), "[global]\nindex-url = http://127.0.0.1:9/simple\n").unwrap();
    dir.configure(&format!("[sources.far]\ncommand = [\"@dir@/bin/{from}\", \"far-server\"]\n"));
    dir
}

/// Returns the names of the folders in which packages of the source are, or were fetched to.
fn folders(dir: &TestDir) -> Vec<String> {
    let entries = fs::read_dir(dir.data("sources/far/packages")).unwrap().flatten();
    let folders = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    folders.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[test]
fn an_installation_that_was_killed_goes_on_with_what_it_had_fetched() {
    for manager in ["npm", "uv"] {
        let dir = fetching(manager);
        let packages = || dir.data("sources/far/packages");
        let mut killed = Running::start(dir.command(&["install"]));
        until("the first package is fetched", || find(packages(), "waiting").is_some());
        killed.signal(Signal::KILL);
        killed.ended();
        let left = folders(&dir);
        assert!(left.iter().all(|name| name.starts_with("stage-") || name == "cache"), "{manager}: {left:?}");
        assert_eq!(pinned(&dir), Value::Null, "nothing is pinned that was not installed");

        let (code, said) = run(&dir, &["install"]);
        assert!(code == Some(0) && said.contains("far-server 1.0.0 with 2 packages"), "{manager}: {said}");
        let left = folders(&dir);
        assert!(left.len() == 1 && left[0] != "cache" && !left[0].starts_with("stage-"), "{manager}: {left:?}");
        let listed = |name| fs::read_to_string(packages().join(&left[0]).join(name)).unwrap();
        assert_eq!((listed("reused"), listed("fetched")), ("far-server\n".to_owned(), "dep\n".to_owned()), "{manager}");
        // A command that looks for brokers removes the socket of the killed one.
        dir.run(&["status"]);
        dir.assert_nothing_left();
    }
}
