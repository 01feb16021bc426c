//! Checks a ledger of Portcullis using only the written format (docs/src/ledger-format.md).
//!
//! `verify-a-ledger DATA-FOLDER [CHECKPOINTS KEY]` checks each chain, and with checkpoints that were kept elsewhere
//! also that the chains continue what those cover. It shares no code with the broker, nor the libraries of its hashes
//! and signatures.

mod checkpoint;
mod removed;
mod segment;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Deserialize;

use removed::{Removal, Removed};
use segment::{Frame, FrameKind};

type Hash = [u8; 32];

/// A fault in words: the error, or the reason why it cannot be checked.
type Fault = String;

/// The length of a lock file in bytes.
const LOCK_FILE: u64 = 103;

/// The members of a record that the check looks at.
#[derive(Deserialize)]
struct Record<'a> {
    chain: &'a str,
    seq: u64,
    kind: &'a str,
    run: Option<&'a str>,
    run_seq: Option<u64>,
    #[serde(borrow)]
    body: &'a serde_json::value::RawValue,
}

/// The first frame of a segment.
#[derive(Deserialize)]
struct Start {
    chain: String,
    seq: u64,
    hash: String,
}

/// A chain, as far as it was read.
#[derive(Default)]
struct Chain {
    last: u64,
    hash: Hash,
    /// The hashes of the records that are there.
    hashes: Vec<Hash>,
    /// The number of the next record of each run.
    runs: HashMap<String, u64>,
    removed: Option<Removed>,
    is_ended: bool,
}

struct Ledger {
    chains: BTreeMap<String, Chain>,
    /// The removals that are recorded, each with the chain whose own record of it was removed.
    removals: Vec<(Removal, Option<String>)>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let checked = match &arguments[..] {
        [data] => check(Path::new(data), None),
        [data, checkpoints, key] => check(Path::new(data), Some((Path::new(checkpoints), key))),
        _ => Err("usage: verify-a-ledger DATA-FOLDER [CHECKPOINTS KEY]".to_owned()),
    };
    match checked {
        Ok(good) => {
            println!("{good}");
            ExitCode::SUCCESS
        }
        Err(fault) => {
            eprintln!("{fault}");
            ExitCode::FAILURE
        }
    }
}

fn check(data: &Path, checkpoints: Option<(&Path, &str)>) -> Result<String, Fault> {
    if !data.join("records").is_dir() && !data.join("chains").is_dir() {
        return Err("this is no data folder: it has neither `records` nor `chains`".to_owned());
    }
    // The lock files come first: a broker may be writing.
    let written = written(data)?;
    let mut ledger = Ledger { chains: BTreeMap::new(), removals: Vec::new() };
    for path in files(&data.join("records"), "removed")? {
        let (removed, removals) =
            Removed::read(&read(&path)?).ok_or_else(|| format!("{} is damaged", path.display()))?;
        let name = stem(&path);
        ledger.removals.extend(removals.into_iter().map(|removal| (removal, Some(name.clone()))));
        let (last, hash, is_ended) = (removed.seq, removed.hash, removed.is_stopped);
        ledger.chains.insert(name, Chain { last, hash, is_ended, removed: Some(removed), ..Chain::default() });
    }
    for path in files(&data.join("records"), "records")? {
        ledger.read_segment(&path)?;
    }
    ledger.check_removals()?;
    for (name, count) in written {
        let found = ledger.chains.get(&name).map_or(0, |chain| chain.last);
        if count > found {
            return Err(format!("chain {name}: record {} is missing or damaged, and {count} were written", found + 1));
        }
    }
    if let Some((path, key)) = checkpoints {
        let text = String::from_utf8(read(path)?).map_err(|_| "this is no file of checkpoints".to_owned())?;
        for checkpoint in checkpoint::read(&text, key)? {
            let empty = Chain::default();
            let chain = ledger.chains.get(checkpoint.chain).unwrap_or(&empty);
            let gone = chain.removed.as_ref();
            let first = gone.map_or(0, |gone| gone.seq);
            // A checkpoint of fewer records is about records that are gone.
            if checkpoint.size >= first {
                let count = usize::try_from(checkpoint.size - first).unwrap_or(usize::MAX);
                let hashes = &chain.hashes[..count.min(chain.hashes.len())];
                let subtrees = gone.map_or(&[][..], |gone| &gone.tree);
                if checkpoint::root(hashes, first, subtrees) != checkpoint.root {
                    let (name, size) = (checkpoint.chain, checkpoint.size);
                    return Err(format!(
                        "chain {name}: the first {size} records are not those that the checkpoint covers"
                    ));
                }
            }
        }
    }
    let records: usize = ledger.chains.values().map(|chain| chain.hashes.len()).sum();
    let ended = ledger.chains.values().filter(|chain| chain.is_ended).count();
    Ok(format!("good: {records} records in {} chains, {ended} of them ended", ledger.chains.len()))
}

impl Ledger {
    fn read_segment(&mut self, path: &Path) -> Result<(), Fault> {
        let name = stem(path);
        let (name, number) = name.split_once('-').ok_or_else(|| format!("{} is no segment", path.display()))?;
        let chain = self.chains.entry(name.to_owned()).or_default();
        let number: u32 = number.parse().map_err(|_| format!("{} is no segment", path.display()))?;
        if chain.removed.as_ref().is_some_and(|removed| number <= removed.segment) {
            return Ok(());
        }
        let content = read(path)?;
        let mut dictionaries = HashMap::new();
        for frame in segment::frames(&content) {
            match frame.kind {
                FrameKind::Start => {
                    let start: Option<Start> = serde_json::from_slice(frame.content).ok();
                    let follows = |start: Start| {
                        start.chain == name && start.seq == chain.last + 1 && start.hash == segment::hex(&chain.hash)
                    };
                    if !start.is_some_and(follows) {
                        let file = path.file_name().unwrap_or_default().display();
                        return Err(format!("chain {name}: a segment is missing before {file}"));
                    }
                }
                FrameKind::Dictionary => {
                    dictionaries.insert(frame.offset, frame.content);
                }
                FrameKind::Other => {}
                FrameKind::Records => self.removals.extend(chain.read_records(name, &frame, &dictionaries)?),
            }
        }
        Ok(())
    }

    /// Checks that each removal of records is recorded. A record that was removed itself counts if its removal does.
    fn check_removals(&self) -> Result<(), Fault> {
        let mut recorded: BTreeSet<&str> = BTreeSet::new();
        loop {
            let before = recorded.len();
            for (removal, by) in &self.removals {
                let counts = by.as_deref().is_none_or(|by| recorded.contains(by));
                let removed = self.chains.get(&removal.chain).and_then(|chain| chain.removed.as_ref());
                if counts && removed.is_some_and(|removed| removal.is_of(removed)) {
                    recorded.insert(&removal.chain);
                }
            }
            if recorded.len() == before {
                break;
            }
        }
        let missing = |(name, chain): &(&String, &Chain)| chain.removed.is_some() && !recorded.contains(name.as_str());
        match self.chains.iter().find(missing) {
            Some((name, _)) => {
                Err(format!("chain {name}: its first records are gone, and no record says that they were removed"))
            }
            None => Ok(()),
        }
    }
}

impl Chain {
    /// Reads the records of a frame, and returns the removals that they tell of.
    fn read_records(
        &mut self,
        name: &str,
        frame: &Frame<'_>,
        dictionaries: &HashMap<u32, &[u8]>,
    ) -> Result<Vec<(Removal, Option<String>)>, Fault> {
        let damaged = || format!("chain {name}: the frame of record {} is damaged", frame.first);
        let (hashes, text) = frame.content.split_at_checked(32 * usize::from(frame.count)).ok_or_else(damaged)?;
        let text = frame.text(text, dictionaries).ok_or_else(damaged)?;
        let text = str::from_utf8(&text).map_err(|_| damaged())?;
        if text.matches('\n').count() != usize::from(frame.count) {
            return Err(format!("chain {name}: the frame of record {} has not {} lines", frame.first, frame.count));
        }
        let mut removals = Vec::new();
        for ((number, line), written) in (frame.first..).zip(text.split_terminator('\n')).zip(hashes.chunks(32)) {
            self.last += 1;
            let mut hash = hmac_sha256::Hash::new();
            hash.update(b"portcullis ledger v1\0");
            hash.update(self.hash);
            hash.update(line);
            self.hash = hash.finalize();
            let changed = || format!("chain {name}: record {} is not as it was written", self.last);
            let record: Record<'_> = serde_json::from_str(line).map_err(|_| changed())?;
            if self.hash != written || (record.chain, record.seq, number) != (name, self.last, self.last) {
                return Err(changed());
            }
            self.hashes.push(self.hash);
            if let (Some(run), Some(place)) = (record.run, record.run_seq.filter(|place| *place > 0)) {
                let first = if self.removed.is_some() { place } else { 1 };
                let next = self.runs.entry(run.to_owned()).or_insert(first);
                if place != *next {
                    return Err(format!(
                        "chain {name}: record {} is record {place} of its run, and record {next} is missing",
                        self.last
                    ));
                }
                *next += 1;
            }
            self.is_ended |= record.kind == "broker.stopped";
            if record.kind == "records.removed" {
                removals.extend(serde_json::from_str(record.body.get()).ok().map(|removal| (removal, None)));
            }
        }
        Ok(removals)
    }
}

/// Returns how many records each chain had, by its lock file.
fn written(data: &Path) -> Result<BTreeMap<String, u64>, Fault> {
    let mut written = BTreeMap::new();
    for extension in ["lock", "ended", "sealed"] {
        for path in files(&data.join("chains"), extension)? {
            let line = read(&path)?;
            if line.len() as u64 == LOCK_FILE {
                let count = str::from_utf8(&line).ok().and_then(|line| line.split(' ').next()?.parse().ok());
                written.insert(stem(&path), count.ok_or_else(|| format!("{} is damaged", path.display()))?);
            }
        }
    }
    Ok(written)
}

/// Returns the files of a folder with an extension, sorted by their names; none if there is no such folder.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, Fault> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| format!("{}: {error}", folder.display()))?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let paths = paths.collect::<Result<Vec<_>, _>>().map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<_> = paths.into_iter().filter(|path| path.extension() == Some(OsStr::new(extension))).collect();
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}
