//! The parts that all cells of one broker share: the launcher, the files that no source gets, and what the machine
//! offers.

use std::collections::BTreeMap;
#[cfg(feature = "process")]
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portcullis_config::{CellConfig, SourceConfig};
use portcullis_core::name::SourceName;
use portcullis_core::sync::Mutex;
use portcullis_core::trust::TrustStore;
#[cfg(feature = "process")]
use portcullis_jail::BuiltCell;
use portcullis_jail::Launcher;
use portcullis_ledger::{Event, EventCallback, EventKind};
#[cfg(feature = "process")]
use portcullis_net::egress::{AllowedDestinations, EgressProxy, ProxyListeners, Reach, RefusedHosts};
use portcullis_net::egress::{ComponentEgress, Egress};
use serde_json::json;

#[cfg(feature = "process")]
use super::{AvailableTiers, ProgramSearch, Recording, TierProbe};
use super::{CellError, CellGrant, Installations};

/// The launcher, files and records that all cells of one broker share.
#[derive(Clone)]
pub struct CellFactory {
    /// The program that starts as the launcher.
    #[cfg(feature = "process")]
    pub launcher: Launcher,
    /// The data folder of the broker.
    pub data_dir: PathBuf,
    /// Files that no source gets: the broker's folders, the user's, and the configuration.
    pub own: Vec<PathBuf>,
    /// The configurations that the user trusts. A source that may write to a folder around one cannot change the
    /// configuration.
    trust: Option<TrustStore>,
    record: EventCallback,
    installations: Installations,
    /// The egress of each source. It outlives the processes of a source, since a lookup of a name may do so: a source
    /// that is started again and again gets no more lookups at once.
    egresses: Arc<Mutex<BTreeMap<SourceName, Egress>>>,
    /// The user's database of malicious packages and known vulnerabilities, which need not exist.
    #[cfg(feature = "process")]
    osv: Option<PathBuf>,
    /// The tiers that this machine can build.
    #[cfg(feature = "process")]
    tiers: TierProbe,
}

impl CellFactory {
    /// Returns a factory. `own` are files that no source gets, `trust` is what the user has trusted, and `record`
    /// writes events to the ledger.
    pub fn new(
        launcher: Launcher,
        data_dir: &Path,
        own: Vec<PathBuf>,
        trust: Option<TrustStore>,
        record: impl Fn(Event) + Send + Sync + 'static,
    ) -> Self {
        #[cfg(not(feature = "process"))]
        let _ = launcher;
        Self {
            #[cfg(feature = "process")]
            tiers: TierProbe::new(launcher.clone()),
            #[cfg(feature = "process")]
            launcher,
            data_dir: data_dir.to_owned(),
            own,
            trust,
            record: Arc::new(record),
            installations: Installations::default(),
            egresses: Arc::default(),
            #[cfg(feature = "process")]
            osv: None,
        }
    }

    /// Returns a copy that writes events with another function.
    #[must_use]
    pub fn recorded_by(&self, record: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self { record: Arc::new(record), ..self.clone() }
    }

    /// Returns the packages that are being installed.
    #[must_use]
    pub fn installations(&self) -> &Installations {
        &self.installations
    }

    /// Returns the grant of a source, checked against the disk and against what the user trusts now.
    ///
    /// # Errors
    /// [`CellError`]; also if the broker cannot find out what the user trusts.
    pub fn grant(&self, source: &SourceConfig) -> Result<CellGrant, CellError> {
        let known = self.trust.as_ref().map(|trust| trust.overlapping(&source.cell.write)).transpose();
        let known = known.map_err(|error| CellError::Trust(error.to_string()))?;
        let mut grant = CellGrant::of(source, &self.own, &known.unwrap_or_default())?;
        let granted: Vec<PathBuf> = grant.read.iter().chain(&grant.write).cloned().collect();
        self.hide_data_folders(&mut grant, &granted)?;
        Ok(grant)
    }

    /// Hides the data folders of brokers that are in `folders` now.
    ///
    /// # Errors
    /// If the broker cannot find out what the user trusts.
    pub(crate) fn hide_data_folders(&self, grant: &mut CellGrant, folders: &[PathBuf]) -> Result<(), CellError> {
        let known = self.trust.as_ref().map(|trust| trust.data_folders_in(folders)).transpose();
        let known = known.map_err(|error| CellError::Trust(error.to_string()))?;
        grant.hide_data_folders(folders, &known.unwrap_or_default());
        Ok(())
    }

    /// Returns the function that records events about sources in the ledger.
    pub fn recorder(&self) -> EventCallback {
        Arc::clone(&self.record)
    }

    /// Records an event about a source.
    pub fn record_event(&self, kind: EventKind, body: serde_json::Value) {
        (self.record)(Event::new(kind, body));
    }

    /// Records that a source was started, and in which cell, or that it is part of the program.
    pub fn record_start(&self, source: &SourceName, mut facts: serde_json::Value) {
        if let Some(body) = facts.as_object_mut() {
            body.insert("source".to_owned(), json!(source));
        }
        self.record_event(EventKind::SourceStarted, facts);
    }

    /// Opens the network of a component. Returns `None` if the component may reach nothing.
    pub fn egress(&self, source: &SourceName, cell: &CellConfig) -> Option<Arc<ComponentEgress>> {
        let declared = cell.destinations();
        let (egress, record) = (self.egress_of(source), Arc::clone(&self.record));
        let open = || ComponentEgress::open(egress, source, declared.clone(), cell.reach(), move |event| record(event));
        (!declared.is_empty()).then(open)
    }

    /// Returns the egress of a source, which all its processes and instances share.
    fn egress_of(&self, source: &SourceName) -> Egress {
        self.egresses.lock().entry(source.clone()).or_default().clone()
    }
}

#[cfg(feature = "process")]
impl CellFactory {
    /// Looks up packages in this database before they are installed or started, if the file exists then.
    #[must_use]
    pub fn with_osv(self, file: Option<PathBuf>) -> Self {
        Self { osv: file, ..self }
    }

    /// Returns the file of the database of malicious packages.
    pub(crate) fn osv(&self) -> Option<&Path> {
        self.osv.as_deref()
    }

    /// Takes the result of a probe that has begun before.
    #[must_use]
    pub fn with_tiers(self, tiers: TierProbe) -> Self {
        Self { tiers, ..self }
    }

    /// Returns the tiers that this machine can build.
    pub(crate) async fn tiers(&self) -> AvailableTiers {
        self.tiers.found().await
    }

    /// Describes this machine as programs find it, without the files that no source is given.
    pub fn programs(&self) -> ProgramSearch {
        ProgramSearch::of_this_machine(&self.own)
    }

    /// Serves the sockets inside a cell that lead to the declared names. In a cell that may reach nothing, only the
    /// resolver is served, so that a program fails at once and its lookups are recorded. Returns `None` for a cell
    /// without its own network. Attempts also go to `recording`, and hosts that are not declared to `refused`.
    pub fn serve(
        &self,
        source: &SourceName,
        declared: AllowedDestinations,
        reach: Reach,
        ready: BuiltCell,
        recording: Option<Arc<Recording>>,
        refused: Arc<RefusedHosts>,
    ) -> io::Result<Option<EgressProxy>> {
        if ready.listeners.is_empty() {
            return Ok(None);
        }
        let miscounted = || io::Error::other("the launcher bound another number of sockets than it was asked for");
        let listeners = ProxyListeners::bound(&declared, ready.listeners).ok_or_else(miscounted)?;
        let record = Arc::clone(&self.record);
        let note = move |event: Event| {
            if let Some(recording) = &recording {
                recording.record_egress(&event);
            }
            record(event);
        };
        EgressProxy::open(self.egress_of(source), source, listeners, declared, reach, refused, note).map(Some)
    }
}

impl std::fmt::Debug for CellFactory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CellFactory").field("data_dir", &self.data_dir).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_source_that_starts_again_looks_up_names_in_its_own_places_and_in_no_new_ones() {
        let cells = CellFactory::new(Launcher::SelfExec, Path::new("/none"), Vec::new(), None, drop);
        let of = |cells: &CellFactory, name: &str| cells.egress_of(&name.parse().unwrap());
        let first = of(&cells, "far");
        assert!(first.shares_lookups_with(&of(&cells, "far")));
        assert!(first.shares_lookups_with(&of(&cells.recorded_by(drop), "far")));
        assert!(!first.shares_lookups_with(&of(&cells, "near")));
    }
}
