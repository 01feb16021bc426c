//! The end of connections, and the limit on their number.

use super::super::MAX_CONNECTIONS;
use super::*;

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1_000_000 {
        if holds() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("in vain: {what}");
}

async fn tunnel(cell: &Cell) -> TcpStream {
    let mut stream = cell.connect("db.test", 7000).await;
    stream.write_all(b"x").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'x');
    stream
}

#[tokio::test]
async fn tunnels_do_not_outlive_their_source() {
    let server = Server::echo().await;
    let world = World::of(&[("db.test:7000", server.address)]);
    let cell = Cell::open(&["db.test:7000"], &world, Reach::Private);
    let mut stream = tunnel(&cell).await;
    let ports: Vec<_> = cell.ports.values().copied().collect();
    cell.proxy.close().await;
    assert_eq!(rest(&mut stream).await, "");
    until("the far side is closed", || server.heard().contains(&"closed".into())).await;
    for port in ports {
        assert!(TcpStream::connect(("127.0.0.1", port)).await.is_err(), "a listener is left");
    }
}

#[tokio::test]
async fn a_dropped_proxy_ends_its_connections_and_records_what_it_counted() {
    let server = Server::echo().await;
    let world = World::of(&[("db.test:7000", server.address)]);
    let cell = Cell::open(&["db.test:7000"], &world, Reach::Private);
    let (mut first, mut second) = (tunnel(&cell).await, tunnel(&cell).await);
    let Cell { proxy, events, .. } = cell;
    drop(proxy);
    assert_eq!((rest(&mut first).await, rest(&mut second).await), (String::new(), String::new()));
    let counts: Vec<_> = events.lock().unwrap().iter().map(|event| event["count"].clone()).collect();
    assert_eq!(counts, [1, 1], "the second as a repeat");
}

/// A connection may arrive while the source ends, before its task learns of it.
#[tokio::test]
async fn what_is_being_connected_when_the_source_ends_is_recorded() {
    let server = Server::echo().await;
    let world = World::of(&[("db.test:7000", server.address)]);
    let cell = Cell::open(&["db.test:7000"], &world, Reach::Private);
    let _open = tunnel(&cell).await;
    // Each of them has begun, and none has been polled again since.
    let to = "db.test:7000".parse().unwrap();
    let shared = Arc::clone(&cell.proxy.shared);
    let begun: Vec<_> = (0..3).map(|_| shared.journal.begin(EgressService::Tcp, &to)).collect();
    let Cell { proxy, events, .. } = cell;
    drop(proxy);
    for attempt in begun {
        attempt.end(|journal| journal.allowed(EgressService::Tcp, &to));
    }
    let counted: Vec<_> =
        events.lock().unwrap().iter().map(|event| (event["count"].clone(), event["error"].clone())).collect();
    let given_up = "given up before it was known whether it arrived";
    assert_eq!(counted, [(1.into(), Value::Null), (1.into(), given_up.into()), (2.into(), given_up.into())]);
}

#[tokio::test]
async fn connections_of_all_processes_beyond_the_limit_are_refused() {
    let server = Server::echo().await;
    let world = World::of(&[("db.test:7000", server.address)]);
    let egress = Egress::with_lookup(world);
    let process =
        || Cell::behind(egress.clone(), ["db.test:7000".parse().unwrap()].into_iter().collect(), Reach::Private);
    let (first, second) = (process(), process());
    let room = Arc::clone(&egress.connections);
    assert_eq!(room.available_permits(), MAX_CONNECTIONS);
    let taken = room.try_acquire_many_owned(u32::try_from(MAX_CONNECTIONS).unwrap() - 1).unwrap();
    let one = tunnel(&first).await;
    for full in [&first, &second] {
        assert_eq!(rest(&mut full.connect("db.test", 7000).await).await, "");
        assert!(full.events().pop().unwrap().contains("more than 256 connections"), "{:?}", full.events());
    }
    drop(one);
    until("the room is free again", || egress.connections.available_permits() == 1).await;
    drop(tunnel(&second).await);
    drop(taken);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_says_nothing_is_not_waited_for() {
    let world = World::of(&[]);
    let cell = Cell::open(&["api.test:80", "api.test:443"], &world, Reach::Private);
    for port in [80, 443] {
        let mut stream = cell.connect("api.test", port).await;
        stream.write_all(b"\x16\x03\x01").await.unwrap();
        rest(&mut stream).await;
    }
    rest(&mut cell.proxy().await).await;
    rest(&mut cell.connect_to(Ipv4Addr::LOCALHOST, 53).await).await;
}

#[tokio::test]
async fn a_host_that_does_not_answer_is_recorded_with_its_error() {
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = unused.local_addr().unwrap();
    drop(unused);
    let world = World::of(&[("db.test:7000", address)]);
    let cell = Cell::open(&["db.test:7000", "gone.test:7000"], &world, Reach::Private);
    assert_eq!(rest(&mut cell.connect("db.test", 7000).await).await, "");
    let answer = say(cell.proxy().await, "CONNECT gone.test:7000 HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("no such name"), "{answer}");
    let events = cell.events();
    assert!(events[0].starts_with("allowed tcp db.test:7000 cannot connect to `db.test:7000`"), "{events:?}");
    assert!(events[1].starts_with("allowed proxy gone.test:7000 `gone.test` cannot be resolved"), "{events:?}");
}
