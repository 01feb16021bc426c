//! A broker with one source, over HTTP.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::process::{Program, Usage};
use crate::{Options, Payload, Target, expected, request};

pub(crate) struct Http {
    program: Program,
    address: String,
    session: String,
    // Removed after the broker has ended.
    _data: tempfile::TempDir,
}

impl Http {
    pub(crate) fn start(options: &Options, plugins: &str) -> Self {
        let data = tempfile::tempdir_in(&options.data).unwrap();
        let config = format!(
            "[serve]\nlisten = \"127.0.0.1:0\"\ndangerous-no-token = true\n[profiles.default]\napprove = \"never\"\n\
             [sources.source]\ncommand = [{:?}, \"echo\"]\n{plugins}",
            options.source
        );
        let file = data.path().join("portcullis.toml");
        fs::write(&file, config).unwrap();
        let mut command = Command::new(&options.broker);
        command.args(["serve", "--config"]).arg(file).stdin(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn();
        let mut child =
            child.unwrap_or_else(|error| panic!("{:?}: {error}; build it with --release --bins", options.broker));
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let address = said.by_ref().find_map(|line| {
            let (_, rest) = line.split_once("serving http://")?;
            Some(rest.strip_suffix("/mcp")?.to_owned())
        });
        let address = address.unwrap_or_else(|| panic!("the broker does not serve"));
        std::thread::spawn(move || said.for_each(drop));
        let mut target = Self { program: Program(child), address, session: String::new(), _data: data };
        target.initialize();
        target
    }

    fn initialize(&mut self) {
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "load", "version": "1" },
        });
        let message = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let mut connection = Connection::open(self);
        let (head, _) = connection.post(&message.to_string());
        let session = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        self.session = session.unwrap_or_else(|| panic!("no session: {head}")).to_owned();
        let message = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        Connection::open(self).post(&message.to_string());
    }
}

impl Target for Http {
    fn load(&mut self, payload: &Payload, concurrency: usize, time: Duration) -> Vec<Duration> {
        let end = Instant::now() + time;
        let this = &*self;
        let caller = |id: usize| {
            let name = format!("source__{}", payload.tool);
            let (line, answer) = (request(id, &name, &payload.arguments), expected(id, payload));
            let (mut connection, mut took) = (Connection::open(this), Vec::new());
            while Instant::now() < end {
                let begun = Instant::now();
                let (head, body) = connection.post(&line);
                took.push(begun.elapsed());
                assert!(body == answer.as_bytes(), "another answer than expected: {head}");
            }
            took
        };
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..concurrency).map(|id| scope.spawn(move || caller(id))).collect();
            callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
        })
    }

    fn usage(&self) -> (Usage, Usage) {
        (self.program.usage(), self.program.usage_of_children())
    }
}

/// A connection that is kept open.
struct Connection {
    stream: BufReader<TcpStream>,
    head: String,
}

impl Connection {
    fn open(target: &Http) -> Self {
        let stream = TcpStream::connect(&target.address).unwrap();
        stream.set_nodelay(true).unwrap();
        let session = match target.session.as_str() {
            "" => String::new(),
            session => format!("Mcp-Session-Id: {session}\r\nMcp-Protocol-Version: 2025-11-25\r\n"),
        };
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{session}",
            target.address
        );
        Self { stream: BufReader::with_capacity(1 << 16, stream), head }
    }

    /// Sends a message. Returns the head and the body of the response.
    fn post(&mut self, message: &str) -> (String, Vec<u8>) {
        let request = format!("{}Content-Length: {}\r\n\r\n{message}", self.head, message.len());
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let begun = head.len();
            self.stream.read_line(&mut head).unwrap();
            let line = head.get(begun..).unwrap().trim_end();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        (head, body)
    }
}
