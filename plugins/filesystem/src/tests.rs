#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use super::*;

/// Creates a folder with a few files.
fn folder() -> (tempfile::TempDir, Filesystem) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("docs/deep")).unwrap();
    fs::write(dir.path().join("docs/a.md"), "# One\nA Needle here\n").unwrap();
    fs::write(dir.path().join("docs/deep/b.txt"), "needle in depth\n").unwrap();
    fs::write(dir.path().join("docs/bytes"), [0xff, 0xfe]).unwrap();
    let filesystem = Filesystem { folders: vec![dir.path().to_owned()] };
    (dir, filesystem)
}

fn call(filesystem: &Filesystem, tool: &str, arguments: serde_json::Value) -> Result<String, Failure> {
    let answer = filesystem.call(&mut (), tool, &arguments.to_string())?;
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["isError"], false);
    Ok(answer["content"][0]["text"].as_str().unwrap().to_owned())
}

#[test]
fn folders_are_listed() {
    let (dir, filesystem) = folder();
    assert_eq!(call(&filesystem, "list", json!({})).unwrap(), format!("{}/\n", dir.path().display()));
    let listed = call(&filesystem, "list", json!({ "path": dir.path().join("docs") })).unwrap();
    assert_eq!(listed, "a.md (20 bytes)\nbytes (2 bytes)\ndeep/");
    let Err(Failure::Failed(why)) = call(&filesystem, "list", json!({ "path": "/missing" })) else { panic!() };
    assert!(why.contains("/missing cannot be listed") && why.contains("`list` without a path"), "{why}");
}

#[test]
fn a_file_is_read_whole_or_in_pieces_between_characters() {
    let (dir, filesystem) = folder();
    let path = dir.path().join("text");
    fs::write(&path, "aé€z").unwrap();
    let read = |arguments| call(&filesystem, "read", arguments);
    assert_eq!(read(json!({ "path": path })).unwrap(), "aé€z");
    assert_eq!(read(json!({ "path": path, "limit": 4 })).unwrap(), "aé\n[4 of 7 bytes follow; go on with offset 3]");
    assert_eq!(read(json!({ "path": path, "offset": 3 })).unwrap(), "€z");
    assert_eq!(read(json!({ "path": path, "offset": 2 })).unwrap(), "€z", "the offset is within a character");
    for limit in [0, 1] {
        let piece = read(json!({ "path": path, "offset": 1, "limit": limit })).unwrap();
        assert_eq!(piece, "é\n[4 of 7 bytes follow; go on with offset 3]", "one character at least");
    }
    assert_eq!(read(json!({ "path": path, "offset": 100 })).unwrap(), "");
    let Err(Failure::Failed(why)) = read(json!({ "path": dir.path().join("docs/bytes") })) else { panic!() };
    assert!(why.contains("is not text: its 2 bytes"), "{why}");
}

#[test]
fn a_file_is_written_as_a_whole_and_nothing_else_is_left() {
    let (dir, filesystem) = folder();
    let path = dir.path().join("new/folder/file.txt");
    for text in ["first", "second, longer"] {
        call(&filesystem, "write", json!({ "path": path, "text": text })).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    std::thread::scope(|scope| {
        for letter in ["a", "b", "c", "d"] {
            let (filesystem, path, text) = (&filesystem, &path, letter.repeat(100_000));
            scope.spawn(move || {
                for _ in 0..50 {
                    call(filesystem, "write", json!({ "path": path, "text": text })).unwrap();
                }
            });
        }
    });
    let written = fs::read_to_string(&path).unwrap();
    assert!(written.len() == 100_000 && written.chars().all(|letter| written.starts_with(letter)), "mixed");
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    let Err(Failure::Failed(why)) = call(&filesystem, "write", json!({ "path": dir.path().join("docs"), "text": "" }))
    else {
        panic!()
    };
    assert!(why.contains("cannot be written"), "{why}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no half file is left");
}

#[test]
fn names_and_lines_are_found_and_links_are_not_followed() {
    let (dir, filesystem) = folder();
    #[cfg(unix)]
    std::os::unix::fs::symlink(dir.path(), dir.path().join("docs/loop")).unwrap();
    let search = |arguments| call(&filesystem, "search", arguments).unwrap();
    let root = dir.path().display();
    assert_eq!(search(json!({ "name": "*.md" })), format!("{root}/docs/a.md"));
    assert_eq!(
        search(json!({ "text": "needle" })),
        format!("{root}/docs/a.md:2: A Needle here\n{root}/docs/deep/b.txt:1: needle in depth")
    );
    assert_eq!(search(json!({ "path": dir.path().join("docs/deep"), "name": "*.md" })), "nothing found in 1 files");
}

#[test]
fn the_definitions_are_true_of_the_tools() {
    let (_dir, filesystem) = folder();
    let definitions: Vec<serde_json::Value> = serde_json::from_str(&filesystem.definitions().unwrap()).unwrap();
    let writes: Vec<_> = definitions.iter().filter(|tool| tool["annotations"]["readOnlyHint"] == false).collect();
    assert_eq!(
        (writes.len(), &writes[0]["name"], &writes[0]["annotations"]["destructiveHint"]),
        (1, &json!("write"), &json!(true))
    );
    assert_eq!(call(&filesystem, "remove", json!({})), Err(Failure::UnknownTool));
    let Err(Failure::InvalidArguments(why)) = call(&filesystem, "read", json!({ "file": "x" })) else { panic!() };
    assert!(why.contains("unknown field `file`"), "{why}");
}

#[test]
fn a_path_that_leads_up_is_refused_by_every_tool() {
    let (dir, filesystem) = folder();
    let path = dir.path().join("docs/../docs/a.md");
    for (tool, more) in
        [("list", json!({})), ("read", json!({})), ("write", json!({ "text": "x" })), ("search", json!({}))]
    {
        let mut arguments = more;
        arguments["path"] = json!(path);
        let Err(Failure::InvalidArguments(why)) = call(&filesystem, tool, arguments) else { panic!("{tool}") };
        assert!(why.contains("must not have `..`"), "{tool}: {why}");
    }
    assert_eq!(fs::read_to_string(dir.path().join("docs/a.md")).unwrap(), "# One\nA Needle here\n");
}
