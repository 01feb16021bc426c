//! Streams of events: those that break, are resumed, are listened to or are dropped.

use super::*;

#[tokio::test]
async fn a_stream_that_breaks_loses_its_request_and_no_other() {
    let (address, _) = serve(|seen| match seen.called() {
        "broken" => streamed(stream::iter([Ok(": hi\n\n".to_owned()), Err(std::io::Error::other("reset"))])),
        "short" => events("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n".to_owned()),
        _ => result(seen, json!(1)),
    })
    .await;
    let transport = connect_to(address, 10_000);
    transport.send(&request(1, "broken", json!({}))).await.unwrap();
    let lost = transport.receive().await.unwrap().unwrap_err();
    assert!(matches!(lost, TransportError::Lost { id, .. } if id == Id::number(1)));
    transport.send(&request(2, "short", json!({}))).await.unwrap();
    next(&transport).await;
    let lost = transport.receive().await.unwrap().unwrap_err();
    assert!(matches!(lost, TransportError::Lost { id, .. } if id == Id::number(2)));
    transport.send(&request(3, "fine", json!({}))).await.unwrap();
    assert_eq!(next(&transport).await, r#"{"jsonrpc":"2.0","id":3,"result":1}"#);
}

/// Returns an event of the answer to request 1, with progress `at`.
fn progress(id: &str, at: u32) -> String {
    format!(
        "id: {id}\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progress\":{at}}}}}\n\n"
    )
}

#[tokio::test]
async fn a_legacy_stream_with_event_ids_is_taken_up_after_the_last_whole_event() {
    let gone = AtomicBool::new(false);
    let (address, log) = serve(move |seen| match seen.header("last-event-id") {
        None => {
            let half = progress("e2", 2);
            events(format!("retry: 1\n{}{}", progress("e1", 1), &half[..half.len() - 10]))
        }
        Some("e1") => events(progress("e2", 2)),
        // A server that is only unavailable is asked again.
        Some("e2") if !gone.swap(true, Ordering::SeqCst) => StatusCode::BAD_GATEWAY.into_response(),
        Some(_) => events("id: e3\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1}\n\n".to_owned()),
    })
    .await;
    let transport = connect_to(address, 10_000);
    transport.agreed("2025-11-25");
    transport.send(&request(1, "tools/call", json!({}))).await.unwrap();
    for at in [1, 2] {
        let said: Data = serde_json::from_str(&next(&transport).await).unwrap();
        assert_eq!(said["params"]["progress"], at);
    }
    assert_eq!(next(&transport).await, r#"{"jsonrpc":"2.0","id":1,"result":1}"#);
    let log = log.lock().unwrap();
    let asked: Vec<_> = log.iter().map(|seen| (&seen.method, seen.header("last-event-id"))).collect();
    let (post, get) = (Method::POST, Method::GET);
    assert_eq!(asked, [(&post, None), (&get, Some("e1")), (&get, Some("e2")), (&get, Some("e2"))]);
}

#[tokio::test]
async fn a_stream_that_the_server_has_forgotten_is_lost_at_once() {
    let (address, log) = serve(|seen| match seen.header("last-event-id") {
        None => events(format!("retry: 1\n{}", progress("e1", 1))),
        Some(_) => StatusCode::BAD_REQUEST.into_response(),
    })
    .await;
    let transport = connect_to(address, 10_000);
    transport.agreed("2025-11-25");
    transport.send(&request(1, "tools/call", json!({}))).await.unwrap();
    next(&transport).await;
    assert!(matches!(transport.receive().await, Some(Err(TransportError::Lost { id, .. })) if id == Id::number(1)));
    assert_eq!(log.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_legacy_server_is_listened_to() {
    let (address, _) = serve(|seen| {
        if seen.method == Method::GET {
            let text = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n".to_owned();
            return streamed(stream::iter([Ok(text)]).chain(stream::pending()));
        }
        StatusCode::ACCEPTED.into_response()
    })
    .await;
    let transport = connect_to(address, 10_000);
    transport.agreed("2025-06-18");
    transport.send(&note("notifications/initialized", &json!({}))).await.unwrap();
    assert_eq!(next(&transport).await, r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
}

/// A value that signals when it is dropped.
struct Dropped(Option<oneshot::Sender<()>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            let _ = tell.send(());
        }
    }
}

#[tokio::test]
async fn cancelling_a_modern_request_drops_its_stream_and_sends_nothing() {
    let (tell, dropped) = oneshot::channel();
    let tell = Mutex::new(Some(Dropped(Some(tell))));
    let (address, log) = serve(move |_| {
        let guard = tell.lock().unwrap().take().unwrap();
        let first =
            stream::iter([Ok("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n".to_owned())]);
        streamed(first.chain(stream::once(async move {
            let _guard = guard;
            std::future::pending().await
        })))
    })
    .await;
    let transport = connect_to(address, 10_000);
    transport.agreed("2026-07-28");
    transport.send(&request(5, "tools/call", json!({"name": "x"}))).await.unwrap();
    next(&transport).await;
    transport.send(&note("notifications/cancelled", &json!({"requestId": 5}))).await.unwrap();
    dropped.await.unwrap();
    let log = log.lock().unwrap();
    assert_eq!(log.len(), 1);
    assert_eq!((log[0].header("mcp-method"), log[0].header("mcp-name")), (Some("tools/call"), Some("x")));
}
