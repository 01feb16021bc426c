//! The observed results, as the table in SECURITY.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::Instant;

use super::{Tier, say_loudly};
use crate::test_dir::tests_folder;

const BEGIN: &str = "<!-- attacks: written by `UPDATE_GOLDEN=1 cargo test --test suite attacks` -->\n";
const END: &str = "<!-- attacks: end -->\n";

/// Attacks whose result without a cell depends on the machine: Yama, sysctls, modules, processors, what runs as process
/// 1.
const DEPENDS: [u8; 8] = [4, 5, 11, 14, 21, 22, 24, 41];

/// The result of an attack that obtained nothing.
pub(super) const NOTHING: &str = "nothing";

/// The result of one attack in one tier: its probes by name, whether each leaks, and what it saw.
pub(super) struct Row {
    pub(super) number: u8,
    pub(super) tier: Tier,
    pub(super) probes: Vec<(String, bool, String)>,
}

pub(super) struct Rows {
    titles: BTreeMap<u8, &'static str>,
    /// The results by number of the attack: uncaged, full, reduced. `None` if it was not tried.
    cells: BTreeMap<u8, [Option<String>; 3]>,
    seen: String,
    begun: Instant,
}

impl Rows {
    pub(super) fn new() -> Self {
        Self { titles: TITLES.into(), cells: BTreeMap::new(), seen: String::new(), begun: Instant::now() }
    }

    pub(super) fn add(&mut self, Row { number, tier, probes }: Row) {
        for (what, leak, saw) in &probes {
            let word = if *leak { "LEAKS" } else { "holds" };
            // Writing to a string cannot fail.
            let _ = writeln!(self.seen, "{number:>2} {tier:?} {word} {what}: {saw}");
        }
        let leaks: Vec<_> = probes.iter().filter(|(_, leak, _)| *leak).map(|(what, ..)| what.as_str()).collect();
        let text = match (tier, leaks.len()) {
            (_, _) if probes.is_empty() => "not tried".to_owned(),
            (_, 0) => NOTHING.to_owned(),
            (Tier::Uncaged, _) => "bites".to_owned(),
            _ => leaks.join(", "),
        };
        self.set(number, tier, &text);
    }

    pub(super) fn set(&mut self, number: u8, tier: Tier, text: &str) {
        let _ = writeln!(self.seen, "{number:>2} {tier:?}: {text} (after {} s)", self.begun.elapsed().as_secs());
        self.cells.entry(number).or_default()[tier as usize] = Some(text.to_owned());
    }

    /// Adds one more leak to a result.
    pub(super) fn also(&mut self, number: u8, tier: Tier, leak: &str) {
        let before = self.cells.get(&number).and_then(|cells| cells[tier as usize].clone());
        let text =
            before.filter(|text| text != NOTHING).map_or_else(|| leak.to_owned(), |text| format!("{text}, {leak}"));
        self.set(number, tier, &text);
    }

    /// Compares the results with SECURITY.md, or writes them to it.
    pub(super) fn compare(&self) {
        let path = tests_folder().join("../SECURITY.md");
        let document = fs::read_to_string(&path).unwrap();
        let (before, rest) = document.split_once(BEGIN).expect("SECURITY.md has the table of attacks");
        let (table, after) = rest.split_once(END).expect("the table of attacks has an end");
        let written = parse(table);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, format!("{before}{BEGIN}{}{END}{after}", self.table(&written))).unwrap();
            return;
        }
        let mut wrong = String::new();
        for (number, cells) in &self.cells {
            for (tier, seen) in cells.iter().enumerate() {
                let expected = written.get(number).and_then(|cells| cells[tier].as_deref());
                let Some(seen) = seen.as_deref().filter(|seen| Some(*seen) != expected) else { continue };
                let line = format!("{number}, column {tier}: seen {seen:?}, written {expected:?}\n");
                // A machine on which an attack obtains less than the table says is better, not worse.
                let depends = match tier == Tier::Uncaged as usize {
                    true => DEPENDS.contains(number),
                    false => seen == NOTHING && expected.is_some(),
                };
                match depends {
                    true => say_loudly(&format!("attack {line}on this machine")),
                    false => wrong.push_str(&line),
                }
            }
        }
        assert!(wrong.is_empty(), "SECURITY.md has other results:\n{wrong}\nall that was seen:\n{}", self.seen);
    }

    /// Returns the table. Attacks that this machine could not try keep their previous results.
    fn table(&self, written: &BTreeMap<u8, [Option<String>; 3]>) -> String {
        let mut out =
            String::from("| # | a hostile source … | uncaged | full cell | reduced cell |\n|---|---|---|---|---|\n");
        for (number, title) in &self.titles {
            let text = |tier: usize| {
                let seen = self.cells.get(number).and_then(|cells| cells[tier].clone());
                let before = || written.get(number).and_then(|cells| cells[tier].clone());
                seen.or_else(before).unwrap_or_else(|| "not tested".to_owned())
            };
            let _ = writeln!(out, "| {number} | {title} | {} | {} | {} |", text(0), text(1), text(2));
        }
        out
    }
}

fn parse(table: &str) -> BTreeMap<u8, [Option<String>; 3]> {
    let rows = table.lines().filter_map(|line| {
        let cells: Vec<_> = line.split(" | ").map(|cell| cell.trim_matches(['|', ' '])).collect();
        let [number, _, uncaged, full, reduced] = cells[..] else { return None };
        Some((number.parse().ok()?, [uncaged, full, reduced].map(|cell| Some(cell.to_owned()))))
    });
    rows.collect()
}

const TITLES: [(u8, &str); 46] = [
    (1, "dumps its environment"),
    (2, "reads the environment of other processes"),
    (3, "uses descriptors that it inherited"),
    (4, "traces other processes and reads their memory"),
    (5, "takes descriptors of other processes"),
    (6, "walks through `/proc/PID` of other processes"),
    (7, "signals other processes"),
    (8, "talks to sockets of the machine: Docker, SSH agent"),
    (9, "talks to abstract sockets: D-Bus, X11"),
    (10, "talks to services on the machine's loopback"),
    (11, "asks the cloud for the machine's credentials"),
    (12, "carries data out in DNS names"),
    (13, "forges `Host` and the TLS server name"),
    (14, "opens sockets of other families"),
    (15, "reads the user's secrets and the broker's"),
    (16, "writes the shell's start files"),
    (17, "writes programs and what every program loads"),
    (18, "leads a link out of a folder that it may write"),
    (19, "is given a path with a symbolic link in it"),
    (20, "types into the terminal"),
    (21, "makes user namespaces"),
    (22, "mounts, remounts, changes root, enters namespaces"),
    (23, "reaches for bpf, perf, userfaultfd, kexec, modules"),
    (24, "avoids system call filters: io_uring, x32"),
    (25, "reads and plants keys"),
    (26, "raises its privileges"),
    (27, "changes settings of the kernel"),
    (28, "forks without end"),
    (29, "takes memory without end, private and shared"),
    (30, "takes descriptors and watches without end"),
    (31, "fills the disk"),
    (32, "reads shared memory and queues of others"),
    (33, "leaves daemons behind when the broker is killed"),
    (34, "writes a line without end"),
    (35, "writes messages and complaints without end"),
    (36, "writes invalid messages, answers twice, nests deep"),
    (37, "closes its output and lives on"),
    (38, "ignores the end of its input and TERM"),
    (39, "poisons a package cache that others use"),
    (40, "keeps a tunnel open after its end"),
    (41, "spins"),
    (42, "races the recorder of what it does"),
    (43, "hides memory behind first threads that have ended"),
    (44, "makes Unix sockets of every kind, single and in pairs"),
    (45, "changes a broker's configuration in a folder that it may write"),
    (46, "makes a broker's configuration in a folder that it may write"),
];
