//! One faulty source affects only itself: the good one next to it can be called, and the missing part is reported.

use serde_json::{Value, json};

use crate::agent::{Agent, ERAS, Era, Running};
use crate::recovery::write;
use crate::test_dir::{DEADLINE, TestDir};
use crate::web::Server;

const GOOD: &str = "[sources.good]\ncomponent = \"builtin:calculator\"\n";

/// Sources that fail in every way in which a first configuration fails.
const ILL: [(&str, &str); 8] = [
    ("does not start", "command = [\"/no/such/program\"]"),
    ("exits at once", "command = [\"@source@\", \"exit-now\"]"),
    ("is no server", "command = [\"@source@\", \"garbage\"]"),
    ("never answers", "command = [\"@source@\", \"hang\"]"),
    ("unset secret", "command = [\"@source@\", \"plain\"]\nenv = { KEY = { secret = \"unset\" } }"),
    ("unset secret of a header", "url = \"https://example.com/mcp\"\nheaders = { X-Key = { secret = \"unset\" } }"),
    // Nothing listens on the port for discarded data.
    ("bad address", "url = \"http://127.0.0.1:9/mcp\"\ndangerous-allow-private = true"),
    ("no such component", "component = \"./missing.wasm\""),
];

fn beside(ill: &str) -> TestDir {
    TestDir::new(&format!("{GOOD}[sources.bad]\n{ill}\n"))
}

#[test]
fn one_ill_source_takes_no_tool_of_another_away_over_stdio() {
    for (how, ill) in ILL {
        for era in ERAS {
            let dir = beside(ill);
            let mut agent = Agent::start(&dir, era);
            let listed = agent.list();
            assert_eq!(listed["tools"].as_array().map(Vec::len), Some(4), "{how}: {listed}");
            let sum = agent.call("good__add", &json!({ "a": 1, "b": 2 }), None);
            assert_eq!(sum, json!({ "ok": "3" }), "{how}");
            let missing = agent.call("bad__anything", &json!({}), None);
            let why = missing["message"].as_str().unwrap();
            assert!(missing["refused"] == "not-sent" && why.contains("source `bad`"), "{how}: {missing}");
            agent.leave();
            let errors = dir.records_of("mcp.error");
            assert_eq!(errors[0]["body"]["source"], "bad", "{how}");
            assert!(dir.records_of("run.error").is_empty(), "{how}");
            dir.assert_nothing_left();
        }
    }
}

#[test]
fn one_ill_source_takes_no_tool_of_another_away_over_http() {
    let ill: String =
        ILL.iter().enumerate().map(|(place, (_, ill))| format!("[sources.bad-{place}]\n{ill}\n")).collect();
    let dir = TestDir::new(&format!("{GOOD}{ill}"));
    let server = Server::start(&dir);
    let mut legacy = server.endpoint.session(&json!({}));
    assert_eq!(legacy.call("good__add", &json!({ "a": 1, "b": 2 })), Some(json!({ "ok": "3" })));
    let listed = server.endpoint.modern("tools/list", json!({})).unwrap();
    assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(4), "{listed}");
    let status = dir.run(&["status", "--json"]);
    let status: Value = serde_json::from_str(&status.out).unwrap();
    // The one that never answers is still being asked.
    let failed = |source: &&Value| source["name"] != "good" && source["name"] != "bad-3";
    for source in status[0]["sources"].as_array().unwrap().iter().filter(failed) {
        assert!(source["error"].is_string(), "{source}");
    }
    drop(server);
}

/// Returns the instructions of the broker, as an agent of each era gets them.
pub(crate) fn instructions(dir: &TestDir, era: Era) -> String {
    let answer = match era {
        Era::Legacy => {
            let mut broker = Running::start(dir.command(&["serve", "--stdio"]));
            let params =
                json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "suite" } });
            broker.write(&json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string());
            let answer = serde_json::from_str(&broker.out.recv_timeout(DEADLINE).unwrap()).unwrap();
            broker.end();
            answer
        }
        Era::Modern => {
            let mut agent = Agent::start(dir, era);
            let answer = agent.request("server/discover", json!({}));
            agent.leave();
            answer
        }
    };
    answer["result"]["instructions"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn an_agent_is_told_which_sources_are_missing_and_nothing_that_they_said() {
    for era in ERAS {
        let told = instructions(&beside(ILL[1].1), era);
        assert!(told.contains("`bad`"), "{told}");
        assert!(!told.contains("database") && !told.contains("exit-now"), "{told}");
        let told = instructions(&TestDir::new(GOOD), era);
        assert!(!told.contains("not available"), "{told}");
    }
}

#[test]
fn a_source_that_is_required_is_missing_with_everything_else() {
    let dir = beside("command = [\"@source@\", \"exit-now\"]\nrequired = true");
    let mut agent = Agent::start(&dir, Era::Modern);
    assert_eq!(agent.list()["refused"], "discovery-failed");
    agent.leave();
    assert_eq!(dir.run(&["check"]).code, Some(1));
    // A source that cannot even be created ends the start, and likewise the check.
    let dir = beside("command = [\"@source@\", \"plain\"]\nenv = { KEY = { secret = \"unset\" } }\nrequired = true");
    let (served, checked) = (dir.run(&["serve", "--stdio"]), dir.run(&["check"]));
    for ran in [&served, &checked] {
        assert_eq!(ran.code, Some(1), "{}", ran.err);
        assert!(ran.err.contains("portcullis secret set unset"), "{}", ran.err);
    }
}

/// Runs `check` and returns its exit code and output.
fn check(config: &str) -> (Option<i32>, String) {
    let ran = TestDir::new(config).run(&["check"]);
    (ran.code, format!("{}{}", ran.out, ran.err))
}

#[test]
fn check_names_what_is_missing_and_says_yes_as_long_as_something_is_served() {
    for (how, ill) in ILL {
        if how == "never answers" {
            continue;
        }
        let (code, said) = check(&format!("{GOOD}[sources.bad]\n{ill}\n"));
        assert_eq!(code, Some(0), "{how}: {said}");
        assert!(said.contains("1 of 2 sources: bad"), "{how}: {said}");
    }
    let (code, said) = check("[sources.bad]\ncommand = [\"@source@\", \"exit-now\"]\n");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no source is there"), "{said}");
}

#[test]
fn names_that_collide_are_left_out_and_check_refuses_them() {
    let plain = "names = \"plain\"\n";
    let config = format!(
        "{GOOD}[sources.one]\ncomponent = \"builtin:calculator\"\n{plain}\
                          [sources.two]\ncomponent = \"builtin:calculator\"\n{plain}"
    );
    let (code, said) = check(&config);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("`one`") && said.contains("`two`") && said.contains("names"), "{said}");
    let dir = TestDir::new(&config);
    let mut agent = Agent::start(&dir, Era::Modern);
    let listed = agent.list();
    let names: Vec<_> = listed["tools"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(names.len() == 4 && names.iter().all(|name| name.starts_with("good__")), "{names:?}");
    assert_eq!(agent.call("add", &json!({ "a": 1, "b": 2 }), None)["refused"], -32602);
    agent.leave();
    // All or nothing is meant where a source is required.
    let dir = TestDir::new(&format!("{config}required = true\n"));
    let mut agent = Agent::start(&dir, Era::Modern);
    assert_eq!(agent.list()["refused"], "discovery-failed");
    agent.leave();
}

#[test]
fn no_source_takes_the_name_of_a_tool_of_a_missing_one() {
    let plain = "names = \"plain\"\n";
    let bank = format!("[sources.bank]\ncommand = [\"@source@\", \"faulty\", \"@dir@/open/bank\"]\n@cell@\n{plain}");
    let dir = TestDir::new(&bank);
    write(&dir, "bank", "well\nhang-initialize");
    assert!(dir.run(&["tools"]).out.contains("echo"));
    dir.configure(&format!("{bank}[sources.other]\ncommand = [\"@source@\", \"plain\"]\n{plain}"));
    let mut agent = Agent::start(&dir, Era::Legacy);
    let listed = agent.list();
    let names = listed["tools"].as_array().unwrap();
    assert!(names.contains(&json!("add")) && !names.contains(&json!("echo")), "{listed}");
    let missing = agent.call("echo", &json!({ "text": "for the bank" }), None);
    assert_eq!(missing["refused"], -32602, "{missing}");
    agent.leave();
}

#[test]
fn check_warns_of_what_is_probably_a_mistake() {
    let rules = |settings: &str| format!("{GOOD}[[policies]]\nplugin = \"builtin:rules\"\nsettings.{settings}\n");
    let cases = [
        (format!("{GOOD}deny = [\"delete_*\"]\n"), "`deny` has \"delete_*\""),
        (format!("{GOOD}[profiles.default]\nallow = [\"good__ad\"]\n"), "`allow` has \"good__ad\""),
        (format!("{GOOD}[profiles.default]\ntrust = \"low\"\n"), "profile `default` sees nothing"),
        (format!("{GOOD}[profiles.closed]\ntrust = \"sandbox\"\n"), "profile `closed` sees nothing"),
        (
            format!("{GOOD}[sources.more]\ncommand = [\"@source@\", \"plain\", \"$HOME/docs\"]\n"),
            "`command` has `$HOME`",
        ),
        (rules("deny = [\"goof__*\"]"), "`deny` has \"goof__*\", which denies nothing"),
        (rules("ask = [{ tool = \"ad\", arguments = { a = 1 } }]"), "which asks about nothing"),
        (rules("allow = [\"good__*\", \"add\"]"), "`allow` has \"add\""),
    ];
    for (config, expected) in cases {
        let (code, said) = check(&config);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("warning") && said.contains(expected), "{expected}: {said}");
    }
    let (_, said) = check(&format!("{GOOD}deny = [\"add\"]\n[profiles.default]\nallow = [\"good__*\"]\n"));
    assert!(!said.contains("warning"), "{said}");
    let (_, said) =
        check(&rules("deny = [\"*__sub*\", { tool = \"add\", source = \"go?d\" }, { method = \"prompts/get\" }]"));
    assert!(!said.contains("warning"), "{said}");
}

#[test]
fn a_disabled_source_is_neither_started_nor_shown_and_is_named() {
    let dir = TestDir::new(&format!(
        "{GOOD}[sources.off]\ncommand = [\"@source@\", \"exit-now\"]\nenabled = false\nrequired = true\n\
         [profiles.default]\nsources = [\"good\", \"off\"]\n"
    ));
    let ran = dir.run(&["check"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("disabled       off"), "{}", ran.out);
    let mut agent = Agent::start(&dir, Era::Modern);
    assert_eq!(agent.list()["tools"].as_array().unwrap().len(), 4);
    let status = dir.run(&["status"]);
    assert!(status.out.contains("off  disabled"), "{}", status.out);
    agent.leave();
    assert!(dir.records_of("mcp.error").is_empty());
    assert!(dir.records_of("source.started").is_empty());
}

#[test]
fn what_a_healthy_source_offers_can_be_accepted_beside_an_ill_one() {
    let dir = beside(ILL[1].1);
    let ran = dir.run(&["lock", "accept", "good__add"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    // Without names the whole is meant, and it is not there.
    let ran = dir.run(&["lock", "accept"]);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert!(ran.out.contains("good__add") && ran.err.contains("missing: source `bad`"), "{}{}", ran.out, ran.err);
    let ran = dir.run(&["lock", "accept", "bad__anything"]);
    assert!(ran.code == Some(1) && ran.err.contains("source `bad`"), "{}", ran.err);
}
