//! Tests of what a source can and cannot do to configurations and data folders in a folder that it may write.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use portcullis_test_support::source_program;
use serde_json::Value;

use super::{CALC, FILES, ask, fails, works};
use crate::test_dir::{Ran, TestDir, finish};

/// Runs `portcullis tools` in a folder.
fn tools_in(dir: &TestDir, folder: &Path) -> Ran {
    run_in(dir, folder, &["tools"])
}

fn run_in(dir: &TestDir, folder: &Path, arguments: &[&str]) -> Ran {
    let mut command = dir.command(arguments);
    command.current_dir(folder);
    finish(command)
}

/// Creates a configuration `open/sub/portcullis.toml` that the user of a folder trusts, and a file in its data folder.
/// Returns both.
fn trusted_below(dir: &TestDir) -> [PathBuf; 2] {
    let sub = dir.path("open/sub");
    fs::create_dir(&sub).unwrap();
    let kept = [sub.join("portcullis.toml"), sub.join(".portcullis/note")];
    fs::write(&kept[0], CALC).unwrap();
    fs::set_permissions(&kept[0], Permissions::from_mode(0o644)).unwrap();
    dir.trust(&kept[0]);
    fs::write(&kept[1], "as it was").unwrap();
    kept
}

/// Runs a script in a cell, in the folder `open`, which it may write. Returns the report of `check`.
#[track_caller]
fn caged(dir: &TestDir, script: &str) -> Value {
    dir.configure(&format!(
        "[sources.files]\ncommand = [\"/bin/sh\", \"-c\", \"cd @dir@/open; {script}; exec @source@ plain\"]\n\
         cell = {{ read = [\"@source@\"], write = [\"open\"] }}\n"
    ));
    let ran = dir.run(&["check", "--json"]);
    works(&ran);
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
fn a_source_cannot_change_or_remove_a_configuration_at_the_top_of_a_folder_that_it_may_write() {
    let dir = TestDir::new(
        "[sources.files]\n\
         command = [\"/bin/sh\", \"-c\", \"cd @dir@/open; touch new; for kept in portcullis.toml .portcullis/lock; do \
         echo planted > $kept; rm -f $kept; done; mv .portcullis moved; mv new portcullis.toml; exec @source@ plain\"]\n\
         cell = { read = [\"@source@\"], write = [\"open\"] }\n",
    );
    fs::create_dir(dir.path("open/.portcullis")).unwrap();
    let kept = [dir.path("open/portcullis.toml"), dir.path("open/.portcullis/lock")];
    for file in &kept {
        fs::write(file, "as it was").unwrap();
    }
    let ran = dir.run(&["check", "--json"]);
    works(&ran);
    for file in &kept {
        assert_eq!(fs::read_to_string(file).unwrap(), "as it was", "{}", file.display());
    }
    assert!(dir.path("open/new").exists() && !dir.path("open/moved").exists(), "it could write everything else");
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["sources"][0]["cell"]["kept"].as_array().unwrap().len(), 2, "{report}");
}

#[test]
fn a_source_cannot_make_a_configuration_in_a_folder_that_it_may_write() {
    let dir = TestDir::new("");
    caged(
        &dir,
        "mkdir sub; for at in . sub; do echo planted > $at/portcullis.toml; echo planted > new; mv new $at/portcullis.toml; \
         ln new $at/portcullis.toml; mkdir $at/.portcullis; mkdir data; mv data $at/.portcullis; \
         ln -s ../new $at/.portcullis; ln -s portcullis.toml $at/link; echo planted > $at/link; done; true",
    );
    for at in ["", "sub/"] {
        for name in ["portcullis.toml", ".portcullis"] {
            let path = dir.path(&format!("open/{at}{name}"));
            assert!(path.symlink_metadata().is_err(), "{}", path.display());
        }
    }
    assert!(dir.path("open/new").exists() && dir.path("open/data").exists(), "it could write everything else");
}

#[test]
fn a_source_cannot_change_a_trusted_configuration_at_any_depth_of_a_folder_that_it_may_write() {
    let dir = TestDir::new("");
    let kept = trusted_below(&dir);
    let report = caged(
        &dir,
        "cd sub; touch new; for kept in portcullis.toml .portcullis/note; do echo planted > $kept; rm -f $kept; \
         mv $kept copy; cp new $kept; done; touch .portcullis/new; rm -rf .portcullis; mv .portcullis gone; true",
    );
    assert_eq!(fs::read_to_string(&kept[0]).unwrap(), CALC);
    assert_eq!(fs::read_to_string(&kept[1]).unwrap(), "as it was");
    let sub = dir.path("open/sub");
    assert!(sub.join("new").exists() && !sub.join("gone").exists(), "it could write everything else");
    assert!(!sub.join(".portcullis/new").exists());
    let said = [sub.join(".portcullis"), kept[0].clone()].map(|path| path.display().to_string());
    assert_eq!(report["sources"][0]["cell"]["kept"], serde_json::json!(said));
    works(&tools_in(&dir, &sub));
}

#[test]
fn a_source_finds_the_data_folders_of_brokers_empty_in_what_it_may_read_or_write() {
    let dir = TestDir::new("");
    let folders = ["code", "code/repo", "open", "open/repo", "tool"];
    for folder in folders {
        let data_dir = dir.path(folder).join(".portcullis");
        if folder.ends_with("repo") {
            let config = dir.path(folder).join("portcullis.toml");
            fs::create_dir(dir.path(folder)).unwrap();
            fs::write(&config, CALC).unwrap();
            fs::set_permissions(&config, Permissions::from_mode(0o644)).unwrap();
            dir.trust(&config);
        } else {
            fs::create_dir_all(&data_dir).unwrap();
        }
        fs::write(data_dir.join("secrets.json"), "a secret of another broker").unwrap();
    }
    // A virtual environment: its program gets the parts of an environment and nothing else.
    fs::create_dir(dir.path("tool/bin")).unwrap();
    fs::write(dir.path("tool/pyvenv.cfg"), "").unwrap();
    fs::copy("/bin/sh", dir.path("tool/bin/python")).unwrap();
    dir.configure(
        "[sources.files]\n\
         command = [\"@dir@/tool/bin/python\", \"-c\", \"for at in code code/repo open open/repo tool; do \
         cd @dir@/$at; \
         cat portcullis.toml .portcullis/secrets.json; ls -A .portcullis; echo new > .portcullis/new; \
         done > @dir@/open/seen 2>&1; exec @source@ plain\"]\n\
         cell = { read = [\"@source@\", \"code\"], write = [\"open\"] }\n",
    );
    let ran = dir.run(&["check", "--json"]);
    works(&ran);
    let seen = fs::read_to_string(dir.path("open/seen")).unwrap();
    assert!(!seen.contains("a secret"), "{seen}");
    assert_eq!(seen.matches("builtin:calculator").count(), 2, "configurations can be read: {seen}");
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let cell = &report["sources"][0]["cell"];
    let data_dirs = folders.map(|folder| dir.path(folder).join(".portcullis"));
    let [granted @ .., _] = data_dirs.each_ref().map(|path| path.display().to_string());
    assert_eq!(cell["hidden"], serde_json::json!(granted));
    assert!(cell["isolation"]["aspects"][2]["mechanism"].as_str().unwrap().ends_with("4, hidden"), "{cell}");
    for data_dir in data_dirs {
        assert_eq!(fs::read_to_string(data_dir.join("secrets.json")).unwrap(), "a secret of another broker");
        assert!(!data_dir.join("new").exists());
    }
}

#[test]
fn a_data_folder_other_than_the_trusted_one_is_refused() {
    let dir = TestDir::new("");
    let kept = trusted_below(&dir);
    let sub = dir.path("open/sub");
    works(&tools_in(&dir, &sub));
    // The folder that contains both is moved, and a copy takes its place. A program can do that on an older kernel,
    // which gives it no deputy.
    let plant = |script: &str| {
        let done = Command::new("/bin/sh").args(["-ec", script]).current_dir(dir.path("open")).status();
        assert!(done.unwrap().success());
    };
    plant(
        "mv sub own; mkdir -p sub/.portcullis; cp own/portcullis.toml sub; chmod 644 sub/portcullis.toml; \
         echo planted > sub/.portcullis/note",
    );
    caged(&dir, "true");
    assert_eq!(fs::read_to_string(&kept[0]).unwrap(), CALC);
    assert_eq!(fs::read_to_string(&kept[1]).unwrap(), "planted\n", "the copy");
    assert_eq!(fs::read_to_string(dir.path("open/own/.portcullis/note")).unwrap(), "as it was");
    fails(&tools_in(&dir, &sub), &["is not the data folder that you trusted", "may have written", "--config"]);
    assert!(dir.run(&["trust", "--list"]).out.contains("changed"));
    let nobody = run_in(&dir, &sub, &["trust", "--yes"]);
    fails(&nobody, &["is not the data folder that you trusted", "is there already", "run `mv '", "on a terminal"]);
    let (code, said) = ask(&dir, &sub, "no");
    assert!(code == Some(1) && said.contains("is not the data folder that you trusted"), "{said}");

    // The trusted folder is moved back after it could be changed unnoticed.
    plant("echo planted > own/.portcullis/note; mv sub copy; mv own sub");
    assert_eq!(fs::read_to_string(&kept[1]).unwrap(), "planted\n", "the one that was trusted");
    fails(&tools_in(&dir, &sub), &["is not the data folder that you trusted"]);

    // Without a data folder nothing that was planted is used, and a new one is created and remembered.
    fs::remove_dir_all(sub.join(".portcullis")).unwrap();
    works(&tools_in(&dir, &sub));
    works(&tools_in(&dir, &sub));
    fs::rename(sub.join(".portcullis"), sub.join("moved")).unwrap();
    fs::create_dir(sub.join(".portcullis")).unwrap();
    fs::set_permissions(sub.join(".portcullis"), Permissions::from_mode(0o700)).unwrap();
    fails(&tools_in(&dir, &sub), &["is not the data folder that you trusted"]);
    let (code, said) = ask(&dir, &sub, "yes");
    assert!(code == Some(0) && said.contains("calc__add"), "{said}");
    works(&tools_in(&dir, &sub));
}

#[test]
fn the_trust_question_names_the_source_that_may_have_written_the_configuration() {
    let dir = TestDir::new(&FILES.replace("\"open\"", "\"@dir@/open\""));
    let sub = dir.path("open/sub");
    fs::create_dir(&sub).unwrap();
    fs::write(sub.join("portcullis.toml"), CALC).unwrap();
    fs::set_permissions(sub.join("portcullis.toml"), Permissions::from_mode(0o644)).unwrap();
    let trust = |arguments: &[&str]| run_in(&dir, &sub, &[&["trust"], arguments].concat());
    let shown = |file: &Path| {
        let (file, folder) = (file.display(), dir.path("open").display().to_string());
        format!("source `files` of {file} may write {folder}, and so may have written this file")
    };
    let own = dir.path("home/.config/portcullis/portcullis.toml");
    fs::create_dir_all(own.parent().unwrap()).unwrap();
    for granting in [dir.path("portcullis.toml"), own.clone()] {
        if granting == own {
            fs::rename(dir.path("portcullis.toml"), &own).unwrap();
        }
        let said = shown(&granting);
        fails(&trust(&["--yes"]), &[&said, "on a terminal and answer", "--config", "smaller folders"]);
        fails(&trust(&[]), &[&said]);
        fails(&tools_in(&dir, &sub), &["is not trusted", "so may have written this file"]);
        assert!(!sub.join(".portcullis").exists());
    }
    let (code, said) = ask(&dir, &sub, "yes");
    assert!(code == Some(0) && said.contains("so may have written this file") && said.contains("calc__add"), "{said}");
    works(&tools_in(&dir, &sub));

    // A source that may no longer write there, or whose configuration is not used, is not named.
    works(&trust(&["--revoke"]));
    fs::remove_dir_all(sub.join(".portcullis")).unwrap();
    fs::rename(&own, dir.path("portcullis.toml")).unwrap();
    fs::write(dir.path("portcullis.toml"), "changed").unwrap();
    works(&trust(&["--yes"]));
}

#[test]
fn an_existing_data_folder_is_never_trusted_without_a_question() {
    let dir = TestDir::new("");
    fs::remove_file(dir.path("portcullis.toml")).unwrap();
    works(&dir.run(&["trust", "--revoke"]));
    let program = source_program("portcullis-test-source");
    let client = serde_json::json!({ "mcpServers": { "plain": { "command": program, "args": ["plain"] } } });
    fs::write(dir.path("mcp.json"), client.to_string()).unwrap();
    let ran = dir.run(&["import", "mcp.json"]);
    works(&ran);
    assert!(ran.err.contains("is not trusted yet") && ran.err.contains("is there already"), "{}", ran.err);
    fails(&dir.run(&["tools"]), &["is not trusted"]);
}

#[test]
fn the_data_folder_of_the_users_own_configuration_is_granted_to_no_source() {
    let dir = TestDir::new("");
    let own = dir.path("home/.config/portcullis");
    fs::create_dir_all(&own).unwrap();
    fs::write(
        own.join("portcullis.toml"),
        format!("[broker]\ndata-dir = \"{}\"\n{CALC}", dir.path("open/a/data").display()),
    )
    .unwrap();
    fs::set_permissions(own.join("portcullis.toml"), Permissions::from_mode(0o644)).unwrap();
    dir.configure(FILES);
    fails(&dir.run(&["tools"]), &["would open the broker's own", "open/a/data", "name smaller folders"]);
}
