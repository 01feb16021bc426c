//! A data folder that came with a cloned repository or an archive: links, devices and pipes in place of files.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::{index, state};

fn pipe(path: &Path) {
    rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RWXU).unwrap();
}

/// Returns the name of a chain that no broker has made.
fn name() -> String {
    ulid::Ulid::generate().to_string()
}

#[tokio::test]
async fn a_lock_file_of_a_chain_that_is_a_pipe_or_a_link_is_none_and_stops_nothing() {
    let dir = folder();
    let chains = dir.path().join(chain::FOLDER);
    fs::create_dir(&chains).unwrap();
    for extension in ["lock", "ended", "sealed"] {
        pipe(&chains.join(name()).with_extension(extension));
        symlink("/dev/zero", chains.join(name()).with_extension(extension)).unwrap();
    }
    for chain in chain::all(dir.path()).unwrap() {
        assert!(!is_live(dir.path(), &chain) && !chain::is_ended(dir.path(), &chain));
        assert_eq!(chain::witness(dir.path(), &chain), None);
    }
    assert!(!has_live_chain(dir.path()).unwrap());
    let chain = closed(dir.path(), 1).await;
    assert_eq!(stored(&segments(dir.path()), &chain).1, ChainEnd::Clean);
}

#[tokio::test]
async fn records_that_are_a_device_or_a_pipe_are_an_error_that_names_them() {
    let dir = folder();
    closed(dir.path(), 1).await;
    for is_pipe in [false, true] {
        let chain = name();
        let path = segment(dir.path(), &chain);
        if is_pipe {
            pipe(&path)
        } else {
            symlink("/dev/zero", &path).unwrap()
        }
        let storage = segments(dir.path());
        let refused = [
            storage.read(&chain, ChainPosition::default()).err().unwrap(),
            storage.finish(&chain, ChainPosition { segment: 1, offset: 0 }, &ChainEnd::Clean).unwrap_err(),
        ];
        for error in refused {
            let error = error.to_string();
            assert!(error.contains(&format!("{path:?}: it is ")) && error.contains("`rm "), "{error}");
        }
    }
}

#[tokio::test]
async fn a_ledger_is_written_through_no_link() {
    let dir = folder();
    let (elsewhere, victim) = (dir.path().join("elsewhere"), dir.path().join("victim"));
    fs::create_dir(&elsewhere).unwrap();
    let data = dir.path().join("data");
    for name in ["chains", "records", "keys", "ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"] {
        let is_file = name.contains('.');
        fs::create_dir(&data).unwrap();
        fs::write(&victim, "").unwrap();
        symlink(if is_file { &victim } else { &elsewhere }, data.join(name)).unwrap();
        let error = Ledger::open(&data, started()).await.err().unwrap().to_string();
        assert!(error.contains(name) && error.contains("symbolic link") && error.contains("run `rm '"), "{error}");
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "{name}");
        assert_eq!(fs::read(&victim).unwrap(), b"", "{name}");
        fs::remove_dir_all(&data).unwrap();
    }
    fs::create_dir(&data).unwrap();
    pipe(&data.join("ledger.sqlite"));
    let error = Ledger::open(&data, started()).await.err().unwrap().to_string();
    assert!(error.contains("not a file"), "{error}");
    assert!(state::open_reader(&data).unwrap_err().to_string().contains("not a file"));
}

#[tokio::test]
async fn an_index_that_is_a_link_or_a_pipe_is_made_anew() {
    let dir = folder();
    let victim = dir.path().join("victim");
    let data = dir.path().join("data");
    closed(&data, 1).await;
    let path = index::path(&data);
    for is_pipe in [false, true] {
        index::remove(&data);
        fs::write(&victim, "").unwrap();
        if is_pipe {
            pipe(&path)
        } else {
            symlink(&victim, &path).unwrap()
        }
        index::RecordIndex::open(&data, Arc::new(segments(&data))).unwrap().refresh().unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(fs::read(&victim).unwrap(), b"");
    }
}
