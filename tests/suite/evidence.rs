//! Checkpoints and proofs from the command line, as two people use them: one who has the ledger, and one who does not.

use std::fs;

use crate::test_dir::TestDir;

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
    assert_eq!(dir.run(&["audit", "verify"]).code, Some(0), "it contradicts nothing by itself");
    let found = dir.run(&["audit", "verify", "--checkpoint", "kept"]);
    assert_eq!(found.code, Some(1), "{}", found.out);
    assert!(found.out.contains("tampered with: record 1 of chain"), "{}", found.out);

    // Another key, and something that is no checkpoint.
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

    // Who has kept a checkpoint of the same chain asks for a proof that continues it.
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
