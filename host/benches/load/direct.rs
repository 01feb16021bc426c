//! A target without a broker: just the source, over its standard streams.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::process::{Program, Usage};
use crate::{Payload, Target, expected, request};

pub(crate) struct Direct {
    program: Program,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Direct {
    pub(crate) fn start(source: &Path) -> Self {
        let command = Command::new(source).arg("echo").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = command.unwrap_or_else(|error| panic!("{source:?}: {error}; build it with --release --bins"));
        let input = child.stdin.take().unwrap();
        let output = BufReader::with_capacity(1 << 16, child.stdout.take().unwrap());
        // On a separate thread: a source that waits for its answer to be read does not read requests.
        let (out, lines) = channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| out.send(line)));
        Self { program: Program(child), input, lines }
    }

    fn send(&mut self, id: usize, payload: &Payload) {
        let line = request(id, payload.tool, &payload.arguments) + "\n";
        self.input.write_all(line.as_bytes()).unwrap();
    }
}

impl Target for Direct {
    fn load(&mut self, payload: &Payload, concurrency: usize, time: Duration) -> Vec<Duration> {
        let end = Instant::now() + time;
        let (mut open, mut took) = (HashMap::new(), Vec::new());
        let pattern = expected(0, payload);
        let (head, tail) = pattern.split_once("\"id\":0,").unwrap();
        for id in 0..concurrency {
            open.insert(id, Instant::now());
            self.send(id, payload);
        }
        let mut next = concurrency;
        while !open.is_empty() {
            let line = self.lines.recv().unwrap();
            let rest = line.strip_prefix(head).and_then(|rest| rest.strip_prefix("\"id\":")).unwrap();
            let (id, answer) = rest.split_once(',').unwrap();
            assert!(answer == tail, "another answer than expected");
            took.push(open.remove(&id.parse().unwrap()).unwrap().elapsed());
            if Instant::now() < end {
                open.insert(next, Instant::now());
                self.send(next, payload);
                next += 1;
            }
        }
        took
    }

    fn usage(&self) -> (Usage, Usage) {
        (Usage::default(), self.program.usage())
    }
}
