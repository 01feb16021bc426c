//! An agent that waits for a source which is being installed is told how far that is.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::agent::{Agent, ERAS, Era, Running, outcome};
use crate::osv;
use crate::test_dir::{TestDir, until};

/// Makes the installer wait in each of its two steps until it is let go.
fn slow_down(dir: &TestDir) {
    for name in ["npx", "npm"] {
        let file = dir.path("bin").join(name);
        let waits = "#!/bin/sh\n: > waiting-$1\nwhile ! [ -e go-$1 ]; do sleep 0.05; done\n";
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replacen("#!/bin/sh\n", waits, 1)).unwrap();
    }
}

/// Lets the installer continue once it has come to this step.
fn let_go(dir: &TestDir, step: &str) {
    let mut place = None;
    until("the installer waits", || {
        place = find(dir.data("sources/far"), &format!("waiting-{step}"));
        place.is_some()
    });
    fs::write(place.unwrap().with_file_name(format!("go-{step}")), "").unwrap();
}

/// Returns the path of the file of this name somewhere below a folder.
pub(crate) fn find(folder: PathBuf, name: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    entries.filter(|path| !path.is_symlink()).find_map(|path| match path.is_dir() {
        true => find(path, name),
        false => path.ends_with(name).then_some(path),
    })
}

/// Removes what is installed, and nothing that is pinned.
fn uninstall(dir: &TestDir) {
    fs::remove_dir_all(dir.data("sources/far/packages")).unwrap();
}

/// Returns the next progress whose message has these words, which must come after those with other words.
fn progress(agent: &Agent, words: &str, seen: &mut Vec<f64>) {
    loop {
        let message = agent.next().unwrap();
        assert_eq!(message["method"], "notifications/progress", "{message}");
        assert_eq!(message["params"]["progressToken"], "installs", "{message}");
        seen.push(message["params"]["progress"].as_f64().unwrap());
        if message["params"]["message"].as_str().unwrap().contains(words) {
            return;
        }
    }
}

#[test]
fn an_agent_that_waits_for_an_installation_gets_its_progress_in_words() {
    let dir = osv::dir();
    let config = fs::read_to_string(dir.path("portcullis.toml")).unwrap();
    dir.configure(&format!("{config}required = true\n[profiles.default]\napprove = \"never\"\n"));
    // From now on the source is known, so that no handshake waits for it.
    assert_eq!(dir.run(&["check"]).code, Some(0));
    slow_down(&dir);
    for era in ERAS {
        for (method, params) in [("tools/list", json!({})), ("tools/call", json!({ "name": "far__ping" }))] {
            uninstall(&dir);
            let mut agent = Agent::alone(&dir, era);
            let mut params: Value = params;
            params["_meta"]["progressToken"] = json!("installs");
            let id = agent.send_as_is(method, params);
            let mut seen = Vec::new();
            progress(&agent, "source `far`: looking up far-server", &mut seen);
            let_go(&dir, "install");
            progress(&agent, "source `far`: installing far-server 1.0.0, 2 packages in all", &mut seen);
            agent.running.says("source `far`: installing far-server 1.0.0, 2 packages in all");
            let_go(&dir, "ci");
            let answer = loop {
                let message = agent.next().unwrap();
                if message["id"] == id {
                    break message;
                }
                seen.push(message["params"]["progress"].as_f64().unwrap());
            };
            assert!(answer["result"].is_object(), "{answer}");
            assert!(seen.is_sorted_by(|one, next| one < next) && seen.iter().all(|it| *it < 0.0), "{seen:?}");
            // An installed package is not waited for.
            assert_eq!(agent.call("far__ping", &json!({}), None), json!({ "ok": "" }));
            // A source that is installed anew later, when its tools are listed, is waited for by its call.
            uninstall(&dir);
            let restart = Running::start(dir.command(&["restart", "far"]));
            until("the installer waits", || find(dir.data("sources/far"), "waiting-install").is_some());
            let call = json!({ "name": "far__ping", "_meta": { "progressToken": "installs" } });
            let id = agent.send_as_is("tools/call", call);
            progress(&agent, "source `far`: looking up far-server", &mut seen);
            let_go(&dir, "install");
            let_go(&dir, "ci");
            assert!(agent.answer(id, None)["result"].is_object());
            restart.end();
            agent.leave();
        }
        // An agent that does not listen is told nothing.
        uninstall(&dir);
        let mut agent = Agent::alone(&dir, era);
        let id = agent.send("tools/list", json!({}));
        let_go(&dir, "install");
        let_go(&dir, "ci");
        let answer = agent.next().unwrap();
        assert_eq!(answer["id"], id, "{answer}");
        assert!(outcome(&answer).get("ok").is_some(), "{answer}");
        agent.leave();
    }
    dir.assert_nothing_left();
}

#[test]
fn what_was_announced_during_an_installation_is_an_empty_list_if_the_source_has_none() {
    for era in ERAS {
        let dir = osv::dir();
        let config = fs::read_to_string(dir.path("portcullis.toml")).unwrap();
        dir.configure(&format!("{config}required = true\n"));
        slow_down(&dir);
        // The session begins although nobody has let the installer go yet.
        let mut agent = Agent::alone(&dir, era);
        let tools = agent.send("tools/list", json!({}));
        let_go(&dir, "install");
        let_go(&dir, "ci");
        assert_eq!(agent.answer(tools, None)["result"]["tools"][0]["name"], "far__ping");
        let lists = ["prompts", "resources", "resourceTemplates"];
        for (method, list) in ["prompts/list", "resources/list", "resources/templates/list"].into_iter().zip(lists) {
            let answer = agent.request(method, json!({}));
            assert_eq!(answer["result"][list], json!([]), "{method}: {answer}");
        }
        if era == Era::Legacy {
            let answer = agent.request("logging/setLevel", json!({ "level": "info" }));
            assert_eq!(answer["result"], json!({}), "{answer}");
        }
        agent.leave();
        dir.assert_nothing_left();
    }
}
