//! Attempts in words, as evidence for a line of a cell.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use portcullis_cell::{AttemptAction, AttemptAvailability, AttemptSubject, RecordedAttempt};

/// The largest number of characters that are shown of the path or host of an attempt, and of the name of a program.
const MAX_SUBJECT_CHARS: usize = 120;
const MAX_PROGRAM_CHARS: usize = 24;

/// The evidence for a line that is withheld, and the reason why it is.
#[derive(Debug)]
pub(super) struct Withheld {
    reason: &'static str,
    said: Vec<String>,
    /// The temporary files that were to be written.
    temporary: BTreeSet<PathBuf>,
    /// The attempt to write the first of them, in words, and the program that made it.
    first_temporary: Option<(String, String)>,
}

impl Withheld {
    pub(super) fn because(reason: &'static str) -> Self {
        Self { reason, said: Vec::new(), temporary: BTreeSet::new(), first_temporary: None }
    }

    /// Adds an attempt.
    pub(super) fn add(&mut self, attempt: &RecordedAttempt) {
        match &attempt.subject {
            AttemptSubject::Path(path) if is_temporary(attempt, path) => {
                self.first_temporary.get_or_insert_with(|| (said(attempt), who(attempt)));
                self.temporary.insert(path.clone());
            }
            _ => self.said.push(said(attempt)),
        }
    }

    /// Returns the evidence for a line about this path, and the reason. Temporary files are one piece of evidence: each
    /// has another name, which means nothing.
    pub(super) fn of(self, path: &Path) -> (Vec<String>, &'static str) {
        let Self { reason, said, temporary, first_temporary } = self;
        let folder = shortened(&path.to_string_lossy(), MAX_SUBJECT_CHARS);
        let together = first_temporary.map(|(text, program)| match temporary.len() {
            1 => text,
            files => format!("{program} wrote {files} temporary files in {folder}"),
        });
        (together.into_iter().chain(said).collect(), reason)
    }
}

/// Reports whether an attempt writes a file that is, by its name, one that a program renames or removes afterwards.
pub(super) fn is_temporary(attempt: &RecordedAttempt, path: &Path) -> bool {
    let is_written = matches!(attempt.action, AttemptAction::Write | AttemptAction::Replace);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let ends = [".tmp", ".temp", ".part", "~"];
    is_written && (name.starts_with(".tmp") || ends.iter().any(|end| name.ends_with(end)))
}

/// Returns the name of the program that made an attempt.
fn who(attempt: &RecordedAttempt) -> String {
    match attempt.program.as_str() {
        "" => "the source".to_owned(),
        program => shortened(program, MAX_PROGRAM_CHARS),
    }
}

/// Returns an attempt in words.
pub(super) fn said(attempt: &RecordedAttempt) -> String {
    let RecordedAttempt { action, subject, availability, count, .. } = attempt;
    let what = match subject {
        AttemptSubject::Path(path) => path.display().to_string(),
        AttemptSubject::Address(address) => address.to_string(),
        AttemptSubject::Host(host, Some(port)) => format!("{host}:{port}"),
        AttemptSubject::Host(host, None) => host.clone(),
        AttemptSubject::Call(name) => (*name).to_owned(),
    };
    let what = shortened(&what, MAX_SUBJECT_CHARS);
    let action = match action {
        AttemptAction::Look => "looked at",
        AttemptAction::Read => "read",
        AttemptAction::Write => "wrote",
        AttemptAction::Replace => "replaced, renamed or removed",
        AttemptAction::Execute => "executed",
        AttemptAction::Connect => "asked for",
        AttemptAction::Call => "called",
    };
    let outcome = match availability {
        AttemptAvailability::Granted => "",
        AttemptAvailability::Absent => ", which does not exist",
        AttemptAvailability::Hidden => ", which exists outside",
        AttemptAvailability::ReadOnly => ", which it may only read",
        AttemptAvailability::Alone => ", which its cell has without the folder",
        AttemptAvailability::Denied => ", which was refused",
    };
    let who = who(attempt);
    let times = if *count > 1 { format!(" ({count} times)") } else { String::new() };
    format!("{who} {action} {what}{outcome}{times}")
}

/// Returns the beginning of a text of a source: the question to a person must not be scrolled away by it.
fn shortened(text: &str, most: usize) -> String {
    let end = text.char_indices().nth(most).map(|(end, _)| end);
    end.and_then(|end| text.get(..end)).map_or_else(|| text.to_owned(), |part| format!("{part}…"))
}
