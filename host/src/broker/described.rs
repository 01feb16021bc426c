//! The tools that sources offered when they last connected, for programs that complete names.

use std::collections::BTreeSet;

use crate::config::Config;
use crate::context::described_names;

/// Returns the names under which the tools of the configured sources were exposed when each last connected to a broker
/// of this configuration. A source that never did has none here.
///
/// Reads files of the data folder, and nothing else: it starts no source and asks no broker. Filters and the trust of a
/// profile are not applied.
#[must_use]
pub fn described_tools(config: &Config) -> BTreeSet<String> {
    config.sources.keys().flat_map(|source| described_names(&config.data_dir, source)).collect()
}
