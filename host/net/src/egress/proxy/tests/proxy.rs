//! Programs that support proxies.

use super::*;

async fn connect_to(cell: &Cell, authority: &str) -> (TcpStream, String) {
    let mut stream = cell.proxy().await;
    stream.write_all(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n").as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    (stream, String::from_utf8(head).unwrap())
}

#[tokio::test]
async fn a_tunnel_leads_to_what_is_declared() {
    let server = Server::greeting().await;
    let world = World::of(&[("db.test:7000", server.address)]);
    let cell = Cell::open(&["db.test:7000"], &world, Reach::Private);
    let (mut stream, head) = connect_to(&cell, "DB.test:7000").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut greeting = [0; 11];
    stream.read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"220 ready\r\n");
    stream.write_all(b"ping").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(rest(&mut stream).await, "ping");
    assert_eq!(cell.events(), ["allowed proxy db.test:7000"]);
}

#[tokio::test]
async fn a_tunnel_is_checked_as_a_connection_is() {
    let server = Server::http().await;
    let world = World::of(&[("api.test:443", server.address), ("api.test:80", server.address)]);
    let cell = Cell::open(&["api.test:443", "api.test:80"], &world, Reach::Private);
    let (mut stream, _) = connect_to(&cell, "api.test:443").await;
    stream.write_all(b"SSH-2.0-x\r\n").await.unwrap();
    assert_eq!(rest(&mut stream).await.len(), 7, "an alert");
    let (stream, _) = connect_to(&cell, "api.test:80").await;
    let answer = say(stream, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    let (stream, _) = connect_to(&cell, "api.test:80").await;
    let answer = say(stream, "GET /in HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n").await;
    assert!(answer.ends_with("GET /in HTTP/1.1"), "{answer}");
    assert!(server.heard().iter().all(|text| !text.contains("SSH") && !text.contains("evil")));
}

#[tokio::test]
async fn a_request_to_the_proxy_goes_where_its_target_says() {
    let (one, two) = (Server::http().await, Server::http().await);
    let world = World::of(&[("one.test:80", one.address), ("two.test:7000", two.address)]);
    let cell = Cell::open(&["one.test:80", "two.test:7000"], &world, Reach::Private);
    let requests = "GET http://one.test/a HTTP/1.1\r\nHost: evil.test\r\nProxy-Authorization: Basic eDp5\r\n\r\n";
    let mut stream = cell.proxy().await;
    stream.write_all(requests.as_bytes()).await.unwrap();
    let mut answer = vec![];
    while !answer.ends_with(b"GET /a HTTP/1.1") {
        answer.push(stream.read_u8().await.unwrap());
    }
    let answer = say(stream, "GET http://two.test:7000/b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(answer.ends_with("GET /b HTTP/1.1"), "{answer}");
    assert!(one.heard()[0].contains("host: one.test\r\n"), "the header is made from the target: {:?}", one.heard());
    assert!(!one.heard()[0].to_lowercase().contains("proxy-"));
    assert!(two.heard()[0].contains("host: two.test:7000\r\n"), "{:?}", two.heard());
    assert_eq!(cell.events(), ["allowed proxy one.test:80", "allowed proxy two.test:7000"]);
}

#[tokio::test]
async fn the_proxy_refuses_what_is_not_declared() {
    let server = Server::http().await;
    let world = World::of(&[("api.test:443", server.address), ("evil.test:443", server.address)]);
    let cell = Cell::open(&["api.test:443"], &world, Reach::Private);
    for authority in ["evil.test:443", "api.test:80", "sub.api.test:443", "api.test", "127.0.0.1:443", "api.test.:443"]
    {
        let (_, head) = connect_to(&cell, authority).await;
        assert!(head.starts_with("HTTP/1.1 403") || head.starts_with("HTTP/1.1 400"), "{authority}: {head}");
    }
    for target in ["http://evil.test/", "https://api.test/", "ftp://api.test/", "/", "*", "http://u@api.test:443/"] {
        let answer = say(cell.proxy().await, &format!("GET {target} HTTP/1.1\r\nHost: api.test\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 403") || answer.starts_with("HTTP/1.1 400"), "{target}: {answer}");
    }
    assert!(world.asked.lock().unwrap().is_empty(), "no question left the machine");
    assert!(server.heard().is_empty());
    assert!(cell.events().iter().all(|event| event.starts_with("refused proxy ")), "{:?}", cell.events());
}
