//! The fuzz targets: each function takes arbitrary bytes and panics if a promise about them is broken.
//!
//! `cargo fuzz` runs them coverage-guided if there is a nightly compiler (`tests/fuzz`); the tests below run them on
//! stable, over the corpus and over mutations of it.

#![expect(clippy::panic, reason = "a fuzz target reports a broken promise by a panic")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use portcullis::config::Config;
use portcullis::digest::Digest;
use portcullis::egress::{self, AllowedDestinations, ClientHelloState, Destination, Reach};
use portcullis::protocol::{Json, Message, canonical};
use url::{Host, Url};

/// Checks that a message is refused, or written and read again as the same message: once written, it stays the same
/// byte for byte.
pub fn envelope(data: &[u8]) {
    let Ok(message) = Message::parse(data.to_vec()) else { return };
    let line = message.to_line();
    assert!(!line.contains(&b'\n'), "a line holds a line feed");
    match Message::parse(line.clone()) {
        Ok(again) => assert_eq!(again.to_line(), line, "a message changes when it is passed on"),
        Err(error) => panic!("what was written cannot be read: {error}"),
    }
}

/// Checks that a value is refused or has a canonical form, whose canonical form is itself, and that a member that was
/// set is found.
pub fn canonical_json(data: &[u8]) {
    let Ok(json) = Json::parse(data.to_vec()) else { return };
    if let Ok(form) = canonical(&json) {
        let Ok(again) = Json::parse(form.clone()) else { panic!("a canonical form is no JSON") };
        assert_eq!(canonical(&again).as_deref(), Ok(form.as_str()), "a canonical form has another one");
        assert_eq!(Digest::of_json(&json), Digest::of_json(&again));
    }
    if let Some(edited) = json.with("name", &Json::null()) {
        assert_eq!(edited.get("name"), Some(Json::null()), "a member that was set is not there");
    }
}

/// Checks that a configuration is parsed, or refused with at least one problem, and never causes a panic.
pub fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(error) = Config::parse(text, Path::new("/nowhere/portcullis.toml")) {
        assert!(!error.problems().is_empty() && !error.to_string().is_empty(), "an error that says nothing");
    }
}

/// Checks that a URL that passes the egress check names a host or a public address, in whatever notation the address is
/// written, and that a destination means the same host to every parser.
pub fn address(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for url in [Url::parse(text), Url::parse(&format!("http://{text}/"))].into_iter().flatten() {
        if egress::check(&url, Reach::Public).is_err() {
            continue;
        }
        assert!(egress::check(&url, Reach::Private).is_ok(), "what is public needs no opt-in: {url}");
        let open = match url.host() {
            None => false,
            Some(Host::Ipv4(address)) => is_open_v4(address),
            Some(Host::Ipv6(address)) => is_open_v6(address),
            Some(Host::Domain(name)) => {
                name.parse::<IpAddr>().is_err() && name != "localhost" && !name.ends_with(".localhost")
            }
        };
        assert!(open, "{url} was let through");
    }
    let Ok(destination) = text.parse::<Destination>() else { return };
    assert_eq!(destination.to_string().parse().as_ref(), Ok(&destination), "a destination reads back as another");
    if let Ok(url) = Url::parse(&format!("http://{destination}/")) {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let same = host == destination.host() || host.parse::<IpAddr>().ok() == destination.host().parse().ok();
        assert!(same, "{destination} is {host} to a browser");
    }
}

/// Checks that a DNS question of a source in a cell is answered from the declared destinations or refused, and that
/// reading the first bytes of a connection does not depend on how they are split.
pub fn wire(data: &[u8]) {
    let declared: AllowedDestinations = "api.test:443".parse::<Destination>().into_iter().collect();
    if let Some(reply) = declared.answer(data) {
        let (Some([.., answers]), true) = (reply.message.get(..8), reply.message.len() <= data.len() + 32) else {
            panic!("an answer without a head, or one that makes a small question large");
        };
        let address = reply.message.ends_with(&[127, 64, 0, 1]);
        assert!(*answers == 0 || (*answers == 1 && address && reply.refused.is_none()), "an address of somebody else");
    }
    let whole = egress::client_hello(data);
    for end in 0..data.len().min(64) {
        let part = data.get(..end).map(egress::client_hello);
        assert!(
            part.is_none_or(|part| part == ClientHelloState::Part || part == whole),
            "more bytes change what was read"
        );
    }
}

/// Reports whether an address is public as far as the standard library knows, which is less than the egress check
/// knows.
fn is_open_v4(address: Ipv4Addr) -> bool {
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_unspecified()
        || address.is_broadcast()
        || address.is_multicast()
        || address.is_documentation()
        || matches!(address.octets(), [0 | 240..=255, ..]))
}

fn is_open_v6(address: Ipv6Addr) -> bool {
    !(address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || address.is_unique_local()
        || address.is_unicast_link_local())
        && address.to_ipv4_mapped().is_none_or(is_open_v4)
}

#[cfg(test)]
mod smoke {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use std::path::PathBuf;

    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};

    fn corpus(name: &str) -> Vec<Vec<u8>> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
        let mut seeds: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        seeds.sort();
        seeds.iter().map(|seed| std::fs::read(seed).unwrap()).collect()
    }

    /// Runs a target over its corpus, and over 2,000 mutations: bytes changed, pieces of two seeds joined.
    fn smoke(name: &str, target: fn(&[u8])) {
        let seeds = corpus(name);
        assert!(seeds.len() >= 3, "{name} has no corpus");
        seeds.iter().for_each(|seed| target(seed));
        let any_seed = || (0..seeds.len()).prop_map(|at| seeds[at].clone());
        let mutation =
            (any_seed(), any_seed(), any::<(u16, u16)>(), proptest::collection::vec(any::<(u16, u8)>(), 0..6));
        let mut runner = TestRunner::new(Config { cases: 2_000, failure_persistence: None, ..Config::default() });
        let done = runner.run(&mutation, |(a, b, (cut, join), changes)| {
            let mut bytes = a[..usize::from(cut) % (a.len() + 1)].to_vec();
            bytes.extend_from_slice(&b[usize::from(join) % (b.len() + 1)..]);
            for (at, byte) in changes {
                let len = bytes.len();
                if len > 0 {
                    bytes[usize::from(at) % len] = byte;
                }
            }
            target(&bytes);
            Ok(())
        });
        done.unwrap();
    }

    #[test]
    fn envelopes() {
        smoke("envelope", super::envelope);
    }

    #[test]
    fn canonical_forms() {
        smoke("envelope", super::canonical_json);
    }

    #[test]
    fn configurations() {
        smoke("configuration", super::configuration);
    }

    #[test]
    fn addresses() {
        smoke("address", super::address);
    }

    #[test]
    fn dns_questions_and_tls_handshakes() {
        smoke("wire", super::wire);
    }
}
