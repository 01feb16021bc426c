#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::digest::Digest;
use crate::ledger::{ChainStart, Ledger};

async fn ledger(dir: &Path) -> Ledger {
    Ledger::open(dir, ChainStart { version: "1".into(), config: Digest::of(b""), key: None }).await.unwrap()
}

/// A broker that answers with its name and the request, and keeps the sessions that it is given.
struct Echo {
    name: &'static str,
    connected: Mutex<Vec<LocalConnection>>,
}

impl ControlHandler for Echo {
    fn answer(&self, request: ControlRequest) -> BoxFuture<'_, ControlReply> {
        Box::pin(async move {
            match request {
                ControlRequest::Answer { question, .. } => {
                    Err(ControlRefusal::Error(format!("no question {question}")))
                }
                ControlRequest::Restart { source, .. } => Err(ControlRefusal::Absent(format!("no source {source}"))),
                ControlRequest::Session { config, .. } if config != Digest::of(b"").to_string() => {
                    Err(ControlRefusal::Absent("another configuration".to_owned()))
                }
                _ if self.name == "talkative" => Ok(json!("x".repeat(2 * MAX_REQUEST_BYTES))),
                other if self.name == "verbose" => Ok(json!(format!("{other:?}{}", "x".repeat(MAX_REPLY_BYTES)))),
                other => Ok(json!({"broker": self.name, "request": other})),
            }
        })
    }

    fn connected(&self, connection: LocalConnection) {
        self.connected.lock().push(connection);
    }
}

fn echo(name: &'static str) -> Arc<Echo> {
    Arc::new(Echo { name, connected: Mutex::default() })
}

/// Sends these bytes, closes the sending side, and returns the answer.
async fn raw(path: &Path, bytes: Vec<u8>) -> String {
    let (mut read, mut write) = UnixStream::connect(path).await.unwrap().into_split();
    let writing = tokio::spawn(async move {
        // The broker may stop reading.
        let _ = write.write_all(&bytes).await;
        let _ = write.shutdown().await;
    });
    let mut answer = Vec::new();
    let _ = read.read_to_end(&mut answer).await;
    writing.await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_broker_answers_however_many_connections_say_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = ledger(dir.path()).await;
    let control = ControlSocket::serve(dir.path(), ledger.chain(), echo("a")).unwrap();
    let mut silent = Vec::new();
    for _ in 0..2 * MAX_CONNECTIONS {
        silent.push(UnixStream::connect(&control.path).await.unwrap());
    }
    assert!(all(dir.path(), &ControlRequest::Status).await.unwrap()[0].1.is_ok());
    // The request was answered while other connections were still open and silent.
    let last = silent.last().unwrap();
    assert_eq!(last.try_read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn every_live_broker_answers_and_dead_sockets_go() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(all(dir.path(), &ControlRequest::Status).await.unwrap(), []);
    let (a, b) = (ledger(dir.path()).await, ledger(dir.path()).await);
    let first = ControlSocket::serve(dir.path(), a.chain(), echo("a")).unwrap();
    let _second = ControlSocket::serve(dir.path(), b.chain(), echo("b")).unwrap();
    let mode = fs::metadata(&first.path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);

    let mut expected = vec![
        (a.chain().to_owned(), Ok(json!({"broker": "a", "request": {"request": "status"}}))),
        (b.chain().to_owned(), Ok(json!({"broker": "b", "request": {"request": "status"}}))),
    ];
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(all(dir.path(), &ControlRequest::Status).await.unwrap(), expected);
    let answer =
        ControlRequest::Answer { question: "7".into(), approve: true, scope: None, until: None, by: "me".into() };
    let refused = Err(ControlError::Refused("no question 7".into()));
    assert!(all(dir.path(), &answer).await.unwrap().iter().all(|(_, reply)| *reply == refused));

    let restart = ControlRequest::Restart { source: "web".into(), by: "me".into() };
    let absent = Err(ControlError::Absent("no source web".into()));
    assert!(all(dir.path(), &restart).await.unwrap().iter().all(|(_, reply)| *reply == absent));

    let dead = folder(dir.path()).join("01DEAD.sock");
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    first.close();
    assert!(!first.path.exists());
    assert_eq!(all(dir.path(), &ControlRequest::Questions).await.unwrap().len(), 1);
    assert!(!dead.exists());
}

#[tokio::test]
async fn bad_lines_get_an_error_and_the_socket_lives_on() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = ledger(dir.path()).await;
    let control = ControlSocket::serve(dir.path(), ledger.chain(), echo("a")).unwrap();
    let unknown = raw(&control.path, b"{\"request\":\"shutdown\"}\n".to_vec()).await;
    assert!(unknown.contains("not a request that this broker knows"), "{unknown}");
    assert_eq!(raw(&control.path, b"{\"request\"".to_vec()).await, "");
    let long = raw(&control.path, vec![b'x'; MAX_REQUEST_BYTES + 1]).await;
    assert!(long.contains("longer than the limit"), "{long}");
    assert!(all(dir.path(), &ControlRequest::Status).await.unwrap()[0].1.is_ok());
}

#[tokio::test]
async fn a_data_folder_with_a_long_path_works() {
    let outer = tempfile::tempdir().unwrap();
    let dir = outer.path().join("d".repeat(150));
    let ledger = ledger(&dir).await;
    let control = ControlSocket::serve(&dir, ledger.chain(), echo("far")).unwrap();
    assert!(all(&dir, &ControlRequest::Status).await.unwrap()[0].1.is_ok());
    drop(control);
    assert_eq!(all(&dir, &ControlRequest::Status).await.unwrap(), []);
    assert_eq!(fs::read_dir(folder(&dir)).unwrap().count(), 0);
}

#[tokio::test]
async fn an_answer_may_be_longer_than_a_request() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = ledger(dir.path()).await;
    let _control = ControlSocket::serve(dir.path(), ledger.chain(), echo("talkative")).unwrap();
    let answers = all(dir.path(), &ControlRequest::Status).await.unwrap();
    let Ok(answer) = &answers[0].1 else { panic!("{answers:?}") };
    assert_eq!(answer.as_str().map(str::len), Some(2 * MAX_REQUEST_BYTES));
}

#[tokio::test]
async fn an_answer_over_the_limit_is_a_refusal_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = ledger(dir.path()).await;
    let _control = ControlSocket::serve(dir.path(), ledger.chain(), echo("verbose")).unwrap();
    let answers = all(dir.path(), &ControlRequest::Status).await.unwrap();
    let Err(ControlError::Refused(why)) = &answers[0].1 else { panic!("{answers:?}") };
    assert!(why.contains("the reply is too long") && why.contains("16777216"), "{why}");
}

#[tokio::test]
async fn a_broker_that_accepts_no_connection_is_an_error_and_not_a_hang() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stopped.sock");
    let _stopped = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let mut waiting = Vec::new();
    let full = loop {
        match wire::connect(&path) {
            Ok(stream) => waiting.push(stream),
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn a_session_is_opened_in_a_broker_with_the_same_configuration_and_in_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = ledger(dir.path()).await;
    let broker = echo("a");
    let _control = ControlSocket::serve(dir.path(), ledger.chain(), Arc::clone(&broker) as _).unwrap();
    let profile: ProfileName = "work".parse().unwrap();
    assert!(open_session(dir.path(), &profile, &Digest::of(b"other")).await.unwrap().is_none());
    assert!(broker.connected.lock().is_empty());

    let mut opened = open_session(dir.path(), &profile, &Digest::of(b"")).await.unwrap().unwrap();
    opened.write_all(b"hello\n").await.unwrap();
    let served = loop {
        let served = broker.connected.lock().pop();
        if let Some(served) = served {
            break served;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(served.profile, profile);
    let mut said = [0; 6];
    let mut stream = served.stream;
    stream.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"hello\n");
}
