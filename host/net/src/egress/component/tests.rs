#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::sync::atomic::Ordering;

use reqwest::Method;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::super::testing::FixedLookup;
use super::*;

struct Bench {
    egress: Arc<ComponentEgress>,
    names: Arc<FixedLookup>,
    told: Arc<Mutex<Vec<Value>>>,
}

impl Bench {
    fn new(network: &[&str], reach: Reach, answers: &[(&'static str, &[&'static str])]) -> Self {
        let names = FixedLookup::of(answers.iter().map(|(name, answers)| {
            let one_each = answers.iter().map(|answer| vec![*answer]);
            (*name, one_each.collect())
        }));
        let egress = Egress::with_lookup(Arc::<FixedLookup>::clone(&names));
        let declared = network.iter().map(|entry| entry.parse::<Destination>().unwrap()).collect();
        let told = Arc::new(Mutex::new(Vec::new()));
        let copy = Arc::clone(&told);
        let record = move |event: Event| copy.lock().push(event.body.into());
        Self { egress: ComponentEgress::open(egress, &"far".parse().unwrap(), declared, reach, record), names, told }
    }

    fn reasons(&self) -> Vec<String> {
        let told = self.told.lock();
        let text = |body: &Value| format!("{} {} {}", body["host"].as_str().unwrap(), body["port"], body["reason"]);
        told.iter().map(text).collect()
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[tokio::test]
async fn a_component_connects_to_what_was_looked_up_for_a_declared_name_and_to_nothing_else() {
    let answers: [(&str, &[&str]); 2] = [("api.test", &["93.184.216.34"]), ("evil.test", &["93.184.216.35"])];
    let bench = Bench::new(&["api.test:5432", "1.1.1.1:53"], Reach::Public, &answers);
    let found = LookedUpNames::default();
    let egress = &bench.egress;
    assert!(!egress.admits(&found, address("93.184.216.34:5432")), "nobody looked it up");
    assert_eq!(egress.look_up(&found, "API.test").await.unwrap(), ["93.184.216.34".parse::<IpAddr>().unwrap()]);
    assert!(egress.admits(&found, address("93.184.216.34:5432")));
    assert!(egress.admits(&found, address("[::ffff:93.184.216.34]:5432")));
    assert!(egress.admits(&found, address("1.1.1.1:53")), "an address that is declared itself");
    for refused in [
        "93.184.216.34:80",
        "93.184.216.35:5432",
        "1.1.1.1:5432",
        "127.0.0.1:5432",
        "169.254.169.254:80",
        "[::1]:5432",
        "0.0.0.0:5432",
    ] {
        assert!(!egress.admits(&found, address(refused)), "{refused}");
    }
    assert!(!egress.admits(&LookedUpNames::default(), address("93.184.216.34:5432")), "another instance did");
    let asked = bench.names.asked.load(Ordering::SeqCst);
    for name in ["evil.test", "secret.evil.test", "127.0.0.1", "localhost", "api.test.", ""] {
        let error = egress.look_up(&found, name).await.unwrap_err().to_string();
        assert!(error.contains("not declared; add it to `network`"), "{name}: {error}");
    }
    assert_eq!(bench.names.asked.load(Ordering::SeqCst), asked, "no question of theirs leaves the machine");
    let reasons = bench.reasons();
    assert!(reasons.iter().any(|told| told.starts_with("169.254.169.254 80") && told.contains("no declared name")));
    assert!(reasons.iter().any(|told| told.starts_with("secret.evil.test 53") && told.contains("not declared")));
}

/// Whoever connects may write another name into `Host` or into the TLS handshake, and reach another host behind the same
/// addresses.
#[tokio::test]
async fn a_component_opens_no_socket_to_a_host_name_on_the_ports_of_http_and_tls() {
    let answers: [(&str, &[&str]); 2] = [("api.test", &["93.184.216.34"]), ("both.test", &["93.184.216.35"])];
    let network = ["api.test:80", "api.test:443", "both.test:443", "93.184.216.35:443", "1.1.1.1:80"];
    let bench = Bench::new(&network, Reach::Public, &answers);
    let found = LookedUpNames::default();
    for name in ["api.test", "both.test"] {
        bench.egress.look_up(&found, name).await.unwrap();
    }
    for refused in ["93.184.216.34:80", "93.184.216.34:443", "[::ffff:93.184.216.34]:443"] {
        assert!(!bench.egress.admits(&found, address(refused)), "{refused}");
    }
    let reasons = bench.reasons();
    assert!(reasons.iter().all(|told| told.starts_with("api.test") && told.contains("`wasi:http`")), "{reasons:?}");
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    for declared in ["93.184.216.35:443", "1.1.1.1:80"] {
        assert!(bench.egress.admits(&found, address(declared)), "{declared}");
    }
}

#[tokio::test]
async fn a_name_that_resolves_differently_after_the_check_opens_nothing() {
    let answers: [(&str, &[&str]); 1] = [("api.test", &["93.184.216.34", "127.0.0.1", "169.254.169.254"])];
    for (reach, near) in [(Reach::Public, false), (Reach::Private, true)] {
        let bench = Bench::new(&["api.test:81"], reach, &answers);
        let found = LookedUpNames::default();
        bench.egress.look_up(&found, "api.test").await.unwrap();
        assert!(!bench.egress.admits(&found, address("127.0.0.1:81")));
        let second = bench.egress.look_up(&found, "api.test").await;
        assert_eq!(second.is_ok(), near, "{second:?}");
        assert_eq!(bench.egress.admits(&found, address("127.0.0.1:81")), near);
        let third = bench.egress.look_up(&found, "api.test").await.unwrap_err().to_string();
        assert!(third.contains("a cloud metadata address"), "{third}");
        assert!(!bench.egress.admits(&found, address("169.254.169.254:81")));
    }
    let declared = Bench::new(&["169.254.169.254:80", "10.0.0.1:80"], Reach::Public, &[]);
    assert!(!declared.egress.admits(&LookedUpNames::default(), address("169.254.169.254:80")));
    assert!(!declared.egress.admits(&LookedUpNames::default(), address("10.0.0.1:80")));
    assert!(declared.reasons().iter().any(|told| told.contains("a cloud metadata address; no setting allows it")));
}

/// Starts a server that answers each connection with a redirect to `to`, and returns its port.
async fn redirects(to: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 1024];
            let _ = stream.read(&mut head).await;
            let answer =
                format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    port
}

#[tokio::test]
async fn a_request_goes_to_a_declared_host_and_its_redirect_is_the_answer() {
    let port = redirects("http://169.254.169.254/latest/meta-data/").await;
    let answers: [(&str, &[&str]); 1] = [("near.test", &["127.0.0.1"])];
    let ask = async |bench: &Bench, url: &str| {
        let request = Request::new(Method::GET, url.parse().unwrap());
        bench.egress.send(request).await.map(|response| response.status().as_u16())
    };
    let open = Bench::new(&[&format!("near.test:{port}")], Reach::Private, &answers);
    assert_eq!(ask(&open, &format!("http://near.test:{port}/")).await, Ok(302));
    for url in
        ["http://169.254.169.254/latest/meta-data/", "http://127.0.0.1/", "http://near.test/", "https://evil.test/"]
    {
        let error = ask(&open, url).await.unwrap_err().to_string();
        assert!(error.contains("not declared"), "{url}: {error}");
    }
    let closed = Bench::new(&[&format!("near.test:{port}")], Reach::Public, &answers);
    let error = ask(&closed, &format!("http://near.test:{port}/")).await.unwrap_err().to_string();
    assert!(error.contains("(127.0.0.1) is refused: it is a loopback address"), "{error}");
    assert!(closed.reasons().iter().any(|told| told.contains("a loopback address")), "{:?}", closed.reasons());
}

/// A component whose time is over may have sent something out already.
#[tokio::test]
async fn a_request_that_arrived_is_recorded_although_nobody_waited_for_its_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let bench = Bench::new(&[&format!("near.test:{port}")], Reach::Private, &[("near.test", &["127.0.0.1"])]);
    let request = Request::new(Method::GET, format!("http://near.test:{port}/").parse().unwrap());
    tokio::select! {
        answer = bench.egress.send(request) => panic!("{:?}", answer.map(|answer| answer.status())),
        arrived = listener.accept() => drop(arrived.unwrap()),
    }
    let told = bench.told.lock();
    let told: Vec<_> = told.iter().map(|body| (body["host"].as_str(), body["error"].as_str())).collect();
    assert_eq!(told, [(Some("near.test"), Some("given up before it was known whether it arrived"))]);
}
