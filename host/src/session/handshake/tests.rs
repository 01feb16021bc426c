#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use portcullis_jail::Launcher;
use tokio::time::Instant;

use super::HANDSHAKE_TIMEOUT;
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
    let session = broker.open_session(&"default".parse().unwrap(), &"me".parse().unwrap(), "test").await.unwrap();
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

#[tokio::test]
async fn no_handshake_waits_for_a_source_that_says_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (broker, session, _silent) = session(folder.path()).await;
    let (offers, took) = offered(&session).await;
    assert!(took >= HANDSHAKE_TIMEOUT && took < Duration::from_millis(200), "{took:?}");
    for capability in ["tools", "prompts", "resources", "completions", "logging"] {
        assert!(offers.capabilities.get(capability).is_some(), "{offers:?}");
    }
    assert!(offers.instructions.unwrap().contains("`far`"));
    broker.shutdown().await;
}
