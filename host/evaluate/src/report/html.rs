//! One HTML file, which needs nothing else: no script, no font, no picture from anywhere.

use portcullis_core::escape::toml_string;

use crate::evaluation::{Evaluation, Judgement};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}\
code{background:#f3f3f3;padding:0 .2em}li,p{overflow-wrap:anywhere}article{border-left:.4rem solid #999;padding:.1rem 1rem;margin:1rem 0}\
.critical,.high{border-color:#b00020}.warning{border-color:#c77700}";

/// Returns the evaluation as one HTML page. All text of the source is escaped.
#[must_use]
pub fn html(evaluation: &Evaluation) -> String {
    let name = if evaluation.server.is_empty() { "a server that gives no name" } else { &evaluation.server };
    let headline = match evaluation.judgement {
        Judgement::NothingSeen => "Nothing was seen. That does not mean that it is harmless.",
        Judgement::Findings => "There are findings.",
        Judgement::NotJudged => "It could not be judged.",
    };
    let mut body = format!(
        "<h1>{}</h1><p><code>{}</code></p><p><strong>{headline}</strong></p>",
        escaped(name),
        escaped(&evaluation.command.join(" "))
    );
    if let Some(failure) = &evaluation.failure {
        body += &format!("<p>{}</p>", escaped(failure));
    }
    if !evaluation.about.is_empty() {
        body += &list(&evaluation.about);
    }
    body += "<h2>Findings</h2>";
    for finding in &evaluation.findings {
        let level = finding.level.as_str();
        body += &format!(
            "<article class=\"{level}\"><h3>{level}: {}</h3><p>{}</p>{}{}</article>",
            escaped(&finding.subject),
            escaped(finding.meaning),
            list(&finding.evidence),
            if finding.conditions.is_empty() {
                String::new()
            } else {
                format!("<p>Seen when {}.</p>", escaped(&finding.conditions.join("; ")))
            },
        );
    }
    if evaluation.findings.is_empty() {
        body += "<p>None.</p>";
    }
    let line = |line: &portcullis_learn::CellLine| format!("{} = [{}]", line.key.as_str(), toml_string(&line.value));
    if let Some(cell) = &evaluation.cell {
        let lines: Vec<String> = cell.lines.iter().map(line).collect();
        body += "<h2>The smallest cell</h2>";
        body += &if lines.is_empty() { format!("<p>{}</p>", escaped(cell.opens_nothing())) } else { list(&lines) };
        let not = |wanted| format!("not: {} ({})", line(wanted), wanted.remark.unwrap_or_default());
        let not: Vec<String> = cell.withheld.iter().chain(&cell.looked_up).map(not).collect();
        body += &if not.is_empty() { String::new() } else { list(&not) };
    }
    let heading = if evaluation.cell.is_some() { "The risk in it" } else { "The risk" };
    body += &format!("<h2>{heading}</h2>{}", list(&evaluation.risk));
    let run = |run: &crate::evaluation::RunSummary| {
        let failure = run.failure.as_ref().map(|failure| format!(": {failure}")).unwrap_or_default();
        format!("{} calls, {} answered, {} s, when {}{failure}", run.calls, run.answered, run.seconds, run.condition)
    };
    body +=
        &format!("<h2>What was exercised</h2>{}", list(&evaluation.exercised.runs.iter().map(run).collect::<Vec<_>>()));
    let failed: Vec<String> = evaluation.exercised.failed.iter().map(ToString::to_string).collect();
    if !failed.is_empty() {
        body += &format!("<h2>Tools of which calls failed</h2>{}", list(&failed));
    }
    body += &format!("<h2>What was not</h2>{}", list(&evaluation.exercised.not));
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\"><title>{}</title><style>{STYLE}</style></head><body>{body}</body></html>\n",
        escaped(name)
    )
}

fn list(items: &[String]) -> String {
    let items: String = items.iter().map(|item| format!("<li>{}</li>", escaped(item))).collect();
    format!("<ul>{items}</ul>")
}

/// Returns text escaped for HTML, in an element or an attribute.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in portcullis_core::escape::escape_hidden(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}
