//! Checks that the broker and the source read the same call in its parameters.
//!
//! A parser may take the first or the last of two members of one name, and some (Go's standard library) compare names
//! without regard to case. So an agent must not be able to say one thing to the policies and another to the source:
//! `{"name":"erase","name":"files__read"}`, `{"name":"files__read","Name":"erase"}`.

use std::collections::HashSet;

use crate::call::{TASK_MEMBERS, UnknownMembers};
use crate::protocol::{Json, MemberTexts, Method, fold};

/// The members that the broker itself reads or replaces. In another spelling they are refused even without a second
/// member.
const MEANT: [&str; 8] = ["name", "arguments", "_meta", "uri", "ref", TASK, "requestState", "inputResponses"];

const TASK: &str = "task";

/// The most digits of the time for which a task is kept: 30,000 years.
const MAX_DIGITS: usize = 15;

/// Refuses parameters that two parsers could read differently, as far as the broker looks into them: their own members
/// and those of `_meta`, `ref` and `task`. Arguments are checked as a whole where they are digested. Returns the
/// members that the method does not have, if the protocol says which it has.
///
/// # Errors
/// A text that names the member, and why it is refused.
pub(super) fn check(method: &Method, params: &Json) -> Result<UnknownMembers, String> {
    let mut unknown = UnknownMembers::default();
    if params.as_bytes().starts_with(b"[") {
        // Positional parameters have no names.
        return Ok(unknown);
    }
    let known = method.known_members();
    let members = distinct(params, "params")?;
    for (key, _) in &members {
        let (mut meant, folded) = (MEANT.iter().chain(method.asked_members()), fold(key));
        if let Some(meant) = meant.find(|meant| key != **meant && meant.eq_ignore_ascii_case(&folded)) {
            return Err(format!("`params` has {key:?}, which may be read as `{meant}`"));
        }
        if known.is_some_and(|known| !known.contains(&&**key)) {
            unknown.of_params.push(key.clone().into_owned());
        }
    }
    let value = |member| params.get(member).filter(|value| *value != Json::null());
    if known.is_some_and(|known| known.contains(&TASK))
        && let Some(task) = value(TASK)
    {
        let members = distinct(&task, "params.task")?;
        if let Some((_, ttl)) = members.iter().find(|(key, text)| key == "ttl" && !is_milliseconds(text)) {
            let ttl: String = ttl.chars().take(32).collect();
            return Err(format!("`params.task.ttl` is a number of milliseconds, and not {ttl}"));
        }
        let strange = members.into_iter().map(|(key, _)| key.into_owned());
        unknown.of_task = strange.filter(|key| !TASK_MEMBERS.contains(&key.as_str())).collect();
    }
    if let Some(meta) = value("_meta") {
        distinct(&meta, "params._meta")?;
    }
    if let Some(reference) = value("ref") {
        let names_prompt = reference.get_str("type").as_deref() == Some("ref/prompt");
        let known = ["type", if names_prompt { "name" } else { "uri" }];
        let strange = distinct(&reference, "params.ref")?.into_iter().map(|(key, _)| key.into_owned());
        unknown.of_ref = strange.filter(|key| !known.contains(&key.as_str())).collect();
    }
    Ok(unknown)
}

/// Reports whether a value is a number of milliseconds, or null: any other would be a text that nobody judges or reads.
fn is_milliseconds(text: &str) -> bool {
    text == "null" || (text.len() <= MAX_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the members of an object, or an error if a lenient parser could take two of its keys for one.
fn distinct<'a>(object: &'a Json, shown: &str) -> Result<MemberTexts<'a>, String> {
    let members =
        object.member_texts().ok_or_else(|| format!("`{shown}` is not an object with keys that can be read"))?;
    let mut seen = HashSet::with_capacity(members.len());
    for (key, _) in &members {
        if !seen.insert(fold(key)) {
            let key: String = key.chars().take(64).collect();
            return Err(format!("`{shown}` has {key:?} twice, or in two spellings"));
        }
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn said(text: &'static str) -> Result<UnknownMembers, String> {
        check(&Method::ToolsCall, &Json::parse(text).unwrap())
    }

    #[test]
    fn whatever_two_parsers_could_read_differently_is_refused() {
        for bad in [
            r#"{"name":"erase","name":"read"}"#,
            r#"{"name":"erase","\u006eame":"read"}"#,
            r#"{"name":"read","NAME":"erase"}"#,
            r#"{"name":"read","arguments":{},"arguments":{"path":"/etc"}}"#,
            r#"{"name":"read","Arguments":{"path":"/etc"}}"#,
            r#"{"name":"read","argument\u017f":{"path":"/etc"}}"#,
            r#"{"name":"read","_meta":{"progressToken":1,"progressToken":2}}"#,
            r#"{"name":"read","_meta":{"progressToken":1,"ProgressToken":2}}"#,
            r#"{"name":"read","_meta":[]}"#,
            r#"{"name":"read","task":{},"Task":{}}"#,
            r#"{"name":"read","task":{"ttl":1,"TTL":2}}"#,
            r#"{"name":"read","task":{"ttl":"a text"}}"#,
            r#"{"name":"read","task":{"ttl":{"a":1}}}"#,
            r#"{"name":"read","task":{"ttl":1234567890123456}}"#,
            r#"{"name":"read","task":{"ttl":-1}}"#,
            r#"{"name":"read","requeststate":"s"}"#,
            r#"{"uri":"file:///a","URI":"file:///b"}"#,
            r#"{"ref":{"type":"ref/prompt","name":"a","Name":"b"},"argument":{}}"#,
        ] {
            assert!(said(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_question_in_another_spelling_is_refused() {
        for bad in [r#"{"message":"m","RequestedSchema":{}}"#, r#"{"message":"m","URL":"https://a.example"}"#] {
            let params = Json::parse(bad).unwrap();
            assert!(check(&Method::ElicitationCreate, &params).is_err(), "{bad}");
            assert!(check(&Method::ResourcesRead, &params).is_ok(), "{bad}");
        }
    }

    #[test]
    fn ordinary_parameters_pass() {
        let text =
            r#"{"name":"read","arguments":{"a":1,"A":2},"_meta":{"x/y":{"z":1}},"requestState":"s","vendor":null}"#;
        let unknown = |of_params: &[&str], of_task: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            Ok(UnknownMembers { of_params: owned(of_params), of_task: owned(of_task), of_ref: Vec::new() })
        };
        assert_eq!(said(text), unknown(&["vendor"], &[]), "what the method does not have is named");
        assert_eq!(said(r#"{"name":"read","task":{"ttl":1,"x":2},"task.x":3}"#), unknown(&["task.x"], &["x"]));
        assert_eq!(said(r#"{"name":"read","task":{"ttl":1}}"#), unknown(&[], &[]));
        assert_eq!(said(r#"[1,"read"]"#), unknown(&[], &[]));
        let own = Json::parse(r#"{"x":1,"vendor":null}"#).unwrap();
        assert_eq!(check(&"vendor/do".into(), &own), unknown(&[], &[]), "all of it is judged as arguments");
        for (reference, strange) in [
            (r#"{"type":"ref/prompt","name":"a","title":"t","uri":"u"}"#, &["title", "uri"]),
            (r#"{"type":"ref/resource","uri":"u","name":"n","x":1}"#, &["name", "x"]),
        ] {
            let params = Json::parse(format!(r#"{{"ref":{reference},"argument":{{}}}}"#)).unwrap();
            assert_eq!(check(&Method::CompletionComplete, &params).unwrap().of_ref, strange);
        }
    }
}
