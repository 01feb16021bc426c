//! The cases of `tests/cases/bad-input/NAME`: each causes one clear error (`error.txt`) and leaves nothing behind.
//! `arguments.txt` is the command, one argument per line; without that file it is `serve --stdio`.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::agent::{Agent, Era};
use crate::cases::golden;
use crate::place::{Place, tests_folder};

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
    let place = Place::new(config.as_deref().unwrap_or_default());
    if config.is_err() {
        fs::remove_file(place.path("portcullis.toml")).unwrap();
    }
    let arguments = fs::read_to_string(case.join("arguments.txt")).unwrap_or_else(|_| "serve\n--stdio".into());
    let ran = place.run(&arguments.lines().collect::<Vec<_>>());
    let name = case.file_name().unwrap().to_string_lossy();
    assert!(matches!(ran.code, Some(1 | 2)), "{name}: {:?} {}{}", ran.code, ran.out, ran.err);
    assert_eq!(ran.out, "", "{name}");
    place.assert_nothing_left();
    golden(&case.join("error.txt"), &place.plain(&steady(&ran.err)))
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
            let place = Place::new(&format!(
                "[sources.good]\ncomponent = \"builtin:calculator\"\n\
                 [sources.bad]\ncommand = [\"@source@\", \"{mode}\"]\n"
            ));
            let mut agent = Agent::start(&place, era);
            let listed = agent.list();
            assert_eq!(listed["refused"], "discovery-failed", "{mode}: {listed}");
            let message = listed["message"].as_str().unwrap().to_owned();
            assert!(message.starts_with("source `bad`") && message.contains(part), "{mode}: {message}");
            let called = agent.call("good__add", &json!({ "a": 1, "b": 2 }), None);
            assert_eq!(called["refused"], "discovery-failed", "{mode}: nothing is served on a partial set");
            agent.leave();
            // `mcp.error`, then `run.error`, with the same text.
            let errors: Vec<_> = ["mcp.error", "run.error"]
                .map(|kind| place.records_of(kind).last().unwrap()["body"]["error"].clone())
                .into();
            assert_eq!(errors[0], errors[1]);
            assert_eq!(errors[0], message);
            place.assert_nothing_left();
        }
    }
}

#[test]
fn an_optional_source_that_fails_does_not_affect_the_others() {
    let place = Place::new(
        "[sources.good]\ncomponent = \"builtin:calculator\"\n\
         [sources.bad]\ncommand = [\"@source@\", \"exit-now\"]\nrequired = false\n",
    );
    let mut agent = Agent::start(&place, Era::Modern);
    assert_eq!(agent.list()["tools"].as_array().unwrap().len(), 4);
    assert_eq!(agent.call("good__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));
    agent.leave();
    assert_eq!(place.records_of("mcp.error")[0]["body"]["required"], false);
    place.assert_nothing_left();
}

#[test]
fn a_port_that_is_in_use_is_reported() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let place = Place::new("[sources.calc]\ncomponent = \"builtin:calculator\"\n");
    let ran = place.run(&["serve", "--listen", &address]);
    assert_eq!((ran.code, &*ran.out), (Some(1), ""));
    assert!(ran.err.contains(&address) && ran.err.contains("in use"), "{}", ran.err);
    place.assert_nothing_left();
}
