//! The commands that the book shows with their output are run, in the order of their page.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use portcullis_test_support::{CodeBlock, code_blocks, policy_of_the_book};

use crate::test_dir::{Ran, TestDir, broker, finish};

/// A block with this word is run; the configuration is the last whole one of the page.
const RUNNABLE: &str = "runnable";

/// A runnable block with this word ends with another exit code than 0.
const FAILS: &str = "fails";

/// A block with this word is what the block before it says: each of its lines, in order. `…` stands for anything.
const OUTPUT: &str = "output";

#[test]
fn the_commands_of_the_book_do_what_it_shows() {
    let mut pages: BTreeMap<String, Vec<CodeBlock>> = BTreeMap::new();
    for block in code_blocks() {
        pages.entry(block.document.clone()).or_default().push(block);
    }
    pages.retain(|_, blocks| blocks.iter().any(|block| block.is(RUNNABLE)));
    assert!(pages.len() >= 5, "only {} pages have commands to run: does the test still see them?", pages.len());
    std::thread::scope(|threads| {
        for blocks in pages.values() {
            threads.spawn(move || play(blocks));
        }
    });
}

/// Runs the commands of a page in a folder of its own.
fn play(blocks: &[CodeBlock]) {
    let dir = TestDir::new("");
    let mut said = None;
    for block in blocks {
        if block.is("toml") && !block.is("fragment") {
            dir.configure(&block.text);
        } else if block.is(RUNNABLE) {
            let ran = shell(&dir, &block.text);
            let expected = if block.is(FAILS) { ran.code != Some(0) } else { ran.code == Some(0) };
            assert!(expected, "{} ended with {:?}:\n{}{}", block.place(), ran.code, ran.out, ran.err);
            said = Some(ran);
        } else if block.is(OUTPUT) {
            let ran = said.as_ref().unwrap_or_else(|| panic!("{}: no command is before it", block.place()));
            compare(block, &format!("{}{}", ran.out, ran.err));
        }
    }
}

/// Runs a block as a person would type it, in the folder of its page.
fn shell(dir: &TestDir, text: &str) -> Ran {
    let mut command = Command::new("/bin/sh");
    command.args(["-ec", text]);
    dir.prepare(&mut command);
    let folder = broker().parent().unwrap().display().to_string();
    command.env("PATH", format!("{folder}:/usr/bin:/bin")).stdin(Stdio::null());
    finish(command)
}

/// Asserts that each line of the block is in the output, in order.
fn compare(block: &CodeBlock, output: &str) {
    let mut lines = output.lines();
    for expected in block.text.lines().filter(|line| !["", "…"].contains(&line.trim())) {
        let found = lines.any(|line| fits(line.trim(), expected.trim()));
        assert!(found, "{}: `{expected}` is not said (any more). The output is:\n{output}", block.place());
    }
}

/// Reports whether a line is a pattern in which `…` stands for anything.
fn fits(line: &str, pattern: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('…') else { return line == pattern };
    let Some(after) = line.strip_prefix(first) else { return false };
    after.char_indices().map(|(at, _)| &after[at..]).chain([""]).any(|tail| fits(tail, rest))
}

#[test]
fn every_built_in_plugin_of_the_book_takes_its_settings() {
    /// The parts of a configuration that name plugins of the gate.
    const PARTS: [&str; 4] = ["policies", "transforms", "approvals", "sinks"];
    let mut configurations = BTreeMap::new();
    let calculator = toml::Table::from_iter([("component".to_owned(), "builtin:calculator".into())]);
    for block in code_blocks().iter().filter(|block| block.is("toml") && !block.is("fragment")) {
        let whole: toml::Table = block.text.parse().unwrap();
        let mut parts = toml::Table::new();
        for part in PARTS {
            let plugins = whole.get(part).and_then(toml::Value::as_array).into_iter().flatten();
            let mut plugins: Vec<_> = plugins.filter(|plugin| is_builtin(plugin, "plugin")).cloned().collect();
            // A sink's file is in a folder of the reader's machine.
            let files = plugins.iter_mut().filter_map(|plugin| plugin.get_mut("file"));
            files.for_each(|file| *file = "records.jsonl".into());
            parts.insert(part.to_owned(), plugins.into());
        }
        let sources = whole.get("sources").and_then(toml::Value::as_table).into_iter().flatten();
        let sources = sources.filter(|(_, source)| is_builtin(source, "component"));
        let mut sources: toml::Table = sources.map(|(name, source)| (name.clone(), source.clone())).collect();
        sources.entry("calc").or_insert_with(|| calculator.clone().into());
        parts.insert("sources".to_owned(), sources.into());
        configurations.insert(parts.to_string(), block.place());
    }
    assert!(configurations.len() > 8, "only {} are found: does the test still see them?", configurations.len());
    // One folder for all, so that each plugin is compiled once.
    let dir = TestDir::new("");
    for folder in ["docs", "pages", "project"] {
        std::fs::create_dir(dir.path(folder)).unwrap();
    }
    for (text, place) in configurations {
        dir.configure(&text);
        let ran = dir.run(&["check"]);
        assert_eq!(ran.code, Some(0), "{place}: {}{}", ran.out, ran.err);
    }
}

/// Reports whether a table names a built-in plugin or component under this key.
fn is_builtin(table: &toml::Value, key: &str) -> bool {
    table.get(key).and_then(toml::Value::as_str).is_some_and(|name| name.starts_with("builtin:"))
}

#[test]
fn the_policy_of_the_book_is_built_as_it_says_and_denies() {
    let block = |word: &str| code_blocks().into_iter().find(|block| block.is(word)).unwrap().text;
    let built = policy_of_the_book(&block("policy-manifest"), &block("policy-source"));
    let named = "./target/wasm32-unknown-unknown/release/house_words.wasm";
    let dir = TestDir::new(&block("policy-configuration").replace(named, &built.display().to_string()));
    assert_eq!(dir.run(&["call", "calc__add", "{\"a\": 20, \"b\": 22}"]).out, "42\n");
    let denied = dir.run(&["call", "calc__add", "{\"a\": 1000, \"b\": 1}"]);
    assert!(denied.code == Some(1) && denied.err.contains("`1000` does not leave the house"), "{}", denied.err);
}

#[test]
fn an_ellipsis_stands_for_anything() {
    assert!(fits("calc__add  done  1.2 ms", "calc__add  …ms") && fits("x", "…") && fits("", "…"));
    assert!(!fits("calc__add", "calc__ad") && !fits("abc", "a…d"));
}
