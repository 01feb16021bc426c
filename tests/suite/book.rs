//! The commands that the book shows with their output are run, in the order of their page.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use portcullis::digest::Digest;
use portcullis::ledger::{ChainStart, Ledger};
use portcullis_test_support::{CodeBlock, code_blocks, policy_of_the_book};

use crate::test_dir::{Ran, TestDir, broker, finish, frames};

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
    const PARTS: [&str; 3] = ["policies", "transforms", "approvals"];
    let mut configurations = BTreeMap::new();
    for block in code_blocks().iter().filter(|block| block.is("toml") && !block.is("fragment")) {
        let whole: toml::Table = block.text.parse().unwrap();
        let mut parts = toml::Table::new();
        for part in PARTS {
            let plugins = whole.get(part).and_then(toml::Value::as_array).into_iter().flatten();
            let builtin =
                |plugin: &&toml::Value| plugin["plugin"].as_str().is_some_and(|name| name.starts_with("builtin:"));
            let plugins: Vec<_> = plugins.filter(builtin).cloned().collect();
            parts.insert(part.to_owned(), plugins.into());
        }
        configurations.insert(parts.to_string(), block.place());
    }
    assert!(configurations.len() > 8, "only {} are found: does the test still see them?", configurations.len());
    // One folder for all, so that each plugin is compiled once.
    let dir = TestDir::new("");
    for (text, place) in configurations {
        dir.configure(&format!("{text}\n[sources.calc]\ncomponent = \"builtin:calculator\"\n"));
        let ran = dir.run(&["check"]);
        assert_eq!(ran.code, Some(0), "{place}: {}{}", ran.out, ran.err);
    }
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
fn the_program_of_the_book_checks_a_ledger_and_finds_a_change() {
    let dir = TestDir::new("[sources.calc]\ncomponent = \"builtin:calculator\"\n");
    assert_eq!(dir.run(&["call", "calc__add", "{\"a\": 1, \"b\": 2}"]).code, Some(0));
    let program = code_blocks().into_iter().find(|block| block.is("verifier")).unwrap().text;
    assert!(
        program.lines().count() <= 150,
        "somebody who does not trust us has to read it: {}",
        program.lines().count()
    );
    fs::write(dir.path("verify.py"), program).unwrap();
    let verify = || Command::new("/usr/bin/python3").arg(dir.path("verify.py")).arg(dir.data("")).output();
    let Ok(good) = verify() else {
        println!("there is no /usr/bin/python3, so this proves nothing");
        return;
    };
    assert!(good.status.success() && good.stdout.starts_with(b"good: "), "{good:?}");
    let (segment, whole) = (dir.segment(), fs::read(dir.segment()).unwrap());
    let first = usize::try_from(frames(&segment)[1]).unwrap();
    // A record that is changed, checksum and all, and a damaged end.
    let mut changed = whole.clone();
    changed[first + 32] ^= 1;
    let content = u32::from_le_bytes(changed[first + 12..first + 16].try_into().unwrap()) as usize;
    let sum = crc32fast::hash(&changed[first + 8..first + 32 + content]);
    changed[first + 4..first + 8].copy_from_slice(&sum.to_le_bytes());
    let last = usize::try_from(*frames(&segment).last().unwrap()).unwrap();
    for (changed, reason) in [(&changed[..], "record 1 is not as it was written"), (&whole[..last], "is missing")] {
        fs::write(&segment, changed).unwrap();
        let found = verify().unwrap();
        assert!(!found.status.success() && String::from_utf8_lossy(&found.stderr).contains(reason), "{found:?}");
    }
    fs::write(&segment, whole).unwrap();

    // Checkpoints: ours, one that was changed, and one with another root.
    let checkpoint = dir.run(&["audit", "checkpoint"]).out;
    let key = dir.run(&["audit", "key"]).out;
    let compare = |checkpoint: &str| {
        fs::write(dir.path("kept"), checkpoint).unwrap();
        let arguments = [dir.data(""), dir.path("kept"), key.trim().into()];
        Command::new("/usr/bin/python3").arg(dir.path("verify.py")).args(arguments).output().unwrap()
    };
    let good = compare(&checkpoint);
    assert!(good.status.success() && good.stdout.starts_with(b"good: "), "{good:?}");
    let size = checkpoint.lines().nth(1).unwrap();
    let changed = compare(&checkpoint.replacen(&format!("\n{size}\n"), "\n1\n", 1));
    assert!(String::from_utf8_lossy(&changed.stderr).contains("is not signed with this key"), "{changed:?}");
    let segment = dir.segment();
    let ended = dir.data("chains").join(format!("{}.ended", chain_of(&segment)));
    fs::remove_file(ended).unwrap();
    let cut = fs::read(&segment).unwrap();
    fs::write(&segment, &cut[..last]).unwrap();
    let found = compare(&checkpoint);
    assert!(String::from_utf8_lossy(&found.stderr).contains("are not those that the checkpoint covers"), "{found:?}");
}

/// Writes a ledger of one chain with two records, whose hashes fit. The second has this number in its run.
fn forge(data: &std::path::Path, run_seq: u64) {
    let chain = "00000000000000000000000000";
    let run = "00000000000000000000000001";
    let texts = [
        format!(r#"{{"at":1,"body":{{}},"chain":"{chain}","kind":"broker.started","seq":1,"v":1}}"#),
        format!(
            r#"{{"at":2,"body":{{}},"chain":"{chain}","kind":"run.started","run":"{run}","run_seq":{run_seq},"seq":2,"v":1}}"#
        ),
    ];
    let (mut before, mut hashes) = ([0; 32], Vec::new());
    for text in &texts {
        before = Digest::of(&[b"portcullis ledger v1\0", &before[..], text.as_bytes()].concat()).0;
        hashes.extend(before);
    }
    let frame = |kind: u8, count: u16, content: &[u8], text: usize| {
        let lengths = [content.len(), text, 0].map(|length| u32::try_from(length).unwrap().to_le_bytes()).concat();
        let covered = [&[kind, 0], &count.to_le_bytes()[..], &lengths, &1_u64.to_le_bytes(), content].concat();
        [b"PLF2", &crc32fast::hash(&covered).to_le_bytes()[..], &covered].concat()
    };
    let zeros = "0".repeat(64);
    let start = format!(r#"{{"chain":"{chain}","format":2,"segment":1,"seq":1,"hash":"{zeros}"}}"#);
    let text = texts.map(|text| text + "\n").concat();
    let records = frame(3, 2, &[&hashes, text.as_bytes()].concat(), text.len());
    fs::create_dir_all(data.join("records")).unwrap();
    let segment = [frame(1, 0, start.as_bytes(), start.len()), records].concat();
    fs::write(data.join("records").join(format!("{chain}-000001.records")), segment).unwrap();
}

#[test]
fn both_verifiers_name_a_record_that_is_missing_in_its_run() {
    let dir = TestDir::new("");
    let program = code_blocks().into_iter().find(|block| block.is("verifier")).unwrap().text;
    fs::write(dir.path("verify.py"), program).unwrap();
    for (run_seq, reason) in [(1, None), (2, Some("record 2 of its run, and record 1 is missing"))] {
        let data = dir.path(&format!("forged-{run_seq}"));
        forge(&data, run_seq);
        let ours = dir.run(&["audit", "verify", "--data-dir", data.to_str().unwrap()]);
        let Ok(theirs) = Command::new("/usr/bin/python3").arg(dir.path("verify.py")).arg(&data).output() else {
            println!("there is no /usr/bin/python3, so this proves nothing");
            return;
        };
        let told = String::from_utf8_lossy(&theirs.stderr);
        match reason {
            // It has no end, and no broker has sealed it.
            None => assert!(ours.code == Some(2) && theirs.status.success(), "{}{}{told}", ours.out, ours.err),
            Some(reason) => {
                assert!(ours.code == Some(1) && ours.out.contains(reason), "{}{}", ours.out, ours.err);
                assert!(!theirs.status.success() && told.contains(reason), "{theirs:?}");
            }
        }
    }
}

#[tokio::test]
async fn the_program_of_the_book_checks_a_ledger_from_which_old_records_were_removed() {
    let dir = TestDir::new("[sources.calc]\ncomponent = \"builtin:calculator\"\n");
    for _ in 0..2 {
        assert_eq!(dir.run(&["call", "calc__add", "{\"a\": 1, \"b\": 2}"]).code, Some(0));
    }
    let before = dir.run(&["audit", "checkpoint"]).out;
    let started = ChainStart { version: "1".to_owned(), config: Digest::of(b""), key: None };
    let ledger = Ledger::open(&dir.data(""), started).await.unwrap();
    let removal = ledger.remove_before(u64::MAX).await.unwrap();
    assert_eq!(removal.chains, 2);
    ledger.close().await;
    let (after, key) = (dir.run(&["audit", "checkpoint"]).out, dir.run(&["audit", "key"]).out);
    let program = code_blocks().into_iter().find(|block| block.is("verifier")).unwrap().text;
    fs::write(dir.path("verify.py"), program).unwrap();
    fs::write(dir.path("kept"), before + "\n" + &after).unwrap();
    let verify = || {
        let arguments = [dir.path("verify.py"), dir.data(""), dir.path("kept"), key.trim().into()];
        Command::new("/usr/bin/python3").args(arguments).output()
    };
    let ours = dir.run(&["audit", "verify", "--checkpoint", "kept"]);
    assert!(ours.code == Some(0) && ours.out.contains(&format!("{} older records", removal.records)), "{}", ours.out);
    let Ok(good) = verify() else {
        println!("there is no /usr/bin/python3, so this proves nothing");
        return;
    };
    assert!(good.status.success() && good.stdout.starts_with(b"good: "), "{good:?}");

    // What is left of them cannot be changed.
    let is_left = |path: &std::path::PathBuf| path.extension().is_some_and(|extension| extension == "removed");
    let left = fs::read_dir(dir.data("records")).unwrap().map(|entry| entry.unwrap().path()).find(is_left).unwrap();
    let text = fs::read_to_string(&left).unwrap();
    fs::write(&left, text.replacen("\"until\":1", "\"until\":2", 1)).unwrap();
    assert_eq!(dir.run(&["audit", "verify"]).code, Some(1));
    let found = verify().unwrap();
    assert!(String::from_utf8_lossy(&found.stderr).contains("no record says that they were removed"), "{found:?}");
}

/// Returns the chain to which a segment belongs.
fn chain_of(segment: &std::path::Path) -> String {
    segment.file_name().unwrap().to_str().unwrap().split('-').next().unwrap().to_owned()
}

#[test]
fn an_ellipsis_stands_for_anything() {
    assert!(fits("calc__add  done  1.2 ms", "calc__add  …ms") && fits("x", "…") && fits("", "…"));
    assert!(!fits("calc__add", "calc__ad") && !fits("abc", "a…d"));
}
