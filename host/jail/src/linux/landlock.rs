//! A second restriction on files, independent of mounts, and the only one in the reduced tier.

use std::fmt::Display;
use std::fs::File;
use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope, path_beneath_rules,
};

use super::grants::open_path;
use crate::cell::{CellSpec, MountAccess, Tier};
use crate::report::CellRefusal;
use crate::step::refused;

/// The newest access rights that are requested. Older kernels enforce those that they know.
const NEWEST: ABI = ABI::V6;

/// The folders in which a program with its own root may write, besides its home.
const PRIVATE: [&str; 2] = ["/tmp", "/dev/shm"];

/// Devices that can be read and written to without being changed.
const DEVICES: [&str; 2] = ["/dev/null", "/dev/full"];

/// Devices that are read-only. Mapping a writable `/dev/zero` yields memory that counts for no process.
const READ_ONLY_DEVICES: [&str; 3] = ["/dev/zero", "/dev/random", "/dev/urandom"];

/// The process that is restricted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestrictedProcess {
    /// A source.
    Source,
    /// A source whose deputy makes its changes in the folders that [`guarded`] returns.
    DeputizedSource,
    /// The deputy. It may use what the source could use without a deputy.
    Deputy,
}

/// Restricts this process and all that it will start. Returns the version of Landlock that the kernel has, 0 for none.
/// Needs `no_new_privs`.
pub(super) fn apply(cell: &CellSpec, holder: RestrictedProcess) -> Result<u32, CellRefusal> {
    let status = new_ruleset(cell, holder)?.restrict_self().map_err(failed)?;
    let version = match status.landlock {
        LandlockStatus::Available { effective_abi, kernel_abi } => {
            kernel_abi.and_then(|version| u32::try_from(version).ok()).unwrap_or(effective_abi as u32)
        }
        _ => 0,
    };
    // In the full tiers mounts restrict files as well; in the reduced tier nothing else does.
    if version == 0 && cell.tier == Tier::Reduced {
        return Err(failed("the kernel does not enforce it"));
    }
    Ok(version)
}

/// Returns the folders that a source with a deputy cannot change directly. A private folder is one of them if a granted
/// folder lies within: Landlock's rules only ever add to those of the folders around. In the reduced tier the home is
/// one, since it is a folder of the machine, to which a link could lead.
pub(super) fn guarded(cell: &CellSpec) -> Vec<&Path> {
    let granted =
        cell.mounts.iter().filter(|mount| mount.access == MountAccess::Write).map(|mount| mount.path.as_path());
    let granted: Vec<&Path> = granted.filter(|path| path.is_dir()).collect();
    let holds_one = |folder: &&Path| cell.tier == Tier::Reduced || granted.iter().any(|path| path.starts_with(folder));
    private(cell).into_iter().filter(holds_one).chain(granted.iter().copied()).collect()
}

/// Returns the folders of a source in which nothing was granted.
fn private(cell: &CellSpec) -> Vec<&Path> {
    let more = if cell.tier == Tier::Reduced { [].as_slice() } else { &PRIVATE };
    more.iter().map(Path::new).chain([cell.home.as_path()]).collect()
}

fn new_ruleset(cell: &CellSpec, holder: RestrictedProcess) -> Result<RulesetCreated, CellRefusal> {
    let (read, write) = (AccessFs::from_read(NEWEST), AccessFs::from_all(NEWEST));
    let device: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
    let guarded = if holder == RestrictedProcess::DeputizedSource { guarded(cell) } else { Vec::new() };
    let granted = if holder == RestrictedProcess::DeputizedSource { read | AccessFs::IoctlDev } else { write };
    let mut ruleset = handled(cell.tier, holder)?;
    for mount in &cell.mounts {
        // The rule names the opened file, so that changing where the path leads has no effect.
        let opened = File::from(open_path(&mount.path)?);
        let is_folder = opened.metadata().is_ok_and(|about| about.is_dir());
        let access = match (mount.access, is_folder) {
            (MountAccess::Write, true) => granted,
            (MountAccess::Write, false) => write & AccessFs::from_file(NEWEST),
            (_, true) => read,
            (_, false) => read & AccessFs::from_file(NEWEST),
        };
        ruleset = ruleset.add_rule(PathBeneath::new(opened, access)).map_err(failed)?;
    }
    for folder in private(cell) {
        let access = if guarded.contains(&folder) { granted } else { write };
        ruleset = ruleset.add_rules(path_beneath_rules([folder], access)).map_err(failed)?;
    }
    if cell.tier != Tier::Reduced {
        // Everything else in the root was put there for the source.
        ruleset = ruleset.add_rules(path_beneath_rules(["/"], read)).map_err(failed)?;
    } else if holder == RestrictedProcess::Deputy {
        // It inspects the source's processes. It opens nothing there for the source.
        ruleset = ruleset.add_rules(path_beneath_rules(["/proc"], read)).map_err(failed)?;
    }
    ruleset
        .add_rules(path_beneath_rules(READ_ONLY_DEVICES, AccessFs::ReadFile))
        .and_then(|ruleset| ruleset.add_rules(path_beneath_rules(DEVICES, device)))
        .map_err(failed)
}

/// Returns a ruleset that denies everything it can handle, except what rules allow.
fn handled(tier: Tier, holder: RestrictedProcess) -> Result<RulesetCreated, CellRefusal> {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let ruleset = ruleset.handle_access(AccessFs::from_all(NEWEST)).map_err(failed)?;
    if holder == RestrictedProcess::Deputy {
        return ruleset.create().map_err(failed);
    }
    let ruleset = ruleset.scope(Scope::from_all(NEWEST)).map_err(failed)?;
    let ruleset = if tier == Tier::Reduced {
        // No rule for the network follows: nothing can be connected to and nothing bound.
        ruleset.handle_access(AccessNet::from_all(NEWEST)).map_err(failed)?
    } else {
        ruleset
    };
    ruleset.create().map_err(failed)
}

fn failed(why: impl Display) -> CellRefusal {
    refused("landlock", why, "use a kernel with Landlock (5.13 or newer, with `landlock` in `lsm=`)")
}
