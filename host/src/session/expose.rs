//! Rewrites the URIs in a source's messages to the exposed ones, which the agent knows. Everything else keeps its
//! bytes.

use crate::catalog::exposed_uri;
use crate::config::{Naming, SourceConfig};
use crate::protocol::{Answer, Json, Method, Notification};

/// Rewrites an answer to a request of this method. A result may be large: it is copied at most once.
pub(super) fn answer(method: &Method, config: &SourceConfig, answer: Answer) -> Answer {
    let Answer::Result(result) = answer else { return answer };
    if config.names == Naming::Plain {
        return Answer::Result(result);
    }
    let uris = match method {
        Method::ResourcesRead => in_contents(&result),
        Method::ToolsCall | Method::TasksResult => in_blocks(&result, "content"),
        Method::TasksGet => result.get("result").map(|result| in_blocks(&result, "content")).unwrap_or_default(),
        Method::PromptsGet => in_messages(&result),
        _ => Vec::new(),
    };
    Answer::Result(with_exposed(result, &uris, config))
}

/// Rewrites a notification that a resource was updated, or that holds the result of a task.
pub(super) fn notification(config: &SourceConfig, notification: Notification) -> Notification {
    if config.names == Naming::Plain {
        return notification;
    }
    let uris = |params: &Json| match &notification.method {
        Method::NotificationsResourcesUpdated => params.get("uri").into_iter().collect(),
        Method::NotificationsTasks => {
            params.get("result").map(|result| in_blocks(&result, "content")).unwrap_or_default()
        }
        _ => Vec::new(),
    };
    let params = notification.params.map(|params| {
        let uris = uris(&params);
        with_exposed(params, &uris, config)
    });
    Notification { params, ..notification }
}

fn with_exposed(json: Json, uris: &[Json], config: &SourceConfig) -> Json {
    let exposed = |uri: &Json| {
        let own: String = uri.read().ok()?;
        Some((uri.clone(), Json::of(&exposed_uri(&config.name, &config.names, &own))))
    };
    let parts: Vec<_> = uris.iter().filter_map(exposed).collect();
    if parts.is_empty() { json } else { json.with_parts(&parts) }
}

fn in_contents(result: &Json) -> Vec<Json> {
    list(result, "contents").iter().filter_map(|content| content.get("uri")).collect()
}

fn in_blocks(result: &Json, key: &str) -> Vec<Json> {
    list(result, key).iter().filter_map(in_block).collect()
}

fn in_messages(result: &Json) -> Vec<Json> {
    let contents = list(result, "messages").into_iter().filter_map(|message| message.get("content"));
    let blocks = contents.flat_map(|content| content.items().unwrap_or_else(|| vec![content]));
    blocks.filter_map(|block| in_block(&block)).collect()
}

/// Returns the items of a list if it may hold a URI. Most results hold no resource, and some are large.
fn list(result: &Json, key: &str) -> Vec<Json> {
    let list = result.get(key).filter(|list| memchr::memmem::find(list.as_bytes(), b"\"uri").is_some());
    list.and_then(|list| list.items()).unwrap_or_default()
}

/// Returns the URI in a block of content: of an embedded resource, or of a link to one. A web address is left out, and
/// so stays unchanged.
fn in_block(block: &Json) -> Option<Json> {
    match block.get_str("type")?.as_str() {
        "resource" => block.get("resource")?.get("uri"),
        "resource_link" => {
            let uri = block.get("uri")?;
            let own: String = uri.read().ok()?;
            let web = own.starts_with("https://") || own.starts_with("http://");
            (!web).then_some(uri)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn shown(method: &str, names: Naming, text: &'static str) -> String {
        let config = crate::catalog::testing::source("docs", names);
        match answer(&method.into(), &config, Answer::Result(Json::parse(text).unwrap())) {
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
