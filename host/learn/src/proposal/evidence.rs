//! Attempts in words, as evidence for a line of a cell.

use portcullis_cell::{AttemptAction, AttemptAvailability, AttemptSubject, RecordedAttempt};

/// The largest number of characters that are shown of the path or host of an attempt, and of the name of a program.
const MAX_SUBJECT_CHARS: usize = 120;
const MAX_PROGRAM_CHARS: usize = 24;

/// Returns an attempt in words.
pub(super) fn said(attempt: &RecordedAttempt) -> String {
    let RecordedAttempt { action, subject, availability, count, program, .. } = attempt;
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
    let who = if program.is_empty() { "the source".to_owned() } else { shortened(program, MAX_PROGRAM_CHARS) };
    let times = if *count > 1 { format!(" ({count} times)") } else { String::new() };
    format!("{who} {action} {what}{outcome}{times}")
}

/// Returns the beginning of a text of a source: what a person is asked about is not to be scrolled away by it.
fn shortened(text: &str, most: usize) -> String {
    let end = text.char_indices().nth(most).map(|(end, _)| end);
    end.and_then(|end| text.get(..end)).map_or_else(|| text.to_owned(), |part| format!("{part}…"))
}
