//! A component's access to the files of the folders that it is granted.

use super::*;

#[tokio::test]
async fn a_component_neither_makes_nor_changes_a_configuration_in_what_it_may_write() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("inner/.portcullis")).unwrap();
    std::fs::write(dir.path().join("inner/portcullis.toml"), "as it was").unwrap();
    let mut access = ComponentAccess::default();
    access.grant.write.push(dir.path().to_owned());
    let source = explorer(access).await;
    let call = async |tool: &str, path: &str| {
        let arguments = json!({ "path": dir.path().join(path), "text": "planted" });
        let Outcome::Answered(answer) = source.call(permit(tool, arguments), &no_client(), silent()).await else {
            panic!()
        };
        text(&answer)
    };
    for path in ["portcullis.toml", "Portcullis.TOML", "inner/portcullis.toml", ".portcullis", "inner/.portcullis/lock"]
    {
        let (is_error, said) = call("write", path).await;
        assert!(is_error && said.contains("os error 63"), "{path}: {said}");
        assert!(!dir.path().join(path).exists() || path == "inner/portcullis.toml", "{path}");
    }
    assert_eq!(call("read", "inner/portcullis.toml").await, (false, "as it was".into()));
    // A link came with a repository, or a program makes it meanwhile.
    std::fs::write(dir.path().join("inner/.portcullis/secrets.json"), "a secret").unwrap();
    for (target, link) in [(".portcullis", "inner/data"), ("inner/portcullis.toml", "conf"), ("inner", "other")] {
        std::os::unix::fs::symlink(target, dir.path().join(link)).unwrap();
    }
    for path in ["inner/data/lock", "other/data/lock", "conf", "other/portcullis.toml", "portculli\u{17f}.toml"] {
        let (is_error, said) = call("write", path).await;
        assert!(is_error && said.contains("os error 63"), "{path}: {said}");
    }
    for path in ["inner/.portcullis/secrets.json", "inner/data/secrets.json", "other/data/secrets.json"] {
        let (is_error, said) = call("read", path).await;
        assert!(is_error && said.contains("os error 63"), "{path}: {said}");
    }
    assert_eq!(call("read", "conf").await, (false, "as it was".into()));
    assert_eq!(call("write", "other/new.txt").await, (false, "written".into()), "other links are followed");
    assert!(!dir.path().join("inner/.portcullis/lock").exists());
    assert_eq!(call("write", "portcullis.txt").await, (false, "written".into()));
}

#[tokio::test]
async fn each_way_to_change_files_spares_configurations_and_data_folders_and_leaves_nothing_open() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("inner/.portcullis/run")).unwrap();
    for (file, text) in [("portcullis.toml", "as it was"), (".portcullis/secrets.json", "a secret"), ("free", "free")] {
        std::fs::write(dir.path().join("inner").join(file), text).unwrap();
    }
    for (target, link) in [(".portcullis", "inner/data"), ("inner/portcullis.toml", "conf")] {
        std::os::unix::fs::symlink(target, dir.path().join(link)).unwrap();
    }
    let mut access = ComponentAccess::default();
    access.grant.write.push(dir.path().to_owned());
    let source = explorer(access).await;
    let at = |path: &str| dir.path().join(path).to_str().unwrap().to_owned();
    let change = async |how: &str, path: &str, to: &str| {
        let path = if how == "symlink" { path.to_owned() } else { at(path) };
        let arguments = json!({ "how": how, "path": path, "to": at(to) });
        match source.call(permit("change", arguments), &no_client(), silent()).await {
            Outcome::Answered(answer) => text(&answer),
            ended => (true, format!("{ended:?}")),
        }
    };
    let modified = |path: &str| std::fs::metadata(at(path)).and_then(|about| about.modified()).ok();
    let mut wrong = Vec::new();
    let before = ["inner/portcullis.toml", "inner/.portcullis/secrets.json"].map(modified);
    for (how, path, to) in [
        ("folder", "inner/data/new", ""),
        ("folder", "portcullis.toml", ""),
        ("remove", "inner/portcullis.toml", ""),
        ("remove", "inner/data/secrets.json", ""),
        ("remove-folder", "inner/data/run", ""),
        ("rename", "inner/portcullis.toml", "inner/mine"),
        ("rename", "inner/.portcullis", "mine"),
        ("rename", "inner/data/secrets.json", "inner/mine"),
        ("rename", "inner/free", "inner/portcullis.toml"),
        ("rename", "inner/free", "inner/data/free"),
        ("link", "inner/data/secrets.json", "inner/mine"),
        ("link", "inner/portcullis.toml", "inner/mine"),
        ("link", "inner/free", "inner/data/free"),
        ("symlink", "inner/.portcullis", "mine"),
        ("symlink", "free", "inner/Portcullis.toml"),
        ("symlink", "free", "inner/data/free"),
        ("touch", "inner/portcullis.toml", ""),
        ("touch", "conf", ""),
        ("touch", "inner/data/secrets.json", ""),
    ] {
        let (is_error, said) = change(how, path, to).await;
        if !is_error || !said.contains("os error 63") {
            wrong.push(format!("{how} {path} {to}: {said}"));
        }
    }
    if ["inner/portcullis.toml", "inner/.portcullis/secrets.json"].map(modified) != before {
        wrong.push("a time was set".to_owned());
    }
    for (how, path, to, error) in [
        ("folder", "inner", "", 20),
        ("remove", "inner/none", "", 44),
        ("remove-folder", "inner/none", "", 44),
        ("rename", "inner/none", "inner/mine", 44),
        ("link", "inner/none", "inner/mine", 44),
        ("symlink", "free", "inner/free", 20),
        ("touch", "inner/none", "", 44),
    ] {
        let (is_error, said) = change(how, path, to).await;
        if !is_error || !said.contains(&format!("os error {error})")) {
            wrong.push(format!("{how} {path} {to}: {said}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn a_link_that_takes_the_place_of_a_granted_folder_leads_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let (open, secret) = (dir.path().join("open"), dir.path().join("secret"));
    for (folder, text) in [(&open, "a note"), (&secret, "a secret")] {
        std::fs::create_dir(folder).unwrap();
        std::fs::write(folder.join("note.txt"), text).unwrap();
    }
    let mut access = ComponentAccess::default();
    access.grant.read.push(open.clone());
    let source = explorer(access).await;
    let read = async || {
        let arguments = json!({ "path": open.join("note.txt") });
        let Outcome::Answered(answer) = source.call(permit("read", arguments), &no_client(), silent()).await else {
            panic!()
        };
        text(&answer)
    };
    assert_eq!(read().await, (false, "a note".into()));
    std::fs::rename(&open, dir.path().join("away")).unwrap();
    std::os::unix::fs::symlink("secret", &open).unwrap();
    // Instances that were prepared earlier still have the former folder open.
    let mut said = Vec::new();
    while said.last().is_none_or(|(refused, _)| !refused) {
        said.push(read().await);
        assert_ne!(said.last().unwrap().1, "a secret");
    }
    assert!(said.last().unwrap().1.contains("cannot be opened"), "{said:?}");
}
