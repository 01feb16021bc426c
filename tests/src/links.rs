//! Checks that the links of documents lead to files and headings that exist.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::repository::{documents, root};

/// The address of the repository's files, by which the book links to what is not in it.
const REPOSITORY: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/");

#[test]
fn every_link_between_documents_leads_to_a_file_and_a_heading() {
    let mut broken = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for link in links(&text) {
            if let Some(what) = fault(&document, &link) {
                broken.push(format!("{}: {link}: {what}", document.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Returns what is wrong with a link in a document. Links to other sites are not followed.
fn fault(document: &Path, link: &str) -> Option<&'static str> {
    let (path, heading) = link.split_once('#').map_or((link, None), |(path, heading)| (path, Some(heading)));
    let target = match path.strip_prefix(REPOSITORY) {
        Some(path) => root().join(path),
        None if path.contains("://") || path.starts_with("mailto:") => return None,
        None if path.is_empty() => document.to_owned(),
        None => document.parent()?.join(path),
    };
    if !target.exists() {
        return Some("there is no such file");
    }
    let pages = root().join("docs/src");
    let outside = |file: &Path| file.canonicalize().is_ok_and(|file| !file.starts_with(&pages));
    if document.starts_with(&pages) && !path.starts_with(REPOSITORY) && outside(&target) {
        return Some("it leads out of the book, where no page is: link to the repository");
    }
    let heading = heading?;
    (!headings(&target).contains(heading)).then_some("there is no such heading")
}

/// Returns the targets of the links outside of code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        // Text between backquotes is not a link.
        let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join("\u{1}");
        for rest in plain.split("](").skip(1) {
            found.extend(rest.split([')', ' ']).next().map(str::to_owned));
        }
        for rest in plain.split("src=\"").skip(1) {
            found.extend(rest.split('"').next().map(str::to_owned));
        }
    }
    found
}

/// Returns the lines outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// Returns the identifiers of the headings of a document, as mdBook and code hosts make them.
fn headings(file: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(file).unwrap();
    let titles = prose(&text).filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    titles.map(identifier).collect()
}

fn identifier(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[test]
fn links_are_found_outside_of_code_and_headings_have_identifiers() {
    let text = "see [a](b.md#c) and `[x](y)`\n```\n[no](where)\n```\n<img src=\"picture.svg\">\n";
    assert_eq!(links(text), ["b.md#c", "picture.svg"]);
    assert_eq!(identifier("What `check` shows: a cell's grants"), "what-check-shows-a-cells-grants");
}
