//! What a source says, with its URIs as the agent knows them. All else keeps its bytes.

use crate::catalog::exposed_uri;
use crate::config::{Naming, SourceConfig};
use crate::message::{Answer, Json, Notification};

/// An answer to a request of this method.
pub(super) fn answer(method: &str, config: &SourceConfig, answer: Answer) -> Answer {
    let Answer::Result(result) = answer else { return answer };
    if config.names == Naming::Plain {
        return Answer::Result(result);
    }
    let exposed = match method {
        "resources/read" => in_list(&result, "contents", |content| with_uri(content, config)),
        "tools/call" | "tasks/result" => in_list(&result, "content", |block| in_block(block, config)),
        "prompts/get" => in_list(&result, "messages", |message| {
            let content = message.get("content")?;
            let exposed = match content.items() {
                Some(_) => in_items(&content, |block| in_block(block, config))?,
                None => in_block(&content, config)?,
            };
            message.with("content", &exposed)
        }),
        _ => None,
    };
    Answer::Result(exposed.unwrap_or(result))
}

/// A notification: of resources, that one was updated.
pub(super) fn notification(config: &SourceConfig, notification: Notification) -> Notification {
    if config.names == Naming::Plain || notification.method != "notifications/resources/updated" {
        return notification;
    }
    let params = notification.params.map(|params| with_uri(&params, config).unwrap_or(params));
    Notification { params, ..notification }
}

/// The list at `key` with some of its items replaced. None if nothing is.
fn in_list(result: &Json, key: &str, replace: impl FnMut(&Json) -> Option<Json>) -> Option<Json> {
    result.with(key, &in_items(&result.get(key)?, replace)?)
}

fn in_items(list: &Json, replace: impl FnMut(&Json) -> Option<Json>) -> Option<Json> {
    // Most results hold no resource, and some are large.
    memchr::memmem::find(list.as_bytes(), b"\"uri").and_then(|_| list.with_items(replace))
}

/// A block of content: a resource in it, or a link to one. A link into the web is one for whoever reads it.
fn in_block(block: &Json, config: &SourceConfig) -> Option<Json> {
    match block.get_str("type")?.as_str() {
        "resource" => block.with("resource", &with_uri(&block.get("resource")?, config)?),
        "resource_link" => {
            let uri = block.get_str("uri")?;
            let web = uri.starts_with("https://") || uri.starts_with("http://");
            if web { None } else { with_uri(block, config) }
        }
        _ => None,
    }
}

fn with_uri(object: &Json, config: &SourceConfig) -> Option<Json> {
    let uri = object.get_str("uri")?;
    object.with("uri", &Json::of(&exposed_uri(&config.name, &config.names, &uri)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn shown(method: &str, names: Naming, text: &'static str) -> String {
        let config = crate::catalog::testing::source("docs", names);
        match answer(method, &config, Answer::Result(Json::parse(text).unwrap())) {
            Answer::Result(json) | Answer::Error(json) => json.as_str().to_owned(),
        }
    }

    #[test]
    fn uris_in_results_are_the_ones_that_the_agent_can_read() {
        let read = r#"{ "contents" : [ {"uri":"test://a", "text":"test://a"} ,{"x":1}],"v":1.0}"#;
        assert_eq!(
            shown("resources/read", Naming::Source, read),
            r#"{ "contents" : [ {"uri":"portcullis://docs/test://a", "text":"test://a"} ,{"x":1}],"v":1.0}"#
        );
        let call = r#"{"content":[{"type":"resource","resource":{"uri":"a:b"}},{"type":"resource_link","uri":"c:d"},{"type":"resource_link","uri":"https://e"},{"type":"new","uri":"f:g"}]}"#;
        assert_eq!(
            shown("tools/call", Naming::Source, call),
            call.replace("a:b", "portcullis://docs/a:b").replace("c:d", "portcullis://docs/c:d")
        );
        let get = r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"a:b"}}}]}"#;
        assert_eq!(shown("prompts/get", Naming::Mcp, get), get.replace("a:b", "portcullis://docs/a:b"));
        for (method, text) in [("resources/read", read), ("tools/call", call), ("prompts/get", get)] {
            assert_eq!(shown(method, Naming::Plain, text), text);
        }
    }
}
