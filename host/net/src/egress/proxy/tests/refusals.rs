//! Forbidden addresses, however a source obtains them.

use tokio::net::UdpSocket;

use super::*;

/// Addresses that a name may not resolve to, and whether `dangerous-allow-private` allows them.
const FORBIDDEN: &[(&str, bool)] = &[
    ("127.0.0.1:9", true),
    ("10.0.0.1:9", true),
    ("172.16.0.1:9", true),
    ("192.168.1.1:9", true),
    ("100.64.0.1:9", true),
    ("169.254.1.1:9", true),
    ("[::1]:9", true),
    ("[fd00::1]:9", true),
    ("[fe80::1]:9", true),
    ("[::ffff:127.0.0.1]:9", true),
    ("[64:ff9b::10.0.0.1]:9", true),
    ("169.254.169.254:9", false),
    ("[::ffff:169.254.169.254]:9", false),
    ("[64:ff9b::169.254.169.254]:9", false),
    ("[2002:a9fe:a9fe::1]:9", false),
    ("[fd00:ec2::254]:9", false),
    ("0.0.0.0:9", false),
    ("[::]:9", false),
    ("224.0.0.1:9", false),
    ("255.255.255.255:9", false),
];

fn tunnel(cell: &Cell) -> impl Future<Output = String> {
    let proxy = cell.proxy();
    async { say(proxy.await, "CONNECT api.test:7000 HTTP/1.1\r\nHost: x\r\n\r\n").await }
}

#[tokio::test]
async fn a_declared_name_that_leads_to_the_inside_is_refused() {
    for (address, opened) in FORBIDDEN {
        for (reach, refused) in [(Reach::Public, true), (Reach::Private, !opened)] {
            if !refused {
                // An attempt could really connect: to this machine or to one nearby.
                continue;
            }
            let good: SocketAddr = "192.0.0.9:9".parse().unwrap();
            for answers in [vec![address.parse().unwrap()], vec![good, address.parse().unwrap()]] {
                let world = World::in_turn([("api.test:7000", vec![answers])]);
                let cell = Cell::open(&["api.test:7000"], &world, reach);
                let answer = tunnel(&cell).await;
                assert!(answer.starts_with("HTTP/1.1 403"), "{address} {reach:?}: {answer}");
                assert_eq!(rest(&mut cell.connect("api.test", 7000).await).await, "", "{address}");
                let events = cell.events();
                assert!(events.len() == 2 && events.iter().all(|event| event.starts_with("refused ")), "{events:?}");
            }
        }
    }
}

#[tokio::test]
async fn what_was_not_declared_by_the_user_must_be_public_where_the_rest_may_be_near() {
    let server = Server::echo().await;
    let world = World::of(&[("index.test:7000", server.address), ("files.test:7000", server.address)]);
    let list = ["index.test:7000", "files.test:7000"].map(str::to_owned);
    let cell = Cell::of(AllowedDestinations::of_entries(&list).public(&list[1..]), &world, Reach::Private);
    let mut near = cell.connect("index.test", 7000).await;
    near.write_all(b"x").await.unwrap();
    near.read_exact(&mut [0]).await.unwrap();
    let mut refused = cell.connect("files.test", 7000).await;
    // It may be closed already.
    let _ = refused.write_all(b"x").await;
    assert_eq!(refused.read(&mut [0]).await.unwrap_or(0), 0, "nobody answers");
    let events = cell.events();
    assert!(events[0].starts_with("allowed tcp index.test:7000"), "{events:?}");
    assert!(events[1].starts_with("refused tcp files.test:7000"), "{events:?}");
}

#[tokio::test]
async fn a_declared_address_is_checked_as_a_name_is() {
    let world = World::of(&[]);
    let cell = Cell::open(&["10.0.0.1:7000", "169.254.169.254:7000"], &world, Reach::Public);
    for address in ["10.0.0.1:7000", "169.254.169.254:7000"] {
        let answer = say(cell.proxy().await, &format!("CONNECT {address} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    }
    let server = Server::echo().await;
    let declared = server.address.to_string();
    let cell = Cell::open(&[&declared], &world, Reach::Private);
    let mut stream = cell.proxy().await;
    stream.write_all(format!("CONNECT {declared} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
}

#[tokio::test]
async fn a_name_that_resolves_differently_is_checked_again() {
    let server = Server::echo().await;
    let inside: SocketAddr = "169.254.169.254:7000".parse().unwrap();
    let world = World::in_turn([("api.test:7000", vec![vec![server.address], vec![inside]])]);
    let cell = Cell::open(&["api.test:7000"], &world, Reach::Private);
    let mut first = cell.connect("api.test", 7000).await;
    first.write_all(b"x").await.unwrap();
    assert_eq!(first.read_u8().await.unwrap(), b'x');
    assert_eq!(world.asked.lock().unwrap().len(), 1, "checked and connected on one answer");
    assert_eq!(rest(&mut cell.connect("api.test", 7000).await).await, "");
    assert!(cell.events()[1].contains("a cloud metadata address"), "{:?}", cell.events());
}

#[tokio::test]
async fn an_address_without_a_name_is_refused() {
    let server = Server::http().await;
    let world = World::of(&[("api.test:80", server.address)]);
    let cell = Cell::open(&["api.test:80"], &world, Reach::Private);
    for port in [80, 443, 7000] {
        for address in ["127.0.0.1", "127.64.0.2", "127.1.2.3"] {
            let stream = cell.connect_to(address.parse::<Ipv4Addr>().unwrap(), port).await;
            assert_eq!(say(stream, "GET / HTTP/1.1\r\nHost: api.test\r\n\r\n").await, "");
            let told = cell.events().pop().unwrap();
            assert!(told.ends_with(&format!("{address}:{port} an address that belongs to no declared name")), "{told}");
        }
    }
    // A declared name, with a port that is not declared.
    assert_eq!(rest(&mut cell.connect("api.test", 443).await).await, "");
    assert!(cell.events().pop().unwrap().starts_with("refused tls api.test:443 not declared"));
    assert!(server.heard().is_empty());
}

#[tokio::test]
async fn a_name_that_carries_data_never_leaves_the_machine() {
    let world = World::of(&[]);
    let cell = Cell::open(&["api.test:443"], &world, Reach::Private);
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let question = |name: &str| {
        let mut bytes = vec![0, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            bytes.push(u8::try_from(label.len()).unwrap());
            bytes.extend_from_slice(label.as_bytes());
        }
        bytes.extend_from_slice(&[0, 0, 1, 0, 1]);
        bytes
    };
    let mut reply = [0; 512];
    for (name, code) in [("c2VjcmV0.api.test", 3), ("api.test", 0)] {
        socket.send_to(&question(name), cell.resolver).await.unwrap();
        let size = socket.recv(&mut reply).await.unwrap();
        assert_eq!(reply[3] & 0xf, code, "{name}");
        let mut stream = cell.connect_to(Ipv4Addr::LOCALHOST, 53).await;
        let asked = question(name);
        stream.write_u16(u16::try_from(asked.len()).unwrap()).await.unwrap();
        stream.write_all(&asked).await.unwrap();
        let mut same = vec![0; usize::from(stream.read_u16().await.unwrap())];
        stream.read_exact(&mut same).await.unwrap();
        assert_eq!(same, reply[..size]);
    }
    assert_eq!(reply[..512].iter().filter(|byte| **byte == 64).count(), 1, "127.64.0.1");
    assert!(world.asked.lock().unwrap().is_empty());
    assert_eq!(cell.events().len(), 1, "{:?}", cell.events());
    assert!(cell.events()[0].starts_with("refused dns c2VjcmV0.api.test:53 not declared"), "{:?}", cell.events());
}

#[test]
fn a_cell_that_may_reach_nothing_has_a_resolver_alone() {
    let wanted = ProxyListeners::wanted(&AllowedDestinations::default());
    let shown: Vec<_> = wanted.iter().map(|listener| format!("{:?} {}", listener.protocol, listener.address)).collect();
    assert_eq!(shown, ["Udp 127.0.0.1:53"]);
}

#[test]
fn a_cell_listens_on_declared_ports_and_on_common_ones() {
    let declared: AllowedDestinations =
        ["db.test:5432", "api.test:443"].map(|text| text.parse().unwrap()).into_iter().collect();
    let wanted = ProxyListeners::wanted(&declared);
    let shown: Vec<_> = wanted.iter().map(|listener| format!("{:?} {}", listener.protocol, listener.address)).collect();
    assert_eq!(
        shown,
        [
            "Udp 127.0.0.1:53",
            "Tcp 0.0.0.0:53",
            "Tcp 0.0.0.0:80",
            "Tcp 0.0.0.0:443",
            "Tcp 0.0.0.0:3128",
            "Tcp 0.0.0.0:5432"
        ]
    );
    let bind = |n| (0..n).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap().into()).collect();
    assert!(ProxyListeners::bound(&declared, bind(5)).is_none() && ProxyListeners::bound(&declared, bind(7)).is_none());
    let ports: Vec<_> =
        ProxyListeners::bound(&declared, bind(6)).unwrap().ports.iter().map(|(port, _)| *port).collect();
    assert_eq!(ports, [53, 80, 443, 3128, 5432]);
}
