//! The sources that can offer a tool, by its exposed name.

use super::{Config, Naming, SourceConfig};

/// The length in bytes up to which the exposed name of a tool surely keeps the beginning of its full name. A longer name
/// is shortened further behind.
const KEPT_BYTES: usize = 40;

impl Config {
    /// Disables each source that cannot offer a tool with this exposed name, so that one call starts no more than it
    /// needs. If no source can, all stay.
    pub fn disable_all_without(&mut self, tool: &str) {
        if !self.sources.values().any(|source| source.may_offer(tool)) {
            return;
        }
        let (kept, others) = std::mem::take(&mut self.sources).into_iter().partition(|(_, it)| it.may_offer(tool));
        self.sources = kept;
        self.disabled.extend(others);
    }
}

impl SourceConfig {
    /// Reports whether an exposed tool with this name may be one of the source's.
    fn may_offer(&self, tool: &str) -> bool {
        let source = self.offered_as();
        let prefix = match &self.names {
            Naming::Plain => return true,
            Naming::Source => format!("{source}__"),
            Naming::Mcp => format!("mcp__{source}__"),
            Naming::Prefix(prefix) => prefix.clone(),
        };
        let kept = prefix.bytes().zip(tool.bytes()).take(KEPT_BYTES);
        tool.len() > prefix.len().min(KEPT_BYTES) && kept.into_iter().all(|(ours, theirs)| ours == theirs)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::path::Path;

    use super::*;

    fn left(tool: &str) -> Vec<String> {
        let long = "long-".repeat(12);
        let file = format!(
            "[sources.a]\ncommand = [\"/bin/a\"]\n[sources.a__b]\ncommand = [\"/bin/a\"]\n[sources.mcp]\ncommand = \
             [\"/bin/a\"]\nnames = \"mcp\"\n[sources.{long}]\ncommand = [\"/bin/a\"]\n[sources.pre]\ncommand = \
             [\"/bin/a\"]\nnames = {{ prefix = \"p_\" }}\n"
        );
        let mut config = Config::parse(&file, Path::new("/tmp/portcullis.toml")).unwrap();
        config.disable_all_without(tool);
        assert_eq!(config.sources.len() + config.disabled.len(), 5);
        config.sources.keys().map(|name| name.to_string().replace(&long, "long")).collect()
    }

    #[test]
    fn one_call_starts_the_sources_that_may_have_the_tool_and_no_other() {
        assert_eq!(left("a__read"), ["a"]);
        assert_eq!(left("a__b__read"), ["a", "a__b"]);
        assert_eq!(left("mcp__mcp__read"), ["mcp"]);
        assert_eq!(left("p_read"), ["pre"]);
        assert_eq!(left("long-long-long-long-long-long-long-long-long-long-long-long_8f3a2b1c"), ["long"]);
        for of_none in ["read", "a__", "search_tools"] {
            assert_eq!(left(of_none).len(), 5, "{of_none}");
        }
    }
}
