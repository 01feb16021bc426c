//! Records and checkpoints that leave the machine: over syslog, to a collector, and into a git repository.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, mpsc};

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::agent::{Agent, Era};
use crate::questions::webhook;
use crate::test_dir::{DEADLINE, Ran, TestDir, finish};

const CONFIGURATION: &str = "profiles.default.approve = \"never\"\nsources.calc.component = \"builtin:calculator\"\n";

/// Calls a tool with an argument that is in no record.
const CALL: [&str; 3] = ["call", "calc__add", "{\"a\": 4711, \"b\": 22}"];

/// Starts a syslog receiver, with TLS if there is a configuration for it. Returns its port and the messages of all
/// connections, each without its length.
fn receiver(tls: Option<Arc<ServerConfig>>) -> (u16, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (out, received) = mpsc::channel();
    std::thread::spawn(move || {
        for tcp in listener.incoming() {
            let (tcp, out, tls) = (tcp.unwrap(), out.clone(), tls.clone());
            std::thread::spawn(move || match tls {
                Some(tls) => read_messages(StreamOwned::new(ServerConnection::new(tls).unwrap(), tcp), &out),
                None => read_messages(tcp, &out),
            });
        }
    });
    (port, received)
}

/// Reads messages that are counted in octets until the connection ends, whether well or not.
fn read_messages(mut stream: impl Read, out: &mpsc::Sender<String>) {
    loop {
        let mut length = String::new();
        loop {
            let mut octet = [0];
            match stream.read_exact(&mut octet) {
                Ok(()) if octet[0] == b' ' => break,
                Ok(()) => length.push(octet[0].into()),
                Err(_) => return,
            }
        }
        let mut message = vec![0; length.parse().unwrap()];
        if stream.read_exact(&mut message).is_err() || out.send(String::from_utf8(message).unwrap()).is_err() {
            return;
        }
    }
}

/// Makes a certificate for `localhost`, whose issuer is in the returned file.
fn certificate(dir: &TestDir) -> (Arc<ServerConfig>, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let file = dir.path("authority.pem");
    fs::write(&file, made.cert.pem()).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    (Arc::new(config), file.display().to_string())
}

/// Makes a call with a broker that trusts the authorities in this file.
fn call_trusting(dir: &TestDir, authorities: &str) -> Ran {
    let mut command = dir.command(&CALL);
    command.env("SSL_CERT_FILE", authorities).env("PORTCULLIS_LOG", "warn");
    finish(command)
}

fn text_of(message: &str) -> &str {
    message.split_once(" - ").unwrap_or_else(|| panic!("{message}")).1
}

#[test]
fn records_and_checkpoints_reach_a_syslog_receiver_over_tls_with_a_certificate_that_is_trusted() {
    let dir = TestDir::new("");
    let (config, authorities) = certificate(&dir);
    let (port, received) = receiver(Some(config));
    let address = format!("syslog+tls://localhost:{port}");
    dir.configure(&format!("{CONFIGURATION}ledger.witnesses = [\"{address}\"]\n[[sinks]]\nsyslog = \"{address}\"\n"));
    let called = call_trusting(&dir, &authorities);
    assert_eq!((called.code, &*called.out), (Some(0), "4733\n"), "{}", called.err);
    // The two connections end at their own times.
    let mut messages: Vec<String> = Vec::new();
    while !["run.completed", "checkpoint"]
        .iter()
        .all(|kind| messages.iter().any(|message| message.contains(&format!(" {kind} - "))))
    {
        messages.push(received.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("{messages:#?}")));
    }
    let of = |kind: &str| messages.iter().find(|message| message.contains(&format!(" {kind} - ")));
    for kind in ["broker.started", "call.intent", "tool.completed"] {
        let message = of(kind).unwrap_or_else(|| panic!("{kind}: {messages:#?}"));
        assert!(message.starts_with("<110>1 20") && message.contains(" portcullis "), "{message}");
        let record: Value = serde_json::from_str(text_of(message)).unwrap();
        assert_eq!(record["kind"], kind);
        assert!(!message.contains("4711"), "{message}");
    }
    let checkpoint: Value = serde_json::from_str(text_of(of("checkpoint").unwrap())).unwrap();
    fs::write(dir.path("kept"), checkpoint["checkpoint"].as_str().unwrap()).unwrap();
    let good = dir.run(&["audit", "verify", "--checkpoint", "kept"]);
    assert!(good.code == Some(0) && good.out.contains("that were given confirm"), "{}{}", good.out, good.err);
}

#[test]
fn a_syslog_receiver_that_is_not_trusted_or_not_there_gets_nothing_is_reported_once_and_stops_no_call() {
    let dir = TestDir::new("");
    let (config, _) = certificate(&dir);
    // Another authority than the one that signed the certificate.
    let other = TestDir::new("");
    let (_, authorities) = certificate(&other);
    let (port, received) = receiver(Some(config));
    let nothing = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for address in [format!("syslog+tls://localhost:{port}"), format!("syslog+tcp://127.0.0.1:{nothing}")] {
        dir.configure(&format!(
            "{CONFIGURATION}ledger.witnesses = [\"{address}\"]\n[[sinks]]\nsyslog = \"{address}\"\n"
        ));
        let called = call_trusting(&dir, &authorities);
        assert_eq!((called.code, &*called.out), (Some(0), "4733\n"), "{}", called.err);
        for what in ["a sink did not accept its records", "a witness does not take checkpoints"] {
            assert_eq!(called.err.matches(what).count(), 1, "{what}: {}", called.err);
        }
        assert!(called.err.contains(&address), "{}", called.err);
    }
    assert!(received.try_recv().is_err());
    dir.assert_good();
}

#[test]
fn a_collector_gets_the_ends_of_calls_without_payloads_and_again_if_it_refused_them() {
    let (url, received) = webhook(vec![503]);
    let dir = TestDir::new(&format!(
        "{CONFIGURATION}[[sinks]]\notlp = \"{}\"\nheaders = {{ X-Key = \"abc\" }}\n",
        url.trim_end_matches("/hook")
    ));
    // It runs on, so that what was refused is sent again.
    let mut agent = Agent::alone(&dir, Era::Modern);
    assert_eq!(agent.call("calc__add", &json!({ "a": 4711, "b": 22 }), None), json!({ "ok": "4733" }));
    let (refused, taken) = (received.recv().unwrap(), received.recv().unwrap());
    for message in [&refused, &taken] {
        assert_eq!((message.header("content-type"), message.header("x-key")), ("application/x-protobuf", "abc"));
        for text in ["gen_ai.tool.name", "calc__add", "mcp.session.id", "portcullis.tool.completed", "service.name"] {
            assert!(message.body.contains(text), "{text}: {}", message.body);
        }
        assert!(!message.body.contains("4711") && !message.body.contains("call.intent"), "{}", message.body);
    }
    assert!(received.try_recv().is_err(), "once it took them, it gets them no more");
}

/// Runs git on a repository and returns what it prints.
fn git(repository: &Path, arguments: &[&str]) -> String {
    let ran = Command::new("/usr/bin/git").arg("-C").arg(repository).args(arguments).output().unwrap();
    assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn checkpoints_are_commits_in_a_git_repository_and_one_that_is_missing_stops_no_call() {
    if !Path::new("/usr/bin/git").exists() {
        println!("there is no /usr/bin/git, so this proves nothing");
        return;
    }
    let dir = TestDir::new(&format!("{CONFIGURATION}ledger.witnesses = [\"git:kept\", \"git:missing\"]\n"));
    fs::create_dir(dir.path("kept")).unwrap();
    git(&dir.path("kept"), &["init", "--quiet"]);
    fs::write(dir.path("kept/mine"), "work").unwrap();
    for _ in 0..2 {
        let mut command = dir.command(&CALL);
        command.env("PORTCULLIS_LOG", "warn");
        let called = finish(command);
        assert_eq!((called.code, &*called.out), (Some(0), "4733\n"), "{}", called.err);
        assert_eq!(called.err.matches("a witness does not take checkpoints").count(), 1, "{}", called.err);
        assert!(called.err.contains("git:") && called.err.contains("missing"), "{}", called.err);
    }
    let repository = dir.path("kept");
    assert_eq!(git(&repository, &["log", "--format=%an", "portcullis"]).lines().count(), 2);
    let names = git(&repository, &["ls-tree", "--name-only", "portcullis"]);
    assert_eq!(names.lines().count(), 2, "one for each chain: {names}");
    assert_eq!(git(&repository, &["status", "--porcelain"]), "?? mine\n", "the work of others is as it was");
    let notes: Vec<String> =
        names.lines().map(|name| git(&repository, &["show", &format!("portcullis:{name}")])).collect();
    fs::write(dir.path("notes"), notes.join("\n")).unwrap();
    let good = dir.run(&["audit", "verify", "--checkpoint", "notes"]);
    assert!(good.code == Some(0) && good.out.contains("that were given confirm"), "{}{}", good.out, good.err);
    // The commits cover the ledger: another one in its place is found.
    fs::remove_dir_all(dir.data("")).unwrap();
    dir.run(&CALL);
    assert_eq!(dir.run(&["audit", "verify", "--checkpoint", "notes"]).code, Some(1));
}
