//! The brokers that report and accept the lists of their sources: one that is started for that with a configuration, or
//! those that run in a data folder.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use portcullis::broker::{Broker, ComparedDefinition, LockComparison};
use portcullis::config::data_dir_switch;
use portcullis::control::{self, ControlRefusal, ControlRequest, ListedDefinition};
use portcullis::item::ItemKind;

use crate::output::{self, escape_hidden};

/// The brokers of a data folder that are asked what their sources list.
pub(super) struct Brokers {
    folder: PathBuf,
    /// The switch that names the folder in commands, with a blank before it; empty if a configuration names it.
    switch: String,
    compared: Vec<(AskedBroker, LockComparison)>,
}

/// A broker that is asked: in this process, or behind a control socket.
enum AskedBroker {
    /// In this process.
    Here(Broker),
    /// Behind the control socket of this chain.
    Running(String),
}

impl Brokers {
    /// Asks a broker of this process.
    pub(super) async fn started(broker: Broker, kind: ItemKind) -> anyhow::Result<Self> {
        let compared = broker.compare_with_lock(kind).await?;
        let folder = broker.config().data_dir.clone();
        Ok(Self { folder, switch: String::new(), compared: vec![(AskedBroker::Here(broker), compared)] })
    }

    /// Asks the brokers that run in a data folder.
    pub(super) async fn running(folder: &Path, kind: ItemKind) -> anyhow::Result<Self> {
        let mut compared = Vec::new();
        for (chain, answer) in control::all(folder, &ControlRequest::Definitions { kind }).await? {
            match answer {
                Ok(answer) => {
                    let answer = serde_json::from_value(answer);
                    compared.push((
                        AskedBroker::Running(chain),
                        answer.context("the running broker is of another version")?,
                    ));
                }
                Err(error) => output::message(&format!("broker {chain} does not answer: {error}")),
            }
        }
        let switch = data_dir_switch(folder);
        if compared.is_empty() {
            bail!(
                "no broker runs in {}, so nobody knows what its server lists now: let the client start it (`portcullis wrap{switch} -- \
                 COMMAND`) and run this again meanwhile; `portcullis lock show{switch}` shows what was accepted",
                escape_hidden(&folder.to_string_lossy())
            );
        }
        Ok(Self { folder: folder.to_owned(), switch, compared })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn switch(&self) -> &str {
        &self.switch
    }

    /// Returns the answers of all of them. A server that several clients started is named once.
    pub(super) fn compared(&self) -> LockComparison {
        let mut all = LockComparison::default();
        for (_, compared) in &self.compared {
            for definition in &compared.definitions {
                if !all.definitions.contains(definition) {
                    all.definitions.push(definition.clone());
                }
            }
            all.missing.extend(compared.missing.clone());
            all.unlisted.extend(compared.unlisted.iter().cloned());
        }
        all
    }

    /// Accepts these definitions, each in the first broker that lists it; the others follow the lock file.
    pub(super) async fn accept(&self, chosen: &[&ComparedDefinition], kind: ItemKind, by: &str) -> anyhow::Result<()> {
        let mut left = chosen.to_vec();
        for (broker, compared) in &self.compared {
            let (mine, others): (Vec<_>, Vec<_>) =
                left.into_iter().partition(|definition| compared.definitions.contains(definition));
            left = others;
            let sources = mine.chunk_by(|one, other| one.source == other.source);
            for mine in sources {
                let definitions: Vec<_> = mine.iter().map(|definition| listed(definition)).collect();
                let Some(source) = mine.first().map(|definition| definition.source.clone()) else { continue };
                match broker {
                    AskedBroker::Here(broker) => {
                        let accepted = broker.accept_listed(&source, kind, &definitions, by).await;
                        accepted.map_err(|refusal| match refusal {
                            ControlRefusal::Absent(why) | ControlRefusal::Error(why) => anyhow!(why),
                        })?;
                    }
                    AskedBroker::Running(chain) => {
                        let source = source.to_string();
                        let request = ControlRequest::Accept { source, kind, definitions, by: by.to_owned() };
                        control::one(&self.folder, chain, &request).await?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn listed(definition: &ComparedDefinition) -> ListedDefinition {
    ListedDefinition { kind: definition.kind, digest: definition.digest }
}
