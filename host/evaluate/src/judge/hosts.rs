//! The hosts that a source reached for.

use std::collections::BTreeSet;

use portcullis_cell::{AttemptAction, AttemptSubject};
use portcullis_net::egress::MessageProtocol;

use super::SelfDescription;
use super::sent_texts::parent;
use crate::finding::{FindingLevel, FindingList, HOST, RAW_ADDRESS};
use crate::observation::Observation;

/// The largest number of undeclared names that are reported of one run, each counted once for every channel.
const MAX_HOSTS: usize = 100;

pub(super) fn judge(run: &Observation, declared: &SelfDescription, findings: &mut FindingList) {
    let arguments: String = run.calls.iter().map(|call| call.arguments.to_string().to_ascii_lowercase()).collect();
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
    let unnamed =
        hosts.iter().filter(|(host, _)| !declared.names_host(host) && !arguments.contains(&host.to_ascii_lowercase()));
    let unnamed = unnamed.filter(|(host, channel)| *channel != "DNS" || !reached.contains(host));
    for (host, channel) in unnamed.filter(|(host, _)| *host != "localhost").take(MAX_HOSTS) {
        let owner = if host.parse::<std::net::IpAddr>().is_ok() { (*host).to_owned() } else { parent(host) };
        findings.add(HOST, FindingLevel::Warning, &owner, Some(run.condition), &format!("{host}, by {channel}"));
    }
    for attempt in run.attempts.iter().filter(|attempt| attempt.action == AttemptAction::Connect) {
        let AttemptSubject::Address(address) = &attempt.subject else { continue };
        // Port 0 is how the C library asks which of its addresses would be used.
        if address.port() == 0
            || address.ip().to_canonical().is_loopback()
            || arguments.contains(&address.ip().to_string())
        {
            continue;
        }
        let named = declared.text.contains(&address.ip().to_string());
        let level = if named { FindingLevel::Note } else { FindingLevel::Warning };
        findings.add(RAW_ADDRESS, level, &address.to_string(), Some(run.condition), &run.at(attempt.after));
    }
}
