//! `portcullis evaluate`: the deeds of hostile servers are found, and honest ones that do the same are not called
//! malicious.

mod components;
mod remote;

use std::fs;
use std::io::Write as _;

use serde_json::{Value, json};

use portcullis_test_support::source_program;

use crate::test_dir::{Ran, TestDir};

/// The trigger, the rule by which its hostile server is found, and a word of the only condition under which it acts.
const ZOO: [(&str, &str, Option<&str>); 20] = [
    ("spawn", "canary-sent", None),
    ("nth-call", "canary-sent", None),
    ("argument", "canary-returned", Some("particular values")),
    ("client", "steering-definition", Some("claude-ai")),
    ("locale", "persistence", Some("de_DE")),
    ("canary", "canary-sent", None),
    ("split", "canary-returned", None),
    ("socket", "unix-socket", None),
    ("dns", "canary-sent", None),
    ("address", "canary-sent", None),
    ("child", "canary-copied", None),
    ("delayed", "canary-sent", None),
    ("rug-pull", "changed-definition", None),
    ("escape", "escape", None),
    ("result", "steering-result", None),
    ("datagram", "canary-sent", None),
    ("symlink", "canary-read", None),
    ("flood", "canary-read", None),
    ("schema", "canary-read", None),
    ("modern", "steering-definition", Some("2026-07-28")),
];

fn evaluate(dir: &TestDir, more: &[&str], trigger: &str, kind: &str) -> Ran {
    let source = source_program("portcullis-test-source").display().to_string();
    let idle = if trigger == "delayed" { "6" } else { "0" };
    dir.run(&[&["evaluate", "--idle", idle], more, &["--", &source, "zoo", trigger, kind]].concat())
}

fn report(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}{}", ran.out, ran.err))
}

/// Returns the findings that say that a server is malicious.
fn grave(report: &Value) -> Vec<&Value> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings.filter(|finding| ["high", "critical"].contains(&finding["level"].as_str().unwrap())).collect()
}

#[test]
fn every_hostile_server_of_the_zoo_is_found_under_its_condition() {
    let dir = TestDir::new("");
    for (trigger, rule, only) in ZOO {
        let ran = evaluate(&dir, &["--json"], trigger, "hostile");
        let report = report(&ran);
        let found = grave(&report);
        let found = found.iter().find(|finding| finding["rule"] == rule);
        let found = found.unwrap_or_else(|| panic!("{trigger} is not found: {report:#}"));
        assert_eq!((ran.code, &report["judgement"]), (Some(1), &Value::from("findings")), "{trigger}");
        if let Some(only) = only {
            let conditions = found["conditions"].as_array().unwrap();
            assert!(conditions.len() == 1 && conditions[0].as_str().unwrap().contains(only), "{trigger}: {found:#}");
        }
    }
}

#[test]
fn no_honest_server_of_the_zoo_is_called_malicious() {
    let dir = TestDir::new("");
    for (trigger, ..) in ZOO {
        let report = report(&evaluate(&dir, &["--json"], trigger, "honest"));
        assert_eq!(grave(&report), Vec::<&Value>::new(), "{trigger}");
        assert_ne!(report["judgement"], "not-judged", "{trigger}: {report:#}");
        assert!(!report["exercised"]["not"].as_array().unwrap().is_empty(), "it says what was not exercised");
    }
}

#[test]
fn a_unix_socket_is_named_by_who_connects_to_it() {
    let dir = TestDir::new("");
    let report = report(&evaluate(&dir, &["--json"], "socket", "hostile"));
    let found = grave(&report).into_iter().find(|finding| finding["rule"] == "unix-socket").unwrap();
    assert_eq!(found["subject"], "/var/run/docker.sock", "{report:#}");
    let notes = report["findings"].as_array().unwrap().iter().filter(|finding| finding["rule"] == "unix-socket");
    let named: Vec<_> = notes.filter_map(|finding| finding["subject"].as_str()).collect();
    assert!(named.contains(&"/home/alex/agent") && named.contains(&"@of-the-desktop"), "{report:#}");
    let proposed = report["cell"].to_string();
    assert!(!proposed.contains("docker.sock") && !proposed.contains("agent"), "no cell has one: {proposed}");
}

#[test]
fn the_reports_say_the_same_to_people_and_to_programs() {
    let dir = TestDir::new("");
    let ran = evaluate(&dir, &["--sarif", "report.sarif", "--html", "report.html"], "client", "hostile");
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.out.contains("when the client was claude-ai") && ran.out.contains("the smallest cell"), "{}", ran.out);
    assert!(ran.out.contains("not exercised") && !ran.out.contains("clean"), "{}", ran.out);
    let sarif: Value = serde_json::from_str(&fs::read_to_string(dir.path("report.sarif")).unwrap()).unwrap();
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    assert_eq!((&sarif["version"], &results[0]["level"]), (&Value::from("2.1.0"), &Value::from("error")));
    assert!(results.iter().any(|result| result["ruleId"] == "steering-definition"), "{sarif:#}");
    let html = fs::read_to_string(dir.path("report.html")).unwrap();
    assert!(html.contains("&lt;IMPORTANT&gt;") && !html.contains("<IMPORTANT>"), "what the server said is escaped");
    assert!(!html.contains("<script") && !html.contains("src=") && !html.contains("href="), "it needs nothing else");
}

#[test]
fn only_a_port_that_was_tried_is_proposed() {
    let dir = TestDir::new("");
    let source = source_program("portcullis-test-source").display().to_string();
    let needy = |more: &[&str]| {
        dir.run(&[&["evaluate", "--idle", "0"], more, &["--", &source, "needy", "/proc/self/status"]].concat())
    };
    let report = report(&needy(&["--json"]));
    let hosts = |list: &str| {
        let lines = report["cell"][list].as_array().unwrap().iter().filter(|line| line["key"] == "network");
        lines.map(|line| line["value"].as_str().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(hosts("lines"), ["db.example.test:4711"], "nobody answers there, but it was tried: {report:#}");
    assert_eq!(hosts("looked_up"), ["api.example.test:PORT"], "{report:#}");
    let shown = needy(&["--html", "report.html"]).out;
    let line = "not: network = [\"api.example.test:PORT\"]  (only its name was looked up, and no connection was tried";
    assert!(shown.contains(line) && !shown.contains("api.example.test:443"), "{shown}");
    let html = fs::read_to_string(dir.path("report.html")).unwrap();
    assert!(html.contains("api.example.test:PORT") && html.contains("no connection was tried"), "{html}");
}

#[test]
fn what_cannot_be_judged_has_an_exit_code_of_its_own() {
    let dir = TestDir::new("");
    let source = source_program("portcullis-test-source").display().to_string();
    for (command, why) in [
        (vec!["./absent.mcpb"], "absent.mcpb cannot be used: No such file or directory (os error 2)\n"),
        (vec!["/no/such/program"], "/no/such/program"),
        (vec![source.as_str(), "exit-now"], "no \\u{1b}[31mdatabase"),
    ] {
        let ran = dir.run(&[&["evaluate", "--"], &command[..]].concat());
        assert_eq!(ran.code, Some(2), "{command:?}: {}{}", ran.out, ran.err);
        assert!(ran.out.contains(why) || ran.err.contains(why), "{command:?}: {}{}", ran.out, ran.err);
    }
}

#[test]
fn a_report_that_cannot_be_written_is_known_before_the_work() {
    let dir = TestDir::new("");
    for switch in ["--html", "--sarif"] {
        let ran = dir.run(&["evaluate", switch, "no/such/folder/report", "--", "/no/such/program"]);
        assert_eq!(ran.code, Some(2), "{}", ran.err);
        assert!(ran.err.contains("cannot write the report to no/such/folder/report"), "{}", ran.err);
    }
    // One that is there already stays until there is another.
    fs::write(dir.path("report.html"), "an older one").unwrap();
    assert_eq!(dir.run(&["evaluate", "--html", "report.html", "--", "/no/such/program"]).code, Some(2));
    assert_eq!(fs::read_to_string(dir.path("report.html")).unwrap(), "an older one");
}

/// Makes a bundle whose server is the test source, with this trigger.
fn bundle(dir: &TestDir, trigger: &str, kind: &str) -> String {
    let file = dir.path("server.mcpb");
    let mut zip = zip::ZipWriter::new(fs::File::create(&file).unwrap());
    let plain = zip::write::SimpleFileOptions::default();
    let manifest = json!({
        "manifest_version": "0.3", "name": "bundled \u{1b}[31m", "version": "1.2", "author": { "name": "Somebody" },
        "server": { "type": "binary", "entry_point": "server/run", "mcp_config": {
            "command": "${__dirname}/server/run", "args": ["zoo", "${user_config.trigger}", kind],
            "env": { "TOKEN": "${user_config.token}" },
        } },
        "user_config": {
            "trigger": { "type": "string", "default": trigger }, "token": { "type": "string", "sensitive": true },
        },
    });
    zip.start_file("manifest.json", plain).unwrap();
    zip.write_all(manifest.to_string().as_bytes()).unwrap();
    zip.start_file("server/run", plain).unwrap();
    zip.write_all(&fs::read(source_program("portcullis-test-source")).unwrap()).unwrap();
    zip.start_file("server/node_modules/dep/package.json", plain).unwrap();
    zip.write_all(br#"{"name":"dep","version":"1.0.0"}"#).unwrap();
    zip.finish().unwrap();
    file.display().to_string()
}

#[test]
fn a_bundle_is_unpacked_and_its_command_is_run_as_every_other() {
    let dir = TestDir::new("");
    for (kind, code) in [("hostile", 1), ("honest", 0)] {
        let file = bundle(&dir, "spawn", kind);
        let before = crate::test_dir::files(&dir.path(""));
        let ran = dir.run(&["evaluate", "--json", "--idle", "0", &file]);
        let report = report(&ran);
        assert_eq!(
            grave(&report).iter().any(|finding| finding["rule"] == "canary-sent"),
            kind == "hostile",
            "{report:#}"
        );
        assert_eq!(ran.code, Some(code), "{report:#}");
        let about = report["about"].to_string();
        assert!(about.contains("by Somebody") && about.contains("token (string, which is secret)"), "{about}");
        assert!(about.contains("\\u{1b}[31m") && !about.contains("\\u001b"), "it is shown as text: {about}");
        let not = report["exercised"]["not"].to_string();
        assert!(
            not.contains("a signature is not verified") && not.contains("malicious packages: not checked"),
            "{not}"
        );
        assert_eq!(crate::test_dir::files(&dir.path("")), before);
    }
    // Bundled packages are looked up before anything is started.
    fs::create_dir(dir.path("osv")).unwrap();
    let record = json!({ "id": "MAL-1", "affected": [{ "package": { "ecosystem": "npm", "name": "dep" } }] });
    fs::write(dir.path("osv/MAL-1.json"), record.to_string()).unwrap();
    let file = bundle(&dir, "spawn", "honest");
    let report = report(&dir.run(&["evaluate", "--json", "--osv", "osv", &file]));
    assert_eq!((&report["findings"][0]["rule"], &report["exercised"]["runs"]), (&json!("known-malicious"), &json!([])));
}

#[test]
fn nothing_of_the_user_is_in_the_cells_and_nothing_is_left() {
    let dir = TestDir::new("");
    fs::create_dir_all(dir.path("home/.ssh")).unwrap();
    fs::write(dir.path("home/.ssh/id_ed25519"), "the user's own key").unwrap();
    let before = crate::test_dir::files(&dir.path(""));
    let report = report(&evaluate(&dir, &["--json"], "spawn", "hostile"));
    assert!(!report.to_string().contains("the user's own key"), "{report:#}");
    assert_eq!(crate::test_dir::files(&dir.path("")), before, "no ledger, no lock, no approval");
    dir.await_no_process();
}
