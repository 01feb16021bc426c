//! Checks the freeze of the contract (wit/VERSIONING.md): a plugin compiled against a released world must load in a
//! host that serves the working copy of that world.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use wit_parser::{PackageId, Resolve};

/// The worlds that are frozen, by version. A world is never removed from here.
const FROZEN: [(&str, &[&str]); 1] = [("0.1.0", &["policy-plugin", "transform-plugin"])];

const WORLDS: [&str; 7] = [
    "approval-plugin",
    "audit-plugin",
    "policy-plugin",
    "resources-plugin",
    "session-policy-plugin",
    "tools-plugin",
    "transform-plugin",
];

#[test]
fn the_working_contract_is_compatible_with_every_released_one() {
    let versions: Vec<String> =
        released().iter().map(|folder| folder.file_name().unwrap().display().to_string()).collect();
    assert_eq!(versions, FROZEN.map(|(version, _)| version), "the folders of wit/released");
    for (released, (version, worlds)) in released().into_iter().zip(FROZEN) {
        let mut resolve = Resolve::default();
        let (old, _) = resolve.push_dir(&released).unwrap();
        assert_eq!(resolve.packages[old].name.version.as_ref().unwrap().to_string(), version);
        let checked = compatible(resolve, old, |resolve| Ok(resolve.push_dir(wit())?.0));
        let checked = checked.with_context(|| format!("{} is no longer served", released.display())).unwrap();
        assert_eq!(checked, worlds, "{}", released.display());
    }
}

/// Runs the check of the test above with two equal copies, as they are on the day of the freeze.
#[test]
fn every_world_is_compatible_with_itself() {
    let mut resolve = Resolve::default();
    let (old, _) = resolve.push_dir(wit()).unwrap();
    assert_eq!(compatible(resolve, old, |resolve| Ok(resolve.push_dir(wit())?.0)).unwrap(), WORLDS);
}

#[test]
fn a_change_that_old_plugins_survive_passes_the_check() {
    let wider_inputs = [
        ("tool: func() -> string;", "tool: func() -> string; source: func() -> string;"),
        ("resource call {", "now: func() -> u64; resource call {"),
        ("import calls;", "import calls; import clock;"),
    ];
    for (old, new) in wider_inputs {
        assert_eq!(change(old, new).unwrap(), ["policy-plugin"], "{new}");
    }
}

#[test]
fn a_change_that_breaks_old_plugins_fails_the_check() {
    let breaks = [
        ("code: string }", "code: string, message: string }"),
        ("variant verdict { pass, ", "variant verdict { pass, ask(string), "),
        ("check: func", "explain: func() -> string; check: func"),
        ("check: func", "check: async func"),
        ("tool: func() -> string;", ""),
        ("tool: func() -> string;", "tool: func() -> option<string>;"),
        ("scopes: func() -> list<scope>;", "scopes: func() -> list<string>;"),
        ("enum scope { once, ", "enum scope { once, session, "),
        ("world policy-plugin", "world policy"),
    ];
    for (old, new) in breaks {
        change(old, new).err().unwrap_or_else(|| panic!("{new:?} in place of {old:?} passed the check"));
    }
}

/// Checks a small contract against itself with `old` replaced by `new`.
fn change(old: &str, new: &str) -> Result<Vec<String>> {
    const CONTRACT: &str = "package a:b@0.1.0;
        interface clock { now: func() -> u64; }
        interface calls {
            enum scope { once, always }
            resource call { tool: func() -> string; scopes: func() -> list<scope>; }
        }
        interface policy {
            use calls.{call};
            record denial { code: string }
            variant verdict { pass, deny(denial) }
            check: func(call: borrow<call>) -> verdict;
        }
        world policy-plugin { import calls; export policy; }";
    assert_eq!(CONTRACT.matches(old).count(), 1, "{old}");
    let mut resolve = Resolve::default();
    let released = resolve.push_str("released.wit", CONTRACT)?;
    let working = CONTRACT.replace(old, new);
    compatible(resolve, released, |resolve| resolve.push_str("working.wit", &working))
}

/// Checks each world of `old` against the world of the same name in the package that `push_new` adds. Returns the
/// names.
fn compatible(
    mut resolve: Resolve,
    old: PackageId,
    push_new: impl FnOnce(&mut Resolve) -> Result<PackageId>,
) -> Result<Vec<String>> {
    // The version may be the same on both sides, and one `Resolve` cannot hold two packages with the same name and
    // version.
    let name = &mut resolve.packages[old].name;
    resolve.package_names.shift_remove(name);
    name.version = Some("0.0.0-released".parse()?);
    resolve.package_names.insert(name.clone(), old);
    let new = push_new(&mut resolve)?;

    let worlds = resolve.packages[old].worlds.clone();
    let mut names = Vec::new();
    for (name, old_world) in worlds {
        let new_world = resolve.packages[new].worlds.get(&name).with_context(|| format!("{name} is gone"))?;
        wit_component::semver_check(resolve.clone(), old_world, *new_world).with_context(|| name.clone())?;
        names.push(name);
    }
    names.sort();
    Ok(names)
}

/// Returns the folders of released versions.
fn released() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(wit().join("released")).unwrap();
    let mut folders: Vec<_> = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

fn wit() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit")
}
