//! The members by which a result asks for input (2026-07-28, "Multi Round-Trip Requests"), as any parser may read them.
//!
//! The broker itself asks by these members. A source that got them past it in another spelling, twice, or next to an
//! unreadable key could show a person its own form in the broker's name.

use super::Json;

/// The members by which a result asks.
const MEMBERS: [&str; 3] = [TYPE, REQUESTS, "requestState"];
const TYPE: &str = "resultType";
const REQUESTS: &str = "inputRequests";

/// The value of `resultType` with which a result asks.
const INPUT_REQUIRED: &str = "input_required";

/// The members of a result that state its kind, and whether it asks.
#[derive(Debug, Default)]
pub struct AskingMembers {
    /// True for an object with a key that cannot be read. Nobody can know what it has.
    unreadable: bool,
    /// The number of members that a parser may take for each of [`MEMBERS`].
    counts: [usize; MEMBERS.len()],
    /// True if one of them is spelt in another way.
    respelt: bool,
    /// True if there are requests. Some senders write `null` for none.
    requests: bool,
    /// The values of `resultType`, in any spelling.
    kinds: Vec<String>,
}

impl AskingMembers {
    /// Reads the members of a result, and nothing inside them. `other` is called with each other member.
    pub fn of(result: &Json, mut other: impl FnMut(&str, &str)) -> Self {
        let mut found = Self::default();
        let Some(members) = result.member_texts() else {
            found.unreadable = result.as_bytes().starts_with(b"{");
            return found;
        };
        for (name, text) in members {
            let counts = found.counts.iter_mut().zip(MEMBERS);
            let Some((count, member)) = counts.into_iter().find(|(_, member)| may_be(&name, member)) else {
                other(&name, text);
                continue;
            };
            *count += 1;
            found.respelt |= name != member;
            match member {
                TYPE => found.kinds.extend(serde_json::from_str::<String>(text)),
                REQUESTS => found.requests |= text != "null",
                _ => {}
            }
        }
        found
    }

    /// Reports whether a key of the result cannot be read.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        self.unreadable
    }

    /// Reports whether some parser may take the result for one that asks for input.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.requests || self.kinds.iter().any(|kind| kind == INPUT_REQUIRED)
    }

    /// Reports whether all parsers read these members in the same way.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        !self.unreadable && !self.respelt && self.counts.iter().all(|count| *count <= 1)
    }

    /// Reports whether the result unambiguously states that its sender must be called again with input.
    #[must_use]
    pub fn wants_retry(&self) -> bool {
        self.is_clear() && self.kinds == [INPUT_REQUIRED]
    }
}

/// Reports whether a lenient parser may take a key for this member.
fn may_be(key: &str, member: &str) -> bool {
    if key.is_ascii() {
        return key.eq_ignore_ascii_case(member);
    }
    // Letters that fold to others, such as `ſ`, have at most three bytes.
    key.len() <= 3 * member.len() && fold(key) == member.to_ascii_lowercase()
}

/// Folds case as lenient parsers do: upper case first, so that `ſ` and the Kelvin sign fold to `s` and `k`.
#[must_use]
pub fn fold(key: &str) -> String {
    if key.is_ascii() { key.to_ascii_lowercase() } else { key.to_uppercase().to_lowercase() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn members(text: &'static str) -> AskingMembers {
        AskingMembers::of(&Json::parse(text).unwrap(), |_, _| {})
    }

    #[test]
    fn whatever_a_parser_may_take_for_a_question_asks_and_is_not_clear() {
        for text in [
            r#"{"resultType":"input_required","resultType":"complete"}"#,
            r#"{"ResultType":"input_required"}"#,
            r#"{"inputRequests":{},"inputRequests":{}}"#,
            r#"{"inputRequests":{},"INPUTREQUESTS":{}}"#,
            r#"{"inputRequests":{},"inputRequests":null}"#,
            r#"{"inputReque\u017fts":{}}"#,
            r#"{"resultType":"input_required","inputRequests":{},"requestState":"a","RequestState":"b"}"#,
        ] {
            let found = members(text);
            assert!(found.asks() && !found.is_clear() && !found.wants_retry(), "{text}: {found:?}");
        }
        assert!(members(r#"{"\ud800":1,"resultType":"input_required"}"#).is_unreadable());
    }

    #[test]
    fn what_asks_in_good_order_and_what_does_not_ask_is_clear() {
        let asks = members(r#"{"resultType":"input_required","inputRequests":{},"requestState":"a"}"#);
        assert!(asks.asks() && asks.wants_retry(), "{asks:?}");
        for text in [
            r#"{"content":[],"resultType":"complete"}"#,
            r#"{"content":[],"resultType":"complete","inputRequests":null,"requestState":null}"#,
            r#"{"INPUT":1}"#,
            "[1]",
            "7",
        ] {
            let found = members(text);
            assert!(!found.asks() && found.is_clear() && !found.is_unreadable(), "{text}: {found:?}");
        }
    }
}
