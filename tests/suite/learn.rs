//! `portcullis learn`: a server shows what it needs, and the least that lets it work is proposed.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use portcullis_test_support::source_program;

use crate::agent::{Agent, Era};
use crate::test_dir::{Ran, TestDir, finish};

/// Sets up a source that does not start without its settings, and that reads and writes notes.
fn needy() -> TestDir {
    // Not below `/tmp`, which every cell has for itself.
    let dir = TestDir::beneath(
        Path::new(env!("CARGO_TARGET_TMPDIR")),
        "# kept\n[sources.needy]\ncommand = [\"@source@\", \"needy\", \"@dir@/config/settings\"]\n\n[sources.other]\ncommand = [\"true\"]\nrequired = false\n",
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
    let lines = [
        call("read_note", json!({ "path": dir.path("notes/a") })),
        call("lookup", json!({})),
        call("peek", json!({})),
        call("socket", json!({})),
    ];
    let file = dir.path("calls.jsonl");
    fs::write(&file, lines.join("\n")).unwrap();
    file.display().to_string()
}

fn values(report: &Value, list: &str) -> Vec<(String, String)> {
    let text = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
    report[list].as_array().unwrap().iter().map(|line| (text(line, "key"), text(line, "value"))).collect()
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
    let note = ("read".to_owned(), dir.path("notes/a").display().to_string());
    assert_eq!(values(&found, "lines"), [settings, host], "{found}");
    let key = dir.path("home/.ssh/id_rsa").display().to_string();
    let withheld = values(&found, "withheld");
    assert!(withheld.contains(&("read".to_owned(), key.clone())), "a key is named and not proposed: {withheld:?}");
    assert!(withheld.contains(&note), "nothing in the command names it: {withheld:?}");
    assert!(found["lines"][0]["evidence"][0].as_str().unwrap().contains("which exists outside"), "{found}");
    let socket = found["calls"].as_array().unwrap().iter().find(|call| call["tool"] == "socket").unwrap();
    assert_eq!(
        (&socket["recorded"], &socket["enforced"]),
        (&json!(false), &json!(false)),
        "what is denied stays denied"
    );
    let text = fs::read_to_string(dir.path("portcullis.toml")).unwrap();
    assert!(text.starts_with("# kept\n") && text.contains("[sources.other]"), "{text}");
    assert!(text.contains("network = [\"api.example.test:443\"]") && !text.contains(&key), "{text}");
    // The file is trusted as it was written, and the next run lacks nothing.
    let again = report(&dir.run(&["--json", "learn", "needy", "--calls", &calls(&dir), "--yes"]));
    assert_eq!((values(&again, "lines"), &again["works"]), (Vec::new(), &json!(true)), "{again}");
}

#[test]
fn what_is_to_be_written_replaces_what_was_read() {
    let dir = needy();
    let settings = dir.path("config/settings").display().to_string();
    let config = fs::read_to_string(dir.path("portcullis.toml")).unwrap();
    dir.configure(
        &config.replace("[sources.other]", &format!("cell = {{ read = [\"{settings}\"] }}\n\n[sources.other]")),
    );
    let call = json!({ "tool": "write_note", "arguments": { "path": settings, "text": "new" } });
    fs::write(dir.path("calls.jsonl"), call.to_string()).unwrap();
    let found = report(&dir.run(&["--json", "learn", "needy", "--calls", "calls.jsonl", "--yes"]));
    assert_eq!(values(&found, "lines"), [("write".to_owned(), settings.clone())], "{found}");
    assert_eq!((&found["works"], found["written"].is_string()), (&json!(true), true), "{found}");
    let text = fs::read_to_string(dir.path("portcullis.toml")).unwrap();
    assert!(text.contains(&format!("read = [], write = [\"{settings}\"]")), "{text}");
    // The written cell is the one that starts.
    let again = report(&dir.run(&["--json", "learn", "needy", "--calls", "calls.jsonl", "--yes"]));
    assert_eq!((values(&again, "lines"), &again["works"]), (Vec::new(), &json!(true)), "{again}");
}

#[test]
fn calls_that_failed_are_listed_with_the_first_line_of_why() {
    let dir = needy();
    let settings = dir.path("config/settings").display().to_string();
    let config = fs::read_to_string(dir.path("portcullis.toml")).unwrap();
    dir.configure(
        &config.replace("[sources.other]", &format!("cell = {{ read = [\"{settings}\"] }}\n\n[sources.other]")),
    );
    let call = |path: &str| json!({ "tool": "read_note", "arguments": { "path": dir.path(path) } }).to_string();
    fs::write(dir.path("calls.jsonl"), [call("nowhere/1"), call("config/settings")].join("\n")).unwrap();
    let ran = dir.run(&["learn", "needy", "--calls", "calls.jsonl"]);
    assert!(ran.err.contains("1 call failed") && ran.err.contains("may be missing"), "{}", ran.err);
    let why = format!("read_note: No such file or directory (os error 2): '{}'", dir.path("nowhere/1").display());
    assert!(ran.err.contains(&why) && !ran.err.contains("lacks nothing"), "{}", ran.err);
    let found = report(&dir.run(&["--json", "learn", "needy", "--calls", "calls.jsonl"]));
    assert!(found["calls"][0]["failure"].as_str().unwrap().starts_with("No such file"), "{found}");
    assert_eq!(found["calls"][1]["failure"], Value::Null, "{found}");
    fs::write(dir.path("calls.jsonl"), call("config/settings")).unwrap();
    let ran = dir.run(&["learn", "needy", "--calls", "calls.jsonl"]);
    assert!(ran.err.contains("lacks nothing that was tried") && !ran.err.contains("failed"), "{}", ran.err);
}

/// A file that its cell has without the folder is a mount point, and the kernel lets nobody rename another file to
/// that.
#[test]
fn a_file_that_is_saved_by_renaming_another_needs_its_folder() {
    let dir = needy();
    // In a folder that the cell has for itself, so that the other file can be created there.
    let notes = tempfile::tempdir().unwrap();
    let note = notes.path().join("note.json");
    fs::write(&note, "old").unwrap();
    let config = |read: &str, write: &str| {
        let command = json!(["@source@", "needy", dir.path("config/settings"), note]);
        dir.configure(&format!(
            "[sources.needy]\ncommand = {command}\ncell = {{ read = [{:?}{read}], write = [{write}] }}\n",
            dir.path("config/settings")
        ));
    };
    let call = json!({ "tool": "save_note", "arguments": { "path": note, "text": "new" } });
    fs::write(dir.path("calls.jsonl"), call.to_string()).unwrap();
    let learned = || report(&dir.run(&["--json", "learn", "needy", "--calls", "calls.jsonl"]));
    let folder = ("write".to_owned(), notes.path().display().to_string());
    for (read, write) in [(format!(", {note:?}"), String::new()), (String::new(), format!("{note:?}"))] {
        config(&read, &write);
        let found = learned();
        assert_eq!(
            (values(&found, "lines"), &found["calls"][0]["enforced"]),
            (vec![folder.clone()], &json!(false)),
            "{found}"
        );
    }
    config("", &format!("{:?}", notes.path()));
    let found = learned();
    assert_eq!((values(&found, "lines"), &found["calls"][0]["enforced"]), (Vec::new(), &json!(true)), "{found}");
    assert_eq!(fs::read_to_string(&note).unwrap(), "new");
}

#[test]
fn without_a_person_nothing_is_opened_or_written() {
    let dir = needy();
    let before = fs::read_to_string(dir.path("portcullis.toml")).unwrap();
    let ran = dir.run(&["--json", "learn", "needy", "--calls", &calls(&dir)]);
    let found = report(&ran);
    assert_eq!((ran.code, &found["written"]), (Some(1), &Value::Null), "it does not start: {found}");
    assert_eq!(values(&found, "lines"), [("read".to_owned(), dir.path("config/settings").display().to_string())]);
    let named = json!([{ "name": "NEEDY_SETTINGS", "evidence": ["its messages name it"] }]);
    assert_eq!(found["variables"], named);
    assert_eq!(fs::read_to_string(dir.path("portcullis.toml")).unwrap(), before);

    // A file that is not there yet lies in a folder with more, such as what git runs.
    fs::create_dir_all(dir.path("project/.git/hooks")).unwrap();
    let (note, hook) = (dir.path("project/note.json"), dir.path("project/.git/hooks/pre-commit"));
    let settings = dir.path("config/settings");
    let command = json!(["@source@", "needy", &settings, &note]);
    dir.configure(&format!("[sources.needy]\ncommand = {command}\ncell = {{ read = [{settings:?}] }}\n"));
    let write = |path: &Path| json!({ "tool": "write_note", "arguments": { "path": path, "text": "new" } }).to_string();
    fs::write(dir.path("calls.jsonl"), [write(&note), write(&hook)].join("\n")).unwrap();
    let found = report(&dir.run(&["--json", "learn", "needy", "--calls", "calls.jsonl", "--yes"]));
    assert!(!hook.exists() && !note.exists(), "{found}");
    assert_eq!((values(&found, "lines"), &found["written"]), (Vec::new(), &Value::Null), "{found}");
    let folder = ("write".to_owned(), dir.path("project").display().to_string());
    assert!(values(&found, "withheld").contains(&folder), "{found}");
}

#[test]
fn the_calls_of_learn_are_told_from_those_of_agents() {
    let dir = needy();
    let calls = calls(&dir);
    dir.run(&["learn", "needy", "--calls", &calls, "--yes"]);
    let counted = |more: &[&str]| -> Value {
        let ran = dir.run(&[&["stats", "--json"], more].concat());
        serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}{}", ran.out, ran.err))
    };
    let (stats, learned) = (counted(&[]), counted(&["--principal", "learn"]));
    let made = stats["learnCalls"].as_u64().unwrap();
    assert!(made > 0 && stats["all"]["calls"] == 0 && stats["sources"] == json!([]), "{stats}");
    assert_eq!((&learned["all"]["calls"], &learned["learnCalls"]), (&json!(made), &json!(0)), "{learned}");
    assert!(dir.run(&["stats"]).out.contains("of `portcullis learn`, which `--principal learn` counts"));
    let rules = dir.path("rules.toml");
    fs::write(&rules, "[[policies]]\nplugin = \"builtin:rules\"\n").unwrap();
    let rules = rules.display().to_string();
    let replayed = |more: &[&str]| dir.run(&[&["replay", "--json", "--candidate", &rules], more].concat());
    let (all, own) = (report(&replayed(&[])), report(&replayed(&["--principal", "learn"])));
    assert_eq!((&all["calls"], &own["calls"]), (&json!(0), &json!(made)), "{all} {own}");
}

#[test]
fn a_source_that_cannot_be_learned_is_refused_with_the_way_out() {
    let dir = needy();
    let ran = dir.run(&["learn", "absent"]);
    assert!(ran.code == Some(1) && ran.err.contains("there is needy, other"), "{}", ran.err);
    assert_eq!(dir.run(&["disable", "other"]).code, Some(0));
    let ran = dir.run(&["learn", "other"]);
    let said = "the source `other` is disabled; use it again with `portcullis enable other`";
    assert!(ran.code == Some(1) && ran.err.contains(said), "{}", ran.err);
    fs::write(dir.path("bad.jsonl"), "{}\n").unwrap();
    let ran = dir.run(&["learn", "needy", "--calls", "bad.jsonl"]);
    assert!(ran.code == Some(1) && ran.err.contains("bad.jsonl, line 1"), "{}", ran.err);
}

/// Returns the text of a failed call, and what `portcullis call` printed for the person.
fn failed(dir: &TestDir, tool: &str, arguments: &Value) -> (String, String) {
    let ran = dir.run(&["--json", "call", tool, &arguments.to_string()]);
    let result: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}{}", ran.out, ran.err));
    assert_eq!(result["isError"], true, "{result}");
    let blocks = result["content"].as_array().unwrap().iter();
    (blocks.map(|block| block["text"].as_str().unwrap()).collect::<Vec<_>>().join("\n"), ran.err)
}

#[test]
fn a_failure_that_the_cell_causes_names_the_line_that_allows_it() {
    let dir = needy();
    let settings = dir.path("config/settings");
    let ran = dir.run(&["check"]);
    let line = format!(
        "its cell does not have {0}; to open it, add `read = [\"{0}\"]` to its `cell`, or the switch `--read {0}`",
        settings.display()
    );
    assert!(ran.out.contains(&line) && ran.out.contains("(it exists outside)"), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("it was not given NEEDY_SETTINGS"), "{}", ran.out);

    let config = fs::read_to_string(dir.path("portcullis.toml")).unwrap();
    let cell = format!("cell = {{ read = [\"{}\"] }}\n\n[sources.other]", settings.display());
    dir.configure(&(config.replace("[sources.other]", &cell) + "\n[profiles.default]\napprove = \"never\"\n"));
    let (said, _) = failed(&dir, "needy__lookup", &json!({}));
    assert!(said.contains("its cell refused api.example.test: ") || said.contains("api.example.test:443"), "{said}");
    assert!(said.contains("`network = [\"api.example.test:443\"]`") && said.contains("--network"), "{said}");
    let refused = dir.records_of("egress.refused");
    assert!(refused.iter().any(|record| record["body"]["host"] == "api.example.test"), "{refused:?}");
    // No failure makes the broker recommend a file that holds credentials.
    let (key, _) = failed(&dir, "needy__peek", &json!({}));
    assert!(!key.contains("--read") && !dir.run(&["status"]).out.contains("id_rsa"), "{key}");
    // An agent and the source are told the same of a file that exists and of one that does not.
    let (there, _) = failed(&dir, "needy__read_note", &json!({ "path": dir.path("notes/a") }));
    let (missing, _) = failed(&dir, "needy__read_note", &json!({ "path": dir.path("notes/b") }));
    assert_eq!(there.replace("notes/a", "notes/b"), missing);
}

#[test]
fn a_failure_about_a_relative_path_of_the_command_names_the_line_that_opens_it() {
    let dir = needy();
    let line = format!(
        "its cell does not have {0}; to open it, add `read = [\"{0}\"]`",
        dir.path("config/settings").display()
    );
    for word in ["./config/settings", "config/settings"] {
        let cell = |cell: &str| {
            dir.configure(&format!(
                "[sources.needy]\ncommand = [\"@source@\", \"needy\", \"{word}\"]\ncwd = \".\"\n{cell}"
            ));
            dir.run(&["check"]).out
        };
        let shown = cell("");
        assert!(shown.contains(&line) && shown.contains("(it exists outside)"), "{word}: {shown}");
        let shown = cell("cell = { read = [\"./config/settings\"] }\n");
        assert!(!shown.contains("its cell does not have"), "{word}: {shown}");
    }
}

#[test]
fn a_failure_names_the_folder_that_is_to_be_written_and_what_the_command_names_in_tmp() {
    let dir = needy();
    let (settings, docs) = (dir.path("config/settings"), dir.path("notes"));
    let notes = tempfile::tempdir().unwrap();
    let note = notes.path().join("note.json");
    fs::write(&note, "old").unwrap();
    let config = |settings: &Path, read: &str, write: &str| {
        let command = json!(["@source@", "needy", settings, note]);
        dir.configure(&format!(
            "[sources.needy]\ncommand = {command}\ncell = {{ read = [{read}], write = [{write}] }}\n\n\
             [profiles.default]\napprove = \"never\"\n",
        ));
    };
    let line = |key: &str, path: &Path| format!("add `{key} = [\"{}\"]`", path.display());
    let save = json!({ "path": note, "text": "new" });
    config(&settings, &format!("{settings:?}"), &format!("{note:?}"));
    let (busy, _) = failed(&dir, "needy__save_note", &save);
    assert!(busy.contains("make, replace or remove") && busy.contains(&line("write", notes.path())), "{busy}");

    config(&settings, &format!("{settings:?}, {docs:?}"), "");
    let (hidden, _) = failed(&dir, "needy__read_note", &json!({ "path": note }));
    assert!(hidden.contains(&line("read", &note)), "its command names it: {hidden}");
    let (beside, _) = failed(&dir, "needy__read_note", &json!({ "path": notes.path().join("other.json") }));
    assert!(beside.contains(&line("read", &notes.path().join("other.json"))), "{beside}");
    let (own, _) = failed(&dir, "needy__read_note", &json!({ "path": "/tmp/of-its-own/file" }));
    assert!(!own.contains("[portcullis"), "a cell has a /tmp of its own: {own}");
    let (refused, _) = failed(&dir, "needy__write_note", &json!({ "path": docs.join("new"), "text": "new" }));
    assert!(
        refused.contains(&line("write", &docs.join("new"))) && refused.contains(&line("write", &docs)),
        "{refused}"
    );

    // The person is told that there is no such file, so that just opening it would not help.
    config(&dir.path("config/none"), "", "");
    let checked = dir.run(&["check"]).out;
    assert!(checked.contains(&line("read", &dir.path("config/none"))), "{checked}");
    assert!(checked.contains("it does not exist outside; if the source is to make it"), "{checked}");
}

#[test]
fn a_wrapped_server_that_is_widely_used_is_told_what_it_needs() {
    let dir = needy();
    let wrapped = |switches: &[&str]| {
        let command = ["wrap", "--data-dir", "data"].iter().chain(switches).chain(&["--", "npx", "-y", "tavily-mcp"]);
        finish(dir.command(&command.copied().collect::<Vec<_>>())).err
    };
    let said = wrapped(&[]);
    assert!(
        said.contains("npm:tavily-mcp is known to need --network api.tavily.com:443 --env TAVILY_API_KEY=…"),
        "{said}"
    );
    let said = wrapped(&["--network", "api.tavily.com:443", "--env", "TAVILY_API_KEY=k"]);
    assert!(!said.contains("is known to need"), "{said}");
}

#[test]
fn an_agents_own_session_shows_the_switches_that_a_wrapped_server_lacks() {
    let dir = needy();
    let settings = dir.path("config/settings").display().to_string();
    let source = source_program("portcullis-test-source").display().to_string();
    let wrap = ["wrap", "--learn", "--approve", "never", "--data-dir", "data", "--read", &settings, "--", &source];
    let mut agent = Agent::of(dir.command(&[&wrap[..], &["needy", &settings]].concat()), Era::Legacy, json!({}));
    let note = dir.path("notes/a").display().to_string();
    for (tool, arguments) in [("lookup", json!({})), ("read_note", json!({ "path": note }))] {
        let id = agent.send_call(tool, &arguments);
        assert_eq!(agent.answer(id, None)["result"]["isError"], true);
    }
    let (code, said) = agent.running.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!("the cell lacks: --read {note} --network api.example.test:443")), "{said}");
}
