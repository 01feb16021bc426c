#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use portcullis_jail::Launcher;
use tokio::time::Instant;

use super::{FIRST_HANDSHAKE_TIMEOUT, HANDSHAKE_TIMEOUT};
use crate::broker::Broker;
use crate::config::Config;
use crate::session::AdvertisedCapabilities;
use crate::session::configured::ConfiguredSession;

/// Returns a session whose only source accepts connections and never says anything, and the source's end.
async fn session(folder: &std::path::Path) -> (Broker, Arc<ConfiguredSession>, TcpListener) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let text = format!("[sources.far]\nurl = \"http://{address}/\"\ndangerous-allow-private = true\n");
    let config = Config::parse(&text, &folder.join("portcullis.toml")).unwrap();
    let broker = Broker::build(config, Launcher::SelfExec).await.unwrap();
    let session = broker.open_session(&"default".parse().unwrap(), "me", "test").await.unwrap();
    (broker, session.current(), silent)
}

/// Returns what the session offers, and the time that it took to say so on the paused clock.
async fn offered(session: &ConfiguredSession) -> (AdvertisedCapabilities, Duration) {
    tokio::time::pause();
    let began = Instant::now();
    let offers = session.offers().await;
    let took = began.elapsed();
    tokio::time::resume();
    (offers, took)
}

/// Asserts that a wait ended at a moment of the paused clock, whose timers count whole milliseconds.
fn assert_took(took: Duration, expected: Duration) {
    assert!(took >= expected && took <= expected + Duration::from_millis(5), "{took:?}, not {expected:?}");
}

#[tokio::test]
async fn a_handshake_waits_a_few_seconds_for_the_only_source_that_never_connected() {
    let folder = tempfile::tempdir().unwrap();
    let (broker, session, _silent) = session(folder.path()).await;
    let (offers, took) = offered(&session).await;
    assert_took(took, HANDSHAKE_TIMEOUT + FIRST_HANDSHAKE_TIMEOUT);
    assert!(took < Duration::from_secs(10), "the least patient agents give up after 10 s");
    assert!(offers.capabilities.get("prompts").is_some(), "{offers:?}");
    broker.shutdown().await;
}

#[tokio::test]
async fn no_handshake_waits_for_a_package_that_is_being_installed() {
    let folder = tempfile::tempdir().unwrap();
    let (broker, session, _silent) = session(folder.path()).await;
    let installation = session.context.installations.of(&"far".parse().unwrap());
    installation.step("installing".to_owned());
    let (offers, took) = offered(&session).await;
    assert_took(took, HANDSHAKE_TIMEOUT);
    for capability in ["tools", "prompts", "resources", "completions", "logging"] {
        assert!(offers.capabilities.get(capability).is_some(), "{offers:?}");
    }
    assert!(offers.instructions.unwrap().contains("`far`"));
    broker.shutdown().await;
}
