//! Completion in a shell: the names of the configuration that the command would use, if it is trusted, and nothing is
//! started for them.

use std::fs;
use std::process::Stdio;

use crate::test_dir::{TestDir, finish};

const CONFIG: &str = r#"
[sources.files]
command = ["@source@", "echo"]
[sources.calc]
component = "builtin:calculator"
[sources.resting]
command = ["@source@", "echo"]
enabled = false
[profiles.careful]
approve = "always"
"#;

/// Returns what a shell is offered for the last word of a line, without options.
fn offered(dir: &TestDir, line: &str) -> Vec<String> {
    let mut command = dir.command(&["--"]);
    command.args(line.split(' ')).env("PORTCULLIS_COMPLETE", "fish");
    let ran = finish(command);
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{line}");
    let words = ran.out.lines().map(|line| line.split('\t').next().unwrap().to_owned());
    words.filter(|word| !word.starts_with("--")).collect()
}

#[test]
fn names_of_a_trusted_configuration_are_completed_without_starting_anything() {
    let dir = TestDir::new(CONFIG);
    let tools: fn(&TestDir) -> Vec<String> = |dir| offered(dir, "portcullis call files__");
    assert!(tools(&dir).is_empty(), "no source was ever connected");
    assert_eq!(offered(&dir, "portcullis restart "), ["calc", "files"]);
    assert_eq!(offered(&dir, "portcullis logs f"), ["files"]);
    assert_eq!(offered(&dir, "portcullis enable "), ["resting"]);
    assert_eq!(offered(&dir, "portcullis tools --profile c"), ["careful"]);
    assert!(offered(&dir, "portcullis plugin inspect b").contains(&"builtin:rules".to_owned()));
    assert!(offered(&dir, "portcullis comp").contains(&"completions".to_owned()));
    for file in ["ledger.sqlite", "run", "announcements"] {
        assert!(!dir.data(file).exists(), "completion does not make {file}");
    }

    let listed = dir.run(&["tools"]);
    assert!(listed.out.contains("files__echo") && listed.out.contains("calc__add"), "{}{}", listed.out, listed.err);
    dir.await_no_process();
    let records = dir.records().len();
    assert!(tools(&dir).contains(&"files__echo".to_owned()));
    assert_eq!(offered(&dir, "portcullis call calc__a"), ["calc__add"]);
    assert_eq!(offered(&dir, "portcullis audit --tool calc__a"), ["calc__add"]);
    assert_eq!(dir.records().len(), records, "completion records nothing, as it starts no broker");
    assert!(dir.processes().is_empty(), "completion starts no source");
}

#[test]
fn an_untrusted_configuration_has_no_names_to_complete() {
    let dir = TestDir::new(CONFIG);
    assert_eq!(dir.run(&["tools"]).code, Some(0));
    dir.write_configuration(&format!("{CONFIG}[sources.planted]\nurl = \"https://planted.example.com/mcp\"\n"));
    for line in ["portcullis restart ", "portcullis call calc__", "portcullis tools --profile ", "portcullis enable "] {
        assert_eq!(offered(&dir, line), Vec::<String>::new(), "{line}");
    }
    assert!(offered(&dir, "portcullis comp").contains(&"completions".to_owned()), "commands need no configuration");
    let named = offered(&dir, "portcullis --config portcullis.toml restart ");
    assert!(named.contains(&"planted".to_owned()), "a file that is named needs no trust: {named:?}");
}

#[test]
fn a_name_that_means_something_to_a_shell_is_not_completed() {
    let dir = TestDir::new(CONFIG);
    assert_eq!(dir.run(&["tools"]).code, Some(0));
    let kept = dir.data("announcements/files.json");
    let text = fs::read_to_string(&kept).unwrap();
    assert!(text.contains("\"files__echo\""), "{text}");
    fs::write(&kept, text.replace("\"files__echo\"", "\"files__$(id)\",\"files__echo\"")).unwrap();
    let tools = offered(&dir, "portcullis call files__");
    assert!(tools.contains(&"files__echo".to_owned()) && !tools.iter().any(|tool| tool.contains('$')), "{tools:?}");
}

#[test]
fn the_script_of_bash_completes_with_the_program() {
    let dir = TestDir::new(CONFIG);
    let script = dir.run(&["completions", "bash"]);
    assert_eq!(script.code, Some(0), "{}", script.err);
    fs::write(dir.path("script"), &script.out).unwrap();
    // Does what bash does when its user presses the tab key.
    let line = r#"
        source ./script
        COMP_WORDS=(portcullis restart fi) COMP_CWORD=2 COMP_TYPE=9
        _clap_complete_portcullis portcullis fi restart
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let mut bash = std::process::Command::new("bash");
    bash.args(["--norc", "--noprofile", "-c", line]);
    dir.prepare(&mut bash);
    let program = crate::test_dir::broker();
    let folder = program.parent().unwrap().display().to_string();
    bash.env("PATH", format!("{folder}:/usr/bin:/bin")).stdin(Stdio::null());
    let ran = finish(bash);
    assert_eq!((ran.code, ran.out.trim_end()), (Some(0), "files"), "{}", ran.err);
}
