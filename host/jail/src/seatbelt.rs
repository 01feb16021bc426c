//! A cell as a profile of Seatbelt, the sandbox of macOS.

use std::fmt::Write;
use std::path::Path;

use crate::cell::{CellSpec, MountAccess};

/// The rules that every program needs to start: those that Apple ships for that, and its own threads and processes.
const EVERYBODY: &str = "(version 1)
(deny default)
(import \"system.sb\")
(allow process-fork)
(allow signal (target same-sandbox))
(allow sysctl-read)
(deny network*)
";

/// Returns a profile that denies everything that is not granted. The metadata of folders above a granted path stays
/// visible.
pub(crate) fn profile(cell: &CellSpec, program: &Path) -> String {
    let mut profile = EVERYBODY.to_owned();
    allow(&mut profile, "process-exec file-read*", program);
    for mount in &cell.mounts {
        allow(&mut profile, "process-exec file-read*", &mount.path);
        if mount.access == MountAccess::Write {
            allow(&mut profile, "file-write*", &mount.path);
        }
    }
    allow(&mut profile, "process-exec file-read* file-write*", &cell.home);
    // Of the rules that match, the last decides.
    for name in &cell.protected_names {
        let _ = writeln!(profile, "(deny file-write* (regex #\"/{}(/|$)\"))", in_any_case(name));
    }
    for path in &cell.hidden {
        let _ = writeln!(profile, "(deny process-exec file-read* file-write* (subpath {}))", quoted(path));
    }
    profile
}

/// Returns a regular expression for a name of ASCII characters in capital and small letters.
fn in_any_case(name: &str) -> String {
    let letter = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' => format!("[{}{}]", letter.to_ascii_lowercase(), letter.to_ascii_uppercase()),
        '0'..='9' | '-' | '_' => letter.to_string(),
        '.' => "[.]".to_owned(),
        // Any one character: more names than meant.
        _ => ".".to_owned(),
    };
    name.chars().map(letter).collect()
}

fn allow(profile: &mut String, operations: &str, path: &Path) {
    // Writing to a string cannot fail.
    let _ = writeln!(profile, "(allow {operations} (subpath {}))", quoted(path));
    for above in path.ancestors().skip(1) {
        let _ = writeln!(profile, "(allow file-read-metadata (literal {}))", quoted(above));
    }
}

fn quoted(path: &Path) -> String {
    format!("\"{}\"", path.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Mount;

    #[test]
    fn a_profile_denies_first_and_no_path_ends_its_string() {
        let mounts = vec![Mount::read("/usr"), Mount::write("/a \")(allow default)(\\")];
        let cell = CellSpec { mounts, home: "/private".into(), ..CellSpec::default() };
        let profile = profile(&cell, Path::new("/usr/bin/true"));
        assert!(profile.starts_with("(version 1)\n(deny default)\n"), "{profile}");
        assert!(profile.contains("(allow process-exec file-read* (subpath \"/usr\"))\n"), "{profile}");
        assert!(!profile.contains("file-write* (subpath \"/usr\")"), "{profile}");
        assert!(profile.contains(r#"(allow file-write* (subpath "/a \")(allow default)(\\"))"#), "{profile}");
    }

    #[test]
    fn a_profile_denies_changes_under_protected_names_after_everything_that_it_allows() {
        let mounts = vec![Mount::write("/work")];
        let protected_names = vec!["a.toml".to_owned(), "b\"c".to_owned()];
        let cell = CellSpec { mounts, home: "/private".into(), protected_names, ..CellSpec::default() };
        let profile = profile(&cell, Path::new("/usr/bin/true"));
        let denied = "(deny file-write* (regex #\"/[aA][.][tT][oO][mM][lL](/|$)\"))\n\
                      (deny file-write* (regex #\"/[bB].[cC](/|$)\"))\n";
        assert!(profile.ends_with(denied), "{profile}");
    }

    #[test]
    fn a_profile_denies_hidden_folders_after_everything_that_it_allows() {
        let mounts = vec![Mount::read("/code"), Mount::write("/code/out")];
        let hidden = vec!["/code/.kept".into(), "/code/out/a\"b".into()];
        let protected_names = vec!["a".to_owned()];
        let cell = CellSpec { mounts, hidden, protected_names, home: "/private".into(), ..CellSpec::default() };
        let profile = profile(&cell, Path::new("/usr/bin/true"));
        let denied = "(deny process-exec file-read* file-write* (subpath \"/code/.kept\"))\n\
                      (deny process-exec file-read* file-write* (subpath \"/code/out/a\\\"b\"))\n";
        assert!(profile.ends_with(denied), "{profile}");
    }
}
