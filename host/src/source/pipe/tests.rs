#![allow(clippy::unwrap_used, reason = "tests")]

use tokio::io::{AsyncWriteExt as _, duplex, empty, sink};

use super::*;

/// A program that runs until it is killed.
#[derive(Default)]
struct Running {
    killed: watch::Sender<Option<Instant>>,
}

#[async_trait]
impl RunningProgram for Running {
    async fn wait(&self) -> Instant {
        let mut killed = self.killed.subscribe();
        let at = *killed.wait_for(Option::is_some).await.unwrap();
        at.unwrap()
    }

    fn terminate(&self) {}

    fn kill(&self) {
        self.killed.send_replace(Some(Instant::now()));
    }

    fn exit_description(&self) -> Option<String> {
        self.killed.borrow().map(|_| "was killed by signal 9".to_owned())
    }
}

#[tokio::test]
async fn why_a_source_was_given_up_is_known_while_its_output_is_still_being_read() {
    let folder = tempfile::tempdir().unwrap();
    let (mut program, output) = duplex(4096);
    let streams = PipeStreams { input: Box::new(sink()), output: Box::new(output), error: Box::new(empty()) };
    let pipe_config = PipeConfig { limit: 1024, log: folder.path().join("log"), secrets: RedactedValues::default() };
    let pipe = Pipe::with(Box::new(Running::default()), streams, "`noise`".to_owned(), pipe_config);
    let write = async { program.write_all("I am not a server\n".repeat(MAX_GARBAGE_LINES + 1).as_bytes()).await };
    let (_, given_up) = tokio::join!(write, pipe.receive());
    let given_up = given_up.unwrap();
    assert!(matches!(given_up, Err(TransportError::Garbage(_))));

    let _reader = pipe.incoming.lock().await;
    let why = pipe.exit_reason().unwrap();
    assert!(why.contains("writes garbage to standard output"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn what_a_source_wrote_before_its_end_is_read_however_late() {
    let folder = tempfile::tempdir().unwrap();
    let (mut program, output) = duplex(64 * 1024);
    let streams = PipeStreams { input: Box::new(sink()), output: Box::new(output), error: Box::new(empty()) };
    let pipe_config = PipeConfig { limit: 1024, log: folder.path().join("log"), secrets: RedactedValues::default() };
    let running = Running::default();
    running.kill();
    let pipe = Pipe::with(Box::new(running), streams, "`brief`".to_owned(), pipe_config);
    let line = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
    program.write_all(format!("{line}\n").repeat(300).as_bytes()).await.unwrap();
    for number in 0..300 {
        // The reader is kept waiting by a caller.
        tokio::time::advance(DRAIN / 20).await;
        assert!(matches!(pipe.receive().await, Some(Ok(_))), "{number}");
    }
    assert!(pipe.receive().await.is_none(), "the stream is open, and nothing comes");
    drop(program);
}

#[tokio::test]
async fn a_message_that_is_nested_too_deep_is_skipped_and_the_source_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (mut program, output) = duplex(64 * 1024);
    let streams = PipeStreams { input: Box::new(sink()), output: Box::new(output), error: Box::new(empty()) };
    let pipe_config = PipeConfig { limit: 4096, log: folder.path().join("log"), secrets: RedactedValues::default() };
    let pipe = Pipe::with(Box::new(Running::default()), streams, "`deep`".to_owned(), pipe_config);
    let (open, close) = ("[".repeat(200), "]".repeat(200));
    let deep = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"x":{open}{close}}}}}"#);
    program.write_all(format!("{deep}\n{{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{{}}}}\n").as_bytes()).await.unwrap();
    assert!(matches!(pipe.receive().await, Some(Err(TransportError::TooComplex(_)))));
    assert!(matches!(pipe.receive().await, Some(Ok(_))));
    assert_eq!(pipe.exit_reason(), None);
}
