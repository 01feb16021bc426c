//! The cases of `tests/cases/bad-input/NAME`: each causes one clear error (`error.txt`) and leaves nothing behind.
//! `arguments.txt` is the command, one argument per line; without that file it is `serve --stdio`.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use serde_json::{Value, json};

use crate::agent::{Agent, Era};
use crate::cases::golden;
use crate::test_dir::{TestDir, tests_folder};

#[test]
fn every_bad_input_gets_one_clear_error_and_leaves_nothing_behind() {
    let folder = tests_folder().join("cases/bad-input");
    let only = std::env::var("CASE").unwrap_or_default();
    let mut cases: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|case| case.to_string_lossy().ends_with(&only));
    cases.sort();
    assert!(!cases.is_empty());
    // In parallel, because a silent source takes until its timeout.
    let failed: Vec<String> = std::thread::scope(|scope| {
        let started: Vec<_> = cases.iter().map(|case| scope.spawn(|| run(case).err())).collect();
        started.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

fn run(case: &Path) -> Result<(), String> {
    let config = fs::read_to_string(case.join("portcullis.toml"));
    let dir = TestDir::new(config.as_deref().unwrap_or_default());
    if config.is_err() {
        fs::remove_file(dir.path("portcullis.toml")).unwrap();
    }
    let arguments = fs::read_to_string(case.join("arguments.txt")).unwrap_or_else(|_| "serve\n--stdio".into());
    let ran = dir.run(&arguments.lines().collect::<Vec<_>>());
    let name = case.file_name().unwrap().to_string_lossy();
    assert!(matches!(ran.code, Some(1 | 2)), "{name}: {:?} {}{}", ran.code, ran.out, ran.err);
    assert_eq!(ran.out, "", "{name}");
    dir.assert_nothing_left();
    golden(&case.join("error.txt"), &dir.plain(&steady(&ran.err)))
}

/// Removes log lines, which begin with the time, and line breaks within messages, whose positions depend on the length
/// of the folder's path.
fn steady(err: &str) -> String {
    let mut text = String::new();
    for line in err.lines().filter(|line| !line.starts_with("20")).map(str::trim_end) {
        match line.strip_prefix("  │ ") {
            Some(more) if text.ends_with(['/', '-']) => text.push_str(more),
            Some(more) => text.push_str(&format!(" {more}")),
            None => text.push_str(&format!("\n{line}")),
        }
    }
    format!("{}\n", text.trim_start_matches('\n'))
}

/// A failure that happens only when an agent asks for tools is reported to the agent, and the broker ends normally.
#[test]
fn a_required_source_that_fails_ends_the_run_and_no_tool_is_served() {
    for (mode, part) in [("exit-now", "database"), ("garbage", "I am"), ("endless-line", "line")] {
        for era in crate::agent::ERAS {
            let dir = TestDir::new(&format!(
                "[sources.good]\ncomponent = \"builtin:calculator\"\n\
                 [sources.bad]\ncommand = [\"@source@\", \"{mode}\"]\nrequired = true\n"
            ));
            let mut agent = Agent::start(&dir, era);
            let listed = agent.list();
            assert_eq!(listed["refused"], "discovery-failed", "{mode}: {listed}");
            let message = listed["message"].as_str().unwrap().to_owned();
            assert!(message.starts_with("source `bad`") && message.contains(part), "{mode}: {message}");
            let called = agent.call("good__add", &json!({ "a": 1, "b": 2 }), None);
            assert_eq!(called["refused"], "discovery-failed", "{mode}: nothing is served on a partial set");
            agent.leave();
            // `mcp.error`, then `run.error`, with the same text: the report without the source's own words.
            let errors: Vec<_> = ["mcp.error", "run.error"]
                .map(|kind| dir.records_of(kind).last().unwrap()["body"]["error"].clone())
                .into();
            assert_eq!(errors[0], errors[1]);
            let recorded = errors[0].as_str().unwrap();
            assert!(message.starts_with(recorded) && !recorded.contains("database") && !recorded.contains("I am"));
            dir.assert_nothing_left();
        }
    }
}

#[test]
fn an_optional_source_that_fails_does_not_affect_the_others() {
    let dir = TestDir::new(
        "[sources.good]\ncomponent = \"builtin:calculator\"\n\
         [sources.bad]\ncommand = [\"@source@\", \"exit-now\"]\nrequired = false\n",
    );
    let mut agent = Agent::start(&dir, Era::Modern);
    assert_eq!(agent.list()["tools"].as_array().unwrap().len(), 4);
    assert_eq!(agent.call("good__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));
    agent.leave();
    assert_eq!(dir.records_of("mcp.error")[0]["body"]["required"], false);
    dir.assert_nothing_left();
}

/// Also where a label or a URL holds words with which the broker introduces what a source said.
#[test]
fn what_a_source_says_of_its_failure_is_told_and_reaches_no_record() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // It ends with this process.
    std::thread::spawn(move || listener.incoming().for_each(|stream| refuse(stream.unwrap())));
    let dir = TestDir::new(&format!(
        "[sources.down]\ncommand = [\"@source@\", \"exit-now\", \"; its last words: \"]\nrequired = false\n\
         [sources.ends]\ncommand = [\"@source@\", \"exit-mid-call\", \"; it wrote \"]\n\
         [sources.web]\nurl = \"http://{address}/;%20it%20wrote%20\"\ndangerous-allow-private = true\nrequired = false\n\
         [profiles.default]\napprove = \"never\"\n",
    ));
    let mut agent = Agent::start(&dir, Era::Modern);
    agent.list();
    let called = agent.call("ends__echo", &json!({ "a": 1 }), None);
    assert_eq!(called["refused"], "outcome-unknown", "{called}");
    assert!(called["message"].as_str().unwrap().contains("its last words: thread panicked at the worst moment"));
    // No call passed the gate, so that no policy judges these words.
    for (tool, words) in [("down__echo", "database"), ("web__echo", "from the body")] {
        let absent = agent.call(tool, &json!({}), None);
        assert_eq!(absent["refused"], "not-sent", "{absent}");
        assert!(!absent.to_string().contains(words), "{absent}");
    }
    agent.leave();
    let causes = |kind: &str| -> Vec<String> {
        let records = dir.records_of(kind);
        records.iter().map(|record| record["body"]["error"].as_str().unwrap().to_owned()).collect()
    };
    let failed = causes("mcp.error");
    assert_eq!(failed.len(), 2, "{failed:?}");
    assert!(
        failed.iter().any(|cause| cause.ends_with("exit-now ; its last words: ` exited with status 3")),
        "{failed:?}"
    );
    assert!(failed.iter().any(|cause| cause.ends_with("the source refused `initialize` (code -32000)")), "{failed:?}");
    let ended = causes("tool.completed");
    assert!(ended[0].ends_with("exit-mid-call ; it wrote ` exited with status 101"), "{ended:?}");
    for record in dir.records() {
        for words in ["worst moment", "database", "from the body"] {
            assert!(!record.to_string().contains(words), "{record}");
        }
    }
    dir.assert_nothing_left();
}

#[test]
fn a_reload_that_fails_records_neither_what_a_source_said_nor_what_never_came_into_force() {
    let calc = "[sources.calc]\ncomponent = \"builtin:calculator\"\n";
    let dir = TestDir::new(calc);
    let mut agent = Agent::start(&dir, Era::Legacy);
    agent.list();
    dir.configure(&format!(
        "{calc}[sources.down]\ncommand = [\"@source@\", \"exit-now\"]\nrequired = true\n[profiles.default]\napprove = \"never\"\n"
    ));
    let told = agent.running.says("the configuration is not reloaded");
    assert!(told.contains("database"), "the operator reads all of it: {told}");
    agent.leave();
    let refused = dir.records_of("config.refused");
    let error = refused[0]["body"]["error"].as_str().unwrap();
    assert!(error.contains("source `down` is required") && !error.contains("database"), "{error}");
    assert_eq!(dir.records_of("profile.unguarded").len(), 0);
}

/// Answers a POST with an error in the body.
fn refuse(stream: TcpStream) {
    let mut reader = BufReader::new(stream);
    let (mut length, mut line) = (0, String::new());
    while reader.read_line(&mut line).unwrap_or(0) > 2 {
        let value = line.to_ascii_lowercase().strip_prefix("content-length:").map(|value| value.trim().to_owned());
        length = value.map_or(length, |value| value.parse().unwrap());
        line.clear();
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() || body.is_empty() {
        return;
    }
    let request: Value = serde_json::from_slice(&body).unwrap();
    let error = json!({ "code": -32000, "message": "; its last words: from the body" });
    let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "error": error }).to_string();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
    // The broker may have gone.
    let _ = write!(reader.into_inner(), "{head}\r\ncontent-length: {}\r\n\r\n{answer}", answer.len());
}

#[test]
fn a_port_that_is_in_use_is_reported() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = TestDir::new("[sources.calc]\ncomponent = \"builtin:calculator\"\n");
    let ran = dir.run(&["serve", "--listen", &address]);
    assert_eq!((ran.code, &*ran.out), (Some(1), ""));
    assert!(ran.err.contains(&address) && ran.err.contains("in use"), "{}", ran.err);
    dir.assert_nothing_left();
}
