//! `portcullis logs`

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use portcullis::config::Endpoint;
use portcullis::name::SourceName;
use portcullis::source::log_file;
use serde_json::json;

use crate::cli::GlobalArgs;
use crate::completion;
use crate::output::{self, escape_hidden};
use crate::runtime;

/// Show what a source writes to standard error
///
/// The broker keeps the last 4 to 8 MiB of it for each source that runs on this machine, with secrets redacted. The
/// log of a source with a `url` stays where that source runs.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis logs files
  portcullis logs files --lines 1000 --json
  portcullis logs files --follow")]
pub(crate) struct Args {
    /// The name of the source
    #[arg(add = completion::sources())]
    source: String,

    /// How many of the last lines to print
    #[arg(short = 'n', long, default_value_t = 100, value_name = "N")]
    lines: usize,

    /// Keep running, and print new lines as they are written
    #[arg(short, long)]
    follow: bool,

    /// Look only into this data folder
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// The interval at which `--follow` checks for new lines: short enough for a person.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let folders = runtime::data_dirs(global, args.data_dir.as_ref())?;
    let silent = || output::message(&format!("source `{}` has written nothing to standard error", args.source));
    let Some(path) = find(&args.source, &folders, global)? else {
        silent();
        return Ok(ExitCode::SUCCESS);
    };
    let mut tail = Tail::open(path)?;
    let last = tail.last(args.lines)?;
    if last.is_empty() && args.lines > 0 {
        silent();
    }
    last.iter().try_for_each(|line| print(line, global.json))?;
    if args.follow {
        runtime::block_on(async {
            let mut interrupted = pin!(runtime::interruption()?);
            loop {
                tail.new_lines()?.iter().try_for_each(|line| print(line, global.json))?;
                tokio::select! {
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                    () = &mut interrupted => return Ok(()),
                }
            }
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the log of a source, or `None` if the source is known and has no log yet.
fn find(source: &str, folders: &[PathBuf], global: &GlobalArgs) -> anyhow::Result<Option<PathBuf>> {
    let configured = global.load().map(|config| config.sources).unwrap_or_default();
    let name: Option<SourceName> = source.parse().ok();
    let logs = name.iter().flat_map(|name| folders.iter().map(|folder| log_file(folder, name)));
    if let Some(found) = logs.into_iter().find(|path| path.exists()) {
        return Ok(Some(found));
    }
    match name.as_ref().and_then(|name| configured.get(name)).map(|config| &config.endpoint) {
        Some(Endpoint::Url { .. }) => bail!("source `{source}` has a `url`: what it writes stays where it runs"),
        Some(_) => Ok(None),
        None => {
            let mut known: BTreeSet<String> = configured.keys().map(ToString::to_string).collect();
            known.extend(folders.iter().flat_map(|folder| logged(folder)));
            match known.is_empty() {
                true => bail!("no source {source:?} is known here; the configuration has no sources"),
                false => {
                    bail!("no source {source:?} is known here; the known ones are {}", Vec::from_iter(known).join(", "))
                }
            }
        }
    }
}

/// Returns the names of the sources that have a log in a data folder.
fn logged(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder.join("logs")).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".log").map(str::to_owned));
    names.filter(|name| name.parse::<SourceName>().is_ok()).collect()
}

/// A log file that grows, and is replaced by a new one when it is full.
struct Tail {
    path: PathBuf,
    file: BufReader<File>,
    /// The start of a line that is not complete yet.
    incomplete: Vec<u8>,
}

impl Tail {
    fn open(path: PathBuf) -> anyhow::Result<Self> {
        let file = open(&path)?;
        Ok(Self { path, file, incomplete: Vec::new() })
    }

    /// Returns the last lines of the log, including those of the file that it replaced.
    fn last(&mut self, lines: usize) -> anyhow::Result<VecDeque<String>> {
        let mut last = VecDeque::new();
        let mut keep = |line| {
            last.push_back(line);
            if last.len() > lines {
                last.pop_front();
            }
        };
        let older = self.path.with_extension("log.1");
        if older.exists() {
            Self::open(older)?.read_lines(&mut keep)?;
        }
        self.read_lines(&mut keep)?;
        Ok(last)
    }

    /// Returns the lines that were written since the last call.
    fn new_lines(&mut self) -> anyhow::Result<Vec<String>> {
        let mut lines = Vec::new();
        self.read_lines(|line| lines.push(line))?;
        let inode = |file: &File| file.metadata().map(|meta| meta.ino());
        let now = std::fs::metadata(&self.path).map(|meta| meta.ino());
        if now.is_ok_and(|now| inode(self.file.get_ref()).is_ok_and(|before| before != now)) {
            // The old file now has the lines that were added meanwhile, and gets no more.
            self.read_lines(|line| lines.push(line))?;
            *self = Self::open(std::mem::take(&mut self.path))?;
            self.read_lines(|line| lines.push(line))?;
        }
        Ok(lines)
    }

    fn read_lines(&mut self, mut take: impl FnMut(String)) -> anyhow::Result<()> {
        while self.file.read_until(b'\n', &mut self.incomplete).with_context(|| unreadable(&self.path))? > 0 {
            if self.incomplete.ends_with(b"\n") {
                let line = std::mem::take(&mut self.incomplete);
                take(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
            }
        }
        Ok(())
    }
}

fn open(path: &Path) -> anyhow::Result<BufReader<File>> {
    // A named pipe would be waited for, and a device has no end.
    let is_other = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
    ensure!(!is_other, "{}: it is not a regular file; remove it", unreadable(path));
    Ok(BufReader::new(File::open(path).with_context(|| unreadable(path))?))
}

fn unreadable(path: &Path) -> String {
    format!("cannot read {}", path.display())
}

fn print(line: &str, json: bool) -> anyhow::Result<()> {
    if !json {
        return output::text(&format!("{}\n", escape_hidden(line)));
    }
    let (at, text) = line.split_once(' ').unwrap_or(("", line));
    output::text(&format!("{}\n", json!({ "at": at, "text": text })))
}
