//! Tests of which configurations are used, and that no file next to one is ever loaded as code.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use portcullis_test_support::{guest, source_program};
use serde_json::Value;

use crate::test_dir::{Ran, TestDir, broker, finish};

mod planted;
mod question;

const CALC: &str = "[sources.calc]\ncomponent = \"builtin:calculator\"\n";
const FILES: &str = "[sources.files]\ncommand = [\"@source@\", \"plain\"]\ncell.write = [\"open\"]\n";

/// Sets up a folder whose user has never seen its configuration.
fn untrusted(config: &str) -> TestDir {
    let dir = TestDir::new("");
    dir.write_configuration(config);
    fs::remove_dir_all(dir.state()).unwrap();
    fs::remove_dir_all(dir.data("")).unwrap();
    dir
}

#[track_caller]
fn fails(ran: &Ran, parts: &[&str]) {
    assert_eq!((ran.code, &*ran.out), (Some(1), ""), "{}", ran.err);
    // Messages are wrapped into lines.
    let said = ran.err.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[track_caller]
fn works(ran: &Ran) {
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
}

/// Runs `portcullis tools` in a folder, on a terminal on which a person gives this answer.
fn ask(dir: &TestDir, folder: &Path, answer: &str) -> (Option<i32>, String) {
    // `script` is available nearly everywhere, and creates a terminal.
    let mut command = Command::new("script");
    let line = format!("{} tools", broker().display());
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    dir.prepare(&mut command);
    command.current_dir(folder).stdin(Stdio::piped());
    let child = command.spawn().unwrap();
    writeln!(child.stdin.as_ref().unwrap(), "{answer}").unwrap();
    let ended = child.wait_with_output().unwrap();
    (ended.status.code(), String::from_utf8(ended.stdout).unwrap())
}

#[test]
fn a_misspelt_setting_of_a_plugin_is_named_with_its_line_by_check_and_by_trust() {
    let dir = TestDir::new("");
    dir.write_configuration(&format!(
        "{CALC}[[policies]]\nplugin = \"builtin:rules\"\n[policies.settings]\nask = []\ndenied = [\"a__x\"]\n\
         [[policies]]\nplugin = \"@dir@/absent.wasm\"\n"
    ));
    let file = dir.path("portcullis.toml");
    let text = fs::read_to_string(&file).unwrap();
    let line = text.lines().position(|line| line.starts_with("denied")).unwrap() + 1;
    let sentence = format!("{}:{line}, `[[policies]]` number 1: builtin:rules refuses its settings", file.display());
    let trusted = dir.run(&["trust", "--yes"]).err;
    assert!(!trusted.contains("number 2"), "a plugin of the folder is not loaded before it is trusted: {trusted}");
    let checked = dir.run(&["check"]).err;
    for said in [trusted, checked] {
        assert!(said.contains(&sentence) && said.contains("unknown field `denied`"), "{sentence}: {said}");
    }
}

#[test]
fn a_configuration_found_in_a_folder_is_used_only_as_it_was_trusted() {
    let dir = untrusted(&format!("{CALC}{FILES}"));
    for command in [&["tools"][..], &["serve", "--stdio"], &["secret", "list"], &["status"]] {
        fails(&dir.run(command), &["is not trusted", "portcullis trust", "--config"]);
    }
    assert!(!dir.data("").exists(), "nothing was started and nothing written");
    fails(&dir.run(&["trust"]), &["source files: starts", "nobody can be asked", "portcullis trust --yes"]);
    fails(&dir.run(&["tools"]), &["is not trusted"]);
    works(&dir.run(&["--config", "portcullis.toml", "tools"]));

    // Trusting it would also trust what was accepted in its data folder meanwhile.
    let ways_out = ["is there already", "run `mv '", "on a terminal", "--config"];
    fails(&dir.run(&["trust", "--yes"]), &ways_out);
    fails(&dir.run(&["tools"]), &["is not trusted"]);
    fs::rename(dir.data(""), dir.path(".portcullis.old")).unwrap();
    let ran = dir.run(&["trust", "--yes"]);
    works(&ran);
    assert!(ran.err.contains("+ source calc: runs the component builtin:calculator"), "{}", ran.err);
    works(&dir.run(&["tools"]));
    let listed: Value = serde_json::from_str(&dir.run(&["trust", "--list", "--json"]).out).unwrap();
    assert_eq!(listed["trusted"][0]["state"], "as trusted", "{listed}");

    // One more byte, without any effect; then another source.
    dir.write_configuration(&format!("{CALC}{FILES}#\n"));
    fails(&dir.run(&["tools"]), &["is not what you trusted", "portcullis trust"]);
    assert!(dir.run(&["trust", "--list"]).out.contains("changed"));
    dir.write_configuration(&format!("{CALC}[sources.more]\nurl = \"https://example.com/mcp\"\n"));
    let ran = dir.run(&["trust", "--yes"]);
    works(&ran);
    assert!(ran.err.contains("+ source more: reaches https://example.com/mcp"), "{}", ran.err);
    assert!(ran.err.contains("- source files: starts") && !ran.err.contains("source calc"), "{}", ran.err);

    // A change within the settings of a plugin is shown by its keys, and nothing of the rest.
    let rules = |settings: &str| {
        dir.write_configuration(&format!(
            "{CALC}[[policies]]\nplugin = \"builtin:rules\"\nsettings = {{ {settings} }}\n"
        ));
        let ran = dir.run(&["trust", "--yes"]);
        works(&ran);
        ran.err
    };
    let new = rules("deny = [\"a__x\", \"a__y\"], ask = [\"b__x\"]");
    assert!(new.contains("+ broker: gives the policy plugin builtin:rules the settings {"), "{new}");
    let changed = rules("deny = [\"a__y\"], ask = [\"b__x\"], allow = [\"c__x\"]");
    for line in
        ["~ broker: gives the policy plugin builtin:rules other settings:", "- deny: \"a__x\"", "+ allow: [\"c__x\"]"]
    {
        assert!(changed.contains(line), "{line} is not in {changed}");
    }
    assert!(!changed.contains("a__y") && !changed.contains("b__x"), "{changed}");

    works(&dir.run(&["trust", "--revoke"]));
    fails(&dir.run(&["status"]), &["is not trusted"]);
    fails(&dir.run(&["trust", "--revoke"]), &["is not trusted", "--list"]);
}

#[test]
fn on_a_terminal_a_new_or_changed_configuration_shows_its_effects_and_asks() {
    let dir = untrusted(CALC);
    let ask = |answer: &str| ask(&dir, &dir.path("."), answer);
    let (code, said) = ask("no");
    assert!(code == Some(1) && said.contains("Do you trust it?") && said.contains("is not trusted"), "{said}");
    assert!(
        said.contains("source calc: runs the component builtin:calculator") && !said.contains("calc__add"),
        "{said}"
    );
    let (code, said) = ask("yes");
    assert!(code == Some(0) && said.contains("calc__add"), "{said}");
    works(&dir.run(&["tools"]));
    dir.write_configuration(&format!("{CALC}priority = 60\n"));
    let (code, said) = ask("no");
    assert!(code == Some(1) && said.contains("is not what you trusted"), "{said}");
    assert!(said.contains("nothing that it starts, reaches, reads or writes"), "{said}");
}

#[test]
fn the_users_own_configuration_is_used_without_a_question() {
    let dir = untrusted(CALC);
    let own = dir.path("home/.config/portcullis");
    fs::create_dir_all(&own).unwrap();
    fs::rename(dir.path("portcullis.toml"), own.join("portcullis.toml")).unwrap();
    works(&dir.run(&["tools"]));
    let mut there = dir.command(&["tools"]);
    there.current_dir(&own);
    works(&finish(there));
}

#[test]
fn without_a_home_folder_a_configuration_must_be_named() {
    let dir = TestDir::new(CALC);
    let without = |arguments: &[&str]| {
        let mut command = dir.command(arguments);
        command.env_remove("HOME");
        finish(command)
    };
    fails(&without(&["tools"]), &["no home folder", "XDG_STATE_HOME", "--config FILE"]);
    works(&without(&["--config", "portcullis.toml", "tools"]));
    let mut relative = dir.command(&["tools"]);
    relative.env("HOME", "home");
    fails(&finish(relative), &["HOME is not an absolute path", "set HOME"]);
}

#[test]
fn a_configuration_that_could_not_be_trusted_is_not_written() {
    let dir = TestDir::new("");
    fs::remove_file(dir.path("portcullis.toml")).unwrap();
    let mut init = dir.command(&["init"]);
    init.env("HOME", "/proc");
    fails(&finish(init), &["portcullis.toml is not written", "/proc/.local/state/portcullis", "set HOME"]);
    assert!(!dir.path("portcullis.toml").exists());
}

#[test]
fn a_configuration_written_by_import_is_trusted_only_as_it_was_written() {
    let dir = TestDir::new("");
    fs::remove_file(dir.path("portcullis.toml")).unwrap();
    let program = source_program("portcullis-test-source");
    let client = serde_json::json!({ "mcpServers": { "plain": { "command": program, "args": ["plain"] } } });
    fs::create_dir(dir.path("home/.cursor")).unwrap();
    fs::write(dir.path("home/.cursor/mcp.json"), client.to_string()).unwrap();
    works(&dir.run(&["import", "cursor"]));
    works(&dir.run(&["tools"]));
    // A file that was changed since is not trusted by being added to.
    dir.write_configuration(CALC);
    works(&dir.run(&["import", "cursor"]));
    fails(&dir.run(&["tools"]), &["is not what you trusted"]);
}

#[test]
fn a_cell_that_import_proposes_is_confirmed_before_it_counts() {
    let dir = TestDir::new("");
    fs::remove_file(dir.path("portcullis.toml")).unwrap();
    let client = serde_json::json!({ "mcpServers": { "search": { "command": "npx", "args": ["-y", "tavily-mcp"] } } });
    fs::write(dir.path("mcp.json"), client.to_string()).unwrap();
    let ran = dir.run(&["import", "mcp.json"]);
    works(&ran);
    let text = fs::read_to_string(dir.path("portcullis.toml")).unwrap();
    assert!(text.contains("[sources.search.cell]\nnetwork = [\"api.tavily.com:443\"]"), "{text}");
    assert!(
        ran.err.contains(
            "search: its cell is a proposal, network api.tavily.com:443 (Proposed: npm:tavily-mcp (measured with"
        ),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("search: it is known to need TAVILY_API_KEY"), "{}", ran.err);
    fails(&dir.run(&["tools"]), &["portcullis trust"]);
}

#[test]
fn a_configuration_that_other_users_can_write_is_refused_even_if_it_is_named() {
    let dir = TestDir::new(CALC);
    fs::set_permissions(dir.path("portcullis.toml"), Permissions::from_mode(0o646)).unwrap();
    for arguments in [&["tools"][..], &["--config", "portcullis.toml", "tools"], &["trust", "--yes"]] {
        fails(&dir.run(arguments), &["can be written by other users", "chmod go-w"]);
    }
}

#[test]
fn nothing_beside_a_configuration_is_loaded_as_code() {
    let names = |folder: &Path| {
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    // A key that an attacker knows, where early versions kept their key: they loaded any code that was authenticated
    // with it.
    let dir = TestDir::new(CALC);
    let planted = dir.data("cache");
    fs::create_dir_all(&planted).unwrap();
    fs::write(planted.join("key"), [7; 32]).unwrap();
    for (path, mode) in [(dir.data(""), 0o700), (planted.clone(), 0o700), (planted.join("key"), 0o600)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    works(&dir.run(&["tools"]));
    assert_eq!(names(&planted), ["key"], "nothing is kept there, and nothing is taken from there");
    let own = dir.state().join("compiled");
    assert_ne!(fs::read(own.join("key")).unwrap(), [7; 32]);

    // All data folders of a user share one cache.
    let before = names(&own);
    assert!(before.len() > 1, "the key and what was compiled");
    let other = TestDir::beneath(&std::env::temp_dir(), CALC);
    let mut command = other.command(&["--config", "portcullis.toml", "tools"]);
    command.env("HOME", dir.path("home"));
    works(&finish(command));
    assert_eq!(names(&own), before, "nothing had to be compiled again");
    assert!(!other.state().join("compiled").exists() && !other.data("cache").exists());
}

#[test]
fn a_state_folder_that_other_users_can_write_prevents_startup_and_the_error_names_the_fix() {
    let dir = TestDir::new(CALC);
    fs::set_permissions(dir.state(), Permissions::from_mode(0o770)).unwrap();
    for arguments in [&["tools"][..], &["--config", "portcullis.toml", "tools"]] {
        fails(&dir.run(arguments), &["is open to other users", "chmod 700"]);
    }
    fs::set_permissions(dir.state(), Permissions::from_mode(0o700)).unwrap();
    fs::rename(dir.state(), dir.path("home/moved")).unwrap();
    symlink(dir.path("home/moved"), dir.state()).unwrap();
    fails(&dir.run(&["--config", "portcullis.toml", "tools"]), &["is a symbolic link"]);
}

#[test]
fn a_log_folder_that_other_users_can_write_or_that_is_a_link_prevents_startup() {
    let dir = TestDir::new(CALC);
    works(&dir.run(&["tools"]));
    let logs = dir.data("logs");
    fs::create_dir_all(&logs).unwrap();
    fs::set_permissions(&logs, Permissions::from_mode(0o777)).unwrap();
    fails(&dir.run(&["tools"]), &["is open to other users", "chmod 700"]);
    fs::remove_dir(&logs).unwrap();
    symlink(dir.path("open"), &logs).unwrap();
    fails(&dir.run(&["tools"]), &["logs is a symbolic link"]);
}

#[test]
fn a_data_folder_leads_to_no_file_and_no_folder_of_the_user() {
    let dir = TestDir::new(CALC);
    works(&dir.run(&["tools"]));
    fs::create_dir(dir.path("target")).unwrap();
    let folders = ["chains", "records", "keys", "sources", "components", "key-value", "logins", "run", "scans"];
    for name in folders.into_iter().chain(["announcements", "checkpoints"]) {
        let (folder, aside) = (dir.data(name), dir.data("aside"));
        let was_there = fs::rename(&folder, &aside).is_ok();
        symlink(dir.path("target"), &folder).unwrap();
        fails(&dir.run(&["tools"]), &[&format!("{name} is a symbolic link"), "run `rm '"]);
        fs::remove_file(&folder).unwrap();
        assert!(!was_there || fs::rename(&aside, &folder).is_ok());
    }
    assert_eq!(fs::read_dir(dir.path("target")).unwrap().count(), 0);
    works(&dir.run(&["tools"]));

    let (victim, guard) = (dir.path("victim"), dir.data(".portcullis.lock.guard"));
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, &guard).unwrap();
    fails(&dir.run(&["lock", "accept"]), &["it is a symbolic link", "run `rm '"]);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    fs::remove_file(&guard).unwrap();

    for command in [&["check"][..], &["tools"], &["lock", "show"], &["call", "calc__add", "{}"]] {
        symlink("/dev/zero", dir.data("portcullis.lock")).unwrap();
        fails(&dir.run(command), &["portcullis.lock: it is a symbolic link", "run `rm '"]);
        fs::remove_file(dir.data("portcullis.lock")).unwrap();
    }
}

#[test]
fn a_lock_file_is_shown_with_everything_that_hides_in_it() {
    let dir = TestDir::new(CALC);
    works(&dir.run(&["tools"]));
    let (hostile, written) = ("\\u001b[2J\\u202e", "\\u{1b}[2J\\u{202e}");
    let nothing = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
    let lock = format!(
        "version = 2\n\
         [[item]]\nsource = \"a{hostile}\"\nidentity = \"{nothing}\"\nname = \"b{hostile}\"\ndigest = \"{nothing}\"\n\
         accepted = \"c{hostile}\"\ndefinition = \"{{}}\"\n\
         [[component]]\ncomponent = \"d{hostile}\"\ndigest = \"{nothing}\"\naccepted = \"e{hostile}\"\n"
    );
    fs::write(dir.data("portcullis.lock"), lock).unwrap();
    let mut command = dir.command(&["lock", "show"]);
    let ran = finish({
        command.env("CLICOLOR_FORCE", "1").env_remove("NO_COLOR");
        command
    });
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(!ran.out.contains(['\u{1b}', '\u{202e}']), "{:?}", ran.out);
    for name in ["a", "b", "c", "d", "e"] {
        assert!(ran.out.contains(&format!("{name}{written}")), "{name}: {}", ran.out);
    }
}

#[test]
fn files_that_the_broker_loads_or_writes_may_not_be_in_a_folder_that_a_source_may_write() {
    let dir = TestDir::new("");
    fs::copy(guest("plain"), dir.path("open/policy.wasm")).unwrap();
    for (more, what) in [
        ("[[sinks]]\nplugin = \"builtin:jsonl\"\nfile = \"open/audit.jsonl\"\n", "the sink's file"),
        ("[ledger]\nwitnesses = [\"open/checkpoints\"]\n", "the witness"),
        ("[ledger]\nwitnesses = [\"git:open/repository\"]\n", "the witness"),
        // A source that may write a part of a repository decides what is in it.
        ("[ledger]\nwitnesses = [\"git:.\"]\n", "the witness"),
        ("[ledger]\nwitnesses = [\"syslog+unix:open/log\"]\n", "the witness"),
        ("[[sinks]]\nsyslog = \"syslog+unix:open/log\"\n", "the sink's socket"),
        ("[[policies]]\nplugin = \"open/policy.wasm\"\n", "the plugin"),
        ("[sources.other]\ncomponent = \"open/policy.wasm\"\n", "the plugin"),
    ] {
        dir.configure(&format!("{FILES}{more}"));
        fails(&dir.run(&["check"]), &[what, "which source `files` may write"]);
    }
    // A symbolic link is another name for the same folder.
    symlink("open", dir.path("linked")).unwrap();
    dir.configure(&format!("{FILES}[[policies]]\nplugin = \"linked/policy.wasm\"\n"));
    fails(&dir.run(&["check"]), &["which source `files` may write", "lock accept --components"]);
    // Once accepted, it may be loaded: other bytes than the accepted ones would be refused.
    works(&dir.run(&["lock", "accept", "--components"]));
    works(&dir.run(&["check"]));
}

#[test]
fn a_folder_whose_name_is_not_utf8_is_checked_like_any_other() {
    let around = tempfile::tempdir().unwrap();
    let odd = around.path().join(OsStr::from_bytes(b"odd \xff"));
    fs::create_dir(&odd).unwrap();
    let dir = TestDir::beneath(&odd, "[sources.notes]\ncomponent = \"builtin:filesystem\"\ncell.write = [\"open\"]\n");
    let ran = dir.run(&["check", "--json"]);
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
    works(&ran);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert!(report["dataDir"].as_str().unwrap().contains("odd \u{fffd}"), "{report}");
    works(&dir.run(&["check"]));
}
