//! The same tool in three languages, built as the READMEs of the examples say, and called.

use std::path::PathBuf;

use portcullis_test_support::outside;
use tokio::time::timeout;

use crate::broker::{DEADLINE, TestDir, output};
use crate::installed;

#[tokio::test(flavor = "multi_thread")]
async fn the_same_tool_in_every_language_gives_the_same_answers() {
    let sources: [(&str, PathBuf, &str); 3] = [
        ("rust", outside("tool-in-rust", "words"), "[]"),
        ("javascript", installed::tool("javascript"), "[\"log\"]"),
        ("python", installed::tool("python"), "[\"log\"]"),
    ];
    let tables = sources.map(|(name, component, grant)| {
        format!(
            "[sources.{name}]\ncomponent = {:?}\ngrant = {grant}\ntimeout = \"120s\"\n",
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
