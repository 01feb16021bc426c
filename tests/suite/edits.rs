//! The commands that change the configuration file: the text they leave in it, and their refusals.

use std::fs;

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use crate::test_dir::TestDir;

const FILE: &str = "# My servers\n\n# Sums\n[sources.calc]\ncomponent = \"builtin:calculator\" # exact\n\n\
                    # Everything else\n[profiles.default]\napprove = \"never\"\n";

impl TestDir {
    fn text(&self) -> String {
        fs::read_to_string(self.path("portcullis.toml")).unwrap()
    }

    /// Runs a command that must succeed.
    fn edit(&self, arguments: &[&str]) {
        let ran = self.run(arguments);
        assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.err);
    }
}

#[test]
fn a_source_is_added_disabled_enabled_set_and_removed_and_the_rest_of_the_file_stays() {
    let dir = TestDir::new(FILE);
    dir.edit(&["add", "files", "--read", "open", "--env", "LEVEL=info", "--", "@source@", "plain"]);
    let added = "# exact\n\n[sources.files]\ncommand = [\"@source@\", \"plain\"]\nenv = { LEVEL = \"info\" }\n\
                 cell = { read = [\"./open\"] }\n";
    let with_files = FILE.replace("# exact\n", added);
    assert_eq!(dir.text(), with_files);
    dir.edit(&["disable", "calc"]);
    let disabled = |text: &str| text.replace("# exact\n", "# exact\nenabled = false\n");
    assert_eq!(dir.text(), disabled(&with_files));
    dir.edit(&["enable", "calc"]);
    assert_eq!(dir.text(), disabled(&with_files).replace("= false", "= true"));
    dir.edit(&["set", "sources.files.timeout", "30s"]);
    assert!(dir.text().contains("[\"./open\"] }\ntimeout = \"30s\"\n"), "{}", dir.text());
    dir.edit(&["remove", "files"]);
    assert_eq!(dir.text(), disabled(FILE).replace("= false", "= true"));
    // The file was trusted and is trusted as it is written.
    let listed = dir.run(&["tools"]);
    assert_eq!(listed.code, Some(0), "{}", listed.err);
    assert!(listed.out.contains("calc__add"), "{}", listed.out);
}

#[test]
fn each_kind_of_source_can_be_added_and_is_recognised() {
    let dir = TestDir::new(FILE);
    dir.edit(&["add", "web", "https://example.com/mcp"]);
    // A private address that was written is meant.
    dir.edit(&["add", "near", "http://localhost:9/mcp"]);
    assert!(
        dir.text().contains("url = \"http://localhost:9/mcp\"\ndangerous-allow-private = true\n"),
        "{}",
        dir.text()
    );
    dir.edit(&["add", "again", "builtin:calculator"]);
    dir.edit(&["add", "words", "words.wasm", "--", "--fast"]);
    let text = dir.text();
    let words = "component = \"./words.wasm\"\nargs = [\"--fast\"]\n";
    for line in ["url = \"https://example.com/mcp\"", "component = \"builtin:calculator\"\n", words] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let ran = dir.run(&["add", "search", "--", "npx", "-y", "tavily-mcp"]);
    assert!(ran.err.contains("npm:tavily-mcp is known to need --network api.tavily.com:443"), "{}", ran.err);
    dir.edit(&["remove", "search"]);
    let ran = dir.run(&["add", "odd", "npx"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("portcullis add odd -- npx"), "{}", ran.err);
    assert_eq!(dir.text(), text);
}

#[test]
fn a_change_that_would_break_the_file_is_refused_and_leaves_it() {
    let text = format!("{FILE}sources = [\"calc\"]\n");
    let dir = TestDir::new(&text);
    for (arguments, part) in [
        (&["set", "sources.calc.tiemout", "30s"][..], "tiemout"),
        (&["set", "sources.calc.timeout", "30"], "timeout"),
        (&["set", "sources.cacl.timeout", "30s"], "cacl"),
        (&["add", "calc", "builtin:calculator"], "portcullis remove calc"),
        (&["add", "b", "--read", "/no/../such//", "--network", "*", "builtin:calculator"], "*"),
        (&["remove", "calc"], "matches no source"),
        (&["remove", "files"], "files"),
        (&["disable", "files"], "files"),
    ] {
        let ran = dir.run(arguments);
        assert_eq!(ran.code, Some(1), "{arguments:?}: {}{}", ran.out, ran.err);
        // Long lines are wrapped for people.
        let said = ran.err.split(['\n', ' ', '│']).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        assert!(said.contains(part), "{arguments:?}: {said}");
        assert_eq!(dir.text(), text, "{arguments:?}");
    }
}

#[test]
fn a_file_that_nobody_trusted_is_not_trusted_by_a_change() {
    let dir = TestDir::new(FILE);
    dir.write_configuration(&format!("{FILE}# from somewhere else\n"));
    dir.edit(&["set", "sources.calc.timeout", "30s"]);
    let ran = dir.run(&["tools"]);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert!(ran.err.contains("portcullis trust"), "{}", ran.err);
}

#[test]
fn init_writes_a_file_that_works_at_once_and_replaces_none() {
    let dir = TestDir::new("");
    fs::remove_file(dir.path("portcullis.toml")).unwrap();
    fs::remove_dir_all(dir.path(".portcullis")).unwrap();
    dir.edit(&["init"]);
    let text = dir.text();
    let checked = dir.run(&["check"]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.out, checked.err);
    let ran = dir.run(&["init"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("left as it is"), "{}", ran.err);
    assert_eq!(dir.text(), text);
}

#[test]
fn add_makes_a_file_where_there_is_none() {
    let dir = TestDir::new("");
    fs::remove_file(dir.path("portcullis.toml")).unwrap();
    fs::remove_dir_all(dir.path(".portcullis")).unwrap();
    dir.edit(&["add", "calc", "builtin:calculator"]);
    let listed = dir.run(&["tools"]);
    assert!(listed.out.contains("calc__add"), "{}{}", listed.out, listed.err);
}

#[test]
fn a_change_does_not_trust_a_data_folder_that_the_user_did_not_trust() {
    let dir = TestDir::new(FILE);
    fs::rename(dir.path(".portcullis"), dir.path("before")).unwrap();
    fs::create_dir(dir.path(".portcullis")).unwrap();
    fs::set_permissions(dir.path(".portcullis"), fs::Permissions::from_mode(0o700)).unwrap();
    let ran = dir.run(&["set", "profiles.default.approve", "never"]);
    assert!(ran.err.contains("it is not trusted"), "{}", ran.err);
    let ran = dir.run(&["tools"]);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert!(ran.err.contains("data folder"), "{}", ran.err);
    // A folder that exists already and that the file names from now on is as strange.
    let dir = TestDir::new(FILE);
    fs::create_dir(dir.path("other")).unwrap();
    fs::set_permissions(dir.path("other"), fs::Permissions::from_mode(0o700)).unwrap();
    let ran = dir.run(&["set", "broker.data-dir", "./other"]);
    assert!(ran.err.contains("is not trusted as it is now"), "{}", ran.err);
    assert_eq!(dir.run(&["tools"]).code, Some(1));
}

#[test]
fn a_change_through_a_link_is_trusted_under_the_name_of_the_link() {
    let dir = TestDir::new(FILE);
    fs::create_dir(dir.path("shared")).unwrap();
    fs::rename(dir.path("portcullis.toml"), dir.path("shared/portcullis.toml")).unwrap();
    symlink("shared/portcullis.toml", dir.path("portcullis.toml")).unwrap();
    dir.trust(&dir.path("portcullis.toml"));
    dir.edit(&["set", "sources.calc.timeout", "30s"]);
    assert!(fs::symlink_metadata(dir.path("portcullis.toml")).unwrap().is_symlink());
    let listed = dir.run(&["tools"]);
    assert!(listed.out.contains("calc__add"), "{}", listed.err);
    let trusted = dir.run(&["trust", "--list"]).out;
    assert!(!trusted.contains("shared"), "{trusted}");
}

#[test]
fn commands_that_change_the_file_at_once_lose_nothing() {
    let dir = TestDir::new(FILE);
    std::thread::scope(|scope| {
        let each: Vec<_> = (0..6)
            .map(|number| {
                let dir = &dir;
                scope.spawn(move || dir.run(&["add", &format!("c{number}"), "builtin:calculator"]).code)
            })
            .collect();
        assert!(each.into_iter().all(|ran| ran.join().unwrap() == Some(0)));
    });
    let text = dir.text();
    assert!((0..6).all(|number| text.contains(&format!("[sources.c{number}]"))), "{text}");
    assert_eq!(dir.run(&["tools"]).code, Some(0));
}

#[test]
fn a_file_that_is_not_valid_can_be_mended_by_a_command() {
    let dir = TestDir::new(FILE);
    dir.write_configuration(&format!("{FILE}[sources.a]\ncommand = \"a b\"\n"));
    dir.edit(&["set", "sources.a.command", "[\"a\", \"b\"]"]);
    dir.write_configuration(&format!("{FILE}[sources.a]\ncommand = \"a b\"\n"));
    dir.edit(&["remove", "a"]);
    assert!(!dir.text().contains("sources.a"), "{}", dir.text());
}

#[test]
fn a_file_is_made_that_no_mask_makes_writable_for_others() {
    let dir = TestDir::new("");
    fs::remove_file(dir.path("portcullis.toml")).unwrap();
    fs::remove_dir_all(dir.path(".portcullis")).unwrap();
    let broker = dir.command(&["init"]);
    let mut masked = Command::new("/bin/sh");
    masked.args(["-c", "umask 002; exec \"$0\" init"]).arg(broker.get_program());
    masked.current_dir(broker.get_current_dir().unwrap());
    masked.env_clear().envs(broker.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let made = masked.output().unwrap();
    assert!(made.status.success(), "{made:?}");
    assert_eq!(dir.run(&["check"]).code, Some(0));
}

#[test]
fn an_addition_that_is_refused_leaves_nothing_behind() {
    let dir = TestDir::new("");
    fs::remove_file(dir.path("portcullis.toml")).unwrap();
    fs::remove_dir_all(dir.path(".portcullis")).unwrap();
    let ran = dir.run(&["add", "x", "--network", "*", "--", "prog"]);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert!(!dir.path("portcullis.toml").exists() && !dir.path(".portcullis").exists());
}

#[test]
fn a_command_with_relative_words_means_the_folder_in_which_it_was_written() {
    let dir = TestDir::new(FILE);
    fs::create_dir(dir.path("docs")).unwrap();
    dir.edit(&["add", "files", "--read", "./docs", "--", "@source@", "plain", "./docs"]);
    assert!(dir.text().contains("cwd = \".\""), "{}", dir.text());
    let ran = dir.run(&["add", "home", "--read", "~/docs", "--", "@source@"]);
    assert!(ran.code == Some(1) && ran.err.contains("write the whole path"), "{}", ran.err);
}

#[test]
fn a_secret_on_the_command_line_is_pointed_out_without_its_value() {
    let dir = TestDir::new(FILE);
    let ran = dir.run(&["add", "a", "--env", "API_KEY=s3cr3t", "--", "@source@", "--token=s3cr3t"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("`env.API_KEY`") && ran.err.contains("`--token=…`"), "{}", ran.err);
    assert!(!ran.err.contains("s3cr3t"), "{}", ran.err);
}

#[test]
fn a_profile_that_is_spelled_wrong_is_not_made() {
    let dir = TestDir::new(FILE);
    let ran = dir.run(&["set", "profiles.defualt.approve", "always"]);
    assert!(ran.code == Some(1) && ran.err.contains("defualt"), "{}", ran.err);
}

#[test]
fn the_owner_the_mode_and_the_line_endings_of_the_file_stay() {
    let dir = TestDir::new(FILE);
    let windows = FILE.replace('\n', "\r\n");
    let file = dir.write_configuration(&windows);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    dir.edit(&["set", "sources.calc.timeout", "30s"]);
    assert_eq!(dir.text(), windows.replace("# exact\r\n", "# exact\r\ntimeout = \"30s\"\r\n"));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o440)).unwrap();
    let ran = dir.run(&["set", "sources.calc.timeout", "31s"]);
    assert!(ran.code == Some(1) && ran.err.contains("may not be written"), "{}", ran.err);
}
