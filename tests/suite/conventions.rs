//! What people expect of every command-line program: help, suggestions, pipes, files for arguments, and a doctor.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use portcullis_test_support::source_program;
use serde_json::{Value, json};

use crate::agent::{Agent, Era, Running};
use crate::terminal::Terminal;
use crate::test_dir::{Ran, TestDir, finish, until};

const CONFIG: &str = "[sources.calc]\ncomponent = \"builtin:calculator\"\n";

#[test]
fn help_and_version_are_commands_and_the_help_lists_the_exit_codes() {
    let dir = TestDir::new(CONFIG);
    let help = dir.run(&["help"]);
    assert_eq!((help.code, &*help.out), (Some(0), &*dir.run(&["--help"]).out));
    assert!(help.out.contains("Exit codes:") && help.out.contains("PORTCULLIS_CONFIG"), "{}", help.out);
    assert_eq!(dir.run(&["help", "audit"]).out, dir.run(&["audit", "--help"]).out);
    assert_eq!(dir.run(&["version"]).out, dir.run(&["--version"]).out);
    let version: Value = serde_json::from_str(&dir.run(&["version", "--json"]).out).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn arguments_of_a_call_come_from_a_file_or_standard_input() {
    let dir = TestDir::new(CONFIG);
    fs::write(dir.path("arguments.json"), "{\"a\": 40, \"b\": 2}").unwrap();
    let from_file = dir.run(&["call", "calc__add", "@arguments.json"]);
    assert_eq!((from_file.code, &*from_file.out), (Some(0), "42\n"), "{}", from_file.err);

    let mut command = dir.command(&["call", "calc__add", "-"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"{\"a\": 20, \"b\": 3}").unwrap();
    let ran = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "23\n");

    let missing = dir.run(&["call", "calc__add", "@nothing.json"]);
    assert!(missing.code == Some(1) && missing.err.contains("nothing.json"), "{}", missing.err);
}

#[test]
fn a_mistyped_name_or_value_is_answered_with_the_one_that_was_meant() {
    let dir = TestDir::new(CONFIG);
    let tool = dir.run(&["call", "calc__ad"]);
    assert!(tool.code == Some(1) && tool.err.contains("did you mean `calc__add`?"), "{}", tool.err);
    let none = dir.run(&["--config", "portcullis.toml", "call", "quite-another-one", "--profile", "default"]);
    let hint = "`portcullis --config 'portcullis.toml' tools --profile 'default'` lists the tools";
    assert!(none.code == Some(1) && none.err.contains(hint), "{}", none.err);
    let source = dir.run(&["disable", "clac"]);
    assert!(source.code == Some(1) && source.err.contains("did you mean `calc`?"), "{}", source.err);
    for (line, expected) in [
        ("idle = 30", "\"30s\""),
        ("required = \"yes\"", "write true or false, without quotes"),
        ("reqired = true", "did you mean `required`?"),
    ] {
        dir.write_configuration(&format!("{CONFIG}{line}\n"));
        let ran = dir.run(&["--config", "portcullis.toml", "check"]);
        assert!(ran.code == Some(1) && ran.err.contains(expected), "{line}: {}", ran.err);
    }
}

#[test]
fn a_configuration_is_found_in_a_folder_above_and_used_only_if_it_is_trusted() {
    let dir = TestDir::new(CONFIG);
    let below = dir.path("open/deep");
    fs::create_dir(&below).unwrap();
    let from_below = |arguments: &[&str]| -> Ran {
        let mut command = dir.command(arguments);
        command.current_dir(&below);
        finish(command)
    };
    let trusted = from_below(&["tools"]);
    assert!(trusted.code == Some(0) && trusted.out.contains("calc__add"), "{}", trusted.err);
    assert!(dir.data("ledger.sqlite").exists(), "its data folder is beside the file");
    dir.write_configuration("[sources.evil]\ncommand = [\"/bin/sh\"]\n");
    let changed = from_below(&["tools"]);
    assert!(changed.code == Some(1) && changed.err.contains("portcullis trust '"), "{}", changed.err);
}

#[test]
fn the_environment_names_a_configuration_as_the_switch_does() {
    let dir = TestDir::new("");
    fs::write(dir.path("other.toml"), CONFIG).unwrap();
    let mut command = dir.command(&["tools"]);
    command.env("PORTCULLIS_CONFIG", dir.path("other.toml"));
    let ran = finish(command);
    assert!(ran.out.contains("calc__add"), "{}{}", ran.out, ran.err);
    let mut command = dir.command(&["tools"]);
    command.env("PORTCULLIS_CONFIG", "");
    assert!(!finish(command).out.contains("calc__add"), "an empty variable names nothing");
}

#[test]
fn a_data_folder_keeps_itself_out_of_git() {
    let dir = TestDir::new(CONFIG);
    fs::write(dir.path("other.toml"), format!("[broker]\ndata-dir = \"new\"\n{CONFIG}")).unwrap();
    let ran = dir.run(&["--config", "other.toml", "tools"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for folder in ["new", ".portcullis"] {
        let ignored = fs::read_to_string(dir.path(folder).join(".gitignore")).unwrap();
        assert_eq!(ignored, "*\n!.gitignore\n!portcullis.lock\n", "the lock file is to be committed");
    }
}

#[test]
fn a_command_whose_reader_went_away_ends_quietly() {
    let dir = TestDir::new(CONFIG);
    assert_eq!(dir.run(&["call", "calc__add", "{\"a\":1,\"b\":2}"]).code, Some(0));
    let mut command = dir.command(&["audit", "--follow"]);
    let (reader, writer) = std::io::pipe().unwrap();
    command.stdout(writer);
    drop(reader);
    let ran = command.output().unwrap();
    assert_eq!((ran.status.code(), &*String::from_utf8_lossy(&ran.stderr)), (Some(141), ""));
}

#[test]
fn a_standard_error_that_nobody_reads_stops_neither_calls_nor_the_end() {
    let dir = TestDir::new(&format!("{CONFIG}[profiles.default]\napprove = \"always\"\n"));
    let source = source_program("portcullis-test-source").display().to_string();
    let wrap = ["wrap", "--approve", "always", "--", &source, "plain"];
    for (arguments, tool) in [(&["serve", "--stdio"][..], "calc__add"), (&wrap, "add")] {
        let (_unread, mut error) = std::io::pipe().unwrap();
        let room = rustix::pipe::fcntl_setpipe_size(&error, 4096).unwrap();
        error.write_all(&vec![b'\n'; room]).unwrap();
        let mut command = dir.command(arguments);
        command.env("PORTCULLIS_LOG", "portcullis=trace").stderr(error);
        let mut agent = Agent::of(command, Era::Modern, json!({ "elicitation": {} }));
        assert_eq!(agent.call(tool, &json!({ "a": 40, "b": 2 }), Some("once")), json!({ "ok": "42" }));
        agent.leave();
    }
}

#[test]
fn an_error_names_what_it_is_about() {
    let dir = TestDir::new(CONFIG);
    fs::write(dir.path("tools.txt"), "no definitions").unwrap();
    let cases: [(&[&str], &str); 3] = [
        (&["scan", "tools.txt"], "tools.txt: line 1 cannot be judged"),
        (&["man", "foo"], "there is no command `portcullis foo`; `portcullis help` lists the commands"),
        (&["call", "calc__add", "{\"a\":84}"], "error: calc__add: b: missing"),
    ];
    for (arguments, expected) in cases {
        let ran = dir.run(arguments);
        assert!(ran.code != Some(0) && ran.err.contains(expected), "{}", ran.err);
    }
    let mut full = dir.command(&["version"]);
    full.stdout(fs::File::options().write(true).open("/dev/full").unwrap());
    let ran = finish(full);
    assert!(ran.code == Some(1) && ran.err.contains("standard output cannot be written"), "{}", ran.err);
}

#[test]
fn doctor_names_what_is_not_well_and_the_command_that_mends_it() {
    let dir = TestDir::new(CONFIG);
    assert_eq!(dir.run(&["tools"]).code, Some(0));
    let findings = |ran: &Ran| -> Vec<Value> { serde_json::from_str(&ran.out).unwrap() };
    let about = |all: &[Value], subject: &str| {
        all.iter().find(|finding| finding["subject"] == subject).cloned().unwrap_or_default()
    };
    let ran = dir.run(&["doctor", "--json"]);
    let well = findings(&ran);
    for subject in ["configuration", "data folder", "ledger", "brokers"] {
        assert_eq!(about(&well, subject)["finding"], "good", "{subject}: {}", ran.out);
    }
    assert!(!about(&well, "cells").is_null(), "{}", ran.out);

    dir.write_configuration("[sources.other]\ncomponent = \"builtin:calculator\"\n");
    let ran = dir.run(&["doctor", "--json"]);
    let configuration = about(&findings(&ran), "configuration");
    assert_eq!((ran.code, &configuration["finding"]), (Some(1), &"bad".into()));
    let file = dir.path("portcullis.toml").canonicalize().unwrap();
    assert!(configuration["remedy"].as_str().unwrap().contains(&format!("portcullis trust '{}'", file.display())));
    let text = dir.run(&["doctor"]).out;
    assert!(text.contains("bad") && text.contains("portcullis trust"), "{text}");

    // A state folder that cannot be made is seen by writing.
    let mut command = dir.command(&["doctor", "--json"]);
    command.env("HOME", "/proc");
    let state = about(&findings(&finish(command)), "state folder");
    assert_eq!(state["finding"], "warning", "{state}");
    assert!(state["message"].as_str().unwrap().contains("/proc/.local/state/portcullis cannot be written"), "{state}");

    // A broker that runs is seen.
    dir.configure(CONFIG);
    let broker = Running::start(dir.command(&["serve", "--listen", "127.0.0.1:0"]));
    broker.says("127.0.0.1");
    let ran = dir.run(&["doctor", "--json"]);
    assert_eq!(about(&findings(&ran), "brokers")["message"], "1 run, and all is well", "{}", ran.out);
    broker.end_by(rustix::process::Signal::INT);
}

#[test]
fn check_of_forty_sources_fits_on_one_screen_and_says_meanwhile_which_are_waited_for() {
    const COLUMNS: u16 = 70;
    let many: String = (0..39).map(|n| format!("[sources.calc{n}]\ncomponent = \"builtin:calculator\"\n")).collect();
    let slow = "[sources.slow]\ncommand = [\"@source@\", \"faulty\", \"@dir@/open/slow\"]\n@cell@\n";
    let dir = TestDir::new(&format!("{many}{slow}"));
    fs::write(dir.path("open/slow"), "waits").unwrap();
    let mut terminal = Terminal::sized(dir.command(&["check"]), 50, COLUMNS);
    terminal.shows("s: waiting for 1 of 40 sources to list what they offer: slow");
    fs::write(dir.path("open/slow.go"), "").unwrap();
    let shown = terminal.shows("slow             ") + &terminal.shows("\n");
    let plain = without_colours(&shown);
    // The last line of progress is gone when the report begins.
    let rows: Vec<&str> = plain.rsplit_once("configuration").unwrap().1.lines().collect();
    assert!(rows.len() < 50, "{} rows: {plain}", rows.len());
    assert!(rows.iter().all(|row| row.trim_end().chars().count() <= COLUMNS.into()), "{plain}");
    let row = rows.last().unwrap().trim_end();
    assert!(row.contains("1 tools") && row.ends_with('…'), "{row}");
    assert_eq!(terminal.ended(), Some(0));
}

#[test]
fn a_terminal_that_can_only_append_gets_no_control_sequences() {
    let slow = "[sources.slow]\ncommand = [\"@source@\", \"faulty\", \"@dir@/open/slow\"]\n@cell@\n";
    let dir = TestDir::new(slow);
    fs::write(dir.path("open/slow"), "waits").unwrap();
    let mut command = dir.command(&["check"]);
    command.env("TERM", "dumb");
    let mut terminal = Terminal::run(command);
    until("the source is asked", || dir.processes().iter().any(|process| process.contains(" faulty")));
    fs::write(dir.path("open/slow.go"), "").unwrap();
    let shown = terminal.shows("slow             ");
    assert!(shown.starts_with("configuration") && !shown.contains('\u{1b}'), "{shown:?}");
    assert_eq!(terminal.ended(), Some(0));
}

#[test]
fn a_secret_of_several_lines_is_refused_at_a_terminal() {
    let dir = TestDir::new(CONFIG);
    let set = |typed: &str| {
        let mut terminal = Terminal::run(dir.command(&["secret", "set", "key"]));
        terminal.shows("value of key (not shown): ");
        terminal.press(typed);
        terminal
    };
    for pasted in ["first\nsecond\n", "first\nsecond"] {
        let mut terminal = set(pasted);
        terminal.shows("it has more than one line");
        assert_eq!(terminal.ended(), Some(1), "{pasted:?}");
        assert_eq!(dir.run(&["secret", "list"]).out, "", "{pasted:?}");
    }
    let mut terminal = set("first\n");
    terminal.shows("secret key is set");
    assert_eq!(terminal.ended(), Some(0));
}

/// Returns a text without the sequences that colour it or clear a line.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| {
        plain + part.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |(_, rest)| rest)
    })
}

#[test]
fn check_gives_a_source_that_is_well_one_line_and_says_what_is_wrong_with_others() {
    let many: String = (0..40).map(|n| format!("[sources.calc{n}]\ncomponent = \"builtin:calculator\"\n")).collect();
    let ill =
        "[sources.ill]\ncommand = [\"/nowhere/server\"]\n[sources.crash]\ncommand = [\"@source@\", \"exit-now\"]\n";
    let dir = TestDir::new(&format!("{many}{ill}"));
    let ran = dir.run(&["check"]);
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "nothing moves where there is no terminal");
    let line = ran.out.lines().find(|line| line.starts_with("calc7 ")).unwrap();
    assert!(line.contains("4 tools") && line.contains("harmless"), "{line}");
    assert!(ran.out.contains("fails        program /nowhere/server"), "{}", ran.out);
    assert!(ran.out.lines().count() < 60, "it fits on one screen: {}", ran.out);
    assert!(ran.out.contains("exited with status 3"), "{}", ran.out);
    assert!(ran.out.contains("`portcullis check crash` shows what its cell is made of"), "{}", ran.out);
    let details = |arguments: &[&str]| dir.run(arguments).out.matches("known leaks").count();
    let counts = [&["check"][..], &["check", "calc7"], &["check", "crash"], &["check", "--details"]].map(details);
    assert_eq!(counts, [0, 1, 1, 41]);
    let unknown = dir.run(&["check", "clac7"]);
    assert!(unknown.code == Some(1) && unknown.err.contains("did you mean `calc7`?"), "{}", unknown.err);
}
