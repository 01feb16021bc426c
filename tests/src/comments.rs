//! Checks the form of comments.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;

use crate::repository::{root, rust_files};

/// The most columns of a line that is a comment: those of the code, and a few for a word that is better not parted.
const MAX_COLUMNS: usize = 124;

#[test]
fn no_comment_is_wider_than_the_code() {
    let mut wide = Vec::new();
    for file in rust_files() {
        let name = file.strip_prefix(root()).unwrap();
        // The numbers of a plugin's lines are part of its digest.
        if name.starts_with("plugins") {
            continue;
        }
        for (at, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            if line.trim_start().starts_with("//") && line.chars().count() > MAX_COLUMNS {
                wide.push(format!("{}:{}", name.display(), at + 1));
            }
        }
    }
    assert!(wide.is_empty(), "comments of more than {MAX_COLUMNS} columns:\n{}", wide.join("\n"));
}
