//! AgentDojo's tasks and attacks, replayed behind the broker with `builtin:flow`. The book has the tables.

use std::path::Path;

use tokio::time::timeout;

use crate::broker::{DEADLINE, TestDir};
use crate::installed;

/// Fails if the tables in the book are not what is measured. `UPDATE_GOLDEN=1` writes them.
#[tokio::test(flavor = "multi_thread")]
async fn the_book_says_what_builtin_flow_does_with_agentdojos_tasks_and_attacks() {
    let dir = TestDir::bare("");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut measure = dir.command(&installed::agentdojo());
    measure.arg("-B").arg(here.join("interop/agentdojo/measure.py")).arg("--portcullis").arg(installed::portcullis());
    measure.arg("--page").arg(here.join("../docs/src/guide/flow-measured.md"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        measure.arg("--write");
    }
    let ended = timeout(10 * DEADLINE, measure.output()).await.expect("it ends").unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(ended.status.success(), "{}{}", text(&ended.stdout), text(&ended.stderr));
}
