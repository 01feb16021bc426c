#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use super::*;

fn folder() -> (tempfile::TempDir, PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("data");
    (temp, folder)
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

#[test]
fn a_secret_is_kept_for_its_owner_alone_and_given_back() {
    let (_temp, folder) = folder();
    let secrets = SecretStore::open(&folder).unwrap();
    assert!(secrets.list().unwrap().is_empty() && !folder.exists(), "opening creates nothing");
    secrets.set("files-key", &"s3\"cr\u{e9}t\n".into()).unwrap();
    secrets.set("files-key", &"second".into()).unwrap();
    secrets.set("a.b_c", &"x".into()).unwrap();
    assert_eq!((mode(&folder), mode(&folder.join(FILE))), (0o700, 0o600));
    assert_eq!(SecretStore::open(&folder).unwrap().get("files-key").unwrap().expose_secret(), "second");
    assert_eq!(secrets.list().unwrap(), ["a.b_c", "files-key"]);
    secrets.remove("files-key").unwrap();
    assert!(matches!(secrets.get("files-key"), Err(SecretError::Unset(name)) if name == "files-key"));
    assert!(matches!(secrets.remove("files-key"), Err(SecretError::Unset(_))));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2, "nothing but the file and its lock is left");
}

#[test]
fn what_others_may_read_is_refused_with_the_command_to_run() {
    let (_temp, folder) = folder();
    let secrets = SecretStore::open(&folder).unwrap();
    secrets.set("key", &"value-nobody-may-see".into()).unwrap();
    let file = folder.join(FILE);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let error = secrets.get("key").unwrap_err().to_string();
    assert!(error.contains(&format!("chmod 600 '{}'", file.display())) && error.contains("mode 640"), "{error}");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let error = SecretStore::open(&folder).unwrap_err().to_string();
    assert!(error.contains(&format!("chmod 700 '{}'", folder.display())), "{error}");
    assert!(secrets.set("key", &"new".into()).is_err(), "nothing is written into an open folder");
}

#[test]
fn a_link_in_the_place_of_the_file_is_not_followed() {
    let (temp, folder) = folder();
    let secrets = SecretStore::open(&folder).unwrap();
    secrets.set("key", &"value".into()).unwrap();
    let elsewhere = temp.path().join("elsewhere");
    std::fs::rename(folder.join(FILE), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, folder.join(FILE)).unwrap();
    assert!(matches!(secrets.get("key"), Err(SecretError::Io { .. })));
}

#[test]
fn no_message_and_no_debug_shows_a_value() {
    let (_temp, folder) = folder();
    let secrets = SecretStore::open(&folder).unwrap();
    secrets.set("key", &"hunter2".into()).unwrap();
    let value = secrets.resolve(&ConfigValue::Secret("key".into())).unwrap();
    std::fs::write(folder.join(FILE), "{\"key\":\"hunter2\" garbage").unwrap();
    let damaged = secrets.get("key").unwrap_err();
    let bad = secrets.set("key", &"hunter2\0".into()).unwrap_err();
    let shown = format!("{secrets:?} {value:?} {damaged} {damaged:?} {bad} {bad:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(matches!(damaged, SecretError::Damaged(_)));
}

#[test]
fn names_and_values_have_limits() {
    let (_temp, folder) = folder();
    let secrets = SecretStore::open(&folder).unwrap();
    for bad in ["", "a b", "../x", "-x", "é", "a=b", &"x".repeat(129)] {
        assert!(matches!(secrets.set(bad, &"v".into()), Err(SecretError::Name(_))), "{bad:?}");
    }
    for bad in ["", "\0", &"x".repeat(MAX_VALUE_BYTES + 1)] {
        assert!(matches!(secrets.set("name", &bad.into()), Err(SecretError::Value(_))));
    }
    assert!(!folder.exists(), "a refusal leaves nothing behind");
}

#[test]
fn many_writers_lose_nothing() {
    let (_temp, folder) = folder();
    std::thread::scope(|scope| {
        for i in 0..8 {
            let folder = &folder;
            scope.spawn(move || SecretStore::open(folder).unwrap().set(&format!("name-{i}"), &"value".into()).unwrap());
        }
    });
    assert_eq!(SecretStore::open(&folder).unwrap().list().unwrap().len(), 8);
}
