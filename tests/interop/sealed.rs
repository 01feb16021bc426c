//! Sealed bodies are opened with another implementation of age, and of the cipher, by what the book says of the format.

use std::path::Path;
use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;

use crate::broker::{TestDir, output, succeeded};
use crate::installed;

#[tokio::test(flavor = "multi_thread")]
async fn another_implementation_makes_a_key_and_opens_what_was_sealed_for_it() {
    let dir = TestDir::bare("");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop/open_sealed.py");
    let python = |arguments: &[&str]| {
        let mut command = dir.command(&installed::python("python"));
        command.arg(&script).args(arguments);
        command
    };
    let recipient = succeeded(output(python(&["keygen", "key.txt"])).await, &["keygen"]);
    let configuration = format!(
        "[sources.calc]\ncomponent = \"builtin:calculator\"\n[ledger]\nrecipients = [{:?}]\n\
         [profiles.default]\nrecord = \"sealed\"\n",
        recipient.trim()
    );
    std::fs::write(dir.path().join("portcullis.toml"), configuration).unwrap();
    dir.run(&["call", "calc__add", r#"{"a": 20, "b": 22}"#]).await;

    let records = dir.run(&["audit", "tail", "--kind", "call.intent", "--json"]).await;
    let mut opening = python(&["open", &dir.at(".portcullis"), "key.txt"]);
    let mut opening = opening.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    opening.stdin.take().unwrap().write_all(records.as_bytes()).await.unwrap();
    let opened = succeeded(opening.wait_with_output().await.unwrap(), &["open"]);
    assert_eq!(opened.trim(), r#"{"a": 20, "b": 22}"#);
    let shown = dir.run(&["audit", "tail", "--kind", "call.intent", "--json"]).await;
    assert!(!shown.contains("\"a\": 20"), "{shown}");
}
