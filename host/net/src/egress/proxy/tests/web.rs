//! HTTP from programs that take the broker for the host itself.

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};

use super::*;

const GET: &str = "GET /path?q=1 HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn a_declared_host_is_reached_by_a_program_that_knows_no_proxy() {
    let server = Server::http().await;
    let world = World::of(&[("api.test:80", server.address)]);
    let cell = Cell::open(&["api.test:80"], &world, Reach::Private);
    let answer = say(cell.connect("api.test", 80).await, GET).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("GET /path?q=1 HTTP/1.1"), "{answer}");
    assert!(!answer.to_lowercase().contains("keep-alive:"), "what was meant for our connection: {answer}");
    assert!(server.heard()[0].contains("host: api.test\r\n"), "{:?}", server.heard());
    assert_eq!(cell.events(), ["allowed http api.test:80"]);
}

#[tokio::test]
async fn requests_of_one_connection_share_another_and_each_is_checked() {
    let server = Server::http().await;
    let world = World::of(&[("api.test:80", server.address)]);
    let cell = Cell::open(&["api.test:80"], &world, Reach::Private);
    let good = "GET /one HTTP/1.1\r\nHost: api.test:80\r\n\r\n";
    let forged = "GET /two HTTP/1.1\r\nHost: evil.test\r\n\r\n";
    let after = "GET /three HTTP/1.1\r\nHost: api.test\r\n\r\n";
    let mut stream = cell.connect("api.test", 80).await;
    for _ in 0..2 {
        stream.write_all(good.as_bytes()).await.unwrap();
        let mut answer = vec![0; 17];
        while !answer.ends_with(b"GET /one HTTP/1.1") {
            answer.push(stream.read_u8().await.unwrap());
        }
    }
    let answer = say(stream, &[forged, after].concat()).await;
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("evil.test"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "nothing after a refused request is answered: {answer}");
    assert_eq!(world.asked.lock().unwrap().len(), 1, "one connection for both");
    assert!(server.heard().iter().all(|text| !text.contains("/two") && !text.contains("/three")));
    assert_eq!(
        cell.events(),
        ["allowed http api.test:80", "refused http api.test:80 the request names another host, `evil.test`"]
    );
}

#[tokio::test]
async fn a_forged_host_is_refused_in_every_form() {
    let server = Server::http().await;
    let world = World::of(&[("api.test:80", server.address), ("other.test:80", server.address)]);
    let cell = Cell::open(&["api.test:80", "other.test:80"], &world, Reach::Private);
    for (head, status) in [
        ("GET / HTTP/1.1\r\nHost: other.test\r\n\r\n", "403"),
        ("GET / HTTP/1.1\r\nHost: api.test:8080\r\n\r\n", "403"),
        ("GET / HTTP/1.1\r\nHost: api.test.\r\n\r\n", "403"),
        ("GET / HTTP/1.1\r\nHost: api.test@evil.test\r\n\r\n", "403"),
        ("GET / HTTP/1.1\r\nHost: \r\n\r\n", "403"),
        ("GET / HTTP/1.1\r\nHost: api.test\r\nHost: evil.test\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: api.test, evil.test\r\n\r\n", "403"),
        ("GET / HTTP/1.1\r\nHost: \u{ff}\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("GET / HTTP/1.0\r\n\r\n", "400"),
        ("GET http://evil.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n", "403"),
        ("GET http://api.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "403"),
        ("CONNECT api.test:80 HTTP/1.1\r\nHost: other.test\r\n\r\n", "403"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost : api.test\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\n Host: api.test\r\n\r\n", "400"),
        ("SSH-2.0-OpenSSH_9.9\r\n\r\n", "400"),
    ] {
        let answer = say(cell.connect("api.test", 80).await, head).await;
        assert!(
            answer.is_empty()
                || answer.starts_with(&format!("HTTP/1.1 {status}"))
                || answer.starts_with(&format!("HTTP/1.0 {status}")),
            "{head:?}: {answer}"
        );
    }
    assert_eq!(server.heard(), Vec::<String>::new(), "none of them left");
    assert!(cell.events().iter().all(|event| event.starts_with("refused")), "{:?}", cell.events());
}

#[tokio::test]
async fn two_lengths_of_a_body_are_not_passed_on() {
    let server = Server::http().await;
    let world = World::of(&[("api.test:80", server.address)]);
    let cell = Cell::open(&["api.test:80"], &world, Reach::Private);
    let smuggled = "POST / HTTP/1.1\r\nHost: api.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n\
                    0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: evil.test\r\n\r\n";
    let answer = say(cell.connect("api.test", 80).await, smuggled).await;
    assert!(server.heard().iter().all(|text| !text.contains("evil.test") && !text.contains("hidden")), "{answer}");
}

/// Streams the body back and reports how it arrived.
async fn streaming(request: Request) -> Response {
    let length = request.headers().get("content-length").is_some();
    ([("x-length", if length { "known" } else { "chunked" })], Body::new(request.into_body())).into_response()
}

#[tokio::test]
async fn bodies_pass_whole_in_either_coding() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(streaming)).await.unwrap() });
    let world = World::of(&[("api.test:80", address)]);
    let cell = Cell::open(&["api.test:80"], &world, Reach::Private);
    let head = "POST / HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n";
    let body = "x".repeat(300_000);
    let known = format!("{head}Content-Length: {}\r\nExpect: 100-continue\r\n\r\n{body}", body.len());
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for (request, coding) in [(known, "known"), (chunked, "chunked")] {
        let answer = say(cell.connect("api.test", 80).await, &request).await;
        assert!(answer.contains(&format!("x-length: {coding}")), "{}", &answer[..200]);
        assert_eq!(answer.matches('x').count(), body.len() + 1, "{coding}");
    }
}

#[tokio::test]
async fn a_web_socket_is_opened_and_carries_both_ways() {
    let server = Server::start(false, |text| match text.starts_with(b"GET /") {
        true => "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello ".into(),
        false => text.to_vec(),
    })
    .await;
    let world = World::of(&[("api.test:80", server.address)]);
    let cell = Cell::open(&["api.test:80"], &world, Reach::Private);
    let mut stream = cell.connect("api.test", 80).await;
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: api.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        .await
        .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"hello ") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"));
    stream.write_all(b"and back").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(rest(&mut stream).await, "and back");
}

#[tokio::test]
async fn no_other_protocol_is_switched_to() {
    let server = Server::start(false, |_| {
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nsecret".to_vec()
    })
    .await;
    let world = World::of(&[("api.test:80", server.address)]);
    let cell = Cell::open(&["api.test:80"], &world, Reach::Private);
    for wanted in ["h2c", "websocket, h2c", "websocket\r\nUpgrade: h2c"] {
        let request = format!(
            "GET / HTTP/1.1\r\nHost: api.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: {wanted}\r\n\
             HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n"
        );
        let answer = say(cell.connect("api.test", 80).await, &request).await;
        assert!(answer.starts_with("HTTP/1.1 502") && !answer.contains("secret"), "{wanted}: {answer}");
    }
    for heard in server.heard().iter().map(|text| text.to_lowercase()) {
        assert!(!heard.contains("upgrade") && !heard.contains("http2-settings"), "{heard}");
    }
}

#[tokio::test]
async fn a_head_without_end_is_given_up() {
    let world = World::of(&[]);
    let cell = Cell::open(&["api.test:80"], &world, Reach::Private);
    let mut stream = cell.connect("api.test", 80).await;
    let line = format!("X-Padding: {}\r\n", "x".repeat(1000));
    stream.write_all(b"GET / HTTP/1.1\r\nHost: api.test\r\n").await.unwrap();
    let mut sent = 0;
    while stream.write_all(line.as_bytes()).await.is_ok() {
        sent += line.len();
        assert!(sent < 64 << 20, "there is no limit");
    }
}
