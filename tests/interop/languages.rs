//! The same tool in three languages, built as the READMEs of the examples say, and called; and the plugins of `plugin
//! new` in JavaScript and Python.

use std::path::{Path, PathBuf};

use portcullis_test_support::outside;
use tokio::process::Command;
use tokio::time::timeout;

use crate::broker::{DEADLINE, TestDir, output};
use crate::installed;

#[tokio::test(flavor = "multi_thread")]
async fn the_same_tool_in_every_language_gives_the_same_answers() {
    let sources: [(&str, PathBuf); 3] = [
        ("rust", outside("tool-in-rust", "words")),
        ("javascript", installed::tool("javascript")),
        ("python", installed::tool("python")),
    ];
    let tables = sources.map(|(name, component)| {
        format!(
            "[sources.{name}]\ncomponent = {:?}\nrequired = true\ntimeout = \"120s\"\n",
            component.display().to_string()
        )
    });
    let dir = TestDir::bare(&tables.concat());
    // The first start compiles two language runtimes, which takes longer than anything else here.
    let compiled = timeout(10 * DEADLINE, dir.portcullis(&["tools"]).output()).await.expect("it ends").unwrap();
    assert!(compiled.status.success(), "{compiled:?}");
    for name in ["rust", "javascript", "python"] {
        let said = dir.run(&["call", &format!("{name}__count"), r#"{"text":"one two  three"}"#]).await;
        assert_eq!(said.trim(), "3", "{name}");
        let refused = output(dir.portcullis(&["call", &format!("{name}__count"), r#"{"text":3}"#])).await;
        assert!(String::from_utf8_lossy(&refused.stderr).contains("text"), "{name}: {refused:?}");
    }
}

/// Runs a command that builds or tests a plugin in this folder.
async fn run_in(folder: &Path, mut command: Command) -> String {
    command.current_dir(folder);
    let ended = timeout(10 * DEADLINE, command.output()).await.expect("it ends").unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(ended.status.success(), "{command:?}: {}{}", text(&ended.stdout), text(&ended.stderr));
    text(&ended.stdout)
}

/// Calls a tool under the configuration of this folder, and returns what was said.
async fn called(dir: &TestDir, folder: &Path, tool: &str) -> String {
    let mut call = dir.command(&installed::portcullis());
    call.arg("--config")
        .arg(folder.join("portcullis.toml"))
        .args(["call", tool, r#"{"a":1,"b":2}"#])
        .current_dir(folder);
    String::from_utf8_lossy(&output(call).await.stderr).into_owned()
}

/// Calls a tool about which the approval plugin of this folder lets a person be asked. Nobody answers: a plugin that
/// fails would refuse the call with another code.
async fn asks_a_person(dir: &TestDir, folder: &Path) {
    let file = folder.join("portcullis.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{config}\n[broker]\nask-timeout = \"1s\"\n")).unwrap();
    let refused = called(dir, folder, "calculator__add").await;
    assert!(refused.contains("nobody answered in time"), "{refused}");
}

/// Makes a call that is denied, for which the sink of this folder writes a line.
async fn writes_denials(dir: &TestDir, folder: &Path) {
    let denied = called(dir, folder, "calculator__divide").await;
    let lines = std::fs::read_to_string(folder.join("denied.jsonl")).unwrap_or_default();
    assert!(lines.contains("calculator__divide") && lines.contains("\"rule\""), "{denied}: {lines}");
}

#[tokio::test(flavor = "multi_thread")]
async fn new_plugins_in_javascript_and_python_work_as_their_readmes_say() {
    let dir = TestDir::bare("");
    for language in ["javascript", "python"] {
        for kind in ["policy", "transform", "approval", "audit"] {
            let name = format!("{language}-{kind}");
            dir.run(&[
                "plugin",
                "new",
                &dir.path().join(&name).display().to_string(),
                "--lang",
                language,
                "--kind",
                kind,
            ])
            .await;
            let folder = dir.path().join(&name);
            let (world, wasm) = (format!("{kind}-plugin"), format!("{name}.wasm"));
            let mut build = dir.command(&installed::componentizer(language));
            match language {
                "javascript" => build.args(["--js", "plugin.js", "--wit", "wit", "--world", &world, "--sync"]).args([
                    "--stub-wasi",
                    "--opt-size",
                    "--output",
                    &wasm,
                ]),
                _ => build.args(["-d", "wit", "-w", &world, "componentize", "plugin", "-o", &wasm, "--stub-wasi"]),
            };
            run_in(&folder, build).await;
            match kind {
                "approval" => asks_a_person(&dir, &folder).await,
                "audit" => writes_denials(&dir, &folder).await,
                _ => {
                    let tested = run_in(&folder, dir.portcullis(&["plugin", "test"])).await;
                    assert!(tested.contains("2 of 2 cases are as expected"), "{name}: {tested}");
                }
            }
        }
    }
}
