//! Brings a released answer into the form that the profile sets for its model: without links to undeclared hosts, with
//! notes before instructions, without images, with structured content as text, and no larger than the profile allows.
//! The gate and the ledger had the whole answer before.

mod instructions;
mod links;
mod strings;

use std::collections::BTreeSet;

use serde_json::json;

use self::instructions::Marking;
use self::links::DeclaredHosts;
use super::configured::ConfiguredSession;
use super::kept_results::{part_end, uri_of};
use super::listing::VisibleItem;
use crate::call::CallId;
use crate::config::{Images, Instructions, Links, StructuredContent};
use crate::flow::INSTRUCTIONS;
use crate::ledger::{Event, EventBody, EventKind};
use crate::protocol::{Answer, Json, Method};

/// The largest number of links to parts of a result that stand in the result itself. Its note names all parts.
const MAX_LINKS: usize = 16;

/// The largest `isError` or `resultType`, in bytes, that stays in a result whose other members are too large.
const MAX_KEPT_MEMBER: usize = 64;

/// The largest structured content, and text, that are read to see whether they say the same: read into values, they
/// take many times their size.
const MAX_COMPARED_BYTES: usize = 1 << 20;

/// The changes that were made to one answer.
#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    links: usize,
    /// The rules that found instructions.
    instructions: BTreeSet<&'static str>,
    images: usize,
    structured: bool,
    oversize: Option<Oversize>,
}

/// A result that was too large.
#[derive(Debug, PartialEq, Eq)]
struct Oversize {
    bytes: usize,
    /// True if its text is kept, in parts that the agent can read.
    kept: bool,
    /// True if its members other than the content were left out, because those by themselves are too large.
    members_dropped: bool,
}

impl ConfiguredSession {
    /// Returns the answer to a call in the form that the profile sets, and records the changes.
    pub(super) fn converted(&self, method: &Method, call: &CallId, target: &VisibleItem, answer: Answer) -> Answer {
        let mut changes = Changes::default();
        let result = match answer {
            Answer::Result(result) => result,
            Answer::Error(error) => {
                let error = self.disarmed(error, target, &mut changes);
                self.record_changes(&changes, call, target);
                return Answer::Error(error);
            }
        };
        let is_content = matches!(
            method,
            Method::ToolsCall | Method::TasksResult | Method::TasksGet | Method::PromptsGet | Method::ResourcesRead
        );
        let result = if is_content { self.disarmed(result, target, &mut changes) } else { result };
        let converted = match method {
            Method::ToolsCall | Method::TasksResult => self.tool_result(result, &mut changes),
            Method::TasksGet => match result.get("result") {
                Some(inner) => result.with("result", &self.tool_result(inner, &mut changes)).unwrap_or(result),
                None => result,
            },
            Method::PromptsGet => self.each_of(result, "messages", &mut changes),
            Method::ResourcesRead => self.each_of(result, "contents", &mut changes),
            _ => result,
        };
        self.record_changes(&changes, call, target);
        Answer::Result(converted)
    }

    fn record_changes(&self, changes: &Changes, call: &CallId, target: &VisibleItem) {
        if *changes == Changes::default() {
            return;
        }
        if !changes.instructions.is_empty() && self.context.gate.reads_flow() {
            // Before the agent has the answer, so that no later call can come without it.
            self.agent_side.continuations.flow.label(INSTRUCTIONS);
        }
        let item = &target.item;
        let mut body =
            EventBody::new().with("source", item.source.as_str()).with(item.kind.as_str(), &*item.recorded_exposed());
        if changes.links > 0 {
            body.set("links", changes.links);
        }
        if !changes.instructions.is_empty() {
            body.set("instructions", changes.instructions.iter().collect::<Vec<_>>());
        }
        if changes.images > 0 {
            body.set("images", changes.images);
        }
        if changes.structured {
            body.set("structured", true);
        }
        if let Some(Oversize { bytes, kept, members_dropped }) = changes.oversize {
            let mut oversize = EventBody::new().with("bytes", bytes).with("kept", kept);
            if members_dropped {
                oversize.set("members-dropped", true);
            }
            body.set("oversize", oversize);
        }
        let run = Some(self.caller.session.clone());
        self.context.ledger.record(Event { kind: EventKind::ResultConverted, run, call: Some(call.clone()), body });
    }

    /// Returns an answer whose links to undeclared hosts are text, and whose instructions are marked, if the profile
    /// asks for that.
    fn disarmed(&self, answer: Json, target: &VisibleItem, changes: &mut Changes) -> Json {
        let (links, marks) = (self.profile.links == Links::Text, self.profile.instructions == Instructions::Mark);
        if !links && !marks {
            return answer;
        }
        let config = &target.upstream.config;
        let (hosts, mut marking) = (DeclaredHosts::of(config), Marking::of(&config.name));
        let rewritten = strings::rewritten(&answer, |string| {
            if string.is_icon {
                let icon = links::icon(string.text, &hosts).filter(|_| links)?;
                changes.links += 1;
                return Some(icon);
            }
            let shown = if links { links::as_text(string.text, &hosts) } else { None };
            let shown = shown.map(|(text, count)| {
                changes.links += count;
                text
            });
            let text = shown.as_deref().unwrap_or(string.text);
            let marked = if marks { marking.marked(text, string.is_block_text) } else { None };
            marked.or(shown)
        });
        changes.instructions = marking.rules();
        rewritten.unwrap_or(answer)
    }

    fn tool_result(&self, result: Json, changes: &mut Changes) -> Json {
        let result = self.each_of(result, "content", changes);
        let result = if self.profile.structured_content == StructuredContent::Text {
            with_structured_text(result, changes)
        } else {
            result
        };
        match self.profile.max_result {
            Some(limit) if result.as_bytes().len() > limit => self.shortened_result(&result, limit, changes),
            _ => result,
        }
    }

    /// Replaces images in a list of blocks, of messages or of contents.
    fn each_of(&self, result: Json, key: &str, changes: &mut Changes) -> Json {
        if self.profile.images == Images::Keep {
            return result;
        }
        let before = changes.images;
        let blocks = result.get(key).and_then(|list| list.items()).unwrap_or_default();
        let blocks: Vec<_> = blocks.into_iter().map(|block| without_image(block, changes)).collect();
        if changes.images == before {
            return result;
        }
        result.with(key, &Json::of(&blocks)).unwrap_or(result)
    }

    /// Returns the beginning of a result, and keeps the whole as a resource. The returned result has at most `limit`
    /// bytes, which is 8 KiB or more.
    fn shortened_result(&self, result: &Json, limit: usize, changes: &mut Changes) -> Json {
        let bytes = result.as_bytes().len();
        // The rest is for the note, for the links and for the other members.
        let part_bytes = limit / 2;
        let text = text_of(result);
        let beginning = text.get(..part_end(&text, 0, part_bytes)).unwrap_or_default().to_owned();
        let id = self.agent_side.continuations.results.keep(text, part_bytes);
        let parts =
            id.as_ref().and_then(|id| self.agent_side.continuations.results.part(id, 1)).map_or(0, |part| part.of);
        let mut content = vec![json!({ "type": "text", "text": beginning })];
        if let Some(id) = id.as_ref().filter(|_| parts > 1) {
            let (second, last) = (uri_of(id, 2.min(parts)), uri_of(id, parts));
            let note = format!(
                "[This is part 1 of {parts} of a result of {bytes} bytes. Read the others as resources, for an hour: {second} to {last}]"
            );
            content.push(json!({ "type": "text", "text": note }));
            content.extend((2..=parts).take(MAX_LINKS).map(|number| {
                let name = format!("part {number} of {parts}");
                json!({ "type": "resource_link", "uri": uri_of(id, number), "name": name, "mimeType": "text/plain" })
            }));
        } else if id.is_none() {
            let note =
                format!("[This is the beginning of a result of {bytes} bytes. There was no room to keep the rest]");
            content.push(json!({ "type": "text", "text": note }));
        }
        let content = Json::of(&content);
        let edits = [("content", Some(&content)), ("structuredContent", None)];
        let whole = result.edited(&edits).filter(|shortened| shortened.as_bytes().len() <= limit);
        changes.oversize = Some(Oversize { bytes, kept: id.is_some(), members_dropped: whole.is_none() });
        whole.unwrap_or_else(|| without_large_members(result, &content))
    }
}

/// Returns a result with this content, and, of its other members, only those that tell its kind.
fn without_large_members(result: &Json, content: &Json) -> Json {
    let small = |key: &'static str| result.get(key).filter(|value| value.as_bytes().len() <= MAX_KEPT_MEMBER);
    let members = ["isError", "resultType"].map(|key| (key, small(key)));
    let kept = members.iter().filter_map(|(key, value)| Some((*key, Some(value.as_ref()?))));
    let edits: Vec<_> = std::iter::once(("content", Some(content))).chain(kept).collect();
    Json::empty_object().edited(&edits).unwrap_or_else(Json::empty_object)
}

/// Returns the text that is kept of a result: that of its text blocks, other blocks as JSON, and structured content
/// that no block repeats.
fn text_of(result: &Json) -> String {
    let blocks = result.get("content").and_then(|content| content.items()).unwrap_or_default();
    let plain = |block: &Json| block.get_str("text").filter(|_| block.get_str("type").as_deref() == Some("text"));
    let mut texts: Vec<_> =
        blocks.iter().map(|block| plain(block).unwrap_or_else(|| block.as_str().to_owned())).collect();
    if let Some(structured) = structured(result).filter(|structured| !is_said(structured, &blocks)) {
        texts.push(structured.as_str().to_owned());
    }
    texts.join("\n")
}

fn structured(result: &Json) -> Option<Json> {
    result.get("structuredContent").filter(|structured| *structured != Json::null())
}

/// Reports whether a text block says the same as structured content, as far as both are small enough to be compared.
fn is_said(structured: &Json, blocks: &[Json]) -> bool {
    if structured.as_bytes().len() > MAX_COMPARED_BYTES {
        return false;
    }
    let value = structured.to_value();
    let texts = blocks.iter().filter_map(|block| block.get_str("text"));
    let mut small = texts.filter(|text| text.len() <= MAX_COMPARED_BYTES);
    small.any(|text| Json::parse(text).is_ok_and(|json| json.to_value() == value))
}

/// Adds structured content as a text, unless a text says the same.
fn with_structured_text(result: Json, changes: &mut Changes) -> Json {
    let Some(structured) = structured(&result) else { return result };
    let mut blocks = result.get("content").and_then(|content| content.items()).unwrap_or_default();
    if is_said(&structured, &blocks) {
        return result;
    }
    changes.structured = true;
    blocks.push(Json::of(&json!({ "type": "text", "text": structured.as_str() })));
    result.with("content", &Json::of(&blocks)).unwrap_or(result)
}

/// Returns a block, a message or a content with a text in place of its images.
fn without_image(block: Json, changes: &mut Changes) -> Json {
    // A message of a prompt has one block, or a list of them.
    if let Some(content) = block.get("content") {
        let before = changes.images;
        let replaced = match content.items() {
            Some(blocks) => {
                Json::of(&blocks.into_iter().map(|block| without_image(block, changes)).collect::<Vec<_>>())
            }
            None => without_image(content, changes),
        };
        if changes.images == before {
            return block;
        }
        return block.with("content", &replaced).unwrap_or(block);
    }
    let is_image = |mime: &str| mime.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("image/"));
    let kind = block.get_str("type");
    let holder = if kind.as_deref() == Some("resource") { block.get("resource") } else { Some(block.clone()) };
    let Some(holder) = holder else { return block };
    let mime = holder.get_str("mimeType").unwrap_or_default();
    let data = holder.get(if kind.as_deref() == Some("image") { "data" } else { "blob" });
    let Some(data) = data.filter(|_| kind.as_deref() == Some("image") || is_image(&mime)) else { return block };
    changes.images += 1;
    let mime: String = mime.chars().filter(|char| char.is_ascii_graphic()).take(40).collect();
    let kib = (data.as_bytes().len() * 3 / 4).div_ceil(1024);
    let text = format!("[An image ({mime}, {kib} KiB) is left out: this profile shows none]");
    match (kind.is_none(), holder.get("uri")) {
        (true, Some(uri)) => Json::of(&json!({ "uri": uri, "mimeType": "text/plain", "text": text })),
        _ => Json::of(&json!({ "type": "text", "text": text })),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn block(text: &str) -> Json {
        Json::parse(text.to_owned()).unwrap()
    }

    #[test]
    fn images_in_every_place_become_a_text_and_all_else_keeps_its_bytes() {
        let left_out = r#"{"type":"text","text":"[An image (image/png, 1 KiB) is left out: this profile shows none]"}"#;
        for (own, expected, images) in [
            (r#"{ "type":"image","data":"AAAA","mimeType":"image/png" }"#, left_out.to_owned(), 1),
            (
                r#"{"type":"resource","resource":{"uri":"a:b","mimeType":"image/png","blob":"AAAA"}}"#,
                left_out.to_owned(),
                1,
            ),
            (
                r#"{"uri":"a:b","mimeType":"image/png","blob":"AAAA"}"#,
                left_out.replace(r#"{"type":"text","#, r#"{"uri":"a:b","mimeType":"text/plain","#),
                1,
            ),
            (
                r#"{"role":"user", "content":{"type":"image","data":"AAAA","mimeType":"image/png"}}"#,
                format!(r#"{{"role":"user", "content":{left_out}}}"#),
                1,
            ),
            (
                r#"{"role":"user","content":[{ "type":"text","text":"a" },{"type":"image","data":"","mimeType":"image/png"},{"type":"image","data":"","mimeType":"image/png"}]}"#,
                format!(r#"{{"role":"user","content":[{{ "type":"text","text":"a" }},{0},{0}]}}"#, left_out),
                2,
            ),
            (r#"{ "type":"text","text":"image/png" }"#, r#"{ "type":"text","text":"image/png" }"#.to_owned(), 0),
            (
                r#"{ "type":"audio","data":"AA==","mimeType":"audio/wav" }"#,
                r#"{ "type":"audio","data":"AA==","mimeType":"audio/wav" }"#.to_owned(),
                0,
            ),
            (
                r#"{"type":"resource_link","uri":"a:b","mimeType":"image/png"}"#,
                r#"{"type":"resource_link","uri":"a:b","mimeType":"image/png"}"#.to_owned(),
                0,
            ),
        ] {
            let mut changes = Changes::default();
            assert_eq!(
                (without_image(block(own), &mut changes).as_str(), changes.images),
                (&*expected, images),
                "{own}"
            );
        }
    }

    #[test]
    fn structured_content_becomes_a_text_once() {
        for (own, expected) in [
            (
                r#"{"content":[],"structuredContent":{"a": 1.0}}"#,
                r#"{"content":[{"type":"text","text":"{\"a\": 1.0}"}],"structuredContent":{"a": 1.0}}"#,
            ),
            (r#"{"structuredContent":[1]}"#, r#"{"structuredContent":[1],"content":[{"type":"text","text":"[1]"}]}"#),
            (r#"{"content":[{"type":"text","text":" {\"b\":2,\"a\":1} "}],"structuredContent":{"a":1,"b":2}}"#, ""),
            (r#"{"content":[{"type":"text","text":"x"}]}"#, ""),
            (r#"{"content":[],"structuredContent":null}"#, ""),
        ] {
            let mut changes = Changes::default();
            let converted = with_structured_text(block(own), &mut changes);
            assert_eq!(converted.as_str(), if expected.is_empty() { own } else { expected });
            assert_eq!(changes.structured, !expected.is_empty(), "{own}");
        }
    }

    #[test]
    fn what_is_kept_of_a_result_is_all_of_it() {
        let result = block(
            r#"{"content":[{"type":"text","text":"a\nb"},{"type":"audio","data":""}],"structuredContent":{"c":1}}"#,
        );
        assert_eq!(text_of(&result), "a\nb\n{\"type\":\"audio\",\"data\":\"\"}\n{\"c\":1}");
        let said = block(r#"{"content":[{"type":"text","text":"{\"c\":1}"}],"structuredContent":{"c":1}}"#);
        assert_eq!(text_of(&said), "{\"c\":1}");
    }
}
