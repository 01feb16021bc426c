//! Answers in the form of the agent's era. Parts that both eras have in common keep their bytes.

use crate::protocol::{Answer, Era, Json, Method, RpcError, meta};

/// Returns the answer to a request of this method for an agent of this era, from a source of either.
pub(super) fn spoken(era: Era, method: &Method, answer: Answer) -> Answer {
    match (era, answer) {
        (Era::Modern, Answer::Result(result)) => Answer::Result(modern(method, result)),
        (Era::Modern, Answer::Error(error)) => Answer::Error(modern_error(method, error)),
        (Era::Legacy, Answer::Result(result)) => Answer::Result(legacy(method, result)),
        (Era::Legacy, error @ Answer::Error(_)) => error,
    }
}

/// Adds `resultType`, and how long a result may be cached: a modern client needs both, a legacy source states neither.
fn modern(method: &Method, result: Json) -> Json {
    let (complete, zero, private) = (Json::of(&"complete"), Json::of(&0), Json::of(&"private"));
    let [kind, ttl, scope] = result.get_all(["resultType", "ttlMs", "cacheScope"]);
    let final_one = kind.as_ref().is_none_or(|kind| *kind == complete);
    let cached = final_one && method.is_cacheable();
    let mut missing = Vec::new();
    if kind.is_none() {
        missing.push(("resultType", Some(&complete)));
    }
    if cached && ttl.is_none() {
        missing.push(("ttlMs", Some(&zero)));
    }
    if cached && scope.is_none() {
        missing.push(("cacheScope", Some(&private)));
    }
    result.edited(&missing).unwrap_or(result)
}

/// Returns the error with the code of the modern revision for a resource that does not exist. All other codes are the
/// source's own.
fn modern_error(method: &Method, error: Json) -> Json {
    let gone = method == Method::ResourcesRead
        && error.get("code").and_then(|code| code.read().ok()) == Some(RpcError::RESOURCE_NOT_FOUND);
    let code = gone.then(|| error.with("code", &Json::of(&RpcError::INVALID_PARAMS))).flatten();
    code.unwrap_or(error)
}

/// Removes the members that only a modern source sends.
fn legacy(method: &Method, result: Json) -> Json {
    let [kind, ttl, scope, meta] = result.get_all(["resultType", "ttlMs", "cacheScope", "_meta"]);
    let cached = method.is_cacheable();
    let mut gone: Vec<(&str, Option<&Json>)> = Vec::new();
    if kind.is_some_and(|kind| kind == Json::of(&"complete")) {
        gone.push(("resultType", None));
    }
    if cached && ttl.is_some() {
        gone.push(("ttlMs", None));
    }
    if cached && scope.is_some() {
        gone.push(("cacheScope", None));
    }
    let meta = meta.filter(|meta| meta.get(meta::SERVER_INFO).is_some()).map(|meta| meta.without(meta::SERVER_INFO));
    if let Some(meta) = &meta {
        gone.push(("_meta", Some(meta).filter(|meta| **meta != Json::empty_object())));
    }
    if gone.is_empty() {
        return result;
    }
    result.edited(&gone).unwrap_or(result)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn result(era: Era, method: &str, text: &'static str) -> String {
        match spoken(era, &method.into(), Answer::Result(Json::parse(text).unwrap())) {
            Answer::Result(json) | Answer::Error(json) => json.as_str().to_owned(),
        }
    }

    #[test]
    fn each_era_gets_its_own_fields_and_all_else_keeps_its_bytes() {
        let plain = r#"{ "content" : [1.0] }"#;
        assert_eq!(result(Era::Legacy, "tools/call", plain), plain);
        assert_eq!(result(Era::Modern, "tools/call", plain), r#"{ "content" : [1.0],"resultType":"complete"}"#);
        let read = r#"{"contents":[],"resultType":"complete","ttlMs":5,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{}}}"#;
        assert_eq!(result(Era::Modern, "resources/read", read), read);
        assert_eq!(result(Era::Legacy, "resources/read", read), r#"{"contents":[]}"#);
        let missing = r#"{"contents":[]}"#;
        let told = r#"{"contents":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#;
        assert_eq!(result(Era::Modern, "resources/read", missing), told);
        let asks = r#"{"resultType":"input_required"}"#;
        assert_eq!(result(Era::Modern, "resources/read", asks), asks);
    }

    #[test]
    fn a_resource_that_is_not_there_has_the_code_of_the_era() {
        let error = || Answer::Error(Json::parse(r#"{"code":-32002,"message":"no","data":{"uri":"x"}}"#).unwrap());
        assert_eq!(spoken(Era::Legacy, &Method::ResourcesRead, error()), error());
        let Answer::Error(modern) = spoken(Era::Modern, &Method::ResourcesRead, error()) else { return };
        assert_eq!(modern.as_str(), r#"{"code":-32602,"message":"no","data":{"uri":"x"}}"#);
        for other in ["tools/call", "prompts/get", "completion/complete", "vendor/method"] {
            assert_eq!(spoken(Era::Modern, &other.into(), error()), error(), "{other}: the code is the source's own");
        }
    }
}
