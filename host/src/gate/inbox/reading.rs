//! The open questions as people read them: the list, and one question in full.

use serde_json::{Value, json};

use super::super::excerpt::excerpt;
use super::{Inbox, InboxError, Question};
use crate::digest::Digest;

/// The most reasons of a question that are listed when its texts must be shortened.
const MAX_SHORT_REASONS: usize = 4;

/// The most characters that each text of a shortened question has.
const LONGEST_TEXT: usize = 2048;

/// The characters of each text below which a question is not shortened any further.
const SHORTEST_TEXT: usize = 8;

/// A part of an open question, for a reader that can take only so much at a time.
#[derive(Debug, serde::Serialize)]
pub(crate) struct QuestionPart {
    /// The question without its arguments, with the first part.
    #[serde(skip_serializing_if = "Option::is_none")]
    question: Option<Value>,
    /// The part of the text of its arguments.
    text: String,
    /// The byte of that text at which the next part begins, if there is one.
    next: Option<usize>,
}

impl Inbox {
    /// Returns the open questions, oldest first. Expired questions are not among them. The list shows only a part of
    /// large arguments, as [`Question::cut`] then tells; [`Inbox::question`] has all of them.
    #[must_use]
    pub fn list(&self) -> Vec<Question> {
        self.expire_overdue();
        let mut asks: Vec<_> = self.open.lock().values().filter(|pending| pending.is_open()).cloned().collect();
        asks.sort_by(|a, b| a.id().cmp(b.id()));
        asks.iter().map(|pending| pending.summary()).collect()
    }

    /// Returns an open question, by its id or a unique prefix, with all of its arguments: as JSON up to 1 MiB, and
    /// beyond as their text.
    ///
    /// # Errors
    /// [`InboxError::Unknown`] or [`InboxError::Ambiguous`].
    pub fn question(&self, id: &str) -> Result<Question, InboxError> {
        self.expire_overdue();
        let pending = self.find(id)?;
        Ok(pending.shown(pending.terms.arguments.whole(), false))
    }

    /// Returns the open questions as JSON that has at most this many bytes together. Each question has an equal share,
    /// and only one that is larger is shortened to it.
    pub(crate) fn list_within(&self, bytes: usize) -> Vec<Value> {
        let asks = self.list();
        let share = bytes / asks.len().max(1);
        // Each is followed by a comma.
        asks.iter().map(|question| shortened(question, share.saturating_sub(1))).collect()
    }

    /// Returns a part of an open question: at most `max` bytes of the text of its arguments from the byte `from` on,
    /// and with the first part the rest of the question, in at most as many bytes.
    ///
    /// # Errors
    /// [`InboxError::Unknown`] or [`InboxError::Ambiguous`].
    pub(crate) fn part(&self, id: &str, from: usize, max: usize) -> Result<QuestionPart, InboxError> {
        self.expire_overdue();
        let pending = self.find(id)?;
        let question = (from == 0).then(|| shortened(&pending.shown(Value::Null, false), max));
        let (text, next) = pending.terms.arguments.part(from, max);
        Ok(QuestionPart { question, text: text.to_owned(), next })
    }

    /// Returns how many questions are open.
    pub(crate) fn len(&self) -> usize {
        self.expire_overdue();
        self.open.lock().values().filter(|pending| pending.is_open()).count()
    }
}

/// Returns a question as JSON of at most `max` bytes, which must be 3 KiB or more: its texts are shortened as far as
/// necessary.
fn shortened(question: &Question, max: usize) -> Value {
    let whole = json!(question);
    let fits = |shown: &Value| shown.to_string().len() <= max;
    if fits(&whole) {
        return whole;
    }
    let mut length = LONGEST_TEXT;
    loop {
        let short = json!(with_short_texts(question, length));
        if fits(&short) || length <= SHORTEST_TEXT {
            return short;
        }
        length /= 2;
    }
}

fn with_short_texts(question: &Question, max: usize) -> Question {
    let text = |text: &str| excerpt(text, max).into_owned();
    // Two questions are about the same only if these are equal, so omitted parts still count.
    let identity = |whole: &str| match excerpt(whole, max) {
        short if short == whole => short.into_owned(),
        short => format!("{short} ({})", Digest::of(whole.as_bytes())),
    };
    let mut reasons: Vec<_> = question.reasons.iter().take(MAX_SHORT_REASONS).map(|reason| text(reason)).collect();
    match question.reasons.len().saturating_sub(MAX_SHORT_REASONS) {
        0 => {}
        more => reasons.push(format!("… {more} more reasons")),
    }
    let arguments = match &question.arguments {
        Value::String(spelled) => spelled.clone(),
        other => other.to_string(),
    };
    let arguments = match excerpt(&arguments, max) {
        short if short == arguments => question.arguments.clone(),
        short => Value::String(short.into_owned()),
    };
    Question {
        method: identity(&question.method),
        tool: identity(&question.tool),
        source: identity(&question.source),
        name: identity(&question.name),
        title: question.title.as_deref().map(text),
        principal: identity(&question.principal),
        profile: identity(&question.profile),
        client: text(&question.client),
        reasons,
        arguments,
        cut: true,
        ..question.clone()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "tests")]

    use super::*;

    #[test]
    fn a_question_fits_its_share_whatever_its_texts_hold() {
        let hostile = "\u{1}".repeat(70_000);
        let question = Question {
            id: "01JD".repeat(7),
            method: hostile.clone(),
            tool: hostile.clone(),
            source: hostile.clone(),
            name: format!("{hostile}a{hostile}"),
            recorded_tool: hostile.clone(),
            title: Some(hostile.clone()),
            hints: vec!["only reads", "destructive", "idempotent", "open world"],
            principal: hostile.clone(),
            profile: hostile.clone(),
            client: hostile.clone(),
            reasons: vec![hostile.clone(); 40],
            arguments: json!({ "a": hostile }),
            arguments_bytes: usize::MAX,
            cut: false,
            may_do_harm: true,
            scopes: vec!["once", "arguments", "session", "principal", "hour", "always"],
            waiting: usize::MAX,
            expires_in: u64::MAX,
        };
        let shown = shortened(&question, 3 * 1024);
        assert!(shown.to_string().len() <= 3 * 1024, "{}", shown.to_string().len());
        assert_eq!((&shown["id"], &shown["cut"]), (&json!(question.id), &json!(true)));
        let other = shortened(&Question { name: format!("{hostile}b{hostile}"), ..question.clone() }, 3 * 1024);
        assert_ne!(shown["name"], other["name"], "two names that differ only in what is left out");
        let enough = json!(question).to_string().len();
        assert_eq!(shortened(&question, enough), json!(question));
    }
}
