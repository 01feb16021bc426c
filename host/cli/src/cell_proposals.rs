//! Proposals of the cells that widely used servers are known to need, for the person who adds one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use portcullis::config::{Config, Endpoint, SourceConfig, add_to_cell, comment_on_cell};
use portcullis::name::SourceName;
use portcullis::secret::ConfigValue;
use portcullis_learn::{CellLine, KnownServer};

use crate::command::learn;
use crate::output::escape_hidden;
use crate::path_guess::PathGuess;

/// The cell lines and variables that a server is known to need and that its source does not have.
pub(crate) struct UnmetNeeds {
    /// The server that the source starts.
    pub(crate) server: &'static KnownServer,
    /// The lines that the source's cell lacks.
    pub(crate) lines: Vec<CellLine>,
    /// The variables that the source is not given.
    pub(crate) variables: Vec<&'static str>,
}

impl UnmetNeeds {
    /// Returns what a source lacks, or `None` if its server is not known or lacks nothing. Lines that would open one of
    /// these files of the broker are left out, as no source gets them.
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

/// The text of a configuration with proposed cells, and what a person should know about it.
pub(crate) struct Proposed {
    pub(crate) text: String,
    pub(crate) notes: Vec<String>,
    /// The programs among the sources whose servers are not known, in the order of their names.
    pub(crate) unknown: Vec<UnknownServer>,
}

/// A source whose server is not known: nobody has measured its needs.
pub(crate) struct UnknownServer {
    pub(crate) name: SourceName,
    /// True if its cell has lines that were guessed from its arguments.
    pub(crate) is_guessed: bool,
}

/// Adds to the text of a configuration the known needs of the sources that `before` does not have, or guesses from
/// their arguments, each with its reason as a comment.
///
/// # Errors
/// If the text is not a valid configuration.
pub(crate) fn propose(text: &str, file: &Path, before: &Config) -> anyhow::Result<Proposed> {
    let config = Config::parse(text, file)?;
    let own = config.own_files();
    let mut proposed = Proposed { text: text.to_owned(), notes: Vec::new(), unknown: Vec::new() };
    let is_new = |name: &SourceName| !before.sources.contains_key(name) && !before.disabled.contains_key(name);
    let all = config.sources.iter().chain(&config.disabled);
    for (name, source) in all.filter(|(name, _)| is_new(name)) {
        let Endpoint::Command { argv, .. } = &source.endpoint else { continue };
        let known = UnmetNeeds::of(source, &own);
        if known.is_none() && KnownServer::started_by(argv).is_some() {
            // It has all that it needs.
            continue;
        }
        let is_known = known.is_some();
        let unknown = |is_guessed| (!is_known).then(|| UnknownServer { name: name.clone(), is_guessed });
        let (lines, reasons) = match &known {
            Some(lack) => (lack.lines.clone(), vec![format!("Proposed: {} ({})", lack.server.package, lack.origin())]),
            None => {
                let guess = PathGuess::of(source, &own);
                proposed.notes.extend(guess.refused.iter().map(|refused| format!("{name}: {refused}")));
                let reason = |line: &CellLine| {
                    let evidence = line.evidence.join(", ");
                    let reason = format!("Guessed: {} {}, because {evidence}", line.key.as_str(), line.value);
                    escape_hidden(&reason).into_owned()
                };
                let reasons = guess.lines.iter().map(reason).collect();
                (guess.lines, reasons)
            }
        };
        if let Some(lack) = known.filter(|lack| !lack.variables.is_empty()) {
            proposed.notes.push(format!("{name}: it is known to need {}", lack.variables.join(", ")));
        }
        if lines.is_empty() {
            proposed.unknown.extend(unknown(false));
            continue;
        }
        let pairs: Vec<(&str, &str)> = lines.iter().map(|line| (line.key.as_str(), line.value.as_str())).collect();
        let added = add_to_cell(&proposed.text, name.as_str(), &pairs)
            .and_then(|added| comment_on_cell(&added, name.as_str(), &reasons));
        match added.map_err(anyhow::Error::from).and_then(|added| Ok(Config::parse(&added, file).map(|_| added)?)) {
            Ok(added) => {
                proposed.text = added;
                proposed.unknown.extend(unknown(true));
                let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("{key} {value}")).collect();
                let reasons = reasons.join("; ");
                proposed.notes.push(format!("{name}: its cell is a proposal, {} ({reasons})", pairs.join(", ")));
            }
            Err(error) => {
                proposed.notes.push(format!("{name}: no cell is proposed, since it would not be valid: {error}"));
                proposed.unknown.extend(unknown(false));
            }
        }
    }
    Ok(proposed)
}
