//! Name resolution, connections and redirects, against servers on loopback.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap as Headers, Method as Verb, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Method, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::watch;
use url::Url;

use super::super::testing::FixedLookup;
use super::super::{Egress, EgressError, OutgoingRequest, Reach};

/// Starts a server that answers `/to/STATUS/URL` with a redirect, and everything else with the request that it
/// received.
async fn server() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let app = Router::new().fallback(answer).with_state(Arc::clone(&seen));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (address, seen)
}

async fn answer(
    State(seen): State<Arc<Mutex<Vec<String>>>>,
    verb: Verb,
    uri: Uri,
    headers: Headers,
    body: Bytes,
) -> Response {
    let key = headers.get("authorization").map_or("-", |value| value.to_str().unwrap());
    let shown = format!("{verb} {} {key} {}", uri.path(), String::from_utf8_lossy(&body));
    seen.lock().unwrap().push(shown.clone());
    let Some((status, to)) = uri.path().strip_prefix("/to/").and_then(|rest| rest.split_once('/')) else {
        return ([("connection", "close")], shown).into_response();
    };
    let status = StatusCode::from_u16(status.parse().unwrap()).unwrap();
    (status, [("location", to.to_owned())]).into_response()
}

fn request(method: Method, url: &str) -> OutgoingRequest {
    let mut secrets = HeaderMap::new();
    secrets.insert(AUTHORIZATION, HeaderValue::from_static("key"));
    let body = (method == Method::POST).then(|| Bytes::from_static(b"hello"));
    OutgoingRequest { method, url: Url::parse(url).unwrap(), headers: HeaderMap::new(), secrets, body, on_body: None }
}

async fn ask(method: Method, url: &str) -> Result<String, EgressError> {
    let request = request(method, url);
    let client = Egress::new().client_for(&request.url, Reach::Private)?;
    Ok(client.send(request).await?.text().await.unwrap())
}

fn names(name: &'static str, answers: &[&[&'static str]]) -> Arc<FixedLookup> {
    FixedLookup::of([(name, answers.iter().map(|answer| answer.to_vec()).collect())])
}

#[tokio::test]
async fn a_name_is_looked_up_once_and_the_checked_address_is_the_one_that_is_used() {
    let (address, seen) = server().await;
    let names = names("rebind.test", &[&["127.0.0.1"], &["169.254.169.254"]]);
    let url = format!("http://rebind.test:{}/first", address.port());
    let client = Egress::with_lookup(names.clone()).client_for(&Url::parse(&url).unwrap(), Reach::Private).unwrap();

    let first = client.send(request(Method::GET, &url)).await.unwrap();
    assert_eq!(first.remote_addr(), Some(address));
    assert_eq!(names.asked.load(Ordering::SeqCst), 1, "checked and connected on one answer");
    drop(first.bytes().await.unwrap());

    // The server has closed that connection, so the name is looked up again, and now resolves to a forbidden address.
    let second = client.send(request(Method::GET, &url)).await.unwrap_err();
    assert!(
        matches!(&second, EgressError::Refused { address: Some(ip), .. } if ip.to_string() == "169.254.169.254"),
        "{second:?}"
    );
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_name_that_turns_out_to_be_near_is_refused_before_anything_is_sent() {
    let (address, seen) = server().await;
    for answers in
        [["127.0.0.1"].as_slice(), &["8.8.8.8", "127.0.0.1"], &["::1"], &["::ffff:10.0.0.1"], &["64:ff9b::7f00:1"]]
    {
        let url = format!("http://harmless.test:{}/", address.port());
        let lookup = names("harmless.test", &[answers]);
        let client = Egress::with_lookup(lookup).client_for(&Url::parse(&url).unwrap(), Reach::Public).unwrap();
        let (left, sent) = watch::channel(false);
        let mut request = request(Method::POST, &url);
        request.on_body = Some(left);
        let error = client.send(request).await.unwrap_err().to_string();
        assert!(error.contains("`harmless.test`") && error.contains("dangerous-allow-private = true"), "{error}");
        assert!(!*sent.borrow());
    }
    assert!(seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_unknown_name_says_so() {
    let url = Url::parse("http://nowhere.test/").unwrap();
    let client = Egress::with_lookup(names("other.test", &[])).client_for(&url, Reach::Public).unwrap();
    let error = client.send(request(Method::GET, url.as_str())).await.unwrap_err();
    assert_eq!(error.to_string(), "`nowhere.test` cannot be resolved: no such name");
}

#[tokio::test]
async fn redirects_within_the_origin_keep_method_body_and_secrets() {
    let (address, _) = server().await;
    for status in [307, 308] {
        let text = ask(Method::POST, &format!("http://{address}/to/{status}//end")).await.unwrap();
        assert_eq!(text, "POST /end key hello");
    }
    for status in [301, 302, 303, 307, 308] {
        let text = ask(Method::GET, &format!("http://{address}/to/{status}//end")).await.unwrap();
        assert_eq!(text, "GET /end key ");
    }
}

#[tokio::test]
async fn another_origin_does_not_get_the_secrets_and_the_first_one_not_again() {
    let ((first, _), (second, _)) = (server().await, server().await);
    let text = ask(Method::POST, &format!("http://{first}/to/307/http://{second}/end")).await.unwrap();
    assert_eq!(text, "POST /end - hello");
    let text =
        ask(Method::POST, &format!("http://{first}/to/307/http://{second}/to/307/http://{first}/end")).await.unwrap();
    assert_eq!(text, "POST /end - hello");
}

#[tokio::test]
async fn a_post_that_would_become_a_get_is_refused() {
    let (address, seen) = server().await;
    for status in [301, 302, 303] {
        let error = ask(Method::POST, &format!("http://{address}/to/{status}//end")).await.unwrap_err().to_string();
        assert!(error.contains(&format!("status {status} for a POST")), "{error}");
    }
    assert!(seen.lock().unwrap().iter().all(|line| line.starts_with("POST /to/")));
}

#[tokio::test]
async fn every_hop_is_checked_anew() {
    let (address, _) = server().await;
    for target in [
        "http://169.254.169.254/latest",
        "http://0xa9fea9fe/",
        "http://[fd00:ec2::254]/",
        "http://198.18.0.1/",
        "ftp://example.com/",
        "http://user@example.com/",
    ] {
        let error = ask(Method::POST, &format!("http://{address}/to/307/{target}")).await.unwrap_err();
        assert!(matches!(error, EgressError::Refused { .. } | EgressError::Url { .. }), "{target}: {error:?}");
    }
}

#[tokio::test]
async fn a_loop_of_redirects_ends() {
    let (address, seen) = server().await;
    let error = ask(Method::GET, &format!("http://{address}/to/307/?")).await.unwrap_err().to_string();
    assert!(error.contains("more than 5 redirects"), "{error}");
    assert_eq!(seen.lock().unwrap().len(), 6);
}

#[tokio::test]
async fn a_refused_connection_is_distinguished_from_a_failed_handshake() {
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = unused.local_addr().unwrap();
    drop(unused);
    let error = ask(Method::GET, &format!("http://{address}/")).await.unwrap_err();
    assert!(matches!(error, EgressError::Connect { .. }), "{error:?}");

    let (address, _) = server().await;
    let error = ask(Method::GET, &format!("https://{address}/")).await.unwrap_err();
    assert!(matches!(error, EgressError::Tls { .. }), "{error:?}");
}

#[tokio::test]
async fn a_client_for_one_origin_follows_no_redirect_to_another() {
    let ((named, _), (other, seen)) = (server().await, server().await);
    let ask = async |to: &str| {
        let request = request(Method::POST, &format!("http://{named}/to/307/{to}"));
        let client = Egress::new().client_only_at(&request.url)?;
        Ok(client.send(request).await?.text().await.unwrap())
    };
    let refused: Result<String, EgressError> = ask(&format!("http://{other}/")).await;
    assert!(matches!(&refused, Err(EgressError::Redirect { what, .. }) if what.contains("only the named address")));
    assert_eq!(*seen.lock().unwrap(), Vec::<String>::new());
    assert_eq!(ask(&format!("http://{named}/here")).await.unwrap(), "POST /here key hello");
    let metadata = Url::parse("http://169.254.169.254/").unwrap();
    assert!(matches!(Egress::new().client_only_at(&metadata), Err(EgressError::Refused { .. })));
}
