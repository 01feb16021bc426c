//! The variables that a source asks for and is not given.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use portcullis::cell::{RecordedAttempt, package_name};
use portcullis::config::{Config, Endpoint};
use portcullis::name::SourceName;
use portcullis_learn::{VariableUse, variables_in, variables_read};
use serde_json::{Value, json};

use crate::output::escape_hidden;

/// The variables that a source is seen to ask for, each with the evidence.
pub(super) struct WantedVariables {
    /// The variables that the source is given.
    given: BTreeSet<String>,
    /// The package that the source comes from.
    package: Option<String>,
    wanted: BTreeMap<String, BTreeSet<String>>,
}

impl WantedVariables {
    /// Returns the record of a source for which nothing has been seen yet.
    pub(super) fn of(config: &Config, name: &SourceName) -> Self {
        let (given, package) = match config.sources.get(name).map(|source| &source.endpoint) {
            Some(Endpoint::Command { env, argv, .. }) => (env.keys().cloned().collect(), package_name(argv)),
            _ => (BTreeSet::new(), None),
        };
        Self { given, package, wanted: BTreeMap::new() }
    }

    /// Adds the variables that a message of the source names.
    pub(super) fn add_message(&mut self, text: &str) {
        variables_in(text).into_iter().for_each(|name| self.add(name, "its messages name it".to_owned()));
    }

    /// Adds the variables that the code reads which the source was seen to load. `named` are the files and folders that
    /// its command names.
    pub(super) fn add_code(&mut self, attempts: &[RecordedAttempt], named: &[PathBuf]) {
        for VariableUse { name, file, line } in variables_read(attempts, self.package.as_deref(), named) {
            self.add(name, format!("{}:{line} reads it", file.display()));
        }
    }

    fn add(&mut self, name: String, evidence: String) {
        if !self.given.contains(&name) {
            self.wanted.entry(name).or_default().insert(evidence);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Returns a line for each variable, for people.
    pub(super) fn described(&self) -> impl Iterator<Item = String> {
        self.wanted.iter().map(|(name, evidence)| {
            let evidence: Vec<_> = evidence.iter().map(|text| escape_hidden(text)).collect();
            format!("  {}  ({})", escape_hidden(name), evidence.join("; "))
        })
    }

    pub(super) fn to_json(&self) -> Value {
        self.wanted.iter().map(|(name, evidence)| json!({ "name": name, "evidence": evidence })).collect()
    }
}
