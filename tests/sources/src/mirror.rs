//! A source that returns the bytes of every request, and lists definitions with every member that there can be.

use std::io::BufRead as _;
use std::process::exit;

use crate::line;

/// The lists, with spellings that no parser keeps and with members that no revision knows.
const LISTS: [(&str, &str); 4] = [
    (
        "tools/list",
        r#"{"tools":[{ "name":"mirror","title":"Spiegel \u2728","icons":[{"src":"data:image/png;base64,AA==","mimeType":"image/png","sizes":["48x48","any"],"theme":"dark"}],"inputSchema":{"type":"object","x-n":1.0e2},"outputSchema":{"type":"object"},"annotations":{"title":"M","x-hint":1},"execution":{"taskSupport":"forbidden"},"_meta":{"vendor.example/a":1.50},"vendor":[1.0]}]}"#,
    ),
    (
        "prompts/list",
        r#"{"prompts":[{ "name":"mirror","title":"Prompt","icons":[{"src":"https://icons.example/p.svg"}],"arguments":[{"name":"a","title":"A","x":1e0}],"_meta":{"vendor.example/b":2.50}}]}"#,
    ),
    (
        "resources/list",
        r#"{"resources":[{ "uri":"mem://a","name":"a","title":"Resource","icons":[{"src":"https://icons.example/r.svg"}],"size":1.0,"annotations":{"audience":["user"],"priority":0.50},"_meta":{"vendor.example/c":3.50}}]}"#,
    ),
    (
        "resources/templates/list",
        r#"{"resourceTemplates":[{ "uriTemplate":"mem://t/{id}","name":"t","title":"Template","icons":[{"src":"https://icons.example/t.svg"}],"_meta":{"vendor.example/d":4.50}}]}"#,
    ),
];

/// Serves until its input ends. A request is answered with its own parameters, as a result or, if its method says so,
/// as the data of an error; a notification is answered with another one. `vendor/heard` returns the notifications so
/// far.
pub(crate) fn run() -> ! {
    let mut heard = Vec::new();
    for text in std::io::stdin().lock().lines().map_while(Result::ok) {
        // The text is not parsed, because no parser keeps it as it is.
        let (head, params) = match text.split_once("\"params\":") {
            Some((head, rest)) => (head, rest.strip_suffix('}').unwrap_or(rest)),
            None => (&*text, "null"),
        };
        let part = |after: &str, before: char| Some(head.split_once(after)?.1.split_once(before)?.0.to_owned());
        let method = part("\"method\":\"", '"').unwrap_or_default();
        let Some(id) = part("\"id\":", ',') else {
            if !method.starts_with("notifications/") {
                line(&format!(r#"{{"jsonrpc":"2.0","method":"vendor/echo","params":{params}}}"#));
                heard.push(method);
            }
            continue;
        };
        let listed = LISTS.iter().find(|(list, _)| *list == method);
        let result = match (method.as_str(), listed) {
            ("initialize", _) => {
                let capabilities = r#"{"tools":{},"prompts":{},"resources":{}}"#;
                let server = r#"{"name":"mirror","version":"1"}"#;
                format!(r#"{{"protocolVersion":"2025-11-25","capabilities":{capabilities},"serverInfo":{server}}}"#)
            }
            ("vendor/heard", _) => format!(r#"{{"heard":{heard:?}}}"#),
            (_, Some((_, list))) => (*list).to_owned(),
            ("tools/call", _) => format!(r#"{{ "content":[],"_meta":{{"vendor.example/e":5.50}},"echo" : {params} }}"#),
            (method, _) if method.starts_with("vendor/") && !method.ends_with("/fails") => {
                format!(r#"{{ "content":[],"echo" : {params} }}"#)
            }
            _ => {
                let error = format!(r#"{{"code": -1234567890123, "message":"no","data":{params}}}"#);
                line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#));
                continue;
            }
        };
        line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
    }
    exit(0)
}
