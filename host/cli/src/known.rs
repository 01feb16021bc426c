//! Proposals of the cells that widely used servers are known to need, for the person who adds one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use portcullis::config::{Endpoint, SourceConfig};
use portcullis::secret::ConfigValue;
use portcullis_learn::{CellLine, KnownServer};

use crate::command::learn;

/// The lines and variables that a source lacks of those that its server is known to need.
pub(crate) struct UnmetNeeds {
    /// The server that the source starts.
    pub(crate) server: &'static KnownServer,
    /// The lines that the source's cell lacks.
    pub(crate) lines: Vec<CellLine>,
    /// The variables that the source is not given.
    pub(crate) variables: Vec<&'static str>,
}

impl UnmetNeeds {
    /// Returns what a source lacks, or `None` if its server is not known or lacks nothing. What would open one of these
    /// files of the broker's own is left out, as no source gets them.
    pub(crate) fn of(source: &SourceConfig, own: &[PathBuf]) -> Option<Self> {
        let Endpoint::Command { argv, cwd, env } = &source.endpoint else { return None };
        let server = KnownServer::started_by(argv)?;
        let plain: BTreeMap<String, String> = env
            .iter()
            .filter_map(|(name, value)| match value {
                ConfigValue::Plain(text) => Some((name.clone(), text.clone())),
                ConfigValue::Secret(_) => None,
            })
            .collect();
        let home = std::env::home_dir().filter(|home| home.is_absolute()).and_then(|home| home.canonicalize().ok());
        let mut lines = server.lines(argv, &plain, cwd.as_deref(), home.as_deref());
        lines.retain(|line| !learn::has(&source.cell, line) && !line.opens_any(own));
        let variables = server.environment.iter().filter(|name| !env.contains_key(*name)).map(String::as_str).collect();
        let lack = Self { server, lines, variables };
        (!lack.lines.is_empty() || !lack.variables.is_empty()).then_some(lack)
    }

    /// Returns the lack as switches of `wrap`, and where they come from.
    pub(crate) fn switches(&self) -> String {
        let lines = self.lines.iter().map(learn::switch);
        let variables = self.variables.iter().map(|name| format!("--env {name}=…"));
        let switches: Vec<String> = lines.chain(variables).collect();
        format!("{} is known to need {} ({})", self.server.package, switches.join(" "), self.origin())
    }

    /// Returns where the knowledge comes from, with the remark on the server if there is one.
    pub(crate) fn origin(&self) -> String {
        let KnownServer { version, measured, remark, .. } = self.server;
        let remark = remark.as_ref().map(|remark| format!("; {remark}")).unwrap_or_default();
        format!("measured with version {version} on {measured}{remark}")
    }
}

/// Adds to the text of a configuration what its sources are known to need, and returns it with a note for each source
/// that was changed.
///
/// # Errors
/// If the text is not a valid configuration.
pub(crate) fn propose(text: &str, file: &Path) -> anyhow::Result<(String, Vec<String>)> {
    let config = portcullis::config::Config::parse(text, file)?;
    let own = config.own_files();
    let (mut text, mut notes) = (text.to_owned(), Vec::new());
    for (name, source) in &config.sources {
        let Some(lack) = UnmetNeeds::of(source, &own) else { continue };
        let lines: Vec<(&str, &str)> = lack.lines.iter().map(|line| (line.key.as_str(), line.value.as_str())).collect();
        if !lines.is_empty() {
            text = portcullis::config::add_to_cell(&text, name.as_str(), &lines)?;
            let lines: Vec<String> = lines.iter().map(|(key, value)| format!("{key} {value}")).collect();
            notes.push(format!("{name}: its cell is a proposal, {} ({})", lines.join(", "), lack.origin()));
        }
        if !lack.variables.is_empty() {
            notes.push(format!("{name}: it is known to need {}", lack.variables.join(", ")));
        }
    }
    Ok((text, notes))
}
