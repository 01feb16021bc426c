//! What a process source is started with: program, environment and folders, all made by the broker.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use portcullis_jail::Launch;

use crate::source::SourceError;

/// Where programs are on every system. A source finds these, and what it needs itself.
const STANDARD: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// The longest first line of a script that is looked at for its interpreter: what the kernel reads.
const MAX_SHEBANG_BYTES: u64 = 256;

/// Puts together what is to be started, and makes the private folders.
///
/// # Errors
/// [`SourceError::Start`] if the program is not found or a folder cannot be made.
pub(super) fn launch(
    name: &str,
    argv: &[String],
    cwd: Option<&Path>,
    env: &[(String, String)],
    folder: &Path,
) -> Result<Launch, SourceError> {
    #[expect(
        clippy::disallowed_methods,
        reason = "where programs are found; the source itself sees only what is listed"
    )]
    let search = std::env::var_os("PATH").unwrap_or_default();
    let (program, arguments) =
        argv.split_first().ok_or_else(|| SourceError::Start("an empty `command`; name a program".to_owned()))?;
    let program = resolve(program, &search).map_err(SourceError::Start)?;
    tracing::info!(source = name, program = %program.display(), "program of the source");
    let home = private(&folder.join("home"))?;
    let temporary = private(&folder.join("tmp"))?;
    let mut environment: Vec<(String, OsString)> = vec![
        ("PATH".to_owned(), path_for(&program, &search)),
        ("HOME".to_owned(), home.clone().into()),
        ("TMPDIR".to_owned(), temporary.into()),
        ("LANG".to_owned(), "C.UTF-8".into()),
    ];
    for (key, value) in env {
        environment.retain(|(made, _)| made != key);
        environment.push((key.clone(), value.into()));
    }
    let directory = cwd.map_or(home, Path::to_owned);
    if !directory.is_dir() {
        let directory = directory.display();
        return Err(SourceError::Start(format!("`cwd` {directory} is no folder; create it or change `cwd`")));
    }
    Ok(Launch { program, arguments: arguments.iter().map(OsString::from).collect(), environment, directory })
}

/// The absolute path of a program, found as a shell would with the broker's own search path. Links are kept: what is
/// called `npx` behaves so because of its name.
fn resolve(program: &str, search: &OsString) -> Result<PathBuf, String> {
    if program.contains('/') {
        let path = std::path::absolute(program).unwrap_or_else(|_| PathBuf::from(program));
        return match std::fs::metadata(&path) {
            Err(error) => Err(format!("program {} cannot be read: {error}; correct `command`", path.display())),
            Ok(_) if is_program(&path) => Ok(path),
            Ok(_) => Err(format!("{} is not an executable file; correct `command` or chmod +x it", path.display())),
        };
    }
    find(program, search).ok_or_else(|| {
        let search = search.to_string_lossy();
        format!("program `{program}` was not found in {search} (the broker's PATH); install it or give its full path")
    })
}

fn find(program: &str, search: &OsString) -> Option<PathBuf> {
    // Relative entries of the search path would mean another program in each working directory.
    std::env::split_paths(search).filter(|dir| dir.is_absolute()).map(|dir| dir.join(program)).find(|p| is_program(p))
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The search path of the source: its program's own folder, that of the interpreter its first line names (`npx` is a
/// script of the `node` beside it, or of one elsewhere), then the standard ones. Nothing else of the user's.
fn path_for(program: &Path, search: &OsString) -> OsString {
    let interpreter = interpreter(program).and_then(|name| find(&name, search));
    let own = [Some(program), interpreter.as_deref()].into_iter().flatten().filter_map(Path::parent);
    let mut folders: Vec<&Path> = Vec::new();
    for folder in own.chain(STANDARD.iter().map(Path::new)) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    std::env::join_paths(folders).unwrap_or_else(|_| STANDARD.join(":").into())
}

/// `node` for a script that begins with `#!/usr/bin/env node`.
fn interpreter(program: &Path) -> Option<String> {
    let mut head = Vec::new();
    std::fs::File::open(program).ok()?.take(MAX_SHEBANG_BYTES).read_to_end(&mut head).ok()?;
    let line = String::from_utf8_lossy(head.strip_prefix(b"#!")?).lines().next()?.to_owned();
    let mut words = line.split_ascii_whitespace();
    let through_env = words.next()?.ends_with("/env");
    let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
    through_env.then(|| name.to_owned())
}

/// A folder that only this user can enter.
fn private(folder: &Path) -> Result<PathBuf, SourceError> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    // A folder that was there may have been wider.
    made.and_then(|()| std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)))
        .and_then(|()| std::path::absolute(folder))
        .map_err(|error| SourceError::Start(format!("cannot make the private folder {}: {error}", folder.display())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn script(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_source_finds_its_toolchain_and_nothing_else_of_the_users_path() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        script(&at("npm/npx"), "#!/usr/bin/env -S node --flag\n");
        script(&at("node/node"), "");
        std::fs::create_dir(at("private")).unwrap();
        let search = std::env::join_paths([at("private"), at("npm"), at("node")]).unwrap();
        let program = resolve("npx", &search).unwrap();
        assert_eq!(program, at("npm/npx"));
        let path = path_for(&program, &search);
        let expected = [at("npm"), at("node")].into_iter().chain(STANDARD.iter().map(PathBuf::from));
        assert_eq!(std::env::split_paths(&path).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }

    #[test]
    fn a_missing_program_names_itself_and_where_it_was_looked_for() {
        let search = OsString::from("/nowhere:relative");
        let why = resolve("no-such-server", &search).unwrap_err();
        assert!(why.contains("`no-such-server`") && why.contains("/nowhere"), "{why}");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("data");
        std::fs::write(&file, "").unwrap();
        let why = resolve(file.to_str().unwrap(), &search).unwrap_err();
        assert!(why.contains("not an executable file"), "{why}");
    }

    #[test]
    fn private_folders_are_narrowed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("wide");
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        private(&folder).unwrap();
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
