//! ARCHITECTURE.md and SECURITY.md name the tests that prove what they say. Here: that those tests exist.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What stands before the names of tests in a document.
const TESTS: &str = "Tests:";

#[test]
fn every_test_that_a_document_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut functions = BTreeSet::new();
    for folder in ["host", "plugins", "tests", "examples"] {
        collect(&root.join(folder), &mut functions);
    }
    for document in ["ARCHITECTURE.md", "SECURITY.md"] {
        let text = fs::read_to_string(root.join(document)).unwrap();
        let named: Vec<_> =
            text.lines().filter_map(|line| line.split_once(TESTS)).flat_map(|(_, l)| quoted(l)).collect();
        assert!(
            named.len() > 10,
            "{document} names {} tests; is `{TESTS}` still what stands before them?",
            named.len()
        );
        let missing: Vec<_> = named.into_iter().filter(|name| !functions.contains(*name)).collect();
        assert!(missing.is_empty(), "{document} names tests that do not exist: {missing:?}");
    }
}

/// What stands between backquotes.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The names of all functions in the Rust files of a folder.
fn collect(folder: &Path, functions: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() && entry.file_name() != "target" && entry.file_name() != "node_modules" {
            collect(&path, functions);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let after = text.split("fn ").skip(1);
            functions.extend(after.map(|rest| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()));
        }
    }
}
