//! The sources that can offer a tool, by its exposed name.

use super::{Config, Naming, SourceConfig};

impl Config {
    /// Disables each source that cannot offer a tool with this exposed name, so that one call starts no more than it
    /// needs. If no source can, all stay.
    #[doc(hidden)]
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
        // A name that is too long is shortened at its end, far behind the longest prefix.
        tool.strip_prefix(&prefix).is_some_and(|own| !own.is_empty())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::path::Path;

    use super::*;

    fn left(tool: &str) -> Vec<String> {
        let source = |name: &str, more: &str| format!("[sources.{name}]\ncommand = [\"/bin/a\"]\n{more}\n");
        let file = [
            source("a", ""),
            source("a-b", ""),
            source("m", "names = \"mcp\""),
            source("mcp", ""),
            source("p", "names = { prefix = \"a-\" }"),
        ];
        let mut config = Config::parse(&file.concat(), Path::new("/tmp/portcullis.toml")).unwrap();
        config.disable_all_without(tool);
        assert_eq!(config.sources.len() + config.disabled.len(), file.len());
        config.sources.keys().map(ToString::to_string).collect()
    }

    #[test]
    fn one_call_starts_the_sources_that_may_have_the_tool_and_no_other() {
        assert_eq!(left("a__read"), ["a"]);
        assert_eq!(left("a-b__read"), ["a-b", "p"]);
        assert_eq!(left("a-x"), ["p"]);
        assert_eq!(left("mcp__m__read"), ["m", "mcp"]);
        for of_none in ["read", "a__", "search_tools"] {
            assert_eq!(left(of_none).len(), 5, "{of_none}");
        }
    }
}
