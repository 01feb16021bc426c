//! The table of the scanner's findings in the committed corpus equals the one committed next to it.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests, which read the developer's environment")]

#[path = "../examples/corpus/table.rs"]
mod table;

use std::fs;
use std::path::Path;

use portcullis_scan::Scanner;
use serde_json::Value;

use table::{DetectionTable, LabelledRow};

#[test]
fn the_committed_table_is_what_the_scanner_finds_in_the_corpus() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/corpus");
    let (scanner, mut table) = (Scanner::new(), DetectionTable::default());
    for file in ["malicious.jsonl", "benign.jsonl"] {
        for line in fs::read_to_string(corpus.join(file)).unwrap().lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            let row = LabelledRow::of(&row);
            for key in ["source", "license"] {
                assert!(!row.member(key).is_empty(), "{} has no {key}", row.member("id"));
            }
            table.add(&row, &scanner.scan(&row.definition()));
        }
    }
    let (golden, table) = (corpus.join("table.txt"), table.to_string());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&golden, &table).unwrap();
    }
    let committed = fs::read_to_string(&golden).unwrap();
    assert_eq!(table, committed, "the scanner finds something else; UPDATE_GOLDEN=1 writes the table again");
}
