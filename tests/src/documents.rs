//! Checks that the tests and files that documents name exist.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::fs;

use crate::repository::{documents, root, rust_files};

/// The marker before the names of tests in a document.
const TESTS: &str = "Tests:";

/// The documents with promises, each of which names its tests.
const DOCUMENTS: [&str; 2] = ["ARCHITECTURE.md", "SECURITY.md"];

#[test]
fn every_test_that_a_document_names_exists() {
    let mut functions = BTreeSet::new();
    for file in rust_files() {
        let text = fs::read_to_string(file).unwrap();
        let after = text.split("fn ").skip(1);
        let name = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
        functions.extend(after.map(name));
    }
    for document in DOCUMENTS {
        let text = fs::read_to_string(root().join(document)).unwrap();
        let named: Vec<_> =
            text.lines().filter_map(|line| line.split_once(TESTS)).flat_map(|(_, l)| quoted(l)).collect();
        assert!(
            named.len() > 10,
            "{document} names {} tests; does `{TESTS}` still stand before their names?",
            named.len()
        );
        let missing: Vec<_> = named.into_iter().filter(|name| !functions.contains(*name)).collect();
        assert!(missing.is_empty(), "{document} names tests that do not exist: {missing:?}");
    }
}

#[test]
fn every_file_that_a_document_names_exists() {
    let files = rust_files();
    for document in documents() {
        // It names files of earlier versions too.
        if document.ends_with("CHANGELOG.md") {
            continue;
        }
        let text = fs::read_to_string(&document).unwrap();
        let named = text.lines().flat_map(quoted).filter(|name| name.ends_with(".rs") && !name.contains([' ', '*']));
        let missing: Vec<_> = named.filter(|name| !files.iter().any(|file| file.ends_with(name))).collect();
        assert!(missing.is_empty(), "{} names files that do not exist: {missing:?}", document.display());
    }
}

/// Returns the texts between backquotes.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}
