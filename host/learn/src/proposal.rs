//! The proposal: the lines that a cell lacks, with the evidence for each.

mod evidence;
mod facts;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use portcullis_cell::{
    AttemptAction, AttemptAvailability, AttemptSubject, RecordedAttempt, is_credential, is_key_file,
};
use portcullis_net::egress::Destination;
use serde::{Deserialize, Serialize};

use self::evidence::{Withheld, is_temporary, said};
pub use self::facts::SourceFacts;
use super::calls::EXAMPLE_HOST;
use super::noise::{is_bytecode, is_noise, is_too_wide};

/// The largest number of attempts that are shown for a line.
const MAX_EVIDENCE: usize = 3;

/// The largest number of lines that are proposed. A source that needs more is searching, and a person could not judge
/// so many.
const MAX_LINES: usize = 64;

/// The largest number of withheld lines.
const MAX_WITHHELD: usize = 32;

/// The number of files of one folder from which on the folder is proposed in their place.
const MANY: usize = 3;

/// The largest number of a folder's entries that are examined.
const MAX_ENTRIES: usize = 10_000;

/// The port that is guessed for a host if none is known.
const HTTPS: u16 = 443;

/// The word that stands for the port of a host if only its name was asked for. No configuration takes it.
const ANY_PORT: &str = "PORT";

const TOO_MANY: &str = "too many lines were wanted: the source searches, or needs a folder that holds them";
const OWN_FOLDER: &str =
    "it is the server's own folder, which it may only read; have it write elsewhere, by an argument or a variable";
const GUESSED_PORT: &str = "the port is a guess: only the name was asked for";

/// The key of a cell that a line belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CellKey {
    /// `read`: a file or folder to read.
    Read,
    /// `write`: a file or folder to read and write.
    Write,
    /// `network`: a host and a port.
    Network,
}

impl CellKey {
    /// Returns the key of the configuration, which is also the name of the switch.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Network => "network",
        }
    }
}

/// A line that is proposed for a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CellLine {
    /// The key that it belongs to.
    pub key: CellKey,
    /// The path, or the host and port.
    pub value: String,
    /// Some of the attempts that it is proposed for.
    pub evidence: Vec<String>,
    /// The doubt about a proposed line, or the reason why a line is withheld.
    pub remark: Option<&'static str>,
}

impl CellLine {
    /// Reports whether the line opens one of these files, or a folder around one.
    #[must_use]
    pub fn opens_any(&self, files: &[PathBuf]) -> bool {
        let path = Path::new(&self.value);
        self.key != CellKey::Network && files.iter().any(|file| file.starts_with(path) || path.starts_with(file))
    }
}

/// The lines that a cell lacks, and those that only a person should add.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Proposal {
    /// The lines to add to the cell.
    pub lines: Vec<CellLine>,
    /// The lines that would be needed but are not proposed, each with the reason in `remark`.
    pub withheld: Vec<CellLine>,
    /// The hosts whose names were looked up and to which no connection was tried, each with the word `PORT` in place of
    /// a port.
    pub looked_up: Vec<CellLine>,
    /// The number of files and folders of Python's bytecode that the source could not write. It works without them.
    pub bytecode: usize,
}

impl Proposal {
    /// Returns the lines that a cell lacks for the attempts in it.
    #[must_use]
    pub fn of(attempts: &[RecordedAttempt], facts: &SourceFacts) -> Self {
        let mut wanted = Wanted::default();
        for attempt in attempts {
            match &attempt.subject {
                // No cell has Unix sockets.
                AttemptSubject::Path(_) if attempt.action == AttemptAction::Connect => {}
                AttemptSubject::Path(path) => wanted.path(path, attempt, facts),
                AttemptSubject::Host(host, port) if attempt.availability == AttemptAvailability::Denied => {
                    wanted.host(host, *port, attempt);
                }
                AttemptSubject::Address(address) if attempt.availability == AttemptAvailability::Denied => {
                    // Port 0 is how the C library asks which of its addresses would be used.
                    if address.port() != 0 {
                        wanted.host(&address.ip().to_string(), Some(address.port()), attempt);
                    }
                }
                AttemptSubject::Host(..) | AttemptSubject::Address(_) | AttemptSubject::Call(_) => {}
            }
        }
        wanted.proposal(facts)
    }

    /// Proposes a port for each host for which only the name was looked up: a source whose cell refuses a name does not
    /// get to try a port. Each of these lines says that it is a guess.
    pub fn guess_ports(&mut self) {
        for asked in std::mem::take(&mut self.looked_up) {
            let value = format!("{}:{HTTPS}", asked.value.trim_end_matches(ANY_PORT).trim_end_matches(':'));
            match self.lines.len() < MAX_LINES {
                true => self.lines.push(CellLine { value, remark: Some(GUESSED_PORT), ..asked }),
                false => self.withheld.push(CellLine { value, remark: Some(TOO_MANY), ..asked }),
            }
        }
        self.withheld.truncate(MAX_WITHHELD);
    }

    /// Withholds what would open one of these files, which no source gets.
    pub fn withhold(&mut self, own: &[PathBuf]) {
        self.withhold_if(
            |line| line.opens_any(own),
            "it would open the broker's own files; name smaller folders, or move the data folder away",
        );
    }

    /// Withholds the paths that nothing in the source's command names: only a person can tell whether the source needs
    /// them.
    pub fn withhold_unnamed(&mut self, facts: &SourceFacts) {
        let named = |path: &Path| facts.named.iter().any(|named| path.starts_with(named));
        let unnamed = |line: &CellLine| line.key != CellKey::Network && !named(Path::new(&line.value));
        let holds_missing =
            |line: &CellLine| facts.missing.iter().any(|missing| missing.parent() == Some(Path::new(&line.value)));
        self.withhold_if(
            |line| unnamed(line) && holds_missing(line),
            "a file that its command names does not exist, and the whole folder would be opened: make the file first, or \
             agree to it at a terminal",
        );
        self.withhold_if(unnamed, "nothing in its command names it; agree to it at a terminal, or grant it yourself");
    }

    /// Withholds what overlaps with a grant of the other kind: no grant may lie within another.
    pub fn withhold_overlapping(&mut self, read: &[PathBuf], write: &[PathBuf]) {
        let apart = |path: &Path, others: &[PathBuf]| {
            !others.iter().any(|other| path != other && (path.starts_with(other) || other.starts_with(path)))
        };
        let overlaps = |line: &CellLine| match line.key {
            CellKey::Read => !apart(Path::new(&line.value), write),
            // A folder that is read within one to be written is written from now on.
            CellKey::Write => {
                read.iter().any(|read| Path::new(&line.value) != read && Path::new(&line.value).starts_with(read))
            }
            CellKey::Network => false,
        };
        self.withhold_if(
            overlaps,
            "it overlaps with another grant; name smaller folders, or grant the outer one to be written",
        );
    }

    fn withhold_if(&mut self, is_withheld: impl Fn(&CellLine) -> bool, why: &'static str) {
        let (withheld, lines): (Vec<CellLine>, Vec<CellLine>) =
            std::mem::take(&mut self.lines).into_iter().partition(is_withheld);
        self.withheld
            .extend(withheld.into_iter().take(MAX_WITHHELD).map(|line| CellLine { remark: Some(why), ..line }));
        self.lines = lines;
    }

    /// Reports whether nothing is proposed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

/// The attempts, collected by what would be granted.
#[derive(Default)]
struct Wanted {
    read: BTreeMap<PathBuf, Vec<String>>,
    write: BTreeMap<PathBuf, Vec<String>>,
    /// The folders in `write` in which something is replaced or removed.
    replaced: BTreeSet<PathBuf>,
    /// Hosts, each with the ports that are known.
    hosts: BTreeMap<String, (BTreeSet<u16>, Vec<String>)>,
    withheld: BTreeMap<(CellKey, PathBuf), Withheld>,
    bytecode: usize,
}

impl Wanted {
    fn path(&mut self, path: &Path, attempt: &RecordedAttempt, facts: &SourceFacts) {
        let needs = match (attempt.action, attempt.availability) {
            (AttemptAction::Write, AttemptAvailability::Hidden | AttemptAvailability::ReadOnly)
            | (
                AttemptAction::Replace,
                AttemptAvailability::Hidden | AttemptAvailability::ReadOnly | AttemptAvailability::Alone,
            ) => CellKey::Write,
            (_, AttemptAvailability::Hidden) => CellKey::Read,
            _ => return,
        };
        if needs == CellKey::Write && is_bytecode(path) {
            self.bytecode += 1;
            return;
        }
        // Replacing a file changes its folder: a cell that has only the file refuses that.
        let replaced = attempt.action == AttemptAction::Replace;
        let entry = if replaced { path.parent().unwrap_or(path) } else { path };
        let home = facts.home.as_deref();
        let credential = is_credential(path, home);
        let is_named = facts.named.iter().any(|named| path.starts_with(named))
            || facts.missing.iter().any(|missing| path == missing);
        let named =
            facts.named.iter().filter(|named| entry.starts_with(named)).max_by_key(|named| named.as_os_str().len());
        let is_noise = named.is_none() && !is_named && is_noise(path, facts.inside.iter().chain(&facts.named));
        // A program that tries to write next to its own files needs a place to write, wherever it is installed.
        let is_own = needs == CellKey::Write && facts.inside.iter().any(|inside| path.starts_with(inside));
        let target = match named {
            Some(named) => named.clone(),
            None if is_noise && !credential && !is_own => return,
            // A path that does not exist yet is created in the nearest folder that does.
            None => match entry.ancestors().find(|above| above.symlink_metadata().is_ok()) {
                // No grant may lead through a link.
                Some(above) => above.canonicalize().unwrap_or_else(|_| above.to_owned()),
                None => return,
            },
        };
        let reason = if path.to_str().is_none() {
            Some("its name is not UTF-8, so that no configuration can name it")
        } else if is_own && (is_noise || credential) {
            self.withhold(needs, target, OWN_FOLDER, attempt);
            return;
        } else if credential || is_credential(&target, home) {
            Some("it holds credentials or decides what is started; grant it yourself if the source must have it")
        } else if target.is_dir() && is_too_wide(&target, home, named.is_some()) {
            Some("the nearest folder that exists holds much more; make a folder for the source and grant that")
        } else {
            None
        };
        let evidence = said(attempt);
        match (reason, needs) {
            (Some(reason), _) => {
                let folder = path.parent().filter(|_| is_temporary(attempt, path));
                self.withhold(needs, folder.unwrap_or(path).to_owned(), reason, attempt);
            }
            (None, CellKey::Write) => {
                if replaced {
                    self.replaced.insert(target.clone());
                }
                self.write.entry(target).or_default().push(evidence);
            }
            (None, _) => self.read.entry(target).or_default().push(evidence),
        }
    }

    fn withhold(&mut self, key: CellKey, value: PathBuf, reason: &'static str, attempt: &RecordedAttempt) {
        self.withheld.entry((key, value)).or_insert_with(|| Withheld::because(reason)).add(attempt);
    }

    fn host(&mut self, host: &str, port: Option<u16>, attempt: &RecordedAttempt) {
        if host.eq_ignore_ascii_case(EXAMPLE_HOST) {
            let reason = "a call that was made up named it; list the hosts that the source is to reach";
            self.withhold(CellKey::Network, host.into(), reason, attempt);
            return;
        }
        let (ports, evidence) = self.hosts.entry(host.to_ascii_lowercase()).or_default();
        ports.extend(port);
        evidence.push(said(attempt));
    }

    fn proposal(self, facts: &SourceFacts) -> Proposal {
        let Self { read, write, replaced, hosts, withheld, bytecode } = self;
        let write = outermost(gathered(write, facts));
        let mut read = outermost(gathered(read, facts));
        read.retain(|path, _| !path.ancestors().any(|above| write.contains_key(above)));
        let why = "it replaces or removes files there, which a cell that opens them one by one refuses";
        let paths = |key: CellKey, found: BTreeMap<PathBuf, Vec<String>>| {
            let remark = |path: &Path| (key == CellKey::Write && replaced.contains(path)).then_some(why);
            let of = |(path, evidence): (PathBuf, _)| {
                line(key, path.to_string_lossy().into_owned(), evidence, remark(&path))
            };
            found.into_iter().map(of).collect::<Vec<_>>()
        };
        let mut lines = [paths(CellKey::Read, read), paths(CellKey::Write, write)].concat();
        let mut looked_up = Vec::new();
        // An invalid destination was never meant as one: the name only probes the resolver.
        let is_destination = |text: &str| text.parse::<Destination>().is_ok();
        for (host, (ports, evidence)) in hosts {
            for port in &ports {
                let text = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
                if is_destination(&text) {
                    lines.push(line(CellKey::Network, text, evidence.clone(), None));
                }
            }
            if ports.is_empty() && is_destination(&format!("{host}:{HTTPS}")) {
                let why =
                    "only its name was looked up, and no connection was tried: choose the PORT that it is to reach";
                looked_up.push(line(CellKey::Network, format!("{host}:{ANY_PORT}"), evidence, Some(why)));
            }
        }
        looked_up.truncate(MAX_WITHHELD);
        let withheld = withheld.into_iter().map(|((key, path), withheld)| {
            let (evidence, reason) = withheld.of(&path);
            line(key, path.to_string_lossy().into_owned(), evidence, Some(reason))
        });
        let beyond = lines.split_off(MAX_LINES.min(lines.len()));
        let beyond = beyond.into_iter().map(|line| CellLine { remark: Some(TOO_MANY), ..line });
        // Only for proposed lines: a folder may have very many entries.
        for line in lines.iter_mut().filter(|line| line.key != CellKey::Network && holds_key(Path::new(&line.value))) {
            line.remark = Some("it holds a file that may keep keys or passwords");
        }
        Proposal { lines, withheld: withheld.chain(beyond).take(MAX_WITHHELD).collect(), looked_up, bytecode }
    }
}

fn line(key: CellKey, value: String, mut evidence: Vec<String>, remark: Option<&'static str>) -> CellLine {
    evidence.dedup();
    evidence.truncate(MAX_EVIDENCE);
    CellLine { key, value, evidence, remark }
}

/// Reports whether a folder directly holds a file in which keys are kept.
fn holds_key(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.take(MAX_ENTRIES).any(|entry| is_key_file(&entry.path()))
}

/// Replaces many files of one folder by the folder, unless that holds much more.
fn gathered(found: BTreeMap<PathBuf, Vec<String>>, facts: &SourceFacts) -> BTreeMap<PathBuf, Vec<String>> {
    let mut siblings: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for parent in found.keys().filter_map(|path| path.parent()) {
        *siblings.entry(parent.to_owned()).or_default() += 1;
    }
    let mut gathered: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    for (path, evidence) in found {
        let parent = path.parent().filter(|parent| siblings.get(*parent).is_some_and(|count| *count >= MANY));
        let home = facts.home.as_deref();
        let parent = parent.filter(|parent| !is_too_wide(parent, home, false) && !is_credential(parent, home));
        let parent = parent.filter(|_| !facts.named.contains(&path));
        gathered.entry(parent.map_or_else(|| path.clone(), Path::to_owned)).or_default().extend(evidence);
    }
    gathered
}

/// Leaves out what lies within another.
fn outermost(found: BTreeMap<PathBuf, Vec<String>>) -> BTreeMap<PathBuf, Vec<String>> {
    let mut kept: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    // In the order of paths, all that is in a folder comes directly after it.
    for (path, evidence) in found {
        match kept.last_entry() {
            Some(mut above) if path.starts_with(above.key()) => above.get_mut().extend(evidence),
            _ => drop(kept.insert(path, evidence)),
        }
    }
    kept
}

#[cfg(test)]
mod tests;
