//! The commands that change the configuration file: what they leave in it, and what they refuse.

use std::fs;

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
    dir.edit(&["add", "again", "builtin:calculator"]);
    dir.edit(&["add", "words", "words.wasm"]);
    let text = dir.text();
    for line in ["url = \"https://example.com/mcp\"", "component = \"builtin:calculator\"\n", "\"./words.wasm\""] {
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
