#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::fs;
use std::time::Duration;

use super::*;

fn loaded(path: PathBuf) -> RecordedAttempt {
    RecordedAttempt {
        action: AttemptAction::Read,
        subject: AttemptSubject::Path(path),
        availability: AttemptAvailability::Granted,
        count: 1,
        after: Duration::ZERO,
        program: String::new(),
    }
}

fn written(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    file
}

fn names(uses: &[VariableUse]) -> Vec<&str> {
    uses.iter().map(|used| used.name.as_str()).collect()
}

#[test]
fn variables_are_found_in_each_way_of_reading_them() {
    let code = "const key = process.env.BRAVE_API_KEY ?? process.env['BRAVE_KEY'];\n\
                url = os.environ.get(\"JIRA_URL\") or os.environ['JIRA_SITE'] or os.getenv(\n\
                os.getenv( 'JIRA_TOKEN'), process.env.HOME, process.env.NODE_ENV, process.env[name], process.env.lower,\n\
                process.env.XDG_CONFIG_HOME, Deno.env.get(\"NOTES_FOLDER\")";
    let found = names_in(code);
    let mut names: Vec<(&str, usize)> = found.iter().map(|(name, line)| (name.as_str(), *line)).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(
        names,
        [
            ("BRAVE_API_KEY", 1),
            ("BRAVE_KEY", 1),
            ("JIRA_SITE", 2),
            ("JIRA_TOKEN", 3),
            ("JIRA_URL", 2),
            ("NOTES_FOLDER", 4)
        ]
    );
}

#[test]
fn the_code_of_libraries_is_not_that_of_the_server() {
    let root = tempfile::tempdir().unwrap();
    let own = written(root.path(), "node_modules/@acme/notes/dist/index.js", "process.env.NOTES_KEY");
    let library = written(root.path(), "node_modules/@acme/notes/node_modules/pg/index.js", "process.env.PGHOST");
    let beside = written(root.path(), "node_modules/undici/index.js", "process.env.UNDICI_X");
    let attempts: Vec<_> = [own.clone(), library, beside].map(loaded).into();
    let found = variables_read(&attempts, Some("npm:@acme/notes"), &[]);
    assert_eq!(found, [VariableUse { name: "NOTES_KEY".to_owned(), file: own, line: 1 }]);

    let server = written(root.path(), "srv/build/index.js", "\nprocess.env.SERVER_KEY");
    let part = written(root.path(), "srv/build/tools/a.js", "process.env.TOOL_KEY");
    let other = written(root.path(), "other/a.js", "process.env.OTHER_KEY");
    let attempts: Vec<_> = [server.clone(), part, other].map(loaded).into();
    let found = variables_read(&attempts, None, &[server]);
    assert_eq!(names(&found), ["SERVER_KEY", "TOOL_KEY"]);
    assert_eq!(found[0].line, 2);
}

#[test]
fn a_compiled_module_of_python_stands_for_its_source_if_its_distribution_lists_it() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("lib/python3.13/site-packages");
    written(&folder, "acme_notes/server.py", "KEY = os.environ[\"NOTES_KEY\"]");
    written(&folder, "httpx/_config.py", "os.environ.get('HTTPX_LOG_LEVEL')");
    written(
        &folder,
        "Acme_Notes-1.2.0.dist-info/RECORD",
        "acme_notes/__init__.py,sha256=x,0\nacme_notes/server.py,sha256=y,34\n",
    );
    let attempts: Vec<_> =
        ["acme_notes/__pycache__/server.cpython-313.pyc", "httpx/__pycache__/_config.cpython-313.pyc"]
            .map(|name| loaded(folder.join(name)))
            .into();
    assert_eq!(names(&variables_read(&attempts, Some("pypi:acme-notes"), &[])), ["NOTES_KEY"]);
    assert_eq!(names(&variables_read(&attempts, Some("pypi:other"), &[])), [] as [&str; 0]);
}

#[test]
fn what_was_not_loaded_is_not_searched() {
    let root = tempfile::tempdir().unwrap();
    let server = written(root.path(), "server.js", "process.env.SERVER_KEY");
    let hidden = RecordedAttempt { availability: AttemptAvailability::Hidden, ..loaded(server.clone()) };
    assert_eq!(variables_read(&[hidden], None, std::slice::from_ref(&server)), []);
    assert_eq!(variables_read(&[loaded(root.path().join("absent.js"))], None, &[server]), []);
}

#[test]
fn what_the_source_put_in_the_place_of_its_code_is_neither_followed_nor_waited_for() {
    let root = tempfile::tempdir().unwrap();
    let (pipe, link) = (root.path().join("pipe.js"), root.path().join("link.js"));
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(written(elsewhere.path(), "other.js", "process.env.OTHER_KEY"), &link).unwrap();
    let attempts = [loaded(pipe.clone()), loaded(link)];
    assert_eq!(variables_read(&attempts, None, &[pipe]), []);
}
