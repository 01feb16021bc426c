//! The form that a person is shown at the agent's side, and the answer that comes back.

use serde_json::json;

use super::excerpt::{excerpt, shorten_strings};
use super::inbox::{GivenAnswer, OpenQuestion, Question};
use crate::escape::escape_hidden;
use crate::protocol::{Json, Method};

/// The most characters of arguments, and of reasons, that an elicitation shows; `portcullis approvals show` has them
/// all.
const MAX_SHOWN: usize = 2_000;

/// The most characters of one string in the arguments, and of a method.
const MAX_SHOWN_STRING: usize = 200;

/// Returns the parameters of `elicitation/create`: a form with one choice and no default.
pub(super) fn elicitation(pending: &OpenQuestion) -> serde_json::Value {
    let summary = &pending.terms.summary;
    let (shown, is_cut) = show(&pending.terms.arguments.text);
    let notice = if is_cut { " (shortened: `portcullis approvals show` has all of them)" } else { "" };
    // The arguments come last, so that nothing in them can pass for what follows them.
    let message = format!(
        "Portcullis: May {} of source `{}` run? Reasons: {}. Question {}. Arguments{notice}: {shown}",
        what(summary),
        summary.source,
        excerpt(&summary.reasons.iter().map(|reason| escape_hidden(reason)).collect::<Vec<_>>().join("; "), MAX_SHOWN),
        summary.id,
    );
    let (mut values, mut titles) = (vec!["refuse"], vec!["No"]);
    let scopes = pending.scopes();
    for scope in &scopes {
        values.push(scope.as_str());
        titles.push(scope.in_words(&scopes));
    }
    json!({
        "message": message,
        "requestedSchema": {
            "type": "object",
            "properties": { "answer": { "type": "string", "title": "Answer", "enum": values, "enumNames": titles } },
            "required": ["answer"],
        },
    })
}

/// Returns the action in question: a method, and its item, if it names one.
fn what(summary: &Question) -> String {
    let method = excerpt(&escape_hidden(&summary.method), MAX_SHOWN_STRING).into_owned();
    let name = escape_hidden(&summary.name);
    let title = summary.title.as_deref().map(|title| excerpt(&escape_hidden(title), MAX_SHOWN_STRING).into_owned());
    let title = title.map(|title| format!(" ({title:?})")).unwrap_or_default();
    // Most questions are about a tool, and its call is what a person expects.
    let method = if name.is_empty() || summary.method != Method::ToolsCall.as_str() {
        format!("method `{method}`")
    } else {
        String::new()
    };
    match (name.is_empty(), method.is_empty()) {
        (true, _) => method,
        (false, true) => format!("`{name}`{title}"),
        (false, false) => format!("{method} for `{name}`{title}"),
    }
}

/// Returns the arguments as a person is shown them, and whether something was left out.
fn show(arguments: &Json) -> (String, bool) {
    let (short, is_cut) = shorten_strings(arguments.as_str(), MAX_SHOWN_STRING);
    let text = escape_hidden(&short);
    let shown = excerpt(&text, MAX_SHOWN);
    (shown.to_string(), is_cut || shown != text)
}

/// Returns the answer in an `ElicitResult`. `None` if the person gave none (`cancel`).
pub(super) fn read_elicitation(result: &Json) -> Option<GivenAnswer> {
    match result.get_str("action")?.as_str() {
        "accept" => match result.get("content")?.get_str("answer")?.as_str() {
            "refuse" => Some(GivenAnswer::no()),
            scope => Some(GivenAnswer::yes().scope(scope)),
        },
        "decline" => Some(GivenAnswer::no()),
        _ => None,
    }
}
