//! The hosts that a source was refused because its cell does not list them, for messages that say so.

use std::collections::BTreeMap;
use std::time::Instant;

use portcullis_core::sync::Mutex;

use super::Destination;

/// The largest number of hosts that are kept. Beyond it, the one that was refused longest ago is forgotten.
const MAX_HOSTS: usize = 64;

/// The port that is meant if only a name was asked for.
const HTTPS: u16 = 443;

/// The hosts that a source was refused, each with the time of the last attempt.
#[derive(Debug, Default)]
pub struct RefusedHosts {
    hosts: Mutex<BTreeMap<Destination, Instant>>,
}

impl RefusedHosts {
    /// Notes a refused host. `port` is `None` if only its name was asked for.
    pub(super) fn add(&self, host: &str, port: Option<u16>) {
        let Some(destination) = Destination::new(host, port.unwrap_or(HTTPS)) else { return };
        let mut hosts = self.hosts.lock();
        hosts.insert(destination, Instant::now());
        if hosts.len() > MAX_HOSTS {
            let oldest = hosts.iter().min_by_key(|(_, at)| **at).map(|(host, _)| host.clone());
            oldest.and_then(|host| hosts.remove(&host));
        }
    }

    /// Returns the hosts that were refused since then, as `host:port`.
    #[must_use]
    pub fn since(&self, then: Instant) -> Vec<String> {
        let hosts = self.hosts.lock();
        hosts.iter().filter(|(_, at)| **at >= then).map(|(host, _)| host.to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_as_a_cell_lists_them() {
        let refused = RefusedHosts::default();
        refused.add("Old.test", None);
        let then = Instant::now();
        refused.add("api.test", None);
        refused.add("db.test", Some(5432));
        refused.add("no host", None);
        assert_eq!(refused.since(then), ["api.test:443", "db.test:5432"]);
        (0..1000).for_each(|n| refused.add(&format!("h{n}.test"), None));
        let kept = refused.since(then);
        assert_eq!(kept.len(), MAX_HOSTS);
        assert!(kept.contains(&"h999.test:443".to_owned()), "the newest is kept: {kept:?}");
    }
}
