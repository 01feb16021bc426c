//! The cell of one process source. Each start plans it again from the configuration.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portcullis_config::{Endpoint, SourceConfig};
use portcullis_core::lockfile::LockedPackage;
use portcullis_core::name::SourceName;
use portcullis_core::sync::Mutex;
use portcullis_jail::{BuiltCell, Tier};
use portcullis_net::egress::{AllowedDestinations, EgressProxy, ProxyListeners, RefusedHosts};
use serde_json::json;

use super::named_paths::NamedPaths;
use super::package::{InstallReport, Installer, PackageCommand, PackageUpdate, Provenance, ReadyPackage};
use super::plan::PlanContext;
use super::report::paths_as_text;
use super::{CellError, CellFactory, CellGrant, IsolationReport, MissingAccess, Plan, ProgramNeeds, Recording};

/// The largest number of different entries that are reported to people, for each source.
const MAX_REPORTED: usize = 64;

/// The cell of one process source.
#[derive(Debug)]
pub struct ProcessCell {
    /// The launcher, files and records that the cell shares with the other cells of the broker.
    pub cells: Arc<CellFactory>,
    config: SourceConfig,
    /// The result of the last start.
    last: Mutex<Option<Arc<PreparedSource>>>,
    /// Locks on the installed trees that the source was started from. They stay in place, since an older connection may
    /// still run from one.
    trees: Mutex<BTreeMap<PathBuf, File>>,
    /// The record of the source's attempts, if its cell is recorded.
    recording: Option<Arc<Recording>>,
    /// The hosts that it was refused.
    refused: Arc<RefusedHosts>,
    /// The missing accesses that were reported to people, each with whether it exists outside the cell, once that is
    /// known.
    told: Arc<Mutex<BTreeMap<MissingAccess, Option<bool>>>>,
}

/// The last preparation of a source to start, for people.
#[derive(Debug, Clone)]
pub struct PreparedSource {
    /// The files, hosts and limits that the source is granted.
    pub grant: CellGrant,
    /// The files and folders that the program needs.
    pub needs: ProgramNeeds,
    /// The report on the enforced limits.
    pub report: IsolationReport,
    /// The package that it was installed from, or `None` for a program that was already there.
    pub package: Option<InstallReport>,
    /// The paths that its command names.
    pub(crate) named: NamedPaths,
}

/// The facts about a source that are known without installing or starting anything.
#[derive(Debug, Clone)]
pub struct CellPreview {
    /// The files, hosts and limits that the source is granted.
    pub grant: CellGrant,
    /// The report on what will be enforced.
    pub report: IsolationReport,
    /// The package that will be installed first, and the registry that it will come from.
    pub installs: Option<(String, String)>,
}

impl PreparedSource {
    /// Returns the description as JSON, for programs.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let Self { grant, needs, report, package, .. } = self;
        json!({
            "program": needs.program.to_string_lossy(),
            "runtime": needs.runtime.as_str(),
            "found": needs.notes,
            "needs": paths_as_text(&needs.read),
            "read": paths_as_text(&grant.read),
            "write": paths_as_text(&grant.write),
            "kept": paths_as_text(&grant.protected),
            "hidden": paths_as_text(&grant.hidden),
            "network": grant.network,
            "directory": grant.directory.as_deref().map(Path::to_string_lossy),
            "limits": grant.limits,
            "package": package,
            "harmless": self.is_harmless(),
            "isolation": report,
        })
    }

    /// Reports whether the source can neither write anything nor reach a network, and a full cell enforces that.
    #[must_use]
    pub fn is_harmless(&self) -> bool {
        self.grant.is_harmless() && self.report.tier != Tier::Reduced
    }
}

impl ProcessCell {
    /// Returns the cell of a source that has not been started yet.
    pub fn new(cells: Arc<CellFactory>, config: &SourceConfig) -> Self {
        let recording = config.cell.recorded.then(Arc::default);
        Self {
            cells,
            config: config.clone(),
            last: Mutex::default(),
            trees: Mutex::default(),
            recording,
            refused: Arc::default(),
            told: Arc::default(),
        }
    }

    /// Returns what the source attempts, if its cell is recorded.
    pub fn recording(&self) -> Option<&Arc<Recording>> {
        self.recording.as_ref()
    }

    /// Returns the name of the source.
    pub fn source(&self) -> &SourceName {
        &self.config.name
    }

    /// Returns the hosts that the source was refused.
    pub(crate) fn refused(&self) -> &RefusedHosts {
        &self.refused
    }

    /// Reports whether the source is given a variable of this name.
    pub(crate) fn has_variable(&self, name: &str) -> bool {
        matches!(&self.config.endpoint, Endpoint::Command { env, .. } if env.contains_key(name))
    }

    /// Reports to the person who runs the broker what the cell may lack, each thing once.
    pub(crate) fn report_missing(&self, missing: &[MissingAccess]) {
        for access in missing {
            let mut told = self.told.lock();
            if told.contains_key(access) || told.len() >= MAX_REPORTED {
                continue;
            }
            told.insert(access.clone(), None);
            let (source, access, told) = (self.config.name.clone(), access.clone(), Arc::clone(&self.told));
            // A disk may be slow to answer.
            tokio::task::spawn_blocking(move || {
                let exists = access.exists_outside();
                tracing::warn!(%source, "{}", access.for_the_person(exists));
                told.lock().insert(access, exists);
            });
        }
    }

    /// Returns what the cell may lack, and which parts exist outside: for the person who runs the broker, not for
    /// agents.
    pub fn told(&self) -> Vec<String> {
        self.told.lock().iter().map(|(access, exists)| access.for_the_person(*exists)).collect()
    }

    /// Returns the result of the last start.
    pub fn described(&self) -> Option<Arc<PreparedSource>> {
        self.last.lock().clone()
    }

    /// Checks the grant, installs the package if there is one, inspects the program, and returns what to start. `env`
    /// are the variables of the configuration, with their secrets. Cancellation safe: an installation that is cancelled
    /// leaves nothing.
    ///
    /// # Errors
    /// [`CellError`]; no code of the source has run then.
    pub async fn plan(&self, env: &[(String, String)]) -> Result<Plan, CellError> {
        let Endpoint::Command { argv, cwd, .. } = &self.config.endpoint else {
            return Err(CellError::Program("only a source with a `command` has a cell".to_owned()));
        };
        let mut grant = self.cells.grant(&self.config)?;
        let tiers = self.cells.tiers().await;
        let (tier, enforced) = tiers.tier_for(&grant)?;
        let programs = self.cells.programs();
        let named = NamedPaths::of(argv, cwd.as_deref());
        let (argv, package) = match PackageCommand::of(argv)? {
            None => (argv.clone(), None),
            Some(package) => {
                let installer = Installer::new(&self.cells, self.source(), &package);
                let ReadyPackage { argv, report, held } = installer.ready().await?;
                self.trees.lock().insert(report.folder.clone(), held);
                (argv, Some(report))
            }
        };
        let name = package.as_ref().map(|report| report.name.as_str());
        let needs = ProgramNeeds::of(&argv, name, cwd.as_deref(), &programs)?;
        let needed: Vec<PathBuf> = needs.read.iter().cloned().collect();
        self.cells.hide_data_folders(&mut grant, &needed)?;
        if let Some(cwd) = cwd {
            grant.start_in(cwd, &needs);
        }
        let home = self.cells.data_dir.join("sources").join(self.source().as_str()).join("home");
        if tier == Tier::Reduced {
            super::make_private_folder(&home)?;
        }
        let arguments = argv.get(1..).unwrap_or_default();
        let setting = PlanContext {
            tier,
            enforced,
            outside_home: &home,
            proxy_listeners: ProxyListeners::wanted(&AllowedDestinations::of_entries(&grant.network)),
            recorded: self.recording.is_some(),
        };
        let plan = Plan::new(&grant, &needs, arguments, env, setting);
        let described = PreparedSource { grant, needs, report: plan.report.clone(), package, named };
        *self.last.lock() = Some(Arc::new(described));
        Ok(plan)
    }

    /// Returns the facts that are known before anything is installed or started.
    ///
    /// # Errors
    /// [`CellError`] if the source would not start.
    pub async fn preview(&self) -> Result<CellPreview, CellError> {
        let grant = self.cells.grant(&self.config)?;
        let tiers = self.cells.tiers().await;
        let (tier, enforced) = tiers.tier_for(&grant)?;
        let report = IsolationReport::of(&grant, tier, enforced);
        let announced = |package| Installer::new(&self.cells, self.source(), &package).announced();
        let installs = self.package()?.map(announced);
        Ok(CellPreview { grant, report, installs })
    }

    /// Installs the source's package as pinned, and starts nothing. Returns a report on it, or `None` for a source that
    /// installs nothing.
    ///
    /// # Errors
    /// [`CellError`]; files unpacked so far are used by the next attempt only if they are complete.
    pub async fn install(&self) -> Result<Option<InstallReport>, CellError> {
        let Some(package) = self.package()? else { return Ok(None) };
        let installed = Installer::new(&self.cells, self.source(), &package).ready().await?;
        Ok(Some(installed.report))
    }

    /// Returns how the pin of the source's package differs from what its registry has now, or `None` for a source that
    /// installs nothing. Installs and pins nothing.
    ///
    /// # Errors
    /// [`CellError`] if the registry cannot be asked.
    pub async fn newest(&self) -> Result<Option<PackageUpdate>, CellError> {
        let Some(package) = self.package()? else { return Ok(None) };
        Installer::new(&self.cells, self.source(), &package).newest().await.map(Some)
    }

    /// Returns the attestations that the registry of an installed package reports.
    ///
    /// # Errors
    /// [`CellError`] if no registry is known.
    pub async fn provenance(&self, report: &InstallReport) -> Result<Provenance, CellError> {
        match self.package()? {
            Some(package) => Installer::new(&self.cells, self.source(), &package).provenance(report.released()).await,
            None => Ok(Provenance::Unknown("no package is installed".to_owned())),
        }
    }

    /// Returns the package that the source's command names, if it names one.
    fn package(&self) -> Result<Option<PackageCommand>, CellError> {
        match &self.config.endpoint {
            Endpoint::Command { argv, .. } => PackageCommand::of(argv),
            Endpoint::Url { .. } | Endpoint::Component { .. } | Endpoint::Native { .. } => Ok(None),
        }
    }

    /// Resolves the source's package again and pins the result. Returns the old and the new pin, or `None` for a source
    /// that installs nothing.
    ///
    /// # Errors
    /// [`CellError`]; the pin is unchanged then.
    pub async fn renew(&self) -> Result<Option<(Option<LockedPackage>, InstallReport)>, CellError> {
        let Some(package) = self.package()? else { return Ok(None) };
        let (before, installed) = Installer::new(&self.cells, self.source(), &package).renew().await?;
        Ok(Some((before, installed.report)))
    }

    /// Records that the cell was built and its program executed, and serves its network.
    ///
    /// # Errors
    /// If a socket of the cell cannot be used.
    pub fn started(&self, ready: BuiltCell) -> io::Result<Option<EgressProxy>> {
        if let Some(described) = self.described() {
            let mut body = described.to_json();
            if let Some(body) = body.as_object_mut() {
                body.insert("user".to_owned(), json!(ready.enforced.user));
            }
            self.cells.record_start(self.source(), body);
        }
        let cell = &self.config.cell;
        self.cells.serve(
            self.source(),
            cell.destinations(),
            cell.reach(),
            ready,
            self.recording.clone(),
            Arc::clone(&self.refused),
        )
    }
}
