//! Tests of the legacy era, which has session ids.

use super::*;
use crate::front::http::admission::AdmittedCaller;
use crate::principal::Principal;

#[tokio::test]
async fn a_session_lives_from_initialize_to_delete() {
    let server = Server::new().await;
    let session = server.initialize(json!({})).await;
    assert_eq!(session.len(), 43, "256 bits");
    let post = |body: String| server.post(body).header("mcp-session-id", &session);
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(post(initialized.to_owned()).send().await.unwrap().status(), 202);

    let echo = post(call("a", "tools/call", json!({ "name": "echo", "arguments": { "n": 1 } }))).send().await.unwrap();
    assert_eq!(echo.headers()["content-type"], "application/json");
    let result = r#"{ "content":[{"type":"text","text":"echoed"}], "x":{"n":1} }"#;
    assert_eq!(echo.text().await.unwrap(), format!(r#"{{"jsonrpc":"2.0","id":"a","result":{result}}}"#));

    let version = async |version: &str| {
        let request = post(call(1, "ping", json!({}))).header("mcp-protocol-version", version);
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!((version("2025-11-25").await, version("1999-01-01").await), (200, 400));
    let unknown = post(call(2, "nonsense", json!({}))).send().await.unwrap();
    assert_eq!(unknown.status(), 200);
    assert_eq!(unknown.json::<Value>().await.unwrap()["error"]["code"], -32601);

    let end = async || {
        let request = server.request(reqwest::Method::DELETE).header("mcp-session-id", &session);
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(end().await, 204);
    server.events.expect("close").await;
    assert_eq!(end().await, 404);
    assert_eq!(post(call(3, "ping", json!({}))).send().await.unwrap().status(), 404);
}

#[tokio::test]
async fn headers_of_a_legacy_request_may_be_absent_and_never_contradict_the_body() {
    let server = Server::new().await;
    let session = server.initialize(json!({})).await;
    let send = async |body: &str, headers: &[(&str, &str)]| {
        let request = server.post(body.to_owned()).header("mcp-session-id", &session);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let echo = call(5, "tools/call", json!({ "name": "echo" }));
    for good in [&[][..], &[("mcp-method", "tools/call")], &[("mcp-method", "tools/call"), ("mcp-name", "echo")]] {
        assert_eq!(send(&echo, good).await.0, 200, "{good:?}");
    }
    for bad in [("mcp-method", "tools/list"), ("mcp-name", "slow")] {
        let (status, text) = send(&echo, &[bad]).await;
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((status, &answer["id"], &answer["error"]["code"]), (400, &json!(5), &json!(-32020)), "{bad:?}");
    }
    let note = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    let response = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    for body in [note, response] {
        assert_eq!(send(body, &[]).await.0, 202);
        assert_eq!(send(body, &[("mcp-method", "tools/call")]).await.0, 400, "{body}");
    }
    let hello = call(0, "initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": {} }));
    assert_eq!(send(&hello, &[("mcp-method", "tools/call")]).await.0, 400);
    assert_eq!(*server.fake.rejected.lock().unwrap(), ["mismatch"; 5]);
}

#[tokio::test]
async fn a_session_is_bound_to_its_principal() {
    let server = Server::new().await;
    let session = server.initialize(json!({})).await;
    // The server has one token and so one principal; two principals are tested on the sessions directly.
    let sessions = Sessions::default();
    let (fake, _events) = FakeBroker::new();
    let hello = crate::protocol::Json::of(&json!({ "protocolVersion": "2025-11-25" }));
    let open = crate::front::protocol::legacy::LegacyConversation::open(
        &fake,
        &profile(),
        &Principal::established("one"),
        crate::agent::TransportKind::Tcp,
        Some(&hello),
    )
    .await;
    let caller = |principal: &str, profile: &str| AdmittedCaller {
        principal: Principal::established(principal),
        profile: profile.parse().unwrap(),
        token: None,
    };
    sessions.add(session.clone(), caller("one", "default"), open.ok().unwrap().0).ok().unwrap();
    let headers: HeaderMap = [("mcp-session-id".parse().unwrap(), session.parse().unwrap())].into_iter().collect();
    assert!(sessions.legacy(&caller("one", "default"), &headers).is_ok());
    for other in [caller("two", "default"), caller("one", "other")] {
        assert_eq!(sessions.legacy(&other, &headers).err().unwrap().status, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn progress_comes_first_and_in_order() {
    let server = Server::new().await;
    let session = server.initialize(json!({})).await;
    let body = call(7, "tools/call", json!({ "name": "progress", "_meta": { "progressToken": 9 } }));
    let mut response = server.post(body).header("mcp-session-id", &session).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut held = String::new();
    for progress in 1..=3 {
        let event = event(&mut response, &mut held).await.unwrap();
        assert_eq!(event["params"], json!({ "progress": progress, "progressToken": 9 }));
    }
    assert_eq!(event(&mut response, &mut held).await.unwrap()["id"], 7);
    assert_eq!(event(&mut response, &mut held).await, None);
}

#[tokio::test]
async fn a_stream_that_broke_is_resumed_where_it_stopped() {
    let server = Server::new().await;
    let session = server.initialize(json!({})).await;
    let other = server.initialize(json!({})).await;
    let resume = |session: &str, after: &str| {
        server.request(reqwest::Method::GET).header("mcp-session-id", session).header("last-event-id", after).send()
    };
    let body = call(7, "tools/call", json!({ "name": "progress", "_meta": { "progressToken": 9 } }));
    let mut response = server.post(body).header("mcp-session-id", &session).send().await.unwrap();
    let (first, said) = event_with_id(&mut response, &mut String::new()).await.unwrap();
    assert_eq!((first.as_deref(), &said["params"]["progress"]), (Some("1-1"), &json!(1)));
    drop(response);

    for (after, rest) in [("1-1", &[2, 3][..]), ("1-2", &[3]), ("1-4", &[])] {
        let mut response = resume(&session, after).await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut held = String::new();
        for progress in rest {
            let said = event(&mut response, &mut held).await.unwrap();
            assert_eq!(said["params"], json!({ "progress": progress, "progressToken": 9 }));
        }
        if !rest.is_empty() {
            assert_eq!(event(&mut response, &mut held).await.unwrap()["id"], 7);
        }
        assert_eq!(event(&mut response, &mut held).await, None);
    }
    for unknown in ["1-5", "2-0", "nonsense"] {
        assert_eq!(resume(&session, unknown).await.unwrap().status(), 400, "{unknown}");
    }
    assert_eq!(resume(&other, "1-1").await.unwrap().status(), 400, "of another session");
}

#[tokio::test]
async fn a_stream_without_messages_can_be_resumed_and_stays_the_only_one() {
    let server = Server::new().await;
    let session = server.initialize(json!({})).await;
    let get = |after: Option<&str>| {
        let request = server.request(reqwest::Method::GET).header("mcp-session-id", &session);
        after.into_iter().fold(request, |request, after| request.header("last-event-id", after)).send()
    };
    // The first event of a stream gives its first id, so that a stream without messages can be resumed too.
    let mut stream = get(None).await.unwrap();
    let first = stream.chunk().await.unwrap().unwrap();
    assert_eq!(std::str::from_utf8(&first).unwrap(), "id: 1-0\nretry: 1000\ndata:\n\n");
    // The reader that resumes a stream takes it from the previous reader, and it stays the only stream.
    let resumed = get(Some("1-0")).await.unwrap();
    assert_eq!(stream.chunk().await.unwrap(), None);
    assert_eq!(get(None).await.unwrap().status(), 409);
    drop(resumed);
}

#[tokio::test]
async fn a_question_goes_out_on_the_stream_and_comes_back_by_post() {
    let server = Server::new().await;
    let session = server.initialize(json!({ "elicitation": {} })).await;
    let other = server.initialize(json!({ "elicitation": {} })).await;
    let post = |session: &str, body: String| server.post(body).header("mcp-session-id", session).send();
    let mut response = post(&session, call(1, "tools/call", json!({ "name": "ask" }))).await.unwrap();
    let mut held = String::new();
    let question = event(&mut response, &mut held).await.unwrap();
    assert_eq!(question["method"], "elicitation/create");
    let answer =
        |action: &str| json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": action } }).to_string();
    assert_eq!(post(&other, answer("forged")).await.unwrap().status(), 202);
    assert_eq!(post(&session, answer("decline")).await.unwrap().status(), 202);
    let last = event(&mut response, &mut held).await.unwrap();
    assert_eq!(last["result"]["answer"], json!({ "action": "decline" }));
}

#[tokio::test]
async fn disconnecting_does_not_cancel_a_legacy_call_and_a_cancellation_does() {
    let server = Server::new().await;
    let session = server.initialize(json!({})).await;
    let slow = |id: u64| {
        let request = server.post(call(id, "tools/call", json!({ "name": "slow" }))).header("mcp-session-id", &session);
        tokio::spawn(request.send())
    };
    let left = slow(1);
    server.events.expect("slow").await;
    left.abort();
    let _ = left.await;
    server.fake.release.notify_one();
    server.events.expect("released").await;

    let cancelled = slow(2);
    server.events.expect("slow").await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#;
    let cancel = server.post(cancel).header("mcp-session-id", &session).send().await.unwrap();
    assert_eq!(cancel.status(), 202);
    server.events.expect("dropped").await;
    assert_eq!(cancelled.await.unwrap().unwrap().text().await.unwrap(), "");
}

#[tokio::test]
async fn a_call_whose_agent_has_disconnected_counts_until_it_ends() {
    let server = Server::new().await;
    let session = server.initialize(json!({})).await;
    let post = |id: u64, name: &str| {
        let body = call(id, "tools/call", json!({ "name": name }));
        server.post(body).header("mcp-session-id", &session).send()
    };
    // The caller has begun all calls but one that it may have open.
    let token = Principal::established("token");
    let calls = &server.shared.legacy_calls;
    let _others: Vec<_> = (1..MAX_LEGACY_CALLS / 2).map(|_| calls.try_take(&token, 1).unwrap()).collect();
    let left = tokio::spawn(post(1, "slow"));
    server.events.expect("slow").await;
    left.abort();
    let _ = left.await;
    let refused = post(2, "echo").await.unwrap();
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.json::<Value>().await.unwrap()["id"], 2);
    assert!(calls.try_take(&Principal::established("another"), 1).is_some(), "others have room");
    server.fake.release.notify_one();
    server.events.expect("released").await;
    while post(3, "echo").await.unwrap().status() != 200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn one_stream_may_be_held_open_and_ends_with_the_front() {
    let server = Server::new().await;
    let session = server.initialize(json!({})).await;
    let get = || server.request(reqwest::Method::GET).header("mcp-session-id", &session).send();
    let mut stream = get().await.unwrap();
    assert_eq!(
        (stream.status().as_u16(), &stream.headers()["content-type"]),
        (200, &"text/event-stream".parse().unwrap())
    );
    assert_eq!(stream.chunk().await.unwrap().unwrap(), "id: 1-0\nretry: 1000\ndata:\n\n");
    assert_eq!(get().await.unwrap().status(), 409);
    let missing = server.request(reqwest::Method::GET).send().await.unwrap();
    assert_eq!(missing.status(), 400);
    let events = server.stop().await;
    assert_eq!(stream.chunk().await.unwrap(), None);
    events.expect("close").await;
}
