//! Shows an evaluation to people, the worst first.

use portcullis::escape::toml_string;
use portcullis_evaluate::{CellProposal, Evaluation, EvaluationFinding, FindingLevel, Judgement};

use crate::output::{self, BAD, BOLD, escape_hidden};

/// The largest number of notes that are shown one by one.
const SHOWN_NOTES: usize = 8;

/// The largest number of tools with failed calls that are shown one by one.
const SHOWN_FAILURES: usize = 12;

pub(super) fn evaluation(evaluation: &Evaluation) -> anyhow::Result<()> {
    let mut text = String::new();
    let name = if evaluation.server.is_empty() { "a server that gives no name" } else { &evaluation.server };
    let (notes, findings): (Vec<_>, Vec<_>) =
        evaluation.findings.iter().partition(|finding| finding.level == FindingLevel::Note);
    let headline = match evaluation.judgement {
        Judgement::NothingSeen => "nothing was seen, which does not mean that it is harmless".to_owned(),
        Judgement::Findings if findings.len() == 1 => "1 finding".to_owned(),
        Judgement::Findings => format!("{} findings", findings.len()),
        Judgement::NotJudged => format!("{BAD}it could not be judged{BAD:#}"),
    };
    text += &format!("{BOLD}{}{BOLD:#}: {headline}\n", escape_hidden(name));
    if let Some(failure) = &evaluation.failure {
        text += &format!("  {}\n", escape_hidden(failure));
    }
    for fact in &evaluation.about {
        text += &format!("  {}\n", escape_hidden(fact));
    }
    for finding in findings {
        text += &shown(finding);
    }
    if !notes.is_empty() {
        text += &format!("\n{BOLD}also{BOLD:#}\n");
        for note in notes.iter().take(SHOWN_NOTES) {
            text += &format!("  {}: {}\n", note.rule, note.subject);
        }
        if let Some(more) = notes.len().checked_sub(SHOWN_NOTES).filter(|more| *more > 0) {
            text += &format!("  and {more} more, which --json lists\n");
        }
    }
    text += &evaluation.cell.as_ref().map(cell).unwrap_or_default();
    let heading = if evaluation.cell.is_some() { "the risk in it" } else { "the risk" };
    text += &format!("\n{BOLD}{heading}{BOLD:#}\n");
    for risk in &evaluation.risk {
        text += &format!("  {}\n", escape_hidden(risk));
    }
    let exercised = &evaluation.exercised;
    let calls: usize = exercised.runs.iter().map(|run| run.calls).sum();
    let seconds: u64 = exercised.runs.iter().map(|run| run.seconds).sum();
    text += &format!(
        "\n{BOLD}exercised{BOLD:#}: {} tools in {calls} calls, {} runs of {seconds} s together\n",
        exercised.tools.len(),
        exercised.runs.len()
    );
    for run in exercised.runs.iter().skip(1).filter(|run| run.failure.is_some()) {
        let failure = run.failure.as_deref().unwrap_or_default();
        text += &format!("  when {}: {}\n", run.condition, escape_hidden(failure));
    }
    if !exercised.failed.is_empty() {
        text += &format!("{BOLD}tools of which calls failed{BOLD:#}, so that less of them was seen\n");
    }
    for failed in exercised.failed.iter().take(SHOWN_FAILURES) {
        text += &format!("  {}\n", escape_hidden(&failed.to_string()));
    }
    if let Some(more) = exercised.failed.len().checked_sub(SHOWN_FAILURES).filter(|more| *more > 0) {
        text += &format!("  and {more} more, which --json lists\n");
    }
    text += &format!("{BOLD}not exercised or not seen{BOLD:#}\n");
    for not in &exercised.not {
        text += &format!("  {}\n", escape_hidden(not));
    }
    output::text(&text)
}

fn cell(cell: &CellProposal) -> String {
    let mut text = format!("\n{BOLD}the smallest cell{BOLD:#}\n");
    if cell.lines.is_empty() {
        text += &format!("  {}\n", cell.opens_nothing());
    }
    for line in &cell.lines {
        text += &format!("  {} = [{}]\n", line.key.as_str(), toml_string(&line.value));
    }
    for line in cell.withheld.iter().chain(&cell.looked_up) {
        let why = line.remark.map(|why| format!("  ({why})")).unwrap_or_default();
        text += &format!("  not: {} = [{}]{why}\n", line.key.as_str(), toml_string(&line.value));
    }
    text
}

fn shown(finding: &EvaluationFinding) -> String {
    let style = if finding.level >= FindingLevel::High { BAD } else { BOLD };
    let mut text = format!(
        "\n{style}{}{style:#}  {}\n  {}\n",
        finding.level.as_str(),
        finding.meaning,
        escape_hidden(&finding.subject)
    );
    for evidence in &finding.evidence {
        text += &format!("    {}\n", escape_hidden(evidence));
    }
    if !finding.conditions.is_empty() {
        text += &format!("    when {}\n", finding.conditions.join("; "));
    }
    text
}

#[cfg(test)]
mod tests {
    use portcullis_learn::{CellKey, CellLine};

    use super::*;

    #[test]
    fn a_path_stays_one_value_of_the_cell_that_is_shown() {
        let path = "/data/notes\"], network = [\"evil.example:443";
        let line = CellLine { key: CellKey::Read, value: path.to_owned(), evidence: Vec::new(), remark: None };
        let shown = cell(&CellProposal { lines: vec![line.clone()], withheld: vec![line], looked_up: Vec::new() });
        let lines: Vec<&str> = shown.lines().filter(|line| line.contains("read")).collect();
        let value = format!("read = [{}]", toml_string(path));
        assert_eq!(lines, [format!("  {value}"), format!("  not: {value}")]);
    }
}
