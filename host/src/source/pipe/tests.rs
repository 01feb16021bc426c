#![allow(clippy::unwrap_used, reason = "tests")]

use tokio::io::{AsyncWriteExt as _, duplex, empty, sink};

use super::*;

/// A program that runs until it is killed.
#[derive(Default)]
struct Running {
    killed: watch::Sender<bool>,
}

#[async_trait]
impl RunningProgram for Running {
    async fn wait(&self) -> Instant {
        let _ = self.killed.subscribe().wait_for(|killed| *killed).await;
        Instant::now()
    }

    fn terminate(&self) {}

    fn kill(&self) {
        self.killed.send_replace(true);
    }

    fn exit_description(&self) -> Option<String> {
        self.killed.borrow().then(|| "was killed by signal 9".to_owned())
    }
}

#[tokio::test]
async fn why_a_source_was_given_up_is_known_while_its_output_is_still_being_read() {
    let folder = tempfile::tempdir().unwrap();
    let (mut program, output) = duplex(4096);
    let streams = PipeStreams { input: Box::new(sink()), output: Box::new(output), error: Box::new(empty()) };
    let pipe_config = PipeConfig { limit: 1024, log: folder.path().join("log"), secrets: RedactedValues::default() };
    let pipe = Pipe::with(Box::new(Running::default()), streams, "`noise`".to_owned(), pipe_config);
    program.write_all("I am not a server\n".repeat(MAX_GARBAGE_LINES + 1).as_bytes()).await.unwrap();
    let given_up = pipe.receive().await.unwrap();
    assert!(matches!(given_up, Err(TransportError::Garbage(_))));

    let _reader = pipe.incoming.lock().await;
    let why = pipe.exit_reason().unwrap();
    assert!(why.contains("writes garbage to standard output"), "{why}");
}
