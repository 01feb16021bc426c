//! Turns a grant and the needs of a program into the cell that the launcher builds.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use portcullis_core::trust::KEPT_NAMES;
use portcullis_jail::{
    CellSpec, EnforcementReport, LaunchSpec, Listener, Mount, MountAccess, Network, ProbeReport, Tier,
};

use super::program_needs::Runtime;
use super::{CellError, CellGrant, IsolationReport, ProgramNeeds, system_mounts};

/// The private home inside a cell, and the folder for temporary files.
pub(crate) const HOME: &str = "/home/source";
const TEMPORARY: &str = "/tmp";

/// The files in `/etc` of a cell: the user that the source has inside, and what programs look up. They map user and
/// group numbers to names, and send queries of names to the broker's resolver.
const ETC: [(&str, &str); 6] = [
    ("/etc/passwd", "source:x:1000:1000::/home/source:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"),
    ("/etc/group", "source:x:1000:\nnogroup:x:65534:\n"),
    ("/etc/hosts", "127.0.0.1 localhost\n"),
    ("/etc/hostname", "cell\n"),
    ("/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:2\n"),
    ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
];

/// The tiers that this machine can build.
#[derive(Debug, Clone)]
pub struct AvailableTiers {
    /// The result of the probe, or the reason why the probe itself failed.
    probe: Result<ProbeReport, String>,
}

impl AvailableTiers {
    /// Returns the platform that a probe has found, or that is unknown for this reason.
    pub fn new(probe: Result<ProbeReport, String>) -> Self {
        Self { probe }
    }

    /// Reports whether a full cell can be built.
    pub(crate) fn has_full(&self) -> bool {
        self.probe.as_ref().is_ok_and(|probe| probe.full.is_ok() || probe.bwrap.is_ok())
    }

    /// Returns the best tier that a source may run in. No tier is downgraded silently: a weaker cell is used only if
    /// the operator accepts it and the source needs no network.
    ///
    /// # Errors
    /// [`CellError::NoTier`] with the step that failed and the remedy; [`CellError::Path`] for a writable folder that
    /// contains something that only a full cell can protect.
    pub(crate) fn tier_for(&self, grant: &CellGrant) -> Result<(Tier, &EnforcementReport), CellError> {
        let unknown = |why: &String| {
            CellError::NoTier(format!("the probe for cells on this machine failed ({why}); start the broker again"))
        };
        let ProbeReport { full, bwrap, reduced } = self.probe.as_ref().map_err(unknown)?;
        let refusal = match (full, bwrap) {
            (Ok(enforced), _) => return Ok((Tier::Full, enforced)),
            (Err(_), Ok(enforced)) => return Ok((Tier::FullViaBwrap, enforced)),
            (Err(refusal), Err(_)) => refusal,
        };
        let why = match reduced {
            Ok(enforced) if grant.dangerous_allow_reduced && grant.network.is_empty() => {
                // Landlock cannot exempt a path within a writable folder.
                grant.check_protected("a program in a reduced cell", |_| false)?;
                return Ok((Tier::Reduced, enforced));
            }
            Ok(_) if grant.dangerous_allow_reduced => {
                "a reduced cell cannot limit its network to what is granted; remove `network` from its cell"
            }
            Ok(_) => "a reduced cell is possible: `dangerous-allow-reduced = true` in its `cell` accepts one",
            Err(_) => "no weaker cell is possible either",
        };
        Err(CellError::NoTier(format!(
            "this machine cannot build a full cell, so the source is not started: {refusal}; {why}"
        )))
    }
}

/// The conditions of a plan besides the grant and the needs of the program.
pub(crate) struct PlanContext<'a> {
    pub tier: Tier,
    pub enforced: &'a EnforcementReport,
    /// A private folder outside, which is the home in the one tier without its own root.
    pub(crate) outside_home: &'a Path,
    /// The sockets in the cell's network that the broker serves.
    pub proxy_listeners: Vec<Listener>,
    /// True if what the source tries is recorded.
    pub recorded: bool,
}

/// A source that is ready to be started.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The order to the launcher: the program, its environment and its cell.
    pub launch: LaunchSpec,
    /// The report on the enforced limits and their mechanisms.
    pub report: IsolationReport,
}

impl Plan {
    /// Returns the plan for a program: its cell, arguments and environment. `listed` are the variables of the
    /// configuration.
    pub(crate) fn new(
        grant: &CellGrant,
        needs: &ProgramNeeds,
        arguments: &[String],
        listed: &[(String, String)],
        setting: PlanContext<'_>,
    ) -> Self {
        let PlanContext { tier, enforced, outside_home, proxy_listeners, recorded } = setting;
        let own_root = tier != Tier::Reduced;
        let home = if own_root { PathBuf::from(HOME) } else { outside_home.to_owned() };
        let temporary = if own_root { PathBuf::from(TEMPORARY) } else { home.clone() };
        let mut environment: Vec<(String, OsString)> = vec![
            ("PATH".to_owned(), needs.search_path()),
            ("HOME".to_owned(), home.clone().into()),
            ("TMPDIR".to_owned(), temporary.into()),
            ("LANG".to_owned(), "C.UTF-8".into()),
        ];
        if needs.runtime == Runtime::Python {
            // With another order of its sets at each start, a server may describe the same tools in other words.
            environment.push(("PYTHONHASHSEED".to_owned(), "0".into()));
        }
        for (name, value) in listed {
            environment.retain(|(made, _)| made != name);
            environment.push((name.clone(), value.into()));
        }
        let (mounts, links) = mounts(grant, needs);
        // Where the machine's own file is granted, the cell has that.
        let is_granted = |path: &str| mounts.iter().any(|mount| Path::new(path).starts_with(&mount.path));
        let files = ETC.into_iter().filter(|(path, _)| !is_granted(path));
        let files = files.map(|(path, text)| (PathBuf::from(path), text.as_bytes().to_vec())).collect();
        let cell = CellSpec {
            tier,
            mounts,
            hidden: grant.hidden.clone(),
            links: if own_root { links } else { Vec::new() },
            files: if own_root { files } else { Vec::new() },
            home: home.clone(),
            // The reduced tier has no network namespace, so that nothing can listen in it.
            network: if own_root { Network::Listeners(proxy_listeners) } else { Network::None },
            limits: grant.limits.clone(),
            protected_names: if grant.write.is_empty() { Vec::new() } else { KEPT_NAMES.map(str::to_owned).into() },
            recorded,
        };
        let launch = LaunchSpec {
            program: needs.program.clone(),
            arguments: arguments.iter().map(OsString::from).collect(),
            environment,
            directory: grant.directory.clone().unwrap_or(home),
            cell,
        };
        Self { launch, report: IsolationReport::of(grant, tier, enforced) }
    }
}

/// Returns the mounts: the system, the program's needs, and the grants. A path within another is left out unless it
/// allows more; a link is left out if a mount already contains it.
fn mounts(grant: &CellGrant, needs: &ProgramNeeds) -> (Vec<Mount>, Vec<(PathBuf, PathBuf)>) {
    let (folders, mut links) = system_mounts::present();
    let mut wanted: BTreeMap<&PathBuf, MountAccess> = folders.iter().map(|path| (path, MountAccess::Public)).collect();
    wanted.extend(needs.read.iter().chain(&grant.read).map(|path| (path, MountAccess::Read)));
    wanted.extend(grant.write.iter().map(|path| (path, MountAccess::Write)));
    let mut mounts: Vec<Mount> = Vec::new();
    // In the order of paths, so that a path comes after those that contain it, the nearest of them last.
    for (path, access) in wanted {
        let around = mounts.iter().rev().find(|mount| path.starts_with(&mount.path));
        if around.is_none_or(|around| around.access < access) {
            mounts.push(Mount { path: path.clone(), access });
        }
    }
    let is_hidden = |path: &Path| grant.hidden.iter().any(|folder| path.starts_with(folder));
    mounts.extend(grant.protected.iter().map(Mount::read));
    mounts.retain(|mount| !is_hidden(&mount.path));
    links.extend(needs.links.clone());
    links.retain(|(link, _)| !mounts.iter().any(|mount| link.starts_with(&mount.path)));
    (mounts, links)
}

#[cfg(test)]
mod tests;
