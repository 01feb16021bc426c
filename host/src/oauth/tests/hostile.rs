//! Servers that lie, and responses that are not valid.

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde_json::{Value, json};

use super::world::{World, back, browse, redirect, resource, server, web};
use super::*;
use crate::login::login;

const METADATA: &str = "http://169.254.169.254/latest/meta-data";

fn endless() -> Response {
    let chunks = stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b'['; 8192]));
    Response::new(Body::from_stream(chunks))
}

/// Logs in while one document is replaced, and returns the error. Checks that no browser was opened and no code or
/// token was sent.
async fn refused(path: &'static str, instead: impl Fn(&str) -> Response + Send + Sync + 'static) -> String {
    let world = World::new(move |seen, base| (seen.path == path).then(|| instead(base))).await;
    let show = |_: &str| panic!("{path}: a person was sent there");
    let error = login(&world.config(""), &web(), None, show).await.unwrap_err().to_string();
    assert!(world.asked("/token").is_empty() && world.asked("/authorize").is_empty(), "{path}");
    error
}

#[tokio::test]
async fn a_login_ends_where_metadata_lies() {
    const RESOURCE: &str = "/.well-known/oauth-protected-resource/mcp";
    const SERVER: &str = "/.well-known/oauth-authorization-server";
    let cases: Vec<(&'static str, Value, &str)> = vec![
        (RESOURCE, json!({ "resource": "https://evil.example/mcp" }), "no token is asked for"),
        (RESOURCE, json!({ "authorization_servers": [] }), "nothing about an authorization server"),
        (RESOURCE, json!({ "authorization_servers": [METADATA] }), "it is a cloud metadata address"),
        (RESOURCE, json!({ "authorization_servers": ["file:///etc/passwd"] }), "neither http nor https"),
        (SERVER, json!({ "issuer": "https://evil.example" }), "speaks for `https://evil.example`"),
        (SERVER, json!({ "code_challenge_methods_supported": ["plain"] }), "PKCE"),
        (SERVER, json!({ "code_challenge_methods_supported": [] }), "PKCE"),
        (SERVER, json!({ "response_types_supported": ["token"] }), "issues no codes"),
        (
            SERVER,
            json!({ "authorization_endpoint": "https://honest.example/authorize?client_id=mine&x=1" }),
            "parameters of the login already",
        ),
        (
            SERVER,
            json!({
                "token_endpoint": "https://evil.example/token",
                "authorization_response_iss_parameter_supported": false,
            }),
            "the code from there is brought to `https://evil.example/token`",
        ),
        (SERVER, json!({ "authorization_endpoint": "javascript:alert(1)" }), "neither http nor https"),
        (SERVER, json!({ "authorization_endpoint": METADATA }), "it is a cloud metadata address"),
        (SERVER, json!({ "authorization_endpoint": "https://honest.example@evil.example/x" }), "carries a user name"),
        (SERVER, json!({ "revocation_endpoint": METADATA }), "it is a cloud metadata address"),
        (SERVER, json!({ "token_endpoint": "file:///etc/passwd" }), "neither http nor https"),
        (SERVER, json!({ "registration_endpoint": METADATA }), "it is a cloud metadata address"),
        (
            SERVER,
            json!({ "token_endpoint_auth_methods_supported": ["private_key_jwt"] }),
            "requires clients to authenticate",
        ),
    ];
    for (path, changes, expected) in cases {
        let named = changes.to_string();
        let make = if path == RESOURCE { resource } else { server };
        let error = refused(path, move |base| make(base, &changes)).await;
        assert!(error.contains(expected), "{named}: {error}");
    }
    for path in [RESOURCE, SERVER] {
        let error = refused(path, |_| redirect(METADATA)).await;
        assert!(error.contains("it is a cloud metadata address"), "{error}");
        let error = refused(path, |_| endless()).await;
        assert!(error.contains("more than 262144 bytes"), "{error}");
        let error = refused(path, |_| "<html>".into_response()).await;
        assert!(error.contains("not what was asked for"), "{error}");
        let error = refused(path, |_| StatusCode::BAD_GATEWAY.into_response()).await;
        assert!(error.contains("status 502"), "{error}");
    }
}

#[tokio::test]
async fn a_client_of_one_server_goes_to_no_other() {
    let world = World::friendly().await;
    let oauth = "oauth = { client-id = \"mine\", client-secret = \"s3cret\", issuer = \"https://login.example\" }";
    let show = |_: &str| panic!("a person was sent there");
    let error = login(&world.config(oauth), &web(), None, show).await.unwrap_err().to_string();
    assert!(error.contains("nothing about `https://login.example`"), "{error}");
}

#[tokio::test]
async fn an_answer_from_another_server_is_given_up() {
    type Changes = &'static [(&'static str, Option<&'static str>)];
    let cases: [(Changes, &str); 5] = [
        (&[("iss", Some("https://evil.example"))], "comes from `https://evil.example`"),
        (&[("iss", None)], "does not say that it comes from"),
        (&[("code", None), ("error", Some("access_denied"))], "refused: access_denied"),
        (&[("code", None)], "neither a code nor an error"),
        (&[("error", Some("x")), ("iss", Some("https://evil.example"))], "comes from `https://evil.example`"),
    ];
    for (changes, expected) in cases {
        let world = World::new(move |seen, base| (seen.path == "/authorize").then(|| back(seen, base, changes))).await;
        let error = world.login("").await.unwrap_err().to_string();
        assert!(error.contains(expected), "{changes:?}: {error}");
        assert!(world.asked("/token").is_empty(), "{changes:?}");
    }
}

#[tokio::test]
async fn what_carries_another_state_is_turned_away_and_the_wait_goes_on() {
    let world = World::friendly().await;
    let config = world.config("");
    let (name, (told, address)) = (web(), tokio::sync::oneshot::channel());
    let logging_in = login(&config, &name, None, |address| told.send(address.to_owned()).unwrap());
    let browsing = async {
        let address = address.await.unwrap();
        let redirect = url::Url::parse(&address).unwrap();
        let redirect = redirect.query_pairs().find(|(name, _)| name == "redirect_uri").unwrap().1.into_owned();
        // Another page in the same browser injects its own code.
        assert_eq!(browse(format!("{redirect}?code=evil&state=guess&iss={}", world.base())).await, 400);
        assert_eq!(browse(format!("{redirect}?code=evil")).await, 400);
        assert_eq!(browse(redirect.replace("/callback", "/")).await, 404);
        assert_eq!(browse(redirect.replace("127.0.0.1", "localhost")).await, 404);
        assert_eq!(browse(address).await, 200);
    };
    let (logged_in, ()) = tokio::join!(logging_in, browsing);
    logged_in.unwrap();
    assert_eq!(world.asked("/token")[0].get("code").as_deref(), Some("c0de-of-the-login"));
}

#[tokio::test]
async fn a_code_is_sent_nowhere_but_to_the_token_endpoint() {
    let world = World::new(|seen, base| {
        let to = format!("{base}/elsewhere");
        (seen.path == "/token").then(|| (StatusCode::TEMPORARY_REDIRECT, [("location", to)]).into_response())
    })
    .await;
    let error = world.login("").await.unwrap_err().to_string();
    assert!(error.contains("must not be sent to"), "{error}");
    assert!(world.asked("/elsewhere").is_empty());
}

#[tokio::test]
async fn a_token_endpoint_that_gives_no_token_gives_no_login() {
    for (given, expected) in [
        (json!({ "access_token": "", "token_type": "Bearer" }), "cannot be sent"),
        (json!({ "access_token": "a\nb", "token_type": "Bearer" }), "cannot be sent"),
        (json!({ "access_token": "x".repeat(20_000), "token_type": "Bearer" }), "cannot be sent"),
        (json!({ "access_token": "a", "token_type": "DPoP" }), "not `Bearer`"),
        (json!({ "token_type": "Bearer" }), "not what was asked for"),
    ] {
        let world = World::new(move |seen, _| (seen.path == "/token").then(|| world::answer(&given))).await;
        let error = world.login("").await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(world.discover().await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_not_waited_for() {
    // This server accepts connections and sends nothing.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = url::Url::parse(&format!("http://{}/keys", listener.local_addr().unwrap())).unwrap();
    let web = OAuthHttp::new(&url, crate::egress::Reach::Private).unwrap();
    let error = web.get::<Value>(&url).await.unwrap_err().to_string();
    assert!(error.contains("no complete answer within 20 s"), "{error}");
}
