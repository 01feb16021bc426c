//! The blocks of code in the book, which tests parse and run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{clean, root, run};

/// A block of code in a document.
#[derive(Debug, Clone)]
pub struct CodeBlock {
    /// The document, as a path from the root of the repository.
    pub document: String,
    /// The number of the line with the opening fence, from 1.
    pub line: usize,
    /// The words behind the opening fence: the language, then what tests do with the block.
    pub kind: Vec<String>,
    /// The text between the fences.
    pub text: String,
}

impl CodeBlock {
    /// Reports whether this word stands behind the opening fence.
    #[must_use]
    pub fn is(&self, word: &str) -> bool {
        self.kind.iter().any(|kind| kind == word)
    }

    /// Returns the document and the line, for messages.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{}:{}", self.document, self.line)
    }
}

/// Returns the blocks of the README and of all pages of the book, in order within each document.
///
/// # Panics
/// If a document cannot be read, or a block is not closed.
#[must_use]
pub fn code_blocks() -> Vec<CodeBlock> {
    let mut documents = vec![root().join("README.md"), root().join("examples/wrap-a-server/README.md")];
    pages(&root().join("docs/src"), &mut documents);
    documents.sort();
    documents.iter().flat_map(|document| blocks_of(document)).collect()
}

fn blocks_of(path: &Path) -> Vec<CodeBlock> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let document = path.strip_prefix(root()).unwrap_or(path).display().to_string();
    let (mut blocks, mut open) = (Vec::new(), None);
    for (index, line) in text.lines().enumerate() {
        let text = line.trim_start();
        match (open.take(), text.strip_prefix("```")) {
            (None, Some(kind)) => {
                let kind = kind.split(',').map(|word| word.trim().to_owned()).collect();
                let block = CodeBlock { document: document.clone(), line: index + 1, kind, text: String::new() };
                open = Some((block, line.len() - text.len()));
            }
            (Some((block, _)), Some(_)) => blocks.push(block),
            (Some((mut block, indent)), None) => {
                block.text.push_str(line.get(indent..).unwrap_or_default());
                block.text.push('\n');
                open = Some((block, indent));
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{document}: a block is not closed");
    blocks
}

fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())).flatten() {
        let path = entry.path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// Tests and builds the policy that the book shows, from its manifest and its source, and returns its file.
///
/// # Panics
/// If its own test fails or it cannot be built, with the output of cargo.
#[must_use]
pub fn policy_of_the_book(manifest: &str, source: &str) -> PathBuf {
    let outside = root().join("target/outside");
    let folder = outside.join("policy-of-the-book");
    let write = |name: &str, text: &str| {
        let written = fs::create_dir_all(folder.join("src")).and_then(|()| fs::write(folder.join(name), text));
        written.unwrap_or_else(|error| panic!("{name} cannot be written: {error}"));
    };
    // Outside of the workspace, with the same versions of its dependencies.
    let manifest = manifest.replace("PORTCULLIS", &root().display().to_string());
    write("Cargo.toml", &format!("{manifest}\n[workspace]\n"));
    write("src/lib.rs", source);
    write("Cargo.lock", &fs::read_to_string(root().join("Cargo.lock")).unwrap_or_default());
    // In one profile, so that both share the macros that they are built with.
    for arguments in [&["test", "--release"][..], &["build", "--release", "--target", "wasm32-unknown-unknown"]] {
        let mut command = clean(Command::new("cargo"));
        command.args(arguments).args(["--quiet", "--offline", "--target-dir"]).arg(&outside);
        command.current_dir(&folder);
        run(command, "the policy of the book");
    }
    outside.join("wasm32-unknown-unknown/release/house_words.wasm")
}
