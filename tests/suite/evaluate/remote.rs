//! `portcullis evaluate URL`: the offers and answers of a remote server are judged, and only its address is reached.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use portcullis_test_support::source_program;
use serde_json::Value;

use super::{grave, report};
use crate::test_dir::TestDir;

/// A server of the zoo at a port of this machine. It is killed when this is dropped.
struct ZooServer {
    child: Child,
    url: String,
}

impl ZooServer {
    fn start(dir: &TestDir, trigger: &str, kind: &str) -> Self {
        let mut command = Command::new(source_program("portcullis-test-source"));
        command.args(["zoo-http", trigger, kind]);
        dir.prepare(&mut command);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, url: format!("http://127.0.0.1:{}/mcp?key=a-secret", line.trim()) }
    }
}

impl Drop for ZooServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The trigger, the rule by which its hostile server is found, and a word of the only condition under which it acts.
const REMOTE_ZOO: [(&str, &str, Option<&str>); 5] = [
    ("client", "steering-definition", Some("claude-ai")),
    ("rug-pull", "changed-definition", None),
    ("later-run", "changed-definition", None),
    ("result", "steering-result", None),
    ("modern", "steering-definition", Some("2026-07-28")),
];

#[test]
fn a_hostile_server_at_a_url_is_found_and_an_honest_one_is_not_called_malicious() {
    let dir = TestDir::new("");
    for (trigger, rule, only) in REMOTE_ZOO {
        let server = ZooServer::start(&dir, trigger, "hostile");
        let ran = dir.run(&["evaluate", "--json", "--idle", "0", &server.url]);
        let hostile = report(&ran);
        let found = grave(&hostile);
        let found = found.iter().find(|finding| finding["rule"] == rule);
        let found = found.unwrap_or_else(|| panic!("{trigger} is not found: {hostile:#}"));
        assert_eq!((ran.code, &hostile["judgement"]), (Some(1), &Value::from("findings")), "{trigger}");
        if let Some(only) = only {
            let conditions = found["conditions"].as_array().unwrap();
            assert!(conditions.len() == 1 && conditions[0].as_str().unwrap().contains(only), "{trigger}: {found:#}");
        }
        assert!(!ran.out.contains("a-secret"), "what the query holds is not shown: {}", ran.out);

        let server = ZooServer::start(&dir, trigger, "honest");
        let honest = report(&dir.run(&["evaluate", "--json", "--idle", "0", &server.url]));
        assert_eq!(grave(&honest), Vec::<&Value>::new(), "{trigger}");
        assert_ne!(honest["judgement"], "not-judged", "{trigger}: {honest:#}");
    }
}

#[test]
fn a_report_on_a_url_says_that_its_machine_was_not_seen() {
    let dir = TestDir::new("");
    let server = ZooServer::start(&dir, "spawn", "honest");
    let before = crate::test_dir::files(&dir.path(""));
    let ran = dir.run(&["evaluate", "--html", "report.html", "--sarif", "report.sarif", "--idle", "0", &server.url]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    for said in
        ["nothing was seen", "on its own machine", "nobody here sees", "2026-07-28: the server does not speak it"]
    {
        assert!(ran.out.contains(said), "{said}: {}", ran.out);
    }
    assert!(!ran.out.contains("cell"), "no cell was recorded: {}", ran.out);
    for file in ["report.html", "report.sarif"] {
        let text = fs::read_to_string(dir.path(file)).unwrap();
        assert!(text.contains("on its own machine") && !text.contains("mallest cell"), "{file}: {text}");
        fs::remove_file(dir.path(file)).unwrap();
    }
    assert_eq!(crate::test_dir::files(&dir.path("")), before, "no ledger, no login, no lock");
}

/// Answers every request with this head until the test ends, and returns the URL.
fn answering(head: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // The client may have gone.
            let _ = answer(stream, &head);
        }
    });
    url
}

fn answer(mut stream: TcpStream, head: &str) -> std::io::Result<()> {
    let mut first = [0; 4096];
    let _ = stream.read(&mut first)?;
    write!(stream, "HTTP/1.1 {head}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
}

#[test]
fn a_server_that_leads_elsewhere_or_wants_a_login_is_not_judged_and_nothing_else_is_reached() {
    let dir = TestDir::new("");
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let location = format!("307 -\r\nLocation: http://{}/mcp", elsewhere.local_addr().unwrap());
    for (head, why) in [(location, "only the named address may be reached"), ("401 -".to_owned(), "it wants a login")] {
        let ran = dir.run(&["evaluate", "--idle", "0", &answering(head)]);
        assert_eq!(ran.code, Some(2), "{}{}", ran.out, ran.err);
        assert!(ran.out.contains(why), "{}{}", ran.out, ran.err);
    }
    let reached = elsewhere.accept().map(drop).map_err(|error| error.kind());
    assert_eq!(reached, Err(std::io::ErrorKind::WouldBlock), "the redirect was followed");
    for (url, why) in [
        ("http://169.254.169.254/mcp", "is refused"),
        ("http://127.0.0.1:1/mcp", "cannot connect"),
        ("https://", "is no URL"),
    ] {
        let ran = dir.run(&["evaluate", "--idle", "0", url]);
        assert_eq!(ran.code, Some(2), "{url}: {}{}", ran.out, ran.err);
        assert!(ran.out.contains(why) || ran.err.contains(why), "{url}: {}{}", ran.out, ran.err);
    }
}

#[test]
fn a_server_of_the_older_transport_is_judged_as_well() {
    let dir = TestDir::new("");
    fs::write(dir.path("open/script"), "well\n").unwrap();
    let mut command = Command::new(source_program("portcullis-test-source"));
    command.args(["faulty-http", "0"]).arg(dir.path("open/script"));
    dir.prepare(&mut command);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let server = ZooServer { child, url: format!("http://127.0.0.1:{}/sse", line.trim()) };
    let ran = dir.run(&["evaluate", "--json", "--idle", "0", &server.url]);
    let report = report(&ran);
    assert_eq!((ran.code, &report["exercised"]["tools"][0]), (Some(0), &Value::from("echo")), "{report:#}");
}
