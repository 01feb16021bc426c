//! Checks that the tests and files that documents name exist.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
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

#[test]
fn the_map_lists_every_decision() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let pages = fs::read_dir(root().join("docs/decisions")).unwrap().map(|page| page.unwrap().file_name());
    let pages: Vec<_> = pages.map(|page| page.into_string().unwrap()).filter(|page| page != "README.md").collect();
    assert!(pages.len() > 30, "only {} decisions are found: does the test still see them?", pages.len());
    let missing: Vec<_> = pages.iter().filter(|page| !map.contains(&format!("(docs/decisions/{page})"))).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md does not list {missing:?}");
}

/// The texts with the costs of the edge host, each with the costs that it has.
const EDGE_COSTS: [(&str, &[&str]); 4] = [
    ("README.md", &["{program-mib} MiB on disk, {resident-mib} MiB resident"]),
    (
        "docs/src/costs.md",
        &["{program-mib} MiB on disk, {resident-mib} MiB resident; first answer of a tool {first-answer-ms} ms"],
    ),
    (
        "docs/src/extend/embedding.md",
        &["{program-mib} MiB on disk, {resident-mib} MiB resident, the first answer of a tool {first-answer-ms} ms"],
    ),
    (
        "examples/edge-host/README.md",
        &[
            "the program has {program-mib} MiB, the first answer of a tool comes {first-answer-ms} ms after",
            "a call takes {call-ms} ms, and {resident-mib} MiB are resident",
        ],
    ),
];

#[test]
fn the_costs_of_the_edge_host_are_those_that_its_bench_wrote() {
    let figures = fs::read_to_string(root().join("examples/edge-host/figures.json")).unwrap();
    let figures: BTreeMap<String, f64> = serde_json::from_str(&figures).unwrap();
    for (document, costs) in EDGE_COSTS {
        let text = fs::read_to_string(root().join(document)).unwrap();
        for cost in costs {
            let with_figure =
                |text: String, (key, value): (&String, &f64)| text.replace(&format!("{{{key}}}"), &value.to_string());
            let cost = figures.iter().fold((*cost).to_owned(), with_figure);
            assert!(text.contains(&cost), "{document} does not say {cost:?}");
        }
    }
}

/// Returns the texts between backquotes.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}
