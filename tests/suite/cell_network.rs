//! The network of a program in a cell that was not written for cells: Node's `fetch`, which does not support proxies.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;

use serde_json::{Value, json};

use crate::agent::{Agent, Era};
use crate::test_dir::{TestDir, tests_folder};

/// Starts a web server on this machine that answers `hello`, and returns its port.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
        }
    });
    port
}

#[test]
fn a_program_without_proxy_support_reaches_only_declared_hosts() {
    if Command::new("node").arg("--version").output().is_err() {
        let _ = writeln!(std::io::stderr(), "\n*** there is no `node` here, so its network in a cell is NOT TESTED\n");
        return;
    }
    let (declared, other) = (server(), server());
    let script = tests_folder().join("sources/fetch.mjs");
    let dir = TestDir::new(&format!(
        "[sources.web]\ncommand = [\"node\", {script:?}]\ndangerous-allow-private = true\n\
         cell = {{ network = [\"localhost:{declared}\"] }}\n[profiles.default]\napprove = \"never\"\n"
    ));
    let mut agent = Agent::start(&dir, Era::Modern);
    let mut fetch =
        |url: &str| agent.call("web__fetch", &json!({ "url": url }), None)["ok"].as_str().unwrap().to_owned();
    assert_eq!(fetch(&format!("http://localhost:{declared}/")), "hello");
    for url in [
        format!("http://localhost:{other}/"),
        format!("http://127.0.0.1:{other}/"),
        "http://secret.evil.test/".to_owned(),
        "https://secret.evil.test/".to_owned(),
        "http://169.254.169.254/latest/".to_owned(),
        "http://192.0.2.1/".to_owned(),
        "http://[2001:db8::1]/".to_owned(),
        "http://127.0.0.1/".to_owned(),
    ] {
        let got = fetch(&url);
        assert!(got.starts_with("failed: "), "{url}: {got}");
    }
    agent.leave();
    let told = |kind: &str| {
        let bodies = dir.records_of(kind).into_iter().map(|mut record| record["body"].take());
        bodies
            .map(|body: Value| format!("{} {}:{}", body["via"], body["host"], body["port"]).replace('"', ""))
            .collect::<Vec<_>>()
    };
    assert_eq!(told("egress.allowed"), [format!("tcp localhost:{declared}")]);
    let refused = told("egress.refused");
    for expected in ["dns secret.evil.test:53", "http localhost:80"] {
        assert!(refused.iter().any(|event| event == expected), "{expected}: {refused:?}");
    }
    dir.assert_nothing_left();
}
