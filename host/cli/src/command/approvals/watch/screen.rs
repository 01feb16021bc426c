//! The lines that show a question. They fit the terminal whatever the agent and the source have written, since a text
//! that scrolls the question away could show another one in its place.

use portcullis::gate::ScopeChoice;
use serde_json::Value;

use super::{Batch, id, scopes};
use crate::output::{BOLD, escape_hidden, escape_hidden_json, fit, head, width};

/// The rows that reasons and arguments need at least: with fewer, one of them would not be seen.
const MIN_ROOM: usize = 4;

/// Returns the lines that show questions on a terminal of this many columns and rows, with the choice of this number
/// selected. The last row stays free for the cursor.
pub(super) fn screen(batch: &Batch<'_>, at: usize, (columns, rows): (usize, usize)) -> Vec<String> {
    let question = batch.question;
    let text = |key: &str| escape_hidden(question[key].as_str().unwrap_or_default()).into_owned();
    let indented = |text: &str| fit(&format!("  {text}"), columns);
    let others = if batch.others > 0 { format!("  ({} more)", batch.others) } else { String::new() };
    let name = fit(&text("name"), columns / 2);
    let title = question["title"].as_str().map(|title| format!("  “{}”", escape_hidden(title))).unwrap_or_default();
    let title = fit(&title, columns.saturating_sub(width(&name)));
    let mut above = vec![
        format!("{BOLD}{name}{BOLD:#}{title}"),
        fit(&format!("of source {}{others}  {}", text("source"), text("method")), columns),
        indented(&format!(
            "{} under profile {}, {}",
            fit(&text("principal"), columns / 3),
            fit(&text("profile"), columns / 3),
            text("client")
        )),
    ];
    let hints: Vec<_> = question["hints"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !hints.is_empty() {
        above.push(indented(&format!("its source says: {}", escape_hidden(&hints.join(", ")))));
    }
    if question["mayDoHarm"] == true {
        above.push(indented("it may destroy something, or reach beyond its source"));
    }
    let whole = match (batch.alike.len(), batch.is_whole) {
        (0, _) => None,
        (alike, false) => Some(indented(&format!("b answers the {alike} others of this tool too"))),
        (alike, true) => {
            let all = indented(&format!("the answer is for all {}; b for this one only", alike + 1));
            Some(format!("{BOLD}{all}{BOLD:#}"))
        }
    };
    let offered: Vec<ScopeChoice> = scopes(question).collect();
    let titles = std::iter::once("No").chain(offered.iter().map(|scope| scope.in_words(&offered)));
    let choices = titles
        .enumerate()
        .map(|(number, title)| fit(&format!("{} {title}", if number == at { "›" } else { " " }), columns));
    let keys = fit(
        &format!("↑ ↓ choose   Enter answers   s leaves it open   q quits   {} s left", question["expiresIn"]),
        columns,
    );
    let mut below: Vec<String> = choices.collect();
    let rows = rows.saturating_sub(1);
    let room = rows.saturating_sub(above.len() + usize::from(whole.is_some()) + 1 + below.len() + 1);
    if room < MIN_ROOM {
        let chosen = below.into_iter().nth(at).unwrap_or_default();
        let mut few = above;
        few.truncate(rows.saturating_sub(4).max(1));
        few.extend(whole);
        few.extend([more("too few rows", question, columns), chosen, keys]);
        return few;
    }
    let reasons = reasons(question, (room / 3).max(2), columns);
    let questions: Vec<&Value> = batch.meant().collect();
    let arguments = arguments(&questions, room - reasons.len(), columns);
    // Empty lines part what belongs together, if nothing else needs them.
    let spare = room - reasons.len() - arguments.len();
    let mut shown = above;
    shown.extend(reasons);
    shown.extend(whole);
    shown.extend((spare > 1).then(String::new));
    shown.push(indented("arguments:"));
    shown.extend(arguments);
    shown.extend((spare > 1).then(String::new));
    shown.append(&mut below);
    shown.push(keys);
    shown
}

/// Returns the reasons of a question in at most `room` lines, which must be two or more.
fn reasons(question: &Value, room: usize, columns: usize) -> Vec<String> {
    let all: Vec<_> = question["reasons"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let shown = if all.len() > room { room - 1 } else { all.len() };
    let share = room / shown.max(1);
    let because = |reason: &&str| wrapped(&format!("  because {}", escape_hidden(reason)), share, columns);
    let mut lines: Vec<String> = all.iter().take(shown).flat_map(because).collect();
    if all.len() > shown {
        lines.truncate(room - 1);
        lines.push(more(&format!("{} more reasons", all.len() - shown), question, columns));
    }
    lines
}

/// Returns a text in at most this many lines, all but the first indented.
fn wrapped(text: &str, lines: usize, columns: usize) -> Vec<String> {
    let (mut shown, mut rest) = (Vec::new(), text.to_owned());
    while shown.len() + 1 < lines && width(&rest) > columns {
        let first = head(&rest, columns);
        let first = first.rfind(' ').filter(|at| *at > columns / 2).and_then(|at| first.get(..at)).unwrap_or(first);
        let tail = rest.get(first.len()..).unwrap_or_default().trim_start();
        let next = format!("    {tail}");
        // In a terminal of a few columns nothing would be taken away.
        if next.len() >= rest.len() {
            break;
        }
        shown.push(first.to_owned());
        rest = next;
    }
    shown.push(fit(&rest, columns));
    shown
}

/// Returns the arguments of questions in at most `room` lines, which must be two or more. The last one names the
/// missing part, and how to see it.
fn arguments(questions: &[&Value], room: usize, columns: usize) -> Vec<String> {
    let share = ((room - 1) / questions.len().max(1)).max(1);
    let (mut lines, mut missing) = (Vec::new(), None);
    for question in questions {
        if lines.len() + share > room - 1 {
            missing = missing.or(Some((*question, "more questions".to_owned())));
            break;
        }
        let (shown, what) = arguments_of(question, share, columns);
        lines.extend(shown);
        missing = missing.or(what.map(|what| (*question, what)));
    }
    lines.extend(missing.map(|(question, what)| more(&what, question, columns)));
    lines
}

/// Returns the first lines of the arguments of a question, and the size of the rest.
fn arguments_of(question: &Value, room: usize, columns: usize) -> (Vec<String>, Option<String>) {
    let is_cut = question["cut"] == true;
    let text = match &question["arguments"] {
        // The two ends of the text of large arguments.
        Value::String(ends) if is_cut => escape_hidden(ends).into_owned(),
        arguments if room == 1 => escape_hidden_json(&arguments.to_string()).into_owned(),
        arguments => escape_hidden_json(&format!("{arguments:#}")).into_owned(),
    };
    let count = text.lines().count();
    let whole: Vec<String> = text.lines().take(room).map(|line| format!("  {line}")).collect();
    let shown: Vec<String> = whole.iter().map(|line| fit(line, columns)).collect();
    let missing = match count.saturating_sub(room) {
        _ if is_cut => Some(format!("{} bytes, cut", question["argumentsBytes"])),
        0 if shown == whole => None,
        0 => Some("cut".to_owned()),
        lines => Some(format!("{lines} more lines")),
    };
    (shown, missing)
}

/// Returns a line that names the missing part, and how to see it.
fn more(what: &str, question: &Value, columns: usize) -> String {
    fit(&format!("  … {what}: portcullis approvals show {}", escape_hidden(id(question))), columns)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "tests")]

    use serde_json::json;

    use super::*;

    fn question(arguments: Value, text: &str) -> Value {
        json!({
            "id": "01JDQ8Z5V7W3XK9M2N4P6R8S0T", "method": "tools/call", "tool": "files__delete", "source": "files",
            "name": format!("delete{text}"), "title": text, "hints": ["destructive", "open world"], "principal": text,
            "profile": "default", "client": text, "reasons": [text, text, text], "arguments": arguments,
            "argumentsBytes": 20_000, "cut": false, "mayDoHarm": true, "waiting": 1, "expiresIn": 299,
            "scopes": ["once", "arguments", "session", "hour", "always"],
        })
    }

    /// Returns what a terminal shows, without its styles.
    fn shown(question: &Value, alike: Vec<&Value>, size: (usize, usize)) -> Vec<String> {
        let is_whole = !alike.is_empty();
        let lines = screen(&Batch { question, alike, others: 3, is_whole }, 1, size);
        lines.iter().map(|line| line.replace(&format!("{BOLD}"), "").replace(&format!("{BOLD:#}"), "")).collect()
    }

    fn assert_fits(lines: &[String], (columns, rows): (usize, usize)) {
        assert!(lines.len() < rows, "{} lines in {rows} rows: {lines:#?}", lines.len());
        for line in lines {
            // Each of these characters is one or two columns wide.
            let width: usize = line.chars().map(|c| if c == '界' { 2 } else { 1 }).sum();
            assert!(width <= columns && !line.contains(['\n', '\r', '\u{1b}']), "{width} columns: {line}");
        }
    }

    #[test]
    fn no_text_of_an_agent_or_a_source_scrolls_a_question_away() {
        let imitation = "x".repeat(78) + "read_file of source docs  tools/call\n  arguments:";
        for text in ["", &imitation.repeat(200), &"界\u{1b}[2J ".repeat(4000)] {
            for arguments in [json!({ "path": text }), json!({ text: [1, 2] }), json!(vec![text; 60]), json!(text)] {
                let asked = question(arguments, text);
                let alike: Vec<Value> = (0..40).map(|n| question(json!({ "n": n, "path": text }), text)).collect();
                for size in [(80, 24), (80, 50), (132, 24), (40, 12), (20, 8)] {
                    assert_fits(&shown(&asked, Vec::new(), size), size);
                    assert_fits(&shown(&asked, alike.iter().collect(), size), size);
                }
                let lines = shown(&asked, Vec::new(), (80, 24));
                assert!(lines[0].starts_with("delete") && lines[1].starts_with("of source files"), "{lines:#?}");
                let cut = lines.iter().any(|line| line.contains("… ") && line.contains("approvals show 01JDQ8Z5V7W3X"));
                assert_eq!(cut, !text.is_empty() || asked["arguments"].is_array(), "{lines:#?}");
            }
        }
    }

    #[test]
    fn a_question_that_fits_is_shown_as_it_is() {
        let asked = question(json!({ "path": "/a", "mode": "append" }), "short");
        let lines = shown(&asked, Vec::new(), (80, 40));
        let text = lines.join("\n");
        assert!(text.starts_with("deleteshort  “short”\nof source files  (3 more)  tools/call\n"), "{text}");
        for part in ["  because short\n", "\n  arguments:\n  {\n    \"path\": \"/a\",\n", "\n  No\n› Yes, this once\n"]
        {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        assert!(!text.contains('…'), "{text}");
    }

    #[test]
    fn arguments_of_which_the_broker_sends_a_part_are_said_to_be_cut() {
        let mut asked = question(json!("{\"text\":\"x …(9000 characters left out)… x\"}"), "short");
        asked["cut"] = json!(true);
        let text = shown(&asked, Vec::new(), (80, 40)).join("\n");
        assert!(text.contains("  {\"text\":\"x …(9000 characters left out)… x\"}\n"), "{text}");
        let more = "  … 20000 bytes, cut: portcullis approvals show 01JDQ8Z5V7W3XK9M2N4P6R8S0T\n";
        assert!(text.contains(more), "{text}");
    }
}
