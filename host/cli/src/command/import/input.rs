//! The files that `import` reads.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum as _;
use portcullis::config::most_similar;

use crate::connect::client::Client;
use crate::connect::client_file::{MAX_BYTES, read};
use crate::output::escape_hidden;

/// The folders in which clients keep the files of a project.
const PROJECT_FOLDERS: [&str; 5] = [".vscode", ".cursor", ".codex", ".gemini", ".zed"];

/// A file of a client.
pub(super) struct Input {
    /// The path, safe to show.
    pub(super) shown: String,
    pub(super) text: anyhow::Result<String>,
    /// The folder of the project to which the file belongs, or the working directory.
    pub(super) workspace: PathBuf,
    /// The project that has the file, if one has it.
    pub(super) project: Option<PathBuf>,
    /// True for a file from which a client starts servers.
    pub(super) is_clients: bool,
    /// True for a client's file in the user's home. Anybody may have written another one.
    pub(super) is_own: bool,
}

impl Input {
    /// Reports whether a file of variables that the servers name may be read: the author of a project's file may name
    /// one of the user's there.
    pub(super) fn may_read(&self, file: &Path) -> bool {
        let within = |project: &PathBuf| Some(file.canonicalize().ok()?.starts_with(project.canonicalize().ok()?));
        self.is_own || self.project.as_ref().and_then(within).unwrap_or(false)
    }
}

/// Returns the file that is named, or those of the client that is named.
///
/// # Errors
/// If none is named, or the client has none.
pub(super) fn inputs(from: Option<&Path>) -> anyhow::Result<Vec<Input>> {
    let here = std::env::current_dir().context("the working directory is not known")?;
    let Some(from) = from else { bail!("{}", which(&here)) };
    if from == Path::new("-") {
        return Ok(vec![Input {
            shown: "standard input".to_owned(),
            text: standard_input(),
            workspace: here,
            project: None,
            is_clients: false,
            is_own: false,
        }]);
    }
    let Some(client) = from.to_str().and_then(Client::named).filter(|_| !from.is_file()) else {
        let is_word = from.components().count() == 1 && from.extension().is_none();
        ensure!(!is_word || from.symlink_metadata().is_ok(), "{}", neither_file_nor_client(&shown(from)));
        return Ok(vec![Input { is_clients: false, ..input(from, &here) }]);
    };
    // In the home folder, the file of the project is that of the user.
    let mut seen = BTreeSet::new();
    let mut files = client.files(&here)?;
    files.retain(|file| seen.insert(file.canonicalize().unwrap_or_else(|_| file.clone())));
    let found: Vec<Input> = files.iter().filter(|file| file.exists()).map(|file| input(file, &here)).collect();
    let looked = files.iter().map(|file| shown(file)).collect::<Vec<_>>().join(", ");
    ensure!(
        !found.is_empty(),
        "{} has no file of servers: looked for {looked}; name another file instead",
        client.name()
    );
    Ok(found)
}

fn input(file: &Path, here: &Path) -> Input {
    let project = project(file);
    Input {
        shown: shown(file),
        text: read(file),
        workspace: project.clone().unwrap_or_else(|| here.to_owned()),
        project,
        is_clients: true,
        is_own: is_own(file),
    }
}

/// Reports whether a file is one in which a client keeps servers of the user.
fn is_own(file: &Path) -> bool {
    let Ok(file) = std::path::absolute(file) else { return false };
    Client::value_variants().iter().filter_map(|client| client.user_files().ok()).flatten().any(|own| own == file)
}

/// Returns the folder of the project that has a file, or `None` for a file of the user.
fn project(file: &Path) -> Option<PathBuf> {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let home = std::env::home_dir();
    let folder = file.parent().filter(|folder| {
        file.file_name().is_some_and(|name| name == ".mcp.json")
            || folder.file_name().is_some_and(|name| PROJECT_FOLDERS.iter().any(|known| name == *known))
    });
    let project = match folder {
        Some(folder) if file.file_name().is_some_and(|name| name == ".mcp.json") => Some(folder),
        Some(folder) => folder.parent(),
        None => None,
    };
    project.filter(|project| home.as_deref() != Some(*project)).map(Path::to_owned)
}

/// Says which clients have files that could be imported.
fn which(here: &Path) -> String {
    let has_file = |client: &&Client| client.files(here).is_ok_and(|files| files.iter().any(|file| file.is_file()));
    let found: Vec<String> = Client::value_variants()
        .iter()
        .filter(has_file)
        .map(|client| format!("`portcullis import {}`", client.name()))
        .collect();
    match found.is_empty() {
        true => "name a file, as in `portcullis import mcp.json`: no known client has one here".to_owned(),
        false => format!("name a file or a client; there are files for {}", found.join(", ")),
    }
}

/// Says which client may be meant by a word that no file has as its name.
fn neither_file_nor_client(word: &str) -> String {
    let known: Vec<String> = Client::value_variants().iter().map(|client| client.name()).collect();
    let near = most_similar(word, known.iter().map(String::as_str)).map(|near| format!("; did you mean `{near}`?"));
    format!(
        "{word} is neither a file here nor a known client{}; the clients are {}",
        near.unwrap_or_default(),
        known.join(", ")
    )
}

fn standard_input() -> anyhow::Result<String> {
    let mut text = String::new();
    std::io::stdin().take(MAX_BYTES + 1).read_to_string(&mut text)?;
    Ok(text)
}

fn shown(path: &Path) -> String {
    escape_hidden(&path.to_string_lossy()).into_owned()
}
