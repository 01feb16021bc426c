//! `portcullis audit export`: calls in the forms that other systems read.

mod cef;
mod ocsf;

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal as _, Read as _, Seek as _, SeekFrom, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use portcullis::ledger::{CallEntry, LedgerReader};
use ulid::Ulid;

use super::list;
use crate::call_query::CallQuery;
use crate::output::{self, escape_hidden_json};

/// The number of calls after which the progress is shown again.
const PROGRESS_EVERY: u64 = 1000;

/// The largest line of an export, in bytes; names and reasons are shorter by far.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// The options of `audit export`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    query: CallQuery,

    /// The form: JSON, comma-separated values, events of the Open Cybersecurity Schema Framework (1.3, API Activity), or
    /// the Common Event Format
    #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl)]
    format: ExportFormat,

    /// Write into this new file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Continue the file after its last call, also if it is not there yet
    #[arg(long, requires = "output")]
    resume: bool,
}

/// The form of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ExportFormat {
    /// One JSON object for each call, as `audit --json` prints it
    Jsonl,
    /// Comma-separated values with a heading
    Csv,
    /// One OCSF event for each call
    Ocsf,
    /// One CEF line for each call
    Cef,
}

impl ExportFormat {
    fn word(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Csv => "csv",
            Self::Ocsf => "ocsf",
            Self::Cef => "cef",
        }
    }

    /// Returns the line before all others, with its end.
    fn heading(self) -> String {
        if self == Self::Csv { list::csv_heading() + "\r\n" } else { String::new() }
    }

    /// Returns a call as one line, with its end.
    fn line(self, entry: &CallEntry) -> anyhow::Result<String> {
        Ok(match self {
            Self::Jsonl => escape_hidden_json(&serde_json::to_string(entry)?).into_owned() + "\n",
            Self::Csv => list::csv(entry) + "\r\n",
            Self::Ocsf => escape_hidden_json(&ocsf::event(entry).to_string()).into_owned() + "\n",
            Self::Cef => cef::line(entry) + "\n",
        })
    }

    /// Returns the call that a line is about.
    fn call(self, line: &str) -> Option<Ulid> {
        let json = || serde_json::from_str::<serde_json::Value>(line).ok();
        let call = match self {
            Self::Jsonl => json()?.get("call")?.as_str()?.to_owned(),
            Self::Ocsf => json()?.pointer("/metadata/uid")?.as_str()?.to_owned(),
            Self::Csv => line.split(',').nth(1)?.to_owned(),
            Self::Cef => line.split_once("externalId=")?.1.split(' ').next()?.to_owned(),
        };
        call.parse().ok()
    }
}

/// Writes the calls that match, in the order in which they began.
pub(super) fn run(folder: &Path, args: &Args) -> anyhow::Result<ExitCode> {
    let Args { query, format, output, resume } = args;
    let reader = LedgerReader::open(folder)?;
    let Some(path) = output else {
        output::text(&format.heading())?;
        query.visit(&reader, false, |entry| {
            // A call that is open is not an event yet.
            if entry.outcome.is_final() {
                output::text(&format.line(&entry)?)?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        return Ok(ExitCode::SUCCESS);
    };
    let (file, last) = if *resume { continued(path, *format)? } else { (created(path)?, None) };
    let query = CallQuery { since: query.since.max(last.map(|last| last.timestamp_ms())), ..query.clone() };
    let mut file = BufWriter::new(file);
    let is_empty = file.get_ref().metadata().is_ok_and(|found| found.len() == 0);
    let failed = || format!("cannot write {}", path.display());
    if is_empty {
        file.write_all(format.heading().as_bytes()).with_context(failed)?;
    }
    let (mut written, mut open) = (0, None);
    let shows_progress = io::stderr().is_terminal();
    query.visit(&reader, false, |entry| {
        let call = entry.call.parse::<Ulid>().ok();
        if last.is_some() && call <= last {
            return Ok(ControlFlow::Continue(()));
        }
        if !entry.outcome.is_final() {
            open = Some(entry.call);
            return Ok(ControlFlow::Break(()));
        }
        file.write_all(format.line(&entry)?.as_bytes()).with_context(failed)?;
        written += 1;
        if shows_progress && written % PROGRESS_EVERY == 0 {
            output::status_line(&format!("{written} calls"));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error).with_context(failed)?;
    file.sync_all().with_context(failed)?;
    if shows_progress {
        output::status_line("");
    }
    output::message(&format!("{}: wrote {written} calls", path.display()));
    if let Some(call) = open {
        output::message(&format!(
            "it ends before call {call}, which is still open; `--resume` continues there once the call has ended"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn created(path: &Path) -> anyhow::Result<File> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match created {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            anyhow::bail!("{} exists: continue it with `--resume`, or remove it to write it anew", path.display())
        }
        created => created.with_context(|| format!("cannot create {}", path.display())),
    }
}

/// Opens a file at the end of its last whole line. Returns it with the call of that line.
fn continued(path: &Path, format: ExportFormat) -> anyhow::Result<(File, Option<Ulid>)> {
    let failed = || format!("cannot continue {}", path.display());
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let mut file = opened.with_context(failed)?;
    let length = file.metadata().with_context(failed)?.len();
    let start = length.saturating_sub(MAX_LINE_BYTES);
    let mut end = Vec::new();
    file.seek(SeekFrom::Start(start)).and_then(|_| file.read_to_end(&mut end)).with_context(failed)?;
    // A line that was cut is written again.
    let whole = end.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let cut = start + whole as u64;
    file.set_len(cut).and_then(|()| file.seek(SeekFrom::Start(cut))).with_context(failed)?;
    let lines = String::from_utf8_lossy(end.get(..whole).unwrap_or_default());
    let last = match lines.lines().next_back() {
        None => None,
        Some(heading) if cut > 0 && format.heading().trim_end() == heading => None,
        Some(line) => Some(format.call(line).with_context(|| {
            format!("{}: its last line is no call as `--format {}` writes it", path.display(), format.word())
        })?),
    };
    Ok((file, last))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use portcullis::ledger::RecordedOutcome;

    use super::*;

    pub(super) fn entry() -> CallEntry {
        let text = |text: &str| Some(text.to_owned());
        CallEntry {
            call: "01M7WN5Q1GEFB10ZKY19G6B2W8".to_owned(),
            run: text("01M7WN5Q1GEFB10ZKY19G6B2W7"),
            started: 1_795_000_000_123,
            principal: text("me"),
            profile: text("default"),
            client: text("claude-code"),
            method: text("tools/call"),
            kind: Some("tool"),
            item: text("files__read"),
            source: text("files"),
            outcome: RecordedOutcome::Denied,
            reason: text("rule"),
            answered_by: None,
            micros: Some(1500),
        }
    }

    #[test]
    fn every_form_says_which_call_a_line_is_about() {
        use clap::ValueEnum as _;

        let hostile = CallEntry { item: Some("a,\"b\" externalId=x|\n\u{202e}".to_owned()), ..entry() };
        for format in ExportFormat::value_variants() {
            for entry in [&entry(), &hostile] {
                let line = format.line(entry).unwrap();
                assert_eq!(line.matches('\n').count(), 1, "{line}");
                assert!(!line.contains('\u{202e}'), "{line}");
                assert_eq!(format.call(line.trim_end()), entry.call.parse().ok(), "{line}");
            }
            assert_eq!(format.call("something else"), None);
        }
    }

    #[test]
    fn a_file_is_continued_after_its_last_whole_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("calls");
        let format = ExportFormat::Csv;
        assert!(matches!(continued(&path, format), Ok((_, None))), "there is none yet");
        std::fs::write(&path, format.heading()).unwrap();
        assert!(matches!(continued(&path, format), Ok((_, None))), "it has its heading alone");
        let whole = format.heading() + &format.line(&entry()).unwrap();
        std::fs::write(&path, format!("{whole}2026-11-24T01:0")).unwrap();
        let (_, last) = continued(&path, format).unwrap();
        assert_eq!(last, entry().call.parse().ok());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), whole, "the line that was cut is gone");
        assert!(continued(&path, ExportFormat::Ocsf).unwrap_err().to_string().contains("--format ocsf"));
        assert!(created(&path).unwrap_err().to_string().contains("--resume"));
    }
}
