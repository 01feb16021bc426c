#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
use std::os::unix::fs::symlink;

use portcullis_config::Config;

use super::*;

/// A folder with files to grant.
struct TestFolder {
    dir: tempfile::TempDir,
    known: Vec<PathBuf>,
}

impl TestFolder {
    /// Makes `docs/note`, `out/`, a link `linked` to `docs`, and the broker's folder `own/data`.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("portcullis.toml"), "").unwrap();
        for folder in ["docs/deep", "out", "own/data"] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        std::fs::write(dir.path().join("docs/note"), "").unwrap();
        symlink("docs", dir.path().join("linked")).unwrap();
        Self { dir, known: Vec::new() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn grant(&self, more: &str) -> Result<CellGrant, CellError> {
        let text = format!("[broker]\ndata-dir = \"own/data\"\n[sources.s]\ncommand = [\"server\"]\n{more}\n");
        let config = Config::parse(&text, &self.at("portcullis.toml")).unwrap();
        let source = config.sources.values().next().unwrap();
        CellGrant::of(source, &[config.data_dir.clone(), self.at("portcullis.toml")], &self.known)
    }

    #[track_caller]
    fn refused(&self, more: &str, reason: &str, hint: &str) {
        let error = self.grant(more).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains(hint), "{error}");
    }
}

#[test]
fn an_empty_configuration_grants_nothing() {
    let place = TestFolder::new();
    assert_eq!(place.grant("").unwrap(), CellGrant::nothing());
    assert!(CellGrant::nothing().is_harmless());
}

#[test]
fn what_is_granted_is_what_is_written() {
    let place = TestFolder::new();
    let grant = place
        .grant("cwd = \".\"\ncell = { read = [\"docs\"], write = [\"out\"], network = [\"a.example:443\"], memory = \"64MiB\" }")
        .unwrap();
    assert_eq!((grant.read, grant.write), (vec![place.at("docs")], vec![place.at("out")]));
    assert_eq!(grant.limits, CellLimits { memory: 64 << 20, ..CellLimits::default() });
}

#[test]
fn what_can_write_or_reach_the_network_is_not_harmless() {
    let place = TestFolder::new();
    assert!(place.grant("cell.read = [\"docs\"]").unwrap().is_harmless());
    assert!(!place.grant("cell.write = [\"out\"]").unwrap().is_harmless());
    assert!(!place.grant("cell.network = [\"a.example:443\"]").unwrap().is_harmless());
}

#[test]
fn paths_that_are_not_what_they_seem_are_refused_with_the_reason_and_the_way_out() {
    let place = TestFolder::new();
    place.refused("cell.read = [\"absent\"]", "does not exist", "create it");
    place.refused(
        "cell.read = [\"linked/deep\"]",
        "leads through the link",
        &place.at("docs/deep").display().to_string(),
    );
    place.refused("cell.write = [\"linked\"]", "leads through the link", "name what is meant");
    place.refused("cell.read = [\"/proc/self\"]", "lies in /proc", "remove it");
    place.refused("cell.read = [\"/etc\"]", "every cell replaces with its own", "name the files");
    let socket = std::os::unix::net::UnixListener::bind(place.at("socket")).unwrap();
    place.refused("cell.read = [\"socket\"]", "neither a file nor a folder", "remove it");
    drop(socket);
}

#[test]
fn configurations_and_data_folders_of_other_brokers_are_protected_in_a_writable_folder() {
    let place = TestFolder::new();
    assert_eq!(place.grant("cell.write = [\"out\"]").unwrap().protected, Vec::<PathBuf>::new());
    std::fs::create_dir_all(place.at("out/.portcullis/run")).unwrap();
    std::fs::write(place.at("out/portcullis.toml"), "").unwrap();
    let protected = [place.at("out/portcullis.toml"), place.at("out/.portcullis")];
    assert_eq!(place.grant("cell.write = [\"out\"]").unwrap().protected, protected);
    place.refused("cell.write = [\"out/.portcullis/run\"]", "lies in `.portcullis`", "grant another folder");
    place.refused("cell.write = [\"out/portcullis.toml\"]", "is or lies in `portcullis.toml`", "grant another folder");
    std::fs::remove_file(place.at("out/portcullis.toml")).unwrap();
    symlink("elsewhere", place.at("out/portcullis.toml")).unwrap();
    place.refused("cell.write = [\"out\"]", "holds the link", "rm '");
}

#[test]
fn what_brokers_trust_is_protected_at_any_depth_of_a_writable_folder() {
    let mut place = TestFolder::new();
    std::fs::create_dir_all(place.at("out/a/state/run")).unwrap();
    place.known = ["docs/note", "out/a/b.toml", "out/a/state", "out/a/state/run"].map(|name| place.at(name)).into();
    let protected = [place.at("out/a/b.toml"), place.at("out/a/state")];
    let grant = place.grant("cell.write = [\"out\"]").unwrap();
    assert_eq!(grant.protected, protected, "what holds another is enough");
    assert!(place.grant("cell.read = [\"docs\"]").unwrap().protected.is_empty());
    place.refused("cell.write = [\"out/a/state/run\"]", "which a broker trusts", "grant another folder");
    let error = grant.check_protected("somebody", |path| path == protected[0]).unwrap_err().to_string();
    let parts = [place.at("out"), protected[1].clone()].map(|path| path.display().to_string());
    assert!(parts.iter().all(|part| error.contains(part)) && error.contains("name smaller folders"), "{error}");
    grant.check_protected("somebody", |_| true).unwrap();
}

#[test]
fn data_folders_within_what_is_granted_are_hidden_and_one_that_is_granted_itself_is_not() {
    let place = TestFolder::new();
    for folder in ["docs/.portcullis/run", "docs/deep/state", "docs/deep/.portcullis", "out/.portcullis"] {
        std::fs::create_dir_all(place.at(folder)).unwrap();
    }
    std::fs::write(place.at("docs/portcullis.toml"), "").unwrap();
    symlink("data", place.at("own/.portcullis")).unwrap();
    symlink("../data", place.at("own/data/.portcullis")).unwrap();
    let known = ["docs/.portcullis/run", "docs/deep/state", "out/.portcullis", "elsewhere"].map(|name| place.at(name));
    let hidden = |folders: &[&str]| {
        let folders: Vec<PathBuf> = folders.iter().map(|name| place.at(name)).collect();
        let mut grant = CellGrant::nothing();
        grant.hide_data_folders(&folders, &known);
        grant.hidden
    };
    let places = |names: &[&str]| names.iter().map(|name| place.at(name)).collect::<Vec<_>>();
    let all = ["docs/.portcullis", "docs/deep/state", "out/.portcullis"];
    assert_eq!(hidden(&["docs", "out"]), places(&all), "what holds another is enough");
    assert_eq!(hidden(&["docs/deep"]), places(&["docs/deep/.portcullis", "docs/deep/state"]));
    assert_eq!(hidden(&["docs/.portcullis"]), places(&["docs/.portcullis/run"]), "a data folder within one");
    assert!(hidden(&["out/.portcullis", "docs/deep/state", "docs/note", "own/data", "absent"]).is_empty());
    assert_eq!(hidden(&["own"]), places(&["own/data"]), "a link to it");
}

#[test]
fn a_component_gets_no_folder_with_a_data_folder_that_only_a_mount_could_protect() {
    let mut place = TestFolder::new();
    std::fs::create_dir_all(place.at("out/a/.portcullis")).unwrap();
    let grant = |place: &TestFolder| {
        let text = "[sources.s]\ncomponent = \"s.wasm\"\ncell.write = [\"out\"]\n";
        let config = Config::parse(text, &place.at("portcullis.toml")).unwrap();
        CellGrant::of(config.sources.values().next().unwrap(), &[], &place.known)
    };
    place.known = vec![place.at("out/a/.portcullis")];
    grant(&place).unwrap();
    place.known.push(place.at("out/a/state"));
    let error = grant(&place).unwrap_err().to_string();
    assert!(error.contains("a component") && error.contains("out/a/state"), "{error}");
}

#[test]
fn overlapping_paths_are_refused() {
    let place = TestFolder::new();
    for more in [
        "cell = { read = [\"docs/deep\"], write = [\"docs\"] }",
        "cell = { read = [\"docs\"], write = [\"docs/deep\"] }",
        "cell = { read = [\"docs\", \"docs/note\"] }",
        "cell = { read = [\"docs\"], write = [\"docs\"] }",
    ] {
        place.refused(more, "lies within", "keep one of them");
    }
}

#[test]
fn the_brokers_own_files_are_granted_to_nobody_under_any_name() {
    let place = TestFolder::new();
    // The data folder is `own/data`; another name for it is found by resolving links, not by comparing text.
    symlink(place.at("own"), place.at("other")).unwrap();
    let config = |data: &str| {
        format!("[broker]\ndata-dir = \"{data}\"\n[sources.s]\ncommand = [\"server\"]\ncell.read = [\"own\"]\n")
    };
    let parsed = Config::parse(&config("other/data"), &place.at("portcullis.toml")).unwrap();
    let source = parsed.sources.values().next().unwrap();
    let error = CellGrant::of(source, std::slice::from_ref(&parsed.data_dir), &[]).unwrap_err().to_string();
    assert!(error.contains("the broker's own"), "{error}");
    place.refused("cell.read = [\"portcullis.toml\"]", "the broker's own", "elsewhere");
}

#[test]
fn the_working_directory_is_in_the_cell_or_the_private_home() {
    let place = TestFolder::new();
    let programs = crate::ProgramSearch { search: "/usr/bin:/bin".into(), home: None, own: Vec::new() };
    let mut needs = ProgramNeeds::of(&["sh".to_owned()], None, None, &programs).unwrap();
    let mut directory = |cwd: &str, more: &str, needed: Option<&str>| {
        needs.read = needed.into_iter().map(|name| place.at(name)).collect();
        let mut grant = place.grant(more).unwrap();
        grant.start_in(&place.at(cwd), &needs);
        grant.directory
    };
    assert_eq!(directory("docs/deep", "cell.read = [\"docs\"]", None), Some(place.at("docs/deep")));
    assert_eq!(directory("docs", "cell.read = [\"docs/deep\"]", None), Some(place.at("docs")), "it holds a grant");
    assert_eq!(directory("out", "", Some("out")), Some(place.at("out")), "the program itself stands there");
    assert_eq!(directory("out", "cell.read = [\"docs\"]", None), None);
    let mut grant = place.grant("cell.read = [\"docs\"]").unwrap();
    grant.hidden = vec![place.at("docs/deep")];
    grant.start_in(&place.at("docs/deep"), &needs);
    assert_eq!(grant.directory, None, "a hidden folder");
    place.refused("cwd = \"absent\"", "is not a folder", "create it");
}
