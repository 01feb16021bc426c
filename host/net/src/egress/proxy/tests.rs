#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod life;
mod proxy;
mod refusals;
mod tls;
mod web;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::super::{Egress, NameResolver, Reach};
use super::journal::{EgressLog, EgressService};
use super::{AllowedDestinations, EgressProxy, ProxyListeners};

/// A proxy on loopback. The ports that the source sees are mapped to ports that the system chooses.
struct Cell {
    proxy: EgressProxy,
    resolver: SocketAddr,
    ports: HashMap<u16, u16>,
    events: Arc<Mutex<Vec<Value>>>,
}

/// The answers to lookups of each `host:port`, in turn; the last one is repeated.
struct World {
    answers: HashMap<String, Vec<Vec<SocketAddr>>>,
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl NameResolver for World {
    async fn lookup(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let key = format!("{name}:{port}");
        let mut asked = self.asked.lock().unwrap();
        let turn = asked.iter().filter(|earlier| **earlier == key).count();
        asked.push(key.clone());
        let answers = self.answers.get(&key).ok_or_else(|| io::Error::other("no such name"))?;
        Ok(answers[turn.min(answers.len() - 1)].clone())
    }
}

impl World {
    fn of(answers: &[(&str, SocketAddr)]) -> Arc<Self> {
        Self::in_turn(answers.iter().map(|(name, address)| (*name, vec![vec![*address]])))
    }

    fn in_turn<'a>(answers: impl IntoIterator<Item = (&'a str, Vec<Vec<SocketAddr>>)>) -> Arc<Self> {
        let answers = answers.into_iter().map(|(name, answers)| (name.to_owned(), answers)).collect();
        Arc::new(Self { answers, asked: Mutex::default() })
    }
}

impl Cell {
    fn open(declared: &[&str], world: &Arc<World>, reach: Reach) -> Self {
        Self::of(declared.iter().map(|text| text.parse::<super::Destination>().unwrap()).collect(), world, reach)
    }

    fn of(declared: AllowedDestinations, world: &Arc<World>, reach: Reach) -> Self {
        Self::behind(Egress::with_lookup(world.clone()), declared, reach)
    }

    /// Opens the cell of one process of the source that the egress belongs to.
    fn behind(egress: Egress, declared: AllowedDestinations, reach: Reach) -> Self {
        let resolver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let bind = |port| (port, std::net::TcpListener::bind("0.0.0.0:0").unwrap());
        let ports = [53, 80, 443, 3128, 7000].map(bind);
        let served = ports.iter().map(|(port, socket)| (*port, socket.local_addr().unwrap().port())).collect();
        let at = resolver.local_addr().unwrap();
        let events = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&events);
        let journal = EgressLog::new(&"files".parse().unwrap(), move |event| {
            let mut body = serde_json::Value::from(event.body);
            body["kind"] = event.kind.as_str().into();
            told.lock().unwrap().push(body);
        });
        let listeners = ProxyListeners { resolver, ports: ports.into() };
        let proxy = EgressProxy::serve(egress, journal, listeners, declared, reach);
        Self { proxy: proxy.unwrap(), resolver: at, ports: served, events }
    }

    async fn connect_to(&self, address: impl Into<std::net::IpAddr>, port: u16) -> TcpStream {
        TcpStream::connect((address.into(), self.ports[&port])).await.unwrap()
    }

    /// Connects as a program in the cell would after it has looked up the name.
    async fn connect(&self, name: &str, port: u16) -> TcpStream {
        let address = self.proxy.shared.declared.address_of(name).expect("the name is declared");
        self.connect_to(address, port).await
    }

    async fn proxy(&self) -> TcpStream {
        self.connect_to(Ipv4Addr::LOCALHOST, 3128).await
    }

    /// Returns the events so far, each as `allowed|refused via host:port why`.
    fn events(&self) -> Vec<String> {
        let events = self.events.lock().unwrap();
        let shown = events.iter().map(|event| {
            let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
            let why = text("reason") + &text("error");
            let kind = text("kind").replace("egress.", "");
            format!("{kind} {} {}:{} {why}", text("via"), text("host"), event["port"]).trim_end().to_owned()
        });
        shown.collect()
    }
}

/// Sends a text and reads to the end of the stream.
async fn say(mut stream: TcpStream, text: &str) -> String {
    stream.write_all(text.as_bytes()).await.unwrap();
    rest(&mut stream).await
}

/// Reads to the end of the stream; a reset counts as an end.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(size @ 1..) = stream.read(&mut chunk).await {
        bytes.extend_from_slice(&chunk[..size]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A server that records what it receives and sends a prepared answer.
struct Server {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts a server that answers each request until the client leaves.
    async fn http() -> Self {
        Self::start(false, |head| {
            let head = String::from_utf8_lossy(head);
            let body = head.lines().next().unwrap_or_default();
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nKeep-Alive: timeout=5\r\n\r\n{body}", body.len()).into()
        })
        .await
    }

    /// Starts a server that sends a greeting and then echoes.
    async fn greeting() -> Self {
        Self::start(true, <[u8]>::to_vec).await
    }

    /// Starts a server that echoes.
    async fn echo() -> Self {
        Self::start(false, <[u8]>::to_vec).await
    }

    async fn start(greets: bool, answer: fn(&[u8]) -> Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&heard);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let log = Arc::clone(&log);
                tokio::spawn(async move {
                    if greets {
                        stream.write_all(b"220 ready\r\n").await.unwrap();
                    }
                    let mut chunk = vec![0; 32 * 1024];
                    while let Ok(size @ 1..) = stream.read(&mut chunk).await {
                        let said = &chunk[..size];
                        log.lock().unwrap().push(String::from_utf8_lossy(said).into_owned());
                        if stream.write_all(&answer(said)).await.is_err() {
                            break;
                        }
                    }
                    log.lock().unwrap().push("closed".into());
                });
            }
        });
        Self { address, heard }
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}
