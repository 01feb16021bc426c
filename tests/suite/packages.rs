//! The packages of `npx` and `uvx` sources: installed beforehand, compared with their registries, pinned anew.

use serde_json::{Value, json};

use crate::osv::{dir, release};
use crate::terminal::Terminal;
use crate::test_dir::TestDir;

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
    // What the registry has now does not matter to what is pinned and installed.
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
    assert!(terminal.shows("[y/N]").contains("1.0.0 → 1.1.0"));
    terminal.press("n\n");
    assert_eq!((terminal.ended(), pinned(&dir)), (Some(1), json!("1.0.0")));
    for (keeps, code, version) in [("n\n", 1, "1.0.0"), ("y\n", 0, "1.1.0")] {
        let mut terminal = Terminal::run(dir.command(&["upgrade"]));
        assert!(terminal.shows("[y/N]").contains("attestations"));
        terminal.press("y\n");
        let shown = terminal.shows("Keep these? [y/N]");
        // The registry of the test has no older versions, so that the second time nothing can be compared.
        let says = if code == 1 { "it offers the same as before" } else { "there is nothing to compare with" };
        assert!(shown.contains(says), "{shown}");
        terminal.press(keeps);
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
    dir.assert_nothing_left();
}
