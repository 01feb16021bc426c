//! Measures what the egress proxy costs: the same server over loopback, directly and through the proxy. A cell's
//! network adds nothing to that, since the sockets in it are the broker's own.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a bench")]

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use portcullis::egress::{AllowedDestinations, Destination, Egress, EgressProxy, ProxyListeners, Reach};
use portcullis_jail::SocketProtocol;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

const MEBIBYTE: usize = 1 << 20;

/// Starts an echo server and a proxy. Returns the proxy, and the addresses that lead to the server directly and through
/// the proxy.
async fn place() -> (EgressProxy, [(&'static str, SocketAddr); 2]) {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let direct = server.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = server.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    let declared: AllowedDestinations =
        [format!("localhost:{}", direct.port()).parse::<Destination>().unwrap()].into_iter().collect();
    let mut through = direct;
    let bound = ProxyListeners::wanted(&declared).into_iter().map(|listener| match listener.protocol {
        SocketProtocol::Udp | SocketProtocol::EveryUdp => {
            OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap())
        }
        SocketProtocol::Tcp => {
            let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            if listener.address.port() == direct.port() {
                through = (Ipv4Addr::LOCALHOST, socket.local_addr().unwrap().port()).into();
            }
            socket.into()
        }
    });
    let listeners = ProxyListeners::bound(&declared, bound.collect()).unwrap();
    let proxy = EgressProxy::open(
        Egress::new(),
        &"bench".parse().unwrap(),
        listeners,
        declared,
        Reach::Private,
        Default::default(),
        drop,
    )
    .unwrap();
    (proxy, [("direct", direct), ("proxy", through)])
}

async fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

async fn round_trip(stream: &mut TcpStream) {
    let mut answer = [0; 64];
    stream.write_all(&answer).await.unwrap();
    stream.read_exact(&mut answer).await.unwrap();
}

fn bench(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let (_outlet, ways) = runtime.block_on(place());
    let mut group = criterion.benchmark_group("egress/round-trip");
    for (way, address) in ways {
        let mut stream = runtime.block_on(connect(address));
        group.bench_function(way, |b| b.iter(|| runtime.block_on(round_trip(&mut stream))));
    }
    group.finish();
    // Includes the look-up of the name in the machine's own table.
    let mut group = criterion.benchmark_group("egress/connection");
    for (way, address) in ways {
        let once = || runtime.block_on(async { round_trip(&mut connect(address).await).await });
        group.bench_function(way, |b| b.iter(once));
    }
    group.finish();
    let mut group = criterion.benchmark_group("egress/mebibyte-both-ways");
    group.throughput(Throughput::Bytes(2 * MEBIBYTE as u64));
    for (way, address) in ways {
        let (mut from, mut to) = runtime.block_on(connect(address)).into_split();
        let (sent, mut back) = (vec![1; MEBIBYTE], vec![0; MEBIBYTE]);
        group.bench_function(way, |b| {
            b.iter(|| {
                runtime.block_on(async { tokio::try_join!(to.write_all(&sent), from.read_exact(&mut back)).unwrap() })
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
