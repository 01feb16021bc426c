//! Checkpoints and proofs from the command line, as two people use them: one who has the ledger, and one who does not.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use parquet::file::reader::{FileReader as _, SerializedFileReader};

use crate::agent::{Agent, Era};
use crate::questions::webhook;
use crate::test_dir::{TestDir, until};

const CONFIGURATION: &str = "[sources.calc]\ncomponent = \"builtin:calculator\"\n";

/// Makes a call and returns its id.
fn called(dir: &TestDir) -> String {
    assert_eq!(dir.run(&["call", "calc__add", "{\"a\": 20, \"b\": 22}"]).out, "42\n");
    let listed = dir.run(&["--json", "audit", "-n", "1"]).out;
    let call: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let id = call.get("call").or_else(|| call[0].get("call"));
    id.unwrap_or_else(|| panic!("{listed}")).as_str().unwrap().to_owned()
}

#[test]
fn a_checkpoint_that_was_kept_elsewhere_shows_that_a_ledger_was_replaced() {
    let dir = TestDir::new(CONFIGURATION);
    called(&dir);
    called(&dir);
    let checkpoint = dir.run(&["audit", "checkpoint"]);
    assert_eq!(checkpoint.code, Some(0), "{}", checkpoint.err);
    fs::write(dir.path("kept"), &checkpoint.out).unwrap();
    called(&dir);
    let good = dir.run(&["audit", "verify", "--checkpoint", "kept"]);
    assert_eq!(good.code, Some(0), "{}{}", good.out, good.err);
    assert!(good.out.contains("checkpoints that were given confirm"), "{}", good.out);

    // Another ledger in its place: the chain that the checkpoint covers is gone.
    fs::remove_dir_all(dir.data("")).unwrap();
    called(&dir);
    let (stranger, folder) = (TestDir::new(""), dir.data("").display().to_string());
    let alone = stranger.run(&["audit", "verify", "--data-dir", &folder]);
    assert_eq!(alone.code, Some(0), "it contradicts nothing by itself: {}", alone.out);
    let found = dir.run(&["audit", "verify", "--checkpoint", "kept"]);
    assert_eq!(found.code, Some(1), "{}", found.out);
    assert!(found.out.contains("tampered with: record 1 of chain"), "{}", found.out);

    // Another key, and something that is not a checkpoint.
    let other = TestDir::new(CONFIGURATION);
    let key = other.run(&["audit", "key"]).out;
    let unknown = dir.run(&["audit", "verify", "--checkpoint", "kept", "--pubkey", key.trim()]);
    assert_eq!(unknown.code, Some(2), "it cannot be judged: {}", unknown.err);
    assert!(unknown.err.contains("kept") && unknown.err.contains("--pubkey"), "{}", unknown.err);
    fs::write(dir.path("kept"), "nothing\n").unwrap();
    let refused = dir.run(&["audit", "verify", "--checkpoint", "kept"]);
    assert!(refused.err.contains("kept") && refused.err.contains("portcullis audit checkpoint"), "{}", refused.err);
}

#[test]
fn a_call_is_proved_to_somebody_who_has_only_the_key() {
    let dir = TestDir::new(CONFIGURATION);
    called(&dir);
    fs::write(dir.path("kept"), dir.run(&["audit", "checkpoint"]).out).unwrap();
    let call = called(&dir);
    let key = dir.run(&["audit", "key"]).out;
    let stranger = TestDir::new("");
    fs::remove_file(stranger.path("portcullis.toml")).unwrap();
    for json in [&["--json"][..], &[]] {
        let proof = dir.run(&[json, &["audit", "prove", &call]].concat());
        assert_eq!(proof.code, Some(0), "{}", proof.err);
        fs::write(stranger.path("proof"), &proof.out).unwrap();
        let proved = stranger.run(&["audit", "verify", "--proof", "proof", "--pubkey", key.trim()]);
        assert_eq!(proved.code, Some(0), "{}{}", proved.out, proved.err);
        assert!(
            proved.out.contains("proved: ") && proved.out.contains("\"kind\":\"tool.completed\""),
            "{}",
            proved.out
        );
        assert!(stranger.run(&["audit", "verify", "--proof", "proof"]).err.contains("--pubkey"));
    }
    let proof = dir.run(&["--json", "audit", "prove", &call]).out;
    fs::write(stranger.path("proof"), proof.replace("calc__add", "calc__sub")).unwrap();
    let changed = stranger.run(&["audit", "verify", "--proof", "proof", "--pubkey", key.trim()]);
    assert!(changed.code == Some(1) && changed.out.contains("not proved"), "{}{}", changed.out, changed.err);

    let json = stranger.run(&["audit", "verify", "--proof", "proof", "--pubkey", key.trim(), "--json"]);
    let document: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert!(json.code == Some(1) && document["error"].as_str().unwrap().contains("not proved"), "{document}");
    let missing = stranger.run(&["audit", "verify", "--data-dir", "nowhere", "--json"]);
    let document: serde_json::Value = serde_json::from_str(missing.err.lines().last().unwrap()).unwrap();
    assert!(missing.code == Some(2) && document["error"].is_string(), "{document}");

    // A person who has kept a checkpoint of the same chain asks for a proof that continues it.
    let proof = dir.run(&["audit", "prove", &call]).out;
    let since = dir.run(&["audit", "checkpoint"]).out;
    fs::write(dir.path("since"), &since).unwrap();
    let continued = dir.run(&["audit", "prove", &call, "--since", "since"]).out;
    for (proof, checkpoint, code, says) in [
        (&continued, &since, 0, "continues the checkpoint that was given"),
        (&proof, &since, 0, "continues"),
        (&proof, &fs::read_to_string(dir.path("kept")).unwrap(), 2, "leave `--checkpoint` out"),
    ] {
        fs::write(stranger.path("proof"), proof).unwrap();
        fs::write(stranger.path("kept"), checkpoint).unwrap();
        let arguments = ["audit", "verify", "--proof", "proof", "--checkpoint", "kept", "--pubkey", key.trim()];
        let ran = stranger.run(&arguments);
        assert!(ran.code == Some(code) && format!("{}{}", ran.out, ran.err).contains(says), "{}{}", ran.out, ran.err);
    }

    // The call stands in another chain than the older checkpoint.
    let refused = dir.run(&["audit", "prove", &call, "--since", "kept"]);
    assert!(refused.code == Some(1) && refused.err.contains("leave `--since` out"), "{}", refused.err);
    assert!(dir.run(&["audit", "prove", "nothing"]).err.contains("no call \"nothing\""));
}

/// Changes one byte in the middle of a file, or changes it back.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn what_was_changed_before_or_after_a_verification_is_neither_signed_nor_proved() {
    let dir = TestDir::new(CONFIGURATION);
    called(&dir);
    let call = called(&dir);
    // Both resume from the verified part, and remember what they verify.
    assert_eq!(dir.run(&["audit", "checkpoint"]).code, Some(0));
    let verified = dir.run(&["audit", "verify"]).out;
    assert!(verified.contains("were verified before"), "{verified}");
    let records = || {
        let found = fs::read_dir(dir.data("records")).unwrap().map(|entry| entry.unwrap().path());
        found.filter(|path| path.extension().is_some_and(|end| end == "records")).collect::<Vec<_>>()
    };
    let before = records();
    called(&dir);
    let after: Vec<_> = records().into_iter().filter(|path| !before.contains(path)).collect();
    assert_eq!((before.len(), after.len()), (2, 1));
    for path in before.iter().chain(&after) {
        flip(path);
        for arguments in [&["audit", "checkpoint"][..], &["audit", "prove", &call]] {
            let refused = dir.run(arguments);
            assert_eq!((refused.code, &*refused.out), (Some(1), ""), "{arguments:?} of {path:?}: {}", refused.err);
            assert!(refused.err.contains("portcullis audit verify"), "{}", refused.err);
        }
        flip(path);
    }
    let proof = dir.run(&["audit", "prove", &call]);
    fs::write(dir.path("proof"), &proof.out).unwrap();
    let proved = dir.run(&["audit", "verify", "--proof", "proof"]);
    assert_eq!(proved.code, Some(0), "as it was: {}{}", proof.err, proved.err);
    assert_eq!(dir.run(&["audit", "checkpoint"]).code, Some(0));
}

#[test]
fn a_new_key_signs_from_now_on_and_the_old_one_stays_trusted() {
    let dir = TestDir::new(CONFIGURATION);
    called(&dir);
    fs::write(dir.path("kept"), dir.run(&["audit", "checkpoint"]).out).unwrap();
    let old = dir.run(&["audit", "key"]).out;
    let new = dir.run(&["audit", "key", "--rotate"]).out;
    assert_ne!(old, new);
    assert_eq!(dir.run(&["audit", "key"]).out, new);
    assert_eq!(dir.run(&["audit", "verify", "--checkpoint", "kept"]).code, Some(0));
    called(&dir);
    assert_eq!(dir.run(&["audit", "verify"]).code, Some(0));
    let by_old = dir.run(&["audit", "verify", "--pubkey", old.trim()]);
    assert_eq!(by_old.code, Some(0), "what another key signed says nothing: {}", by_old.out);
}

#[test]
fn an_export_is_continued_after_its_last_call_and_never_written_over() {
    let dir = TestDir::new(CONFIGURATION);
    for format in ["jsonl", "csv", "ocsf", "cef"] {
        let export = |more: &[&str]| dir.run(&[&["audit", "export", "--format", format, "-o", format], more].concat());
        let lines = || fs::read_to_string(dir.path(format)).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
        let heading = usize::from(format == "csv");
        let (first, before) = (called(&dir), listed(&dir));
        let exported = export(&[]);
        assert_eq!(exported.code, Some(0), "{}", exported.err);
        assert_eq!(lines().len(), before + heading, "{format}");
        assert!(lines().last().unwrap().contains(&first));
        let refused = export(&[]);
        assert!(refused.code == Some(1) && refused.err.contains("--resume"), "{}", refused.err);
        assert_eq!(export(&["--resume"]).code, Some(0));
        assert_eq!(lines().len(), before + heading, "nothing is new");
        // The last line was cut, and another call was made.
        let cut = fs::read_to_string(dir.path(format)).unwrap();
        fs::write(dir.path(format), &cut[..cut.len() - 9]).unwrap();
        let second = called(&dir);
        let exported = export(&["--resume"]);
        assert!(exported.err.contains("wrote 2 calls"), "{}", exported.err);
        assert_eq!(lines().len(), before + heading + 1);
        assert!(lines().iter().rev().zip([&second, &first]).all(|(line, call)| line.contains(call)), "{:?}", lines());
        let printed = dir.run(&["audit", "export", "--format", format]).out;
        assert_eq!(printed, fs::read_to_string(dir.path(format)).unwrap(), "as on standard output");
    }
}

#[test]
fn an_export_beside_a_running_broker_leaves_what_may_come_after_an_earlier_call_to_the_next() {
    let dir = TestDir::new(CONFIGURATION);
    let mut agent = Agent::alone(&dir, Era::Modern);
    agent.call("calc__add", &serde_json::json!({ "a": 1, "b": 2 }), None);
    until("the call is recorded", || !dir.records_of("tool.completed").is_empty());
    let export = || dir.run(&["audit", "export", "-o", "calls", "--resume"]).err;
    let said = export();
    assert!(said.contains("wrote 0 calls") && said.contains("which is new: the running broker"), "{said}");
    agent.leave();
    let said = export();
    assert!(said.contains("wrote 1 call") && !said.contains("it ends before"), "{said}");
}

#[test]
fn calls_are_exported_as_parquet_into_a_file_that_is_continued_and_not_printed() {
    let dir = TestDir::new(CONFIGURATION);
    let mut calls = vec![called(&dir), called(&dir)];
    let export = |more: &[&str]| dir.run(&[&["audit", "export", "--format", "parquet"], more].concat());
    let refused = export(&[]);
    assert!(
        refused.code == Some(1) && refused.err.contains("--output FILE") && refused.out.is_empty(),
        "{}",
        refused.err
    );
    let rows = || {
        let reader = SerializedFileReader::new(fs::File::open(dir.path("calls.parquet")).unwrap()).unwrap();
        reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect::<Vec<_>>()
    };
    let written = export(&["-o", "calls.parquet"]);
    assert!(written.code == Some(0) && written.err.contains("wrote 2 calls"), "{}", written.err);
    calls.push(called(&dir));
    for wrote in ["wrote 1 call", "wrote 0 calls"] {
        let continued = export(&["-o", "calls.parquet", "--resume"]);
        assert!(continued.code == Some(0) && continued.err.contains(wrote), "{}", continued.err);
        let rows = rows();
        assert_eq!(rows.len(), 3);
        for (row, call) in rows.iter().zip(&calls) {
            assert!(row.contains(call) && row.contains("calc__add") && row.contains("\"ok\""), "{row}");
        }
    }
    let refused = export(&["-o", "calls.parquet"]);
    assert!(refused.code == Some(1) && refused.err.contains("--resume"), "{}", refused.err);
    // The same users can read the file afterwards, and a link stays one.
    fs::set_permissions(dir.path("calls.parquet"), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(dir.path("calls.parquet"), dir.path("link")).unwrap();
    let continued = export(&["-o", "link", "--resume"]);
    assert_eq!(continued.code, Some(0), "{}", continued.err);
    assert!(fs::symlink_metadata(dir.path("link")).unwrap().is_symlink());
    assert_eq!(fs::metadata(dir.path("calls.parquet")).unwrap().permissions().mode() & 0o777, 0o640);
    let whole = fs::read(dir.path("calls.parquet")).unwrap();
    fs::write(dir.path("calls.parquet"), &whole[..whole.len() / 2]).unwrap();
    let refused = export(&["-o", "calls.parquet", "--resume"]);
    assert!(refused.code == Some(1) && refused.err.contains("cannot continue"), "{}", refused.err);
    let names: Vec<_> = fs::read_dir(dir.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().starts_with(".tmp")), "{names:?}");
}

#[test]
fn witnesses_keep_every_checkpoint_and_one_that_fails_stops_nothing() {
    let (url, received) = webhook(vec![500]);
    let away = "[ledger]\nwitnesses = [\"kept\", \"no/folder/kept\", \"URL\"]\n".replace("URL", &url);
    let dir = TestDir::new(&(away + CONFIGURATION));
    called(&dir);
    let (refused, taken) = (received.recv().unwrap(), received.recv().unwrap());
    assert_eq!(refused.body, taken.body, "what it could not take is sent again at the end");
    called(&dir);
    let kept = fs::read_to_string(dir.path("kept")).unwrap();
    let posted = [taken.body, received.recv().unwrap().body];
    assert_eq!(kept, posted.join("\n"), "both have all of them");
    let good = dir.run(&["audit", "verify", "--checkpoint", "kept"]);
    assert_eq!(good.code, Some(0), "{}{}", good.out, good.err);
    fs::remove_dir_all(dir.data("")).unwrap();
    called(&dir);
    assert_eq!(dir.run(&["audit", "verify", "--checkpoint", "kept"]).code, Some(1), "it is another ledger");

    for (witnesses, way_out) in [("[\"ftp://x/y\"]", "https://witness.example.com/checkpoints"), ("[\"\"]", "path")] {
        dir.configure(&format!("[ledger]\nwitnesses = {witnesses}\n{CONFIGURATION}"));
        let refused = dir.run(&["check"]);
        assert!(refused.code != Some(0) && refused.err.contains(way_out), "{}", refused.err);
    }
    for (retention, way_out) in [("\"1h\"", "from 86400"), ("\"for ever\"", "ms, s, m, h, d or y")] {
        dir.configure(&format!("[ledger]\nretention = {retention}\n{CONFIGURATION}"));
        let refused = dir.run(&["check"]);
        assert!(refused.code != Some(0) && refused.err.contains(way_out), "{}", refused.err);
    }
}

#[test]
fn an_archive_is_restored_elsewhere_and_is_verified_and_read_there() {
    let dir = TestDir::new(CONFIGURATION);
    let call = called(&dir);
    called(&dir);
    let key = dir.run(&["audit", "key"]).out;
    let made = dir.run(&["audit", "archive", "kept.zip"]);
    assert_eq!(made.code, Some(0), "{}", made.err);
    let refused = dir.run(&["audit", "archive", "kept.zip"]);
    assert!(refused.code == Some(1) && refused.err.contains("kept.zip"), "{}", refused.err);
    called(&dir);

    let stranger = TestDir::new("");
    let archive = dir.path("kept.zip").display().to_string();
    let restored = stranger.run(&["audit", "restore", &archive, "copy"]);
    assert_eq!(restored.code, Some(0), "{}{}", restored.out, restored.err);
    assert!(restored.out.starts_with("good: "), "{}", restored.out);
    let listed = stranger.run(&["audit", "--data-dir", "copy"]).out;
    assert!(listed.contains(&call) && listed.lines().count() == 2, "{listed}");
    let verified = stranger.run(&["audit", "verify", "--data-dir", "copy", "--pubkey", key.trim()]);
    assert!(verified.out.contains("signed checkpoints in the data folder confirm"), "{}", verified.out);
    let again = stranger.run(&["audit", "restore", &archive, "copy"]);
    assert!(again.code == Some(1) && again.err.contains("does not exist yet"), "{}", again.err);

    // An older archive in the same place is another ledger, and not one from which something was removed.
    let newer = dir.path("newer.zip").display().to_string();
    assert_eq!(dir.run(&["audit", "archive", &newer]).code, Some(0));
    for archive in [&newer, &archive] {
        fs::remove_dir_all(stranger.path("copy")).unwrap();
        let restored = stranger.run(&["audit", "restore", archive, "copy"]);
        assert_eq!(restored.code, Some(0), "{}{}", restored.out, restored.err);
    }
}

#[test]
fn a_second_verification_computes_only_what_is_new_and_notices_a_ledger_that_was_replaced() {
    let dir = TestDir::new(CONFIGURATION);
    called(&dir);
    let before = |arguments: &[&str]| {
        let ran = dir.run(arguments);
        assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
        ran.out
            .lines()
            .find_map(|line| line.split_once(" of them were verified before"))
            .map(|(count, _)| count.to_owned())
    };
    assert_eq!(before(&["audit", "verify"]), None);
    let first = before(&["audit", "verify"]).unwrap();
    called(&dir);
    assert_eq!(before(&["audit", "verify"]), Some(first), "the new chain is computed");
    assert_eq!(before(&["audit", "verify", "--full"]), None);
    let json: serde_json::Value = serde_json::from_str(&dir.run(&["--json", "audit", "verify"]).out).unwrap();
    let chain = &json["chains"][1];
    assert_eq!(chain["verified_before"], chain["records"], "{json}");
    // The data folder is removed and made anew, which the folder itself does not show.
    fs::remove_dir_all(dir.data("")).unwrap();
    called(&dir);
    let replaced = dir.run(&["audit", "verify"]);
    assert_eq!(replaced.code, Some(1), "{}", replaced.out);
    assert!(replaced.out.contains("an earlier verification found"), "{}", replaced.out);
    let hint = replaced.out.lines().last().unwrap();
    let file = hint.split("remove ").nth(1).and_then(|rest| rest.split(" and verify").next()).unwrap();
    fs::remove_file(file).unwrap();
    assert_eq!(dir.run(&["audit", "verify"]).code, Some(0));
}

/// Returns the number of calls in the ledger.
fn listed(dir: &TestDir) -> usize {
    dir.run(&["--json", "audit", "-n", "1000"]).out.lines().count()
}
