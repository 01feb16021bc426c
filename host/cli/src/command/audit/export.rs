//! `portcullis audit export`: calls in the forms that other systems read.

mod cef;
mod fixtures;
mod line_format;
mod ocsf;
mod parquet;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal as _, Read as _, Seek as _, SeekFrom, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use portcullis::config::PluginConfig;
use portcullis::ledger::{self, CallEntry, LedgerReader};
use ulid::Ulid;

use self::fixtures::FixtureWriter;
use self::line_format::LineFormat;
use self::parquet::ParquetFile;
use crate::call_query::CallQuery;
use crate::identity::IdentityArgs;
use crate::output;

/// The number of calls after which the progress is shown again.
const PROGRESS_EVERY: u64 = 1000;

/// The advice for a file of lines that exists already.
const CONTINUE: &str = "continue it with `--resume`, or remove it";

/// The largest line of an export, in bytes; names and reasons are shorter by far.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// The longest time that a running broker takes from the beginning of a call to its first record, in milliseconds.
/// Decisions of plugins and writes of the ledger have limits of seconds.
const MAX_UNRECORDED_MS: u64 = 60_000;

/// Why a file ends before a call.
const STILL_OPEN: &str = "which is still open; `--resume` continues there once the call has ended";
const TOO_NEW: &str = "which is new: the running broker may not have recorded an earlier one yet, for a minute at most; `--resume` \
                       continues there";

/// The options of `audit export`.
#[derive(Debug, clap::Args)]
#[command(mut_arg("identities", |identities| identities.requires("fixtures")))]
pub(super) struct Args {
    #[command(flatten)]
    query: CallQuery,

    /// The form: JSON, comma-separated values, events of the Open Cybersecurity Schema Framework (1.3, API Activity),
    /// the Common Event Format, or Parquet
    #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl)]
    format: ExportFormat,

    /// Write into this new file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Continue the file after its last call, also if it is not there yet
    #[arg(long, requires = "output")]
    resume: bool,

    /// Write fixtures for `portcullis plugin test`: the configured policies, and a case for each decision about a call
    /// that was recorded whole, as under `record = "full"`, or sealed for an `--identity`
    #[arg(long, requires = "output", conflicts_with_all = ["format", "resume"])]
    pub(super) fixtures: bool,

    #[command(flatten)]
    identities: IdentityArgs,
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
    /// A Parquet file with a row for each call; needs `--output`
    Parquet,
}

impl ExportFormat {
    /// Returns the form of the lines; `None` if there are no lines.
    fn lines(self) -> Option<LineFormat> {
        match self {
            Self::Jsonl => Some(LineFormat::Jsonl),
            Self::Csv => Some(LineFormat::Csv),
            Self::Ocsf => Some(LineFormat::Ocsf),
            Self::Cef => Some(LineFormat::Cef),
            Self::Parquet => None,
        }
    }
}

/// Writes fixtures of the calls that match.
pub(super) fn run_fixtures(folder: &Path, args: &Args, policies: &[PluginConfig]) -> anyhow::Result<ExitCode> {
    let policies: Vec<_> = policies.iter().filter(|policy| !policy.shadow).cloned().collect();
    if policies.is_empty() {
        anyhow::bail!("the configuration has no `[[policies]]` that decide, so there is nothing to test");
    }
    let Some(path) = &args.output else {
        anyhow::bail!("fixtures are written into a file: name a new one with `--output FILE`");
    };
    let failed = || format!("cannot write {}", path.display());
    let reader = args.identities.reader(folder)?;
    let file = BufWriter::new(created(path, "name another file, or remove it")?);
    let write = || {
        let mut fixtures = FixtureWriter::new(file, &reader, &policies)?;
        args.query.visit_with_records(&reader, false, |entry, records| {
            fixtures.add(&entry, records).with_context(failed)?;
            Ok(ControlFlow::Continue(()))
        })?;
        let counts = (fixtures.cases, fixtures.left_out, fixtures.not_asked);
        fixtures.into_inner().into_inner().map_err(io::IntoInnerError::into_error).with_context(failed)?;
        Ok(counts)
    };
    let (cases, left_out, not_asked) = write().inspect_err(|_: &anyhow::Error| drop(fs::remove_file(path)))?;
    output::message(&format!("{}: wrote {}", path.display(), output::counted(cases, "case")));
    if left_out > 0 {
        output::message(&format!(
            "{left_out} decisions are left out, because too little of their calls was recorded: set `record = \"full\"` in \
             the profile"
        ));
    }
    if not_asked > 0 {
        output::message(&format!(
            "{} left out: no policy was asked, or the call ended while its question was open",
            output::counted(not_asked, "call")
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the calls that match, in the order in which they began.
pub(super) fn run(folder: &Path, args: &Args) -> anyhow::Result<ExitCode> {
    let Args { query, format, output, resume, fixtures: _, identities: _ } = args;
    let reader = LedgerReader::open(folder)?;
    let Some(format) = format.lines() else {
        let Some(path) = output else {
            anyhow::bail!("a Parquet file is not text: name a new file with `--output FILE`");
        };
        return write_parquet(folder, query, path, *resume);
    };
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
    let (file, last) = if *resume { continued(path, format)? } else { (created(path, CONTINUE)?, None) };
    let query = CallQuery { since: query.since.max(last.map(|last| last.timestamp_ms())), ..query.clone() };
    let mut file = BufWriter::new(file);
    let is_empty = file.get_ref().metadata().is_ok_and(|found| found.len() == 0);
    let failed = || format!("cannot write {}", path.display());
    if is_empty {
        file.write_all(format.heading().as_bytes()).with_context(failed)?;
    }
    let written = visit_ended(folder, &query, last, |entry| {
        file.write_all(format.line(&entry)?.as_bytes()).with_context(failed)
    })?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error).with_context(failed)?;
    file.sync_all().with_context(failed)?;
    written.report(path);
    Ok(ExitCode::SUCCESS)
}

/// Writes the calls that match into a Parquet file, after those that it has if it is continued. The index of such a
/// file is at its end, so a new file replaces it when finished.
fn write_parquet(ledger: &Path, query: &CallQuery, path: &Path, resume: bool) -> anyhow::Result<ExitCode> {
    let failed = || format!("cannot write {}", path.display());
    let earlier = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        _ if !resume => anyhow::bail!("{} exists: {CONTINUE} to write it anew", path.display()),
        opened => Some(opened.with_context(failed)?),
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let unfinished = tempfile::NamedTempFile::new_in(folder).with_context(failed)?;
    let mut file = ParquetFile::new(unfinished.as_file().try_clone().with_context(failed)?).with_context(failed)?;
    let last = match &earlier {
        Some(earlier) => {
            let taken = file.take_over(earlier).with_context(|| format!("cannot continue {}", path.display()))?;
            taken.and_then(|call| call.parse::<Ulid>().ok())
        }
        None => None,
    };
    let query = CallQuery { since: query.since.max(last.map(|last| last.timestamp_ms())), ..query.clone() };
    let written = visit_ended(ledger, &query, last, |entry| file.add(entry).with_context(failed))?;
    file.finish().with_context(failed)?.sync_all().with_context(failed)?;
    // Somebody else may have written one meanwhile.
    match earlier {
        Some(earlier) => {
            // The same users can read the file afterwards, and a link stays one.
            let (target, mode) =
                (fs::canonicalize(path).with_context(failed)?, earlier.metadata().with_context(failed)?);
            unfinished.as_file().set_permissions(mode.permissions()).with_context(failed)?;
            unfinished.persist(target).map(drop).map_err(|error| error.error).with_context(failed)?;
        }
        None => unfinished.persist_noclobber(path).map(drop).map_err(|error| error.error).with_context(failed)?,
    }
    written.report(path);
    Ok(ExitCode::SUCCESS)
}

/// The result of an export.
struct Written {
    calls: u64,
    /// The first call that is left to the next export, and why.
    left: Option<(String, &'static str)>,
}

impl Written {
    /// Reports the written calls.
    fn report(&self, path: &Path) {
        output::message(&format!("{}: wrote {}", path.display(), output::counted(self.calls, "call")));
        if let Some((call, why)) = &self.left {
            output::message(&format!("it ends before call {call}, {why}"));
        }
    }
}

/// Returns the time, in milliseconds since 1970, up to which no call can be recorded any more that is not recorded yet.
fn complete_until(folder: &Path) -> anyhow::Result<u64> {
    // Read first: the calls of a broker that starts meanwhile are later.
    let now = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default();
    Ok(now.saturating_sub(if ledger::has_live_chain(folder)? { MAX_UNRECORDED_MS } else { 0 }))
}

/// Passes on the calls that match and come after `last`, up to the first that has not ended or before which another may
/// still be recorded, and shows the progress.
fn visit_ended(
    folder: &Path,
    query: &CallQuery,
    last: Option<Ulid>,
    mut write: impl FnMut(CallEntry) -> anyhow::Result<()>,
) -> anyhow::Result<Written> {
    let complete_until = complete_until(folder)?;
    let mut written = Written { calls: 0, left: None };
    let shows_progress = io::stderr().is_terminal();
    query.require_indexed()?;
    // How a call ends and what its records say is known only once it has ended, so an open one is never passed over.
    let every = CallQuery { outcome: None, text: None, ..query.clone() };
    let matcher = query.matcher();
    every.visit_with_records(&LedgerReader::open(folder)?, false, |entry, records| {
        let call = entry.call.parse::<Ulid>().ok();
        if last.is_some() && call <= last {
            return Ok(ControlFlow::Continue(()));
        }
        let is_new = call.is_some_and(|call| call.timestamp_ms() > complete_until);
        if is_new || !entry.outcome.is_final() {
            written.left = Some((entry.call, if is_new { TOO_NEW } else { STILL_OPEN }));
            return Ok(ControlFlow::Break(()));
        }
        if !matcher.matches(&entry, records) {
            return Ok(ControlFlow::Continue(()));
        }
        write(entry)?;
        written.calls += 1;
        if shows_progress && written.calls.is_multiple_of(PROGRESS_EVERY) {
            output::status_line(&format!("{} calls", written.calls));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if shows_progress {
        output::status_line("");
    }
    Ok(written)
}

/// Creates a file; `hint` tells what to do if it already exists.
fn created(path: &Path, hint: &str) -> anyhow::Result<File> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match created {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            anyhow::bail!("{} exists: {hint} to write it anew", path.display())
        }
        created => created.with_context(|| format!("cannot create {}", path.display())),
    }
}

/// Opens a file at the end of its last whole line. Returns it with the call of that line. A file with other content
/// stays unchanged.
fn continued(path: &Path, format: LineFormat) -> anyhow::Result<(File, Option<Ulid>)> {
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
    let lines = String::from_utf8_lossy(end.get(..whole).unwrap_or_default());
    let last = match lines.lines().next_back() {
        None if start == 0 && format.may_begin_with(&end) => None,
        Some(heading) if !heading.is_empty() && format.heading().trim_end() == heading => None,
        line => Some(line.and_then(|line| format.call(line)).with_context(|| {
            format!("{}: its last line is not a call as `--format {}` writes it", path.display(), format.word())
        })?),
    };
    file.set_len(cut).and_then(|()| file.seek(SeekFrom::Start(cut))).with_context(failed)?;
    Ok((file, last))
}

#[cfg(test)]
mod tests;
