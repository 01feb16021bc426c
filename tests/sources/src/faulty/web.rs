//! The faulty source over HTTP: POST with sessions, or the stream and the POSTs of 2024-11-05.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::exit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::{Faults, Reaction, drip};

#[derive(Default)]
struct Server {
    script: String,
    sessions: Mutex<(usize, HashMap<String, Session>)>,
}

struct Session {
    faults: Faults,
    /// The stream on which a client of 2024-11-05 gets its responses.
    stream: Option<TcpStream>,
}

/// A request.
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) session: String,
    pub(crate) body: String,
}

/// Serves with the faults of a script.
pub(crate) fn serve(port: &str, script: &str) -> ! {
    let server = Server { script: script.to_owned(), ..Server::default() };
    listen(port, move |asked, out| server.answer(&asked, out))
}

/// Answers requests at a port of this machine, or at any free port if it is 0, and prints the port to standard output.
pub(crate) fn listen(
    port: &str,
    answer: impl Fn(Asked, TcpStream) -> std::io::Result<()> + Send + Sync + 'static,
) -> ! {
    let listener = match TcpListener::bind(format!("127.0.0.1:{port}")) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("{error}");
            exit(1)
        }
    };
    println!("{}", listener.local_addr().map_or(0, |address| address.port()));
    let answer = Arc::new(answer);
    for stream in listener.incoming().flatten() {
        let answer = Arc::clone(&answer);
        std::thread::spawn(move || {
            if let Some(asked) = read(&stream) {
                // The client may have gone.
                let _ = answer(asked, stream);
            }
        });
    }
    exit(0)
}

impl Server {
    fn answer(&self, asked: &Asked, mut out: TcpStream) -> std::io::Result<()> {
        match (asked.method.as_str(), asked.path.as_str()) {
            ("POST", "/mcp") => self.post(asked, out),
            ("GET", "/sse") => {
                let session = self.open(Some(out.try_clone()?));
                write!(out, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")?;
                write!(out, "event: endpoint\ndata: /message?session={session}\n\n")
            }
            ("POST", path) if path.starts_with("/message?session=") => {
                let session = path.rsplit('=').next().unwrap_or_default();
                let said = status(&mut out, 202, "");
                self.on_stream(session, &asked.body)?;
                said
            }
            ("DELETE", "/mcp") => {
                self.sessions().1.remove(&asked.session);
                status(&mut out, 200, "")
            }
            _ => status(&mut out, 405, ""),
        }
    }

    fn post(&self, asked: &Asked, mut out: TcpStream) -> std::io::Result<()> {
        let message: Value = serde_json::from_str(&asked.body).unwrap_or_default();
        let mut opened = String::new();
        let mut name = asked.session.clone();
        if message.get("method").is_some_and(|method| method == "initialize") {
            name = self.open(None);
            opened = format!("Mcp-Session-Id: {name}\r\n");
        } else if asked.session.is_empty() {
            return status(&mut out, 400, "");
        }
        let reaction = match self.sessions().1.get_mut(&name) {
            Some(session) => session.faults.hear(&message),
            None => return status(&mut out, 404, ""),
        };
        match reaction {
            Reaction::Say(all) if all.is_empty() => status(&mut out, 202, ""),
            Reaction::Say(all) => {
                let events: String = all.iter().map(|said| format!("data: {said}\n\n")).collect();
                write!(
                    out,
                    "HTTP/1.1 200 OK\r\n{opened}Content-Type: text/event-stream\r\nConnection: close\r\n\
                     Content-Length: {}\r\n\r\n{events}",
                    events.len()
                )
            }
            Reaction::Drip(said) => {
                let body = said.to_string();
                write!(
                    out,
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                )?;
                drip(&mut out, body.as_bytes())
            }
            Reaction::Half(said) => {
                let body = said.to_string();
                write!(
                    out,
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
                    body.len(),
                    &body[..body.len() / 2]
                )
            }
            Reaction::Silence => {
                let mut rest = Vec::new();
                // Waits until the client closes the connection.
                out.read_to_end(&mut rest).map(drop)
            }
            Reaction::Exit => exit(5),
            Reaction::Status(307) => status(&mut out, 307, "Location: /mcp\r\n"),
            Reaction::Status(code) => {
                if code == 404 {
                    self.sessions().1.remove(&name);
                }
                status(&mut out, code, "")
            }
        }
    }

    fn on_stream(&self, name: &str, body: &str) -> std::io::Result<()> {
        let message: Value = serde_json::from_str(body).unwrap_or_default();
        let mut sessions = self.sessions();
        let Some(session) = sessions.1.get_mut(name) else { return Ok(()) };
        let reaction = session.faults.hear(&message);
        let Some(stream) = &mut session.stream else { return Ok(()) };
        match reaction {
            Reaction::Say(all) => all.iter().try_for_each(|said| write!(stream, "event: message\ndata: {said}\n\n")),
            Reaction::Drip(said) => drip(stream, format!("event: message\ndata: {said}\n\n").as_bytes()),
            Reaction::Half(said) => {
                let text = said.to_string();
                write!(stream, "event: message\ndata: {}", &text[..text.len() / 2])?;
                stream.shutdown(std::net::Shutdown::Both)
            }
            Reaction::Exit => exit(5),
            Reaction::Silence | Reaction::Status(_) => Ok(()),
        }
    }

    fn open(&self, stream: Option<TcpStream>) -> String {
        let faults = Faults::next(&self.script);
        let mut sessions = self.sessions();
        sessions.0 += 1;
        let name = format!("s{}", sessions.0);
        sessions.1.insert(name.clone(), Session { faults, stream });
        name
    }

    fn sessions(&self) -> MutexGuard<'_, (usize, HashMap<String, Session>)> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn status(out: &mut TcpStream, code: u16, headers: &str) -> std::io::Result<()> {
    write!(out, "HTTP/1.1 {code} -\r\n{headers}Connection: close\r\nContent-Length: 0\r\n\r\n")
}

fn read(stream: &TcpStream) -> Option<Asked> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        reader.read_line(&mut head).ok().filter(|read| *read > 0)?;
    }
    let header = |name: &str| {
        let found = head.lines().filter_map(|line| line.split_once(": "));
        found.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).next()
    };
    let mut body = vec![0; header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let mut first = head.split(' ');
    Some(Asked {
        method: first.next()?.to_owned(),
        path: first.next()?.to_owned(),
        session: header("mcp-session-id").unwrap_or_default(),
        body: String::from_utf8(body).ok()?,
    })
}
