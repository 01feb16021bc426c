//! `portcullis learn`: a server shows what it needs, and the least that lets it work is proposed.

use std::fs;

use serde_json::{Value, json};

use crate::test_dir::{Ran, TestDir};

/// A source that does not start without its settings, and that reads and writes notes.
fn needy() -> TestDir {
    let dir = TestDir::new(
        "# kept\n[sources.needy]\ncommand = [\"@source@\", \"needy\", \"@dir@/config/settings\"]\n\n[sources.other]\ncommand = [\"true\"]\n",
    );
    for folder in ["config", "notes", "home/.ssh"] {
        fs::create_dir_all(dir.path(folder)).unwrap();
    }
    fs::write(dir.path("config/settings"), "").unwrap();
    fs::write(dir.path("notes/a"), "a note").unwrap();
    fs::write(dir.path("home/.ssh/id_rsa"), "a key").unwrap();
    dir
}

/// Writes the calls to make: each tool once.
fn calls(dir: &TestDir) -> String {
    let call = |tool: &str, arguments: Value| json!({ "tool": tool, "arguments": arguments }).to_string();
    let lines =
        [call("read_note", json!({ "path": dir.path("notes/a") })), call("lookup", json!({})), call("peek", json!({}))];
    let file = dir.path("calls.jsonl");
    fs::write(&file, lines.join("\n")).unwrap();
    file.display().to_string()
}

fn values(report: &Value, list: &str) -> Vec<(String, String)> {
    let text = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
    report[list].as_array().unwrap().iter().map(|line| (text(line, "needs"), text(line, "value"))).collect()
}

fn report(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}{}", ran.out, ran.err))
}

#[test]
fn the_least_that_a_server_needs_is_written_and_it_works_with_that() {
    let dir = needy();
    let ran = dir.run(&["--json", "learn", "needy", "--calls", &calls(&dir), "--yes"]);
    let found = report(&ran);
    assert_eq!(ran.code, Some(0), "{found}");
    let settings = ("read".to_owned(), dir.path("config/settings").display().to_string());
    let host = ("network".to_owned(), "api.example.test:443".to_owned());
    assert_eq!(values(&found, "lines"), [settings, host], "{found}");
    let key = dir.path("home/.ssh/id_rsa").display().to_string();
    assert_eq!(values(&found, "withheld"), [("read".to_owned(), key.clone())], "a key is named and not proposed");
    assert!(found["lines"][0]["evidence"][0].as_str().unwrap().contains("which exists outside"), "{found}");
    let text = fs::read_to_string(dir.path("portcullis.toml")).unwrap();
    assert!(text.starts_with("# kept\n") && text.contains("[sources.other]"), "{text}");
    assert!(text.contains("network = [\"api.example.test:443\"]") && !text.contains(&key), "{text}");
    // The file is trusted as it was written, and the next run lacks nothing.
    let again = report(&dir.run(&["--json", "learn", "needy", "--calls", &calls(&dir)]));
    assert_eq!((values(&again, "lines"), &again["works"]), (Vec::new(), &json!(true)), "{again}");
}

#[test]
fn without_a_person_nothing_is_opened_or_written() {
    let dir = needy();
    let before = fs::read_to_string(dir.path("portcullis.toml")).unwrap();
    let ran = dir.run(&["--json", "learn", "needy", "--calls", &calls(&dir)]);
    let found = report(&ran);
    assert_eq!((ran.code, &found["written"]), (Some(1), &Value::Null), "it does not start: {found}");
    assert_eq!(values(&found, "lines"), [("read".to_owned(), dir.path("config/settings").display().to_string())]);
    assert_eq!(found["variables"], json!(["NEEDY_SETTINGS"]));
    assert_eq!(fs::read_to_string(dir.path("portcullis.toml")).unwrap(), before);
}

#[test]
fn a_source_that_cannot_be_learned_is_refused_with_the_way_out() {
    let dir = needy();
    let ran = dir.run(&["learn", "absent"]);
    assert!(ran.code == Some(1) && ran.err.contains("there is needy, other"), "{}", ran.err);
    fs::write(dir.path("bad.jsonl"), "{}\n").unwrap();
    let ran = dir.run(&["learn", "needy", "--calls", "bad.jsonl"]);
    assert!(ran.code == Some(1) && ran.err.contains("bad.jsonl, line 1"), "{}", ran.err);
}
