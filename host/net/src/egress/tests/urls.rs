//! Every spelling of an address that may not be reached.

use std::net::Ipv4Addr;

use proptest::prelude::*;
use url::Url;

use super::super::{Reach, target};

/// Reports whether the URL is refused, by the parser or by the check.
fn refused(url: &str, reach: Reach) -> bool {
    Url::parse(url).map_or(true, |url| target::check(&url, reach).is_err())
}

/// Hosts that are refused unless `dangerous-allow-private` is set.
const NEAR: &[&str] = &[
    // loopback, in every notation
    "127.0.0.1",
    "127.0.0.1:8080",
    "127.1",
    "127.0.0.0x",
    "127.0.1",
    "127.255.255.254",
    "2130706433",
    "0x7f000001",
    "0x7F000001",
    "0x7f.1",
    "0x7f.0.0.1",
    "0x7f.0x0.0x0.0x1",
    "017700000001",
    "0177.0.0.1",
    "0177.0.0.01",
    "00000177.1",
    "127.0.0.1.",
    "%31%32%37.0.0.1",
    "127%2e0.0.1",
    "127。0。0。1",
    "127．0．0．1",
    "１２７.0.0.1",
    "①②⑦.0.0.1",
    "[::1]",
    "[::1]:443",
    "[0:0:0:0:0:0:0:1]",
    "[0000:0000:0000:0000:0000:0000:0000:0001]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::FFFF:7F00:0001]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "localhost",
    "LOCALHOST",
    "LocalHost:9000",
    "a.localhost",
    "deep.er.localhost",
    "ｌｏｃａｌｈｏｓｔ",
    "%6c%6f%63%61%6c%68%6f%73%74",
    // private
    "10.0.0.0",
    "10.0.0.1",
    "10.255.255.255",
    "10.1",
    "167772161",
    "0xa000001",
    "012.1",
    "172.16.0.1",
    "172.31.255.255",
    "172.16.1",
    "192.168.0.1",
    "192.168.257",
    "3232235521",
    "0xc0.0xa8.0.1",
    "0300.0250.0.1",
    "[::ffff:10.0.0.1]",
    "[::ffff:192.168.0.1]",
    "[64:ff9b::10.0.0.1]",
    "[fc00::1]",
    "[fd12:3456:789a::1]",
    "[fec0::1]",
    "[2001:470::5efe:10.0.0.1]",
    // shared carrier addresses
    "100.64.0.1",
    "100.127.255.255",
    "1681915905",
    // link-local
    "169.254.0.1",
    "169.254.1",
    "[fe80::1]",
    "[febf::1]",
    // documentation
    "192.0.2.1",
    "198.51.100.7",
    "203.0.113.7",
    "[2001:db8::1]",
    "[3fff::1]",
];

/// Hosts that no setting allows.
const NEVER: &[&str] = &[
    // metadata
    "169.254.169.254",
    "169.254.169.254.",
    "2852039166",
    "0xa9fea9fe",
    "0xA9.0xFE.0xA9.0xFE",
    "0251.0376.0251.0376",
    "169.254.43518",
    "169.16689662",
    "025177524776",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[64:ff9b::169.254.169.254]",
    "[2002:a9fe:a9fe::1]",
    "[::169.254.169.254]",
    "[2001:470::5efe:169.254.169.254]",
    "[fe80::a9fe:a9fe]",
    "[fd00:ec2::254]",
    "[fd00:ec2::23]",
    "[fd20:ce::254]",
    "169.254.170.2",
    "169.254.170.23",
    "169.254.0.23",
    "169.254.42.42",
    "[fd00:42::42]",
    "[fd00:a9fe:a9fe::1]",
    "100.100.100.200",
    "1684301000",
    "192.0.0.192",
    "168.63.129.16",
    // reserved, broadcast, multicast, benchmarks
    "0.0.0.0",
    "0",
    "0x0",
    "0.0.0.1",
    "[::]",
    "[::ffff:0.0.0.0]",
    "192.0.0.8",
    "192.88.99.1",
    "198.18.0.1",
    "198.19.255.255",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.254",
    "255.255.255.255",
    "4294967295",
    "0xffffffff",
    "[ff02::1]",
    "[ff0e::1]",
    "[2001:2::1]",
    "[2001:10::1]",
    "[100::1]",
    "[5f00::1]",
    "[4000::1]",
    // IPv4 addresses embedded in IPv6 forms that the open internet does not use
    "[::127.0.0.1]",
    "[::8.8.8.8]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b:1::127.0.0.1]",
    "[2002:7f00:1::]",
    "[2002:0a00:1::]",
    "[2002:808:808::1]",
    "[2001:0:7f00:1::]",
    "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
    // invalid for other reasons: trailing dots, credentials, port 0, zones
    "localhost.",
    "example.com.",
    "a.localhost.",
    "user@example.com",
    "user:password@example.com",
    "example.com@127.0.0.1",
    ":secret@example.com",
    "example.com:0",
    "93.184.215.14:0",
    "[fe80::1%25eth0]",
    "[fe80::1%eth0]",
    "[::1%251]",
    "256.0.0.1",
    "1.2.3.4.5",
    "4294967296",
    "0x100000000",
    "[::1",
    "::1",
    " ",
    ".",
    "..",
];

const PUBLIC: &[&str] = &[
    "example.com",
    "mcp.example.com:8443",
    "localhost.example.com",
    "notlocalhost",
    "xn--bcher-kva.example",
    "1.1.1.1",
    "8.8.8.8",
    "134744072",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.1",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "[2606:4700:4700::1111]",
    "[2a00:1450:4001::1]",
    "[::ffff:8.8.8.8]",
    "[64:ff9b::8.8.8.8]",
];

#[test]
fn near_addresses_need_the_opt_in() {
    for host in NEAR {
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{host}/mcp");
            assert!(refused(&url, Reach::Public), "{url} was let through");
            assert!(!refused(&url, Reach::Private), "{url} was refused in spite of the opt-in");
        }
    }
}

#[test]
fn other_addresses_are_refused_whatever_the_setting() {
    for host in NEVER {
        for reach in [Reach::Public, Reach::Private] {
            let url = format!("http://{host}/latest/meta-data");
            assert!(refused(&url, reach), "{url} was let through with {reach:?}");
        }
    }
}

#[test]
fn other_schemes_are_refused() {
    for url in [
        "file:///etc/passwd",
        "ftp://example.com/",
        "gopher://example.com/",
        "ws://example.com/",
        "data:,x",
        "unix:/run/x",
    ] {
        assert!(refused(url, Reach::Private), "{url}");
    }
}

#[test]
fn the_internet_is_open() {
    for host in PUBLIC {
        for reach in [Reach::Public, Reach::Private] {
            assert!(!refused(&format!("https://{host}/mcp"), reach), "{host} was refused with {reach:?}");
        }
    }
}

#[test]
fn a_refusal_names_host_address_reason_and_way_out() {
    let error = |url: &str| target::check(&Url::parse(url).unwrap(), Reach::Public).unwrap_err().to_string();
    assert_eq!(
        error("http://0x7f.1:3000/mcp?key=s3cret"),
        "connecting to `127.0.0.1` (127.0.0.1) is refused: it is a loopback address; \
         if that is intended, set `dangerous-allow-private = true` in the source"
    );
    assert_eq!(
        error("http://[::ffff:169.254.169.254]/"),
        "connecting to `[::ffff:a9fe:a9fe]` (::ffff:169.254.169.254) is refused: it is a cloud metadata address; \
         no setting allows it"
    );
    let credentials = error("https://user:hunter2@example.com/mcp?key=s3cret");
    assert!(credentials.contains("`https://example.com/mcp`") && !credentials.contains("hunter2"), "{credentials}");
}

/// Returns the spellings of one address that URL parsers accept.
fn spellings(address: Ipv4Addr) -> Vec<String> {
    let number = u32::from(address);
    let [a, b, c, d] = address.octets();
    let (low16, low24) = (number & 0xffff, number & 0x00ff_ffff);
    let (high, low) = (number >> 16, number & 0xffff);
    vec![
        format!("{a}.{b}.{c}.{d}"),
        format!("{a}.{b}.{c}.{d}."),
        format!("{number}"),
        format!("{number:#x}"),
        format!("0x{number:08X}"),
        format!("0{number:o}"),
        format!("{a}.{low24}"),
        format!("{a}.{b}.{low16}"),
        format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("0{a:o}.{b}.{low16:#x}"),
        format!("%3{}{}.{b}.{c}.{d}", a.to_string().as_bytes()[0] - b'0', &a.to_string()[1..]),
        format!("{a}\u{3002}{b}\u{ff0e}{c}\u{ff61}{d}"),
        format!("[::ffff:{a}.{b}.{c}.{d}]"),
        format!("[::ffff:{high:x}:{low:x}]"),
        format!("[0:0:0:0:0:FFFF:{high:04X}:{low:04X}]"),
        format!("[64:ff9b::{high:x}:{low:x}]"),
    ]
}

/// The ranges again, as IANA lists them, written down independently of the code under test.
const FORBIDDEN: &[(&str, u32)] = &[
    ("0.0.0.0", 8),
    ("10.0.0.0", 8),
    ("100.64.0.0", 10),
    ("127.0.0.0", 8),
    ("168.63.129.16", 32),
    ("169.254.0.0", 16),
    ("172.16.0.0", 12),
    ("192.0.0.0", 24),
    ("192.0.2.0", 24),
    ("192.88.99.0", 24),
    ("192.168.0.0", 16),
    ("198.18.0.0", 15),
    ("198.51.100.0", 24),
    ("203.0.113.0", 24),
    ("224.0.0.0", 4),
    ("240.0.0.0", 4),
];

fn is_forbidden(address: Ipv4Addr) -> bool {
    FORBIDDEN.iter().any(|(base, bits)| {
        let base: Ipv4Addr = base.parse().unwrap();
        (u32::from(base) ^ u32::from(address)).leading_zeros() >= *bits
    })
}

proptest! {
    #[test]
    fn forbidden_ranges_are_refused_in_every_spelling(range in 0..FORBIDDEN.len(), host: u32) {
        let (base, bits) = FORBIDDEN[range];
        let mask = u32::MAX.checked_shr(bits).unwrap_or(0);
        let address = Ipv4Addr::from(u32::from(base.parse::<Ipv4Addr>().unwrap()) | host & mask);
        for spelling in spellings(address) {
            prop_assert!(refused(&format!("http://{spelling}/"), Reach::Public), "{} as {}", address, spelling);
        }
    }

    #[test]
    fn everything_else_is_let_through_in_every_spelling(number: u32) {
        let address = Ipv4Addr::from(number);
        prop_assume!(!is_forbidden(address));
        for spelling in spellings(address) {
            prop_assert!(!refused(&format!("http://{spelling}/"), Reach::Public), "{} as {}", address, spelling);
        }
    }
}
