//! Helpers that tests share: a call to decide about, and its caller.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use crate::call::{Call, CallId, CallView, Caller, EarlierCalls, Params, Phase, Risk, SessionId, TrustLevel};
use crate::digest::Digest;
use crate::item::{Item, ItemKind};
use crate::principal::Principal;
use crate::protocol::{Json, Method};

/// Returns a caller in this session.
pub fn caller(session: &SessionId) -> Arc<Caller> {
    Arc::new(Caller { session: session.clone(), ..Caller::clone(&view("{}").call.caller) })
}

/// Returns a call of `files__read` with these arguments.
pub fn view(arguments: &str) -> CallView {
    let definition = Json::parse(r#"{"name":"read","inputSchema":{"type":"object"}}"#).unwrap();
    let tool = Item {
        kind: ItemKind::Tool,
        source: "files".parse().unwrap(),
        group: None,
        name: "read".into(),
        exposed: "files__read".into(),
        digest: Digest::of_json(&definition).unwrap(),
        definition,
        hints: Default::default(),
        tags: Arc::from([]),
        series_link: Default::default(),
        exposed_definition: Default::default(),
    };
    let caller = Caller {
        principal: Principal::local(),
        profile: "default".parse().unwrap(),
        trust: TrustLevel::Medium,
        session: SessionId::new(),
        client: "test/1".into(),
    };
    let call = Call {
        id: CallId::new(),
        received_at: 1,
        method: "tools/call".into(),
        caller: Arc::new(caller),
        item: Arc::new(tool),
        risk: Risk::Risky,
        attempt: None,
        earlier: EarlierCalls::default(),
        budget: Vec::new(),
        arguments_repaired: false,
        dropped: Vec::new(),
        arguments: Json::parse(arguments.to_owned()).unwrap(),
        params: Params::parse(&Method::ToolsCall, Json::empty_object()),
    };
    CallView::before(&Arc::new(call), Phase::Call)
}
