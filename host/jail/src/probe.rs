//! Finds out which cells this machine can build, by building each up to the last step.

use std::path::PathBuf;

use crate::cell::{CellSpec, Mount, Tier};
use crate::launch::{LaunchSpec, RunningLauncher};
use crate::report::{CellRefusal, EnforcementReport, ProbeReport};

impl RunningLauncher {
    /// Tries the tiers, the strongest first, until one can be built. Executes no program in them. Blocks for some
    /// milliseconds, or for as long as [`CellControl::ready`](crate::CellControl::ready) does.
    #[must_use]
    pub fn probe(&mut self) -> ProbeReport {
        let full = rehearse(self, Tier::Full);
        let bwrap = if full.is_ok() { Err(not_tried(Tier::Full)) } else { rehearse(self, Tier::FullViaBwrap) };
        let better = if full.is_ok() { Some(Tier::Full) } else { bwrap.is_ok().then_some(Tier::FullViaBwrap) };
        let reduced = better.map_or_else(|| rehearse(self, Tier::Reduced), |better| Err(not_tried(better)));
        ProbeReport { full, bwrap, reduced }
    }
}

fn not_tried(better: Tier) -> CellRefusal {
    let cause = format!("not tried, as the {better} tier can be built");
    CellRefusal { step: "probe".to_owned(), cause, errno: None, setting: None, remedy: None }
}

fn rehearse(launcher: &mut RunningLauncher, tier: Tier) -> Result<EnforcementReport, CellRefusal> {
    let home = if tier == Tier::Reduced { std::env::temp_dir() } else { CellSpec::default().home };
    // The tier that executes the launcher again needs the launcher's libraries in the cell.
    let (links, mounts) = if tier == Tier::FullViaBwrap { system() } else { Default::default() };
    let launch = LaunchSpec {
        program: PathBuf::from("/"),
        arguments: Vec::new(),
        environment: Vec::new(),
        directory: home.clone(),
        cell: CellSpec {
            tier,
            home,
            mounts,
            links,
            protected_names: vec!["rehearsed".to_owned()],
            ..CellSpec::default()
        },
    };
    let failed = |error: std::io::Error| CellRefusal {
        step: "launcher".to_owned(),
        cause: error.to_string(),
        errno: error.raw_os_error(),
        setting: None,
        remedy: None,
    };
    let mut started = launcher.ask(&launch, true).map_err(failed)?;
    let ready = started.control.ready(drop);
    drop(started.control);
    // It ends on its own, and its status adds nothing.
    let _ = started.process.wait();
    ready.map(|ready| ready.enforced)
}

/// Returns where programs and libraries are: links, and folders.
fn system() -> (Vec<(PathBuf, PathBuf)>, Vec<Mount>) {
    let folders = ["/usr", "/bin", "/lib", "/lib64", "/nix/store"].map(PathBuf::from);
    let link = |path: &PathBuf| Some((path.clone(), path.read_link().ok()?));
    let links = folders.iter().filter_map(link).collect();
    (links, folders.iter().filter(|path| !path.is_symlink() && path.is_dir()).map(Mount::read).collect())
}
