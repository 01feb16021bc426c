//! One open session as the protocol uses it: the methods that both eras have, and the limit on open calls.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use futures_util::FutureExt as _;
use serde::Serialize;
use tokio::sync::{Semaphore, TryAcquireError};

use super::calls::Calls;
use super::contact::Line;
use super::{Era, Step};
use crate::front::backend::Run;
use crate::message::{Answer, Json, Request, Response, RpcError};

/// How many calls one session may have open. An agent runs a handful at once; more is a loop that has run away.
pub(crate) const MAX_CALLS: u32 = 64;

/// How many tools one page of `tools/list` holds. Beyond what any client uses, so that in practice there is one page.
pub(crate) const PAGE: usize = 1_000;

/// An open session.
#[derive(Clone)]
pub(crate) struct Desk {
    run: Arc<dyn Run>,
    slots: Arc<Semaphore>,
}

impl Desk {
    pub(crate) fn new(run: Arc<dyn Run>) -> Self {
        Self { run, slots: Arc::new(Semaphore::new(MAX_CALLS as usize)) }
    }

    /// The tools of the session.
    pub(crate) async fn tools(&self) -> Result<Arc<[Json]>, RpcError> {
        self.run.tools().await
    }

    /// Whether the run has ended, as it does when a source cannot be discovered.
    pub(crate) fn ended(&self) -> bool {
        self.run.ended()
    }

    /// Starts a request that is for the session.
    pub(crate) fn serve(&self, era: Era, request: Request, line: Line, calls: &Calls) -> Step {
        let Request { id, method, params } = request;
        let run = self.run.clone();
        let future = match (method.as_str(), params) {
            ("tools/list", params) => async move { list(&*run, era, params.as_ref()).await }.boxed(),
            ("tools/call", Some(params)) => {
                let call = async move { run.call_tool(params, Arc::new(line)).await };
                call.map(move |answer| in_era(era, answer)).boxed()
            }
            ("tools/call", None) => {
                let error = RpcError::new(RpcError::INVALID_PARAMS, "`tools/call` needs `params` with the tool's name");
                return Step::Answer(Response::error(Some(id), &error));
            }
            (method, _) => {
                let method: String = method.chars().take(128).collect();
                let error = RpcError::new(RpcError::METHOD_NOT_FOUND, format!("method {method:?} is not served here"));
                return Step::Answer(Response::error(Some(id), &error));
            }
        };
        let work = match self.slots.clone().try_acquire_owned() {
            Ok(slot) => calls.open(id.clone(), slot, future),
            Err(TryAcquireError::NoPermits) => Err(RpcError::new(
                RpcError::INVALID_REQUEST,
                format!("{MAX_CALLS} requests of this session are open already; wait for one to end"),
            )),
            Err(TryAcquireError::Closed) => Err(RpcError::new(RpcError::INVALID_REQUEST, "this session has ended")),
        };
        work.map_or_else(|error| Step::Answer(Response::error(Some(id), &error)), Step::Work)
    }

    /// Waits for the open calls, but no longer than `patience`, then ends the session.
    pub(crate) async fn close(&self, patience: Duration) {
        let _ = tokio::time::timeout(patience, self.slots.acquire_many(MAX_CALLS)).await;
        self.slots.close();
        self.run.close().await;
    }
}

async fn list(run: &dyn Run, era: Era, params: Option<&Json>) -> Answer {
    match run.tools().await.and_then(|tools| page(&tools, era, params)) {
        Ok(result) => Answer::Result(result),
        Err(error) => Answer::Error(Json::of(&error)),
    }
}

fn page(tools: &[Json], era: Era, params: Option<&Json>) -> Result<Json, RpcError> {
    let start = match params.and_then(|params| params.get("cursor")).filter(|cursor| cursor.as_str() != "null") {
        None => 0,
        Some(cursor) => read_cursor(&cursor).filter(|start| (1..tools.len()).contains(start)).ok_or_else(|| {
            RpcError::new(RpcError::INVALID_PARAMS, "`cursor` is not one that this session gave; list without it")
        })?,
    };
    let rest = tools.get(start..).unwrap_or_default();
    let more = rest.len() > PAGE;
    let (result_type, ttl_ms, cache_scope) = match era {
        Era::Legacy => (None, None, None),
        Era::Modern => (Some("complete"), Some(0), Some("private")),
    };
    Ok(Json::of(&Page {
        tools: rest.get(..PAGE).unwrap_or(rest),
        next_cursor: more.then(|| BASE64.encode((start + PAGE).to_string())),
        result_type,
        ttl_ms,
        cache_scope,
    }))
}

fn read_cursor(cursor: &Json) -> Option<usize> {
    let text: String = cursor.read().ok()?;
    String::from_utf8(BASE64.decode(text).ok()?).ok()?.parse().ok()
}

/// A page of tools, each with the bytes that its source gave.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
    tools: &'a [Json],
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_scope: Option<&'static str>,
}

/// A modern client must be told `resultType`, which a legacy source does not give. Everything else keeps its bytes.
fn in_era(era: Era, answer: Answer) -> Answer {
    match (era, answer) {
        (Era::Modern, Answer::Result(result)) if result.get("resultType").is_none() => {
            let complete = Json::of(&"complete");
            Answer::Result(result.with("resultType", &complete).unwrap_or(result))
        }
        (_, answer) => answer,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn tools(count: usize) -> Vec<Json> {
        (0..count).map(|n| Json::parse(format!("{{ \"name\":\"t{n}\" , \"x\":1e400}}")).unwrap()).collect()
    }

    #[test]
    fn a_page_keeps_the_bytes_of_each_tool() {
        let list = page(&tools(1), Era::Legacy, None).unwrap();
        assert_eq!(list.as_str(), r#"{"tools":[{ "name":"t0" , "x":1e400}]}"#);
        let list = page(&tools(0), Era::Modern, None).unwrap();
        assert_eq!(list.as_str(), r#"{"tools":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#);
    }

    #[test]
    fn cursors_lead_through_all_pages_and_no_other_is_taken() {
        let tools = tools(PAGE + 1);
        let cursor = page(&tools, Era::Legacy, None).unwrap().get("nextCursor").unwrap();
        let next =
            |cursor: &Json| page(&tools, Era::Legacy, Some(&Json::empty_object().with("cursor", cursor).unwrap()));
        let last = next(&cursor).unwrap();
        assert_eq!(last.get("tools").unwrap().as_str(), r#"[{ "name":"t1000" , "x":1e400}]"#);
        assert_eq!(last.get("nextCursor"), None);
        for bad in ["\"nonsense\"", "7", "\"\"", "\"MA\"", "\"OTk5OTk5\""] {
            let bad = Json::parse(bad).unwrap();
            assert_eq!(next(&bad).unwrap_err().code, RpcError::INVALID_PARAMS, "{bad:?}");
        }
    }

    #[test]
    fn only_a_modern_client_is_told_a_missing_result_type() {
        let result = |text: &'static str| Answer::Result(Json::parse(text).unwrap());
        let text = r#"{ "content" : [] }"#;
        assert_eq!(in_era(Era::Legacy, result(text)), result(text));
        assert_eq!(in_era(Era::Modern, result(text)), result(r#"{ "content" : [],"resultType":"complete"}"#));
        let asks = r#"{"resultType":"input_required"}"#;
        assert_eq!(in_era(Era::Modern, result(asks)), result(asks));
    }
}
