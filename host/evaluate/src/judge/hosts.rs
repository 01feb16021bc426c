//! The hosts that a source reached for.

use std::collections::BTreeSet;

use portcullis_cell::{AttemptAction, AttemptSubject};
use portcullis_learn::calls::EXAMPLE_HOST;
use portcullis_net::egress::MessageProtocol;

use super::SelfDescription;
use super::sent_texts::parent;
use crate::finding::{FindingLevel, FindingList, HOST, RAW_ADDRESS};
use crate::observation::Observation;

/// The largest number of undeclared names that are reported of one run, each counted once for every channel.
const MAX_HOSTS: usize = 100;

pub(super) fn judge(run: &Observation, declared: &SelfDescription, findings: &mut FindingList) {
    let mut hosts: BTreeSet<(&str, &'static str)> = BTreeSet::new();
    for message in &run.sent {
        hosts.insert((&message.host, message.channel.as_str()));
    }
    let refused = run.attempts.iter().filter_map(|attempt| match &attempt.subject {
        AttemptSubject::Host(host, _) => Some((host.as_str(), "DNS")),
        _ => None,
    });
    hosts.extend(refused);
    // A name that was then connected to is one finding.
    let reached: BTreeSet<&str> = run
        .sent
        .iter()
        .filter(|message| message.channel != MessageProtocol::Dns)
        .map(|message| message.host.as_str())
        .collect();
    let unnamed = hosts.iter().filter(|(host, _)| !declared.names_host(host) && !is_asked_for(host));
    let unnamed = unnamed.filter(|(host, channel)| *channel != "DNS" || !reached.contains(host));
    for (host, channel) in unnamed.filter(|(host, _)| *host != "localhost").take(MAX_HOSTS) {
        let owner = if host.parse::<std::net::IpAddr>().is_ok() { (*host).to_owned() } else { parent(host) };
        findings.add(HOST, FindingLevel::Warning, &owner, Some(run.condition), &format!("{host}, by {channel}"));
    }
    for attempt in run.attempts.iter().filter(|attempt| attempt.action == AttemptAction::Connect) {
        let AttemptSubject::Address(address) = &attempt.subject else { continue };
        // Port 0 is how the C library asks which of its addresses would be used.
        if address.port() == 0 || address.ip().to_canonical().is_loopback() {
            continue;
        }
        let named = declared.hosts.name(&address.ip().to_string());
        let level = if named { FindingLevel::Note } else { FindingLevel::Warning };
        findings.add(RAW_ADDRESS, level, &address.to_string(), Some(run.condition), &run.at(attempt.after));
    }
}

/// Reports whether a call asks for a host: the arguments that are made here name one, and those that a schema names are
/// words of the source.
fn is_asked_for(host: &str) -> bool {
    host.trim_end_matches('.').eq_ignore_ascii_case(EXAMPLE_HOST)
}

/// The words of a text that may be the name of a host or an address, in lower case and backwards, so that a name comes
/// directly before the names below it. Asking for one reads nothing again: a source may reach for thousands of hosts.
pub(super) struct HostWords(BTreeSet<String>);

impl HostWords {
    pub(super) fn of(text: &str) -> Self {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
        let names = text.split(|c| !is_part(c));
        // An address of IPv6 has colons, which end a name.
        let addresses = text.split(|c| !is_part(c) && c != ':');
        let words =
            names.chain(addresses).map(|word| word.trim_matches(['.', '-', '_'])).filter(|word| !word.is_empty());
        Self(words.map(backwards).collect())
    }

    /// Reports whether the text names a host, or one below it.
    pub(super) fn name(&self, host: &str) -> bool {
        let host = backwards(host.trim_end_matches('.'));
        let below = format!("{host}.");
        self.0.contains(&host) || self.0.range(below.clone()..).next().is_some_and(|word| word.starts_with(&below))
    }
}

fn backwards(word: &str) -> String {
    word.chars().rev().flat_map(char::to_lowercase).collect()
}
