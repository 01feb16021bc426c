#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod hostile;
mod renewal;
mod world;

use std::os::unix::fs::PermissionsExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use self::world::{World, server, web};
use super::*;

#[tokio::test]
async fn a_person_logs_in_once_and_the_token_is_sent() {
    let world = World::friendly().await;
    let before = world.discover().await.unwrap_err().to_string();
    assert!(before.contains("needs login: run `portcullis login web`"), "{before}");

    let logged_in = world.login("").await.unwrap();
    assert_eq!((logged_in.issuer, logged_in.renews), (world.base(), true));
    assert_eq!(world.discover().await.unwrap().tools.items.len(), 1);

    let [authorized] = &world.asked("/authorize")[..] else { panic!("once") };
    let [exchanged] = &world.asked("/token")[..] else { panic!("once") };
    let verifier = exchanged.get("code_verifier").unwrap();
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier));
    assert_eq!(authorized.get("code_challenge"), Some(challenge));
    assert_eq!(authorized.get("code_challenge_method").as_deref(), Some("S256"));
    for seen in [authorized, exchanged] {
        assert_eq!(seen.get("resource"), Some(format!("{}/mcp", world.base())), "{}", seen.path);
        assert_eq!(seen.get("client_id").as_deref(), Some("registered"), "{}", seen.path);
    }
    let registered: Value = serde_json::from_str(&world.asked("/register")[0].text).unwrap();
    assert_eq!(registered["redirect_uris"], json!([authorized.get("redirect_uri").unwrap()]));
}

/// Servers answer with their start page, or fail, where they have no document.
#[tokio::test]
async fn a_guessed_place_that_answers_something_else_does_not_end_the_search() {
    use axum::response::IntoResponse as _;
    for path in ["/.well-known/oauth-authorization-server", "/.well-known/oauth-protected-resource/mcp"] {
        for answers in [axum::http::StatusCode::OK, axum::http::StatusCode::BAD_GATEWAY] {
            let world = World::new(move |seen, base| match seen.path.as_str() {
                // The challenge names no place.
                "/mcp" if seen.bearer.is_none() => {
                    let challenge = [(axum::http::header::WWW_AUTHENTICATE, "Bearer")];
                    Some((axum::http::StatusCode::UNAUTHORIZED, challenge).into_response())
                }
                asked if asked == path => Some((answers, "<html>").into_response()),
                "/.well-known/openid-configuration" => Some(server(base, &json!({}))),
                "/.well-known/oauth-protected-resource" => Some(world::resource(base, &json!({}))),
                _ => None,
            })
            .await;
            assert_eq!(world.login("").await.unwrap().issuer, world.base(), "{path} {answers}");
        }
    }
}

#[tokio::test]
async fn a_client_is_the_configured_one_else_the_document_else_a_new_one() {
    let document = "https://client.example/portcullis.json";
    for (more, knows_documents, id) in [
        ("oauth = { client-id = \"mine\", client-secret = \"its s3cret\", issuer = \"ISSUER\" }", true, "mine"),
        ("oauth = { client-metadata = \"https://client.example/portcullis.json\" }", true, document),
        ("oauth = { client-metadata = \"https://client.example/portcullis.json\" }", false, "registered"),
    ] {
        let world = World::new(move |seen, base| {
            let changes = json!({ "client_id_metadata_document_supported": knows_documents });
            seen.path.contains("oauth-authorization-server").then(|| server(base, &changes))
        })
        .await;
        world.login(&more.replace("ISSUER", &world.base())).await.unwrap();
        assert_eq!(world.asked("/authorize")[0].get("client_id").as_deref(), Some(id));
        assert_eq!(world.asked("/register").len(), usize::from(id == "registered"));
        let exchanged = &world.asked("/token")[0];
        if id == "mine" {
            let pair = base64::engine::general_purpose::STANDARD.encode("mine:its+s3cret");
            assert_eq!(exchanged.bearer.as_deref(), Some(&*format!("Basic {pair}")));
            assert_eq!(exchanged.get("client_secret"), None);
        } else {
            assert_eq!(exchanged.bearer, None);
        }
    }
}

#[tokio::test]
async fn a_further_scope_is_asked_for_beside_those_that_there_are() {
    let world = World::new(|seen, base| {
        let changes = json!({ "scopes_supported": ["read", "offline_access"] });
        match seen.path.as_str() {
            "/.well-known/oauth-protected-resource/mcp" => {
                Some(world::resource(base, &json!({ "scopes_supported": ["read"] })))
            }
            "/.well-known/oauth-authorization-server" => Some(server(base, &changes)),
            _ => None,
        }
    })
    .await;
    world.login("").await.unwrap();
    world.state.lock().unwrap().wants = Some("write");
    let refused = world.discover().await.unwrap_err().to_string();
    assert!(refused.contains("portcullis login web` (it wants the scope `write`)"), "{refused}");
    world.login("").await.unwrap();
    let scopes: Vec<_> = world.asked("/authorize").iter().map(|seen| seen.get("scope").unwrap()).collect();
    assert_eq!(scopes, ["read offline_access", "write read offline_access"]);
    world.discover().await.unwrap();
}

#[tokio::test]
async fn a_login_is_sealed_private_and_for_one_address() {
    let world = World::friendly().await;
    world.login("").await.unwrap();
    let config = world.config("");
    let folder = config.data_dir.join("logins");
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
        assert!(!text.contains("s3cret") && !text.contains("registered"), "{}", path.display());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0, "{}", path.display());
    }
    let logins = store::Logins::new(&config.data_dir);
    let url = |path: &str| url::Url::parse(&format!("{}{path}", world.base())).unwrap();
    let record = logins.read(&web(), &url("/mcp")).unwrap();
    assert!(record.login.is_some());
    assert!(!format!("{record:?}").contains("s3cret"));
    assert!(logins.read(&web(), &url("/other")).unwrap().login.is_none());

    // Copied to the name of another source, the file is rejected.
    std::fs::copy(folder.join("web.login"), folder.join("other.login")).unwrap();
    assert!(logins.read(&"other".parse().unwrap(), &url("/mcp")).is_err());
    std::fs::set_permissions(folder.join("key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(logins.read(&web(), &url("/mcp")).unwrap_err().to_string().contains("chmod 600"));
    std::fs::remove_file(folder.join("key")).unwrap();
    assert!(logins.read(&web(), &url("/mcp")).unwrap_err().to_string().contains("portcullis logout web"));
    let unread = logout(&config, &web()).await.unwrap();
    assert!(matches!(unread, Some(LogoutOutcome::NotRevoked(why)) if why.contains("could not be read")));
    assert_eq!(logout(&config, &web()).await.unwrap(), None);
    world.login("").await.unwrap();
    world.discover().await.unwrap();
}

/// A URL that is configured by mistake, or a file that cannot be opened for a moment, costs nobody their login.
#[tokio::test]
async fn a_refusal_takes_no_login_away_that_is_for_another_url_or_cannot_be_read() {
    let (world, other) = (World::friendly().await, World::friendly().await);
    world.login("").await.unwrap();
    let config = world.config("");
    let file = config.data_dir.join("logins/web.login");
    let kept = std::fs::read(&file).unwrap();
    let url = |world: &World| url::Url::parse(&format!("{}/mcp", world.base())).unwrap();
    let refused = async |at: &World| {
        let bearer = Bearer::new(&web(), &url(at), crate::egress::Reach::Private, &config.data_dir).unwrap();
        let response = reqwest::Client::builder().no_proxy().build().unwrap().post(url(at)).send().await.unwrap();
        assert_eq!(response.status(), 401);
        assert!(bearer.refused(&response, None).await.is_none());
        assert!(bearer.challenge().is_some());
    };
    refused(&other).await;
    assert_eq!(std::fs::read(&file).unwrap(), kept);
    let key = config.data_dir.join("logins/key");
    std::fs::rename(&key, key.with_extension("away")).unwrap();
    refused(&world).await;
    std::fs::rename(key.with_extension("away"), &key).unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), kept);
    assert!(store::Logins::new(&config.data_dir).read(&web(), &url(&world)).unwrap().login.is_some());

    // A person who logs in at the new URL is led by its challenge all the same.
    let [text, path] = [
        format!("[sources.web]\nurl = \"{}\"\ndangerous-allow-private = true\n", url(&other)),
        world.place.path().join("portcullis.toml").display().to_string(),
    ];
    let moved = crate::config::Config::parse(&text, path.as_ref()).unwrap();
    let browse = |address: &str| drop(tokio::spawn(world::browse(address.to_owned())));
    assert_eq!(crate::login::login(&moved, &web(), None, browse).await.unwrap().issuer, other.base());
}

#[tokio::test]
async fn a_login_that_the_source_cannot_use_is_refused_with_the_reason() {
    let status = |status: axum::http::StatusCode| Some(axum::response::IntoResponse::into_response(status));
    let world = World::new(move |seen, _| match seen.path.as_str() {
        "/mcp" => {
            let message: Value = serde_json::from_str(&seen.text).unwrap_or_default();
            // The request for a stream, which comes at the same time as the others, has no text.
            let Some(method) = message["method"].as_str() else {
                return status(axum::http::StatusCode::METHOD_NOT_ALLOWED);
            };
            let result = match method {
                "initialize" => json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {} }),
                _ => json!({ "tools": [] }),
            };
            Some(world::answer(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })))
        }
        _ => status(axum::http::StatusCode::NOT_FOUND),
    })
    .await;
    assert_eq!(world.login("").await.unwrap_err().to_string(), "source `web` asks for no login");
    let header = world.login("headers = { Authorization = \"Bearer x\" }").await.unwrap_err().to_string();
    assert!(header.contains("remove it to log in"), "{header}");
}

#[tokio::test]
async fn a_logout_forgets_at_once_and_has_the_server_take_both_tokens_back() {
    for (offers, status) in [(true, 200), (true, 503), (false, 200)] {
        let world = World::new(move |seen, base| match seen.path.as_str() {
            "/.well-known/oauth-authorization-server" if offers => {
                Some(server(base, &json!({ "revocation_endpoint": format!("{base}/revoke") })))
            }
            "/revoke" => {
                let status = axum::http::StatusCode::from_u16(status).unwrap();
                Some(axum::response::IntoResponse::into_response(status))
            }
            _ => None,
        })
        .await;
        world.login("").await.unwrap();
        let logged_out = logout(&world.config(""), &web()).await.unwrap().unwrap();
        let revoked: Vec<_> = world.asked("/revoke").iter().map(|seen| seen.get("token").unwrap()).collect();
        match (offers, status) {
            (true, 200) => {
                assert_eq!(logged_out, LogoutOutcome::Revoked);
                assert_eq!(revoked, ["refresh-1-s3cret", "access-1-s3cret"]);
                let first = &world.asked("/revoke")[0];
                assert_eq!(first.get("token_type_hint").as_deref(), Some("refresh_token"));
                assert_eq!(first.get("client_id").as_deref(), Some("registered"));
            }
            (true, _) => {
                let LogoutOutcome::NotRevoked(why) = logged_out else { panic!("{logged_out:?}") };
                assert!(why.contains("status 503") && !why.contains("s3cret"), "{why}");
            }
            (false, _) => assert_eq!((logged_out, revoked.len()), (LogoutOutcome::NotOffered, 0)),
        }
        assert!(world.discover().await.unwrap_err().to_string().contains("needs login"));
    }
}
