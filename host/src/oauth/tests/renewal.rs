//! Expiring tokens are renewed once, whichever requests need them and whichever stop waiting.

use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use futures_util::future::join_all;
use secrecy::ExposeSecret as _;
use serde_json::json;
use tokio::sync::Notify;

use super::world::{World, answer, web};
use super::*;
use crate::egress::Reach;

fn bearer(world: &World) -> Arc<Bearer> {
    let url = url::Url::parse(&format!("{}/mcp", world.base())).unwrap();
    Bearer::new(&web(), &url, Reach::Private, &world.config("").data_dir).unwrap()
}

/// Logs in with a token that expires at once; the next one lasts.
async fn at_its_end(world: &World) {
    world.state.lock().unwrap().lasts = 0;
    world.login("").await.unwrap();
    world.state.lock().unwrap().lasts = 3600;
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_renew_at_once_use_a_refresh_token_once() {
    let world = World::friendly().await;
    at_its_end(&world).await;
    // Each bearer acts as a separate broker, and each requests the token twice at once.
    let bearers: Vec<_> = (0..8).map(|_| bearer(&world)).collect();
    let tokens = join_all(bearers.iter().chain(&bearers).map(|bearer| bearer.token())).await;
    for token in tokens {
        assert_eq!(token.unwrap().expose_secret(), "access-2-s3cret");
    }
    assert_eq!(world.asked("/token").len(), 2, "the login, and one renewal");
    let renewal = &world.asked("/token")[1];
    assert_eq!(renewal.get("resource"), Some(format!("{}/mcp", world.base())));
    world.discover().await.unwrap();
}

#[tokio::test]
async fn a_token_that_the_server_takes_back_is_renewed_and_the_request_sent_once_more() {
    let world = World::friendly().await;
    world.login("").await.unwrap();
    let source = world.source();
    let no_client: Arc<dyn crate::source::SourceClient> = Arc::new(crate::source::NoClient);
    crate::source::Source::discover(&source, &no_client).await.unwrap();
    // The server now accepts another token, and still the refresh token of this one.
    world.state.lock().unwrap().given = 2;
    let record = store::Logins::new(&world.config("").data_dir);
    let url = url::Url::parse(&format!("{}/mcp", world.base())).unwrap();
    let mut kept = record.read(&web(), &url).unwrap();
    kept.login.as_mut().unwrap().refresh = Some("refresh-2-s3cret".into());
    record.write(&web(), &kept).unwrap();
    crate::source::Source::discover(&source, &no_client).await.unwrap();
    assert_eq!(world.asked("/token").len(), 2);
    let last = world.asked("/mcp").pop().unwrap();
    assert_eq!(last.bearer.as_deref(), Some("Bearer access-3-s3cret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_is_kept_although_nobody_waits_for_it_any_more() {
    let (began, (go_on, held)) = (Arc::new(Notify::new()), std::sync::mpsc::channel());
    let (begins, held) = (Arc::clone(&began), Mutex::new(held));
    let world = World::new(move |seen, _| {
        if seen.get("grant_type").as_deref() == Some("refresh_token") {
            begins.notify_one();
            // The server is still processing the renewal.
            tokio::task::block_in_place(|| held.lock().unwrap().recv().unwrap());
        }
        None
    });
    let world = world.await;
    at_its_end(&world).await;
    let bearer = bearer(&world);
    tokio::select! {
        _ = bearer.token() => panic!("the server has not answered"),
        () = began.notified() => {}
    }
    go_on.send(()).unwrap();
    bearer.finish_renewal().await;
    assert_eq!(world.asked("/token").len(), 2);
    assert_eq!(bearer.token().await.unwrap().expose_secret(), "access-2-s3cret");
    assert_eq!(world.asked("/token").len(), 2);
}

#[tokio::test]
async fn a_login_that_is_over_says_so_once_and_repeats_no_token() {
    let world = World::new(|seen, _| {
        (seen.get("grant_type").as_deref() == Some("refresh_token")).then(|| {
            let echo = format!("`{}` was revoked", seen.get("refresh_token").unwrap());
            let error = json!({ "error": "invalid_grant", "error_description": echo });
            (StatusCode::BAD_REQUEST, answer(&error)).into_response()
        })
    })
    .await;
    at_its_end(&world).await;
    world.state.lock().unwrap().given = 7;
    let first = world.discover().await.unwrap_err().to_string();
    assert!(first.contains("not renewed: the authorization server refused: invalid_grant"), "{first}");
    let second = world.discover().await.unwrap_err().to_string();
    for error in [first, second] {
        assert!(error.contains("needs login: run `portcullis login web`"), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
    assert_eq!(world.asked("/token").len(), 2, "the login, and one attempt to renew it");
}

#[tokio::test]
async fn a_failed_renewal_is_not_repeated_for_each_of_many_calls() {
    let world = World::new(|seen, _| {
        let renews = seen.get("grant_type").as_deref() == Some("refresh_token");
        renews.then(|| StatusCode::SERVICE_UNAVAILABLE.into_response())
    })
    .await;
    at_its_end(&world).await;
    let bearer = bearer(&world);
    for _ in 0..5 {
        // This is the old token, which may still be valid.
        assert_eq!(bearer.token().await.unwrap().expose_secret(), "access-1-s3cret");
    }
    assert_eq!(world.asked("/token").len(), 2);
    // The login is still there for when the server returns.
    assert!(
        store::Logins::new(&world.config("").data_dir)
            .read(&web(), &url::Url::parse(&format!("{}/mcp", world.base())).unwrap())
            .unwrap()
            .login
            .is_some()
    );
}

/// Nothing can be written while the lock of the key is a folder, as on a full disk; everything can be read.
#[tokio::test]
async fn a_renewed_login_that_could_not_be_written_is_renewed_itself_and_written_later() {
    let world = World::friendly().await;
    at_its_end(&world).await;
    world.state.lock().unwrap().lasts = 0;
    let logins = store::Logins::new(&world.config("").data_dir);
    let url = url::Url::parse(&format!("{}/mcp", world.base())).unwrap();
    let stored = || logins.read(&web(), &url).unwrap().login.unwrap().access.expose_secret().to_owned();
    let lock = logins.file(&web()).with_file_name("key.lock");
    std::fs::remove_file(&lock).unwrap();
    std::fs::create_dir(&lock).unwrap();
    let bearer = bearer(&world);
    for renewed in ["access-2-s3cret", "access-3-s3cret"] {
        assert_eq!(bearer.token().await.unwrap().expose_secret(), renewed);
    }
    world.state.lock().unwrap().lasts = 3600;
    assert_eq!(bearer.token().await.unwrap().expose_secret(), "access-4-s3cret");
    assert_eq!(stored(), "access-1-s3cret");

    std::fs::remove_dir(&lock).unwrap();
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    tokio::time::resume();
    assert_eq!(bearer.token().await.unwrap().expose_secret(), "access-4-s3cret");
    let written = async {
        while stored() != "access-4-s3cret" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), written).await.expect("it is written");
    assert_eq!(world.asked("/token").len(), 4);
}

#[tokio::test]
async fn a_login_that_could_not_be_written_is_written_at_the_end_and_replaces_none_of_another_process() {
    for other in [false, true] {
        let world = World::friendly().await;
        at_its_end(&world).await;
        let logins = store::Logins::new(&world.config("").data_dir);
        let url = url::Url::parse(&format!("{}/mcp", world.base())).unwrap();
        let lock = logins.file(&web()).with_file_name("key.lock");
        std::fs::remove_file(&lock).unwrap();
        std::fs::create_dir(&lock).unwrap();
        let bearer = bearer(&world);
        assert_eq!(bearer.token().await.unwrap().expose_secret(), "access-2-s3cret");
        std::fs::remove_dir(&lock).unwrap();
        if other {
            world.login("").await.unwrap();
        }
        bearer.finish_renewal().await;
        let stored = logins.read(&web(), &url).unwrap().login.unwrap();
        assert_eq!(stored.access.expose_secret(), if other { "access-3-s3cret" } else { "access-2-s3cret" });
    }
}

/// While the renewed login cannot be written, because another process makes a key, the only thread of the runtime
/// serves other tasks: otherwise the task that ends the wait could not run.
#[tokio::test]
async fn a_renewed_login_is_stored_on_no_thread_of_the_runtime() {
    let (answered, key_lock) = (Arc::new(Notify::new()), Arc::new(Mutex::new((None::<std::path::PathBuf>, None))));
    let (answers, locked) = (Arc::clone(&answered), Arc::clone(&key_lock));
    let world = World::new(move |seen, _| {
        if seen.get("grant_type").as_deref() == Some("refresh_token") {
            let mut locked = locked.lock().unwrap();
            locked.1 = locked.0.as_ref().map(|path| crate::private::lock(path).unwrap());
            answers.notify_one();
        }
        None
    });
    let world = world.await;
    at_its_end(&world).await;
    let logins = store::Logins::new(&world.config("").data_dir);
    key_lock.lock().unwrap().0 = Some(logins.file(&web()).with_file_name("key.lock"));
    let bearer = bearer(&world);
    let renewing = tokio::spawn(async move { bearer.token().await });
    answered.notified().await;
    // By the time that the server has answered these, its answer about the token has arrived.
    for _ in 0..8 {
        super::world::browse(format!("{}/elsewhere", world.base())).await;
    }
    drop(key_lock.lock().unwrap().1.take());
    assert_eq!(renewing.await.unwrap().unwrap().expose_secret(), "access-2-s3cret");
}
