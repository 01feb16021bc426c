//! What is said aloud before anything is served.

use portcullis::config::{Config, Endpoint};

use crate::output::{self, BOLD};

/// Says for every process source that its cell is declared and not enforced by this version.
pub(crate) fn cells(config: &Config) {
    let processes: Vec<_> = config
        .sources
        .values()
        .filter(|source| matches!(source.endpoint, Endpoint::Command { .. }))
        .map(|source| source.name.as_str())
        .collect();
    if !processes.is_empty() {
        output::note(&format!(
            "{BOLD}cells are not enforced by this version{BOLD:#}: {} can read and write what you can, and reach any \
             network. Their environment is cleared, their descriptors are closed, and their calls count as risky.",
            processes.join(", ")
        ));
    }
}
