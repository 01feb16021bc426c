//! The cases of `tests/cases/calls/NAME`: a configuration, the requests of an agent (`request.json`), and their
//! outcomes for the agent and in the ledger (`verdict.json`). Each case is run in both eras, whose results must not
//! differ. `absent.txt` lists texts that must not appear in any file of the data folder.
//!
//! A request is `{"list": true}`, or `{"tool": …, "arguments": …}` with the `"answer"` of the person who is asked: a
//! scope, `refuse` or `decline`. `"raw"` has the arguments as text, and `"profile"` names the profile of another
//! broker. Placeholders are numbered in the order in which they appear: `[[email:#1]]`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::agent::{Agent, ERAS, Era, outcome};
use crate::test_dir::{TestDir, files, tests_folder};

#[test]
fn every_call_case_has_its_expected_outcome_in_both_eras() {
    let folder = tests_folder().join("cases/calls");
    let only = std::env::var("CASE").unwrap_or_default();
    let mut cases: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|case| case.to_string_lossy().ends_with(&only));
    cases.sort();
    assert!(!cases.is_empty());
    let failed: Vec<String> = cases.iter().filter_map(|case| run(case).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

fn run(case: &Path) -> Result<(), String> {
    let read = |name: &str| fs::read_to_string(case.join(name));
    let requests: Vec<Value> = serde_json::from_str(&read("request.json").unwrap()).unwrap();
    let [legacy, modern] = ERAS.map(|era| play(case, &requests, era));
    let name = case.file_name().unwrap().to_string_lossy();
    if legacy != modern {
        return Err(format!("{name}: the eras differ\nlegacy: {legacy:#}\nmodern: {modern:#}"));
    }
    golden(&case.join("verdict.json"), &format!("{legacy:#}\n"))
}

/// Compares the text with the file, or writes the file if `UPDATE_GOLDEN` is set.
pub(crate) fn golden(file: &Path, seen: &str) -> Result<(), String> {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(file, seen).unwrap();
        return Ok(());
    }
    let expected = fs::read_to_string(file).unwrap_or_default();
    if expected == seen { Ok(()) } else { Err(format!("{}: expected\n{expected}\nseen\n{seen}", file.display())) }
}

fn play(case: &Path, requests: &[Value], era: Era) -> Value {
    let dir = TestDir::new(&fs::read_to_string(case.join("portcullis.toml")).unwrap());
    let mut agents: BTreeMap<String, Agent> = BTreeMap::new();
    let mut names = Names::default();
    let mut outcomes = Vec::new();
    for request in requests {
        let profile = request["profile"].as_str().unwrap_or("default");
        let agent = agents.entry(profile.to_owned()).or_insert_with(|| Agent::under(&dir, profile, era));
        let seen = if request["list"] == true { agent.list() } else { call(agent, request, era, &names) };
        outcomes.push(names.shorten(&dir.plain(&seen.to_string())));
    }
    agents.into_values().for_each(Agent::leave);
    dir.assert_nothing_left();
    for absent in fs::read_to_string(case.join("absent.txt")).unwrap_or_default().lines() {
        for file in files(&dir.path(".portcullis")) {
            let bytes = fs::read(&file).unwrap();
            let found = bytes.windows(absent.len()).any(|window| window == absent.as_bytes());
            assert!(!found, "{absent:?} stands in {}", file.display());
        }
    }
    let ledger: Vec<_> = dir.records().iter().filter_map(|record| line(record, &names)).collect();
    json!({ "outcomes": outcomes, "ledger": ledger })
}

fn call(agent: &mut Agent, request: &Value, era: Era, names: &Names) -> Value {
    let tool = request["tool"].as_str().unwrap();
    if let Some(raw) = request["raw"].as_str() {
        let meta = if era == Era::Modern { crate::agent::meta(&json!({ "elicitation": {} })) } else { json!({}) };
        let id = agent.send_raw("tools/call", &format!(r#"{{"name":"{tool}","arguments":{raw},"_meta":{meta}}}"#));
        return outcome(&agent.answer(id, None));
    }
    let arguments = serde_json::from_str(&names.lengthen(&request["arguments"].to_string())).unwrap();
    let arguments = if request["arguments"].is_null() { json!({}) } else { arguments };
    agent.call(tool, &arguments, request["answer"].as_str())
}

/// Returns one line about a ledger record of a call, or `None` for a record about something else.
fn line(record: &Value, names: &Names) -> Option<String> {
    let (kind, body) = (record["kind"].as_str().unwrap(), &record["body"]);
    let known = ["call.", "tool.", "grant.", "plugin.", "list."];
    // Only an agent of the modern era sends the call again, with the answer; the other one gives it while the call waits.
    if !known.iter().any(|prefix| kind.starts_with(prefix)) || kind == "call.deferred" {
        return None;
    }
    let mut line = kind.to_owned();
    for key in ["tool", "risk", "code", "outcome", "approved", "scope", "by"] {
        match &body[key] {
            Value::Null => {}
            Value::String(text) => line.push_str(&format!(" {text}")),
            other => line.push_str(&format!(" {key}={other}")),
        }
    }
    for verdict in body["verdicts"].as_array().into_iter().flatten() {
        let plugin = verdict["plugin"].as_str().unwrap_or_default();
        let plugin = plugin.rsplit('/').next().unwrap_or_default();
        let shadow = if verdict["shadow"] == true { " in shadow" } else { "" };
        line.push_str(&format!("; {plugin} on {}{shadow}: {}", verdict["phase"].as_str()?, said(&verdict["verdict"])));
    }
    if let Some(code) = body["withheld"]["code"].as_str() {
        line.push_str(&format!("; withheld {code}"));
    }
    if !body["hidden"].is_null() {
        let mut hidden: Vec<_> = body["hidden"].as_array().unwrap().iter().map(Value::to_string).collect();
        hidden.sort();
        line.push_str(&format!(" hidden={}", hidden.join(",")));
    }
    Some(names.known(&line))
}

/// Returns a verdict without the hash of the plugin's text, which differs in each ledger.
fn said(verdict: &Value) -> Value {
    match verdict["ask"].get("body").or(verdict["ask"].get("shape")) {
        Some(kept) => json!({ "ask": kept }),
        None => verdict.clone(),
    }
}

/// The placeholders in the order in which they appeared, as each is random.
#[derive(Default)]
struct Names(Vec<(String, String)>);

impl Names {
    fn shorten(&mut self, text: &str) -> Value {
        let mut rest = text;
        while let Some(at) = rest.find("[[") {
            rest = &rest[at..];
            let Some(end) = rest.find("]]") else { break };
            let (placeholder, after) = rest.split_at(end + 2);
            if let Some((kind, _)) = placeholder.split_once(':')
                && !self.0.iter().any(|(full, _)| full == placeholder)
            {
                let short = format!("{kind}:#{}]]", self.0.len() + 1);
                self.0.push((placeholder.to_owned(), short));
            }
            rest = after;
        }
        serde_json::from_str(&self.known(text)).unwrap()
    }

    fn known(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (full, short)| text.replace(full, short))
    }

    fn lengthen(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (full, short)| text.replace(short, full))
    }
}

/// A guest that no test runs would test nothing.
#[test]
fn every_guest_is_used() {
    let root = tests_folder();
    let mut text = String::new();
    for folder in ["cases", "suite"] {
        let read = |file: PathBuf| fs::read_to_string(file).unwrap_or_default();
        files(&root.join(folder)).into_iter().map(read).for_each(|content| text.push_str(&content));
    }
    for entry in fs::read_dir(root.join("guests")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.path().join("src/lib.rs").exists() {
            let uses = [format!("@guest:{name}@"), format!("guest(\"{name}\")")];
            assert!(uses.iter().any(|used| text.contains(used)), "no test uses the guest {name}");
        }
    }
}
