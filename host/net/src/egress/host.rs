//! Host names.

/// The longest host name in DNS, in bytes.
const MAX_HOST_BYTES: usize = 253;

/// Reports whether a text is a DNS name, a dotted IPv4 address or an IPv6 address in brackets. Other notations of
/// addresses (`0x7f.1`, `2130706433`) are not accepted.
pub fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    if host.parse::<std::net::Ipv4Addr>().is_ok() {
        return true;
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_number = |label: &str| label.starts_with(|c: char| c.is_ascii_digit());
    host.len() <= MAX_HOST_BYTES
        && host.split('.').all(label)
        // No top-level domain starts with a digit, and every notation of an IPv4 address does.
        && !host.rsplit('.').next().is_some_and(is_number)
}
