//! Real servers are learned from an empty cell, and compared with the cells that were written by hand.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use crate::broker::TestDir;
use crate::installed::{self, TOOLS};

#[tokio::test(flavor = "multi_thread")]
async fn the_learned_cell_of_a_server_is_within_one_line_of_that_written_by_hand() {
    let dir = TestDir::new("").await;
    let file = dir.at("portcullis.toml");
    let configured = std::fs::read_to_string(&file).unwrap();
    let empty: String =
        configured.lines().filter(|line| !line.starts_with("cell.")).fold(String::new(), |mut all, line| {
            writeln!(all, "{line}").unwrap();
            all
        });
    std::fs::write(&file, empty).unwrap();
    let mut wrong = Vec::new();
    for (server, _) in TOOLS {
        let learned = dir.json(&["learn", server, "--yes"]).await;
        let line = |line: &Value| format!("--{} {}", line["key"].as_str().unwrap(), line["value"].as_str().unwrap());
        let found: BTreeSet<String> = learned["lines"].as_array().unwrap().iter().map(line).collect();
        // The grant of `everything` is made up for other tests.
        let by_hand = installed::cell(server, dir.path()).into_iter().filter(|_| server != "everything");
        let by_hand: BTreeSet<String> = by_hand.map(|[option, value]| format!("{option} {value}")).collect();
        if learned["works"] != true || found.symmetric_difference(&by_hand).count() > 1 {
            wrong.push(format!("{server}: {found:?}, and by hand {by_hand:?}; {learned}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
