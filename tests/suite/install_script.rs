//! The installation script: it installs what it could verify, and otherwise leaves nothing behind.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::test_dir::{Ran, files, finish, tests_folder};

/// The programs that the script runs besides the shell. `sha256sum` and `curl` are added by the tests that need them.
const TOOLS: [&str; 13] =
    ["awk", "chmod", "cp", "grep", "gzip", "mkdir", "mktemp", "mv", "rm", "sh", "tar", "uname", "cat"];

/// A home in which the script is run, and the files of a release.
struct Installation {
    dir: TempDir,
    release: BTreeMap<String, Vec<u8>>,
}

impl Installation {
    fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("portcullis-install-").tempdir().unwrap();
        for folder in ["home", "tmp", "tools", "packed"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        let mut installation = Self { dir, release: BTreeMap::new() };
        installation.pack("#!/bin/sh\necho portcullis 9.9.9\n");
        for tool in TOOLS {
            installation.link(tool);
        }
        for tool in ["curl", "sha256sum", "shasum"] {
            if found(tool).is_some() {
                installation.link(tool);
            }
        }
        installation
    }

    /// Makes a release of this program.
    fn pack(&mut self, program: &str) {
        let (file, archive) = (self.path("packed/portcullis"), self.path("archive.tar.gz"));
        fs::write(&file, program).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
        let mut tar = Command::new("tar");
        tar.arg("-czf").arg(&archive).arg("-C").arg(self.path("packed")).arg("portcullis");
        assert!(tar.status().unwrap().success());
        let archive = fs::read(archive).unwrap();
        let sums = format!("{}  {}\n", checksum(&archive), archive_name());
        self.release = [(archive_name(), archive), ("SHA256SUMS".to_owned(), sums.into_bytes())].into();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Lets the script find a program.
    fn link(&self, tool: &str) {
        symlink(found(tool).unwrap(), self.path("tools").join(tool)).unwrap();
    }

    /// Lets the script no longer find a program.
    fn unlink(&self, tool: &str) {
        // It may not have been there.
        let _ = fs::remove_file(self.path("tools").join(tool));
    }

    fn sums(&mut self) -> &mut Vec<u8> {
        self.release.get_mut("SHA256SUMS").unwrap()
    }

    /// Runs a text as the script, which is read from standard input as with `curl … | sh`.
    fn run_text(&self, text: &[u8], arguments: &[&str]) -> Ran {
        let script = self.path("script");
        fs::write(&script, text).unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-s", "--"]).args(arguments).current_dir(self.path("home"));
        command.env_clear().env("PATH", self.path("tools")).env("HOME", self.path("home"));
        command.env("TMPDIR", self.path("tmp"));
        command.stdin(fs::File::open(script).unwrap()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command)
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        self.run_text(&script(), arguments)
    }

    /// Asserts that the script refuses, says why, and leaves no file in the home or among temporary files.
    fn assert_refused(&self, ran: &Ran, why: &str) {
        assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
        assert!(ran.err.contains(why), "{}", ran.err);
        self.assert_nothing_left();
    }

    fn assert_nothing_left(&self) {
        for folder in ["home", "tmp"] {
            assert_eq!(fs::read_dir(self.path(folder)).unwrap().count(), 0, "{:?}", files(&self.path(folder)));
        }
    }
}

fn script() -> Vec<u8> {
    fs::read(tests_folder().join("../host/dist/install.sh")).unwrap()
}

fn archive_name() -> String {
    format!("portcullis-{}-unknown-linux-musl.tar.gz", std::env::consts::ARCH)
}

fn checksum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

/// Returns where a program of this machine is.
fn found(tool: &str) -> Option<PathBuf> {
    ["/usr/bin", "/bin"].iter().map(|folder| Path::new(folder).join(tool)).find(|file| file.exists())
}

/// A server on the loopback address that serves the files of a release, some of them only in part.
struct ReleaseServer {
    base: String,
    requests: Arc<AtomicUsize>,
}

impl ReleaseServer {
    /// Serves these files. Of the file `cut`, half is sent before the connection is closed.
    fn start(release: &BTreeMap<String, Vec<u8>>, cut: Option<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicUsize::new(0));
        let (release, counted) = (release.clone(), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                counted.fetch_add(1, Ordering::SeqCst);
                // A client that goes away early is no error.
                let _ = serve(stream, &release, cut.as_deref());
            }
        });
        Self { base, requests }
    }
}

fn serve(mut stream: TcpStream, release: &BTreeMap<String, Vec<u8>>, cut: Option<&str>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().unwrap()?;
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let name = first.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
    let Some(bytes) = release.get(name) else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    };
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", bytes.len());
    stream.write_all(head.as_bytes())?;
    let sent = if cut == Some(name) { bytes.len() / 2 } else { bytes.len() };
    stream.write_all(&bytes[..sent])
}

#[test]
fn the_installation_script_installs_what_it_verified_and_uninstalls_it_again() {
    let installation = Installation::new();
    let server = ReleaseServer::start(&installation.release, None);
    let ran = installation.run(&["--base", &server.base]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    let program = installation.path("home/.local/bin/portcullis");
    assert!(ran.out.contains(&format!("installed portcullis 9.9.9 as {}", program.display())), "{}", ran.out);
    assert!(ran.out.contains("next: "), "{}", ran.out);
    assert_eq!(files(&installation.path("home")), std::slice::from_ref(&program));
    assert_eq!(fs::read_dir(installation.path("tmp")).unwrap().count(), 0, "temporary files are removed");
    assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o7777, 0o755);

    let again = installation.run(&["--base", &format!("{}/", server.base)]);
    assert_eq!(again.code, Some(0), "a new version replaces the old one: {}", again.err);
    assert_eq!(files(&installation.path("home")), std::slice::from_ref(&program));
    let ran = installation.run(&["--uninstall"]);
    assert!(ran.code == Some(0) && !program.exists(), "{}{}", ran.out, ran.err);

    let elsewhere = installation.path("home/some where");
    let ran = installation.run(&["--base", &server.base, "--to", "some where"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    assert_eq!(files(&installation.path("home")), [elsewhere.join("portcullis")]);
    fs::write(elsewhere.join("portcullis"), "#!/bin/sh\necho something else\n").unwrap();
    let ran = installation.run(&["--uninstall", "--to", "some where"]);
    assert!(ran.code == Some(1) && elsewhere.join("portcullis").exists(), "another program stays: {}", ran.err);
}

/// The smaller archive is taken where there is a program that unpacks it, and nothing else is then fetched.
#[test]
fn the_installation_script_takes_the_smaller_archive_if_it_can_unpack_it() {
    let mut installation = Installation::new();
    let smaller = archive_name().replace(".gz", ".xz");
    let bytes = installation.release.remove(&archive_name()).unwrap();
    let sum = checksum(&bytes);
    installation.sums().extend(format!("{sum}  {smaller}\n").into_bytes());
    installation.release.insert(smaller, bytes);
    let server = ReleaseServer::start(&installation.release, None);
    let run = || installation.run(&["--base", &server.base]);
    installation.assert_refused(&run(), &archive_name());

    // The archive of this test is one of gzip.
    let xz = installation.path("tools/xz");
    fs::write(&xz, "#!/bin/sh\nexec gzip \"$@\"\n").unwrap();
    fs::set_permissions(&xz, Permissions::from_mode(0o755)).unwrap();
    let ran = run();
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    assert!(installation.path("home/.local/bin/portcullis").exists());
}

#[test]
fn the_installation_script_installs_from_a_folder() {
    let installation = Installation::new();
    let folder = installation.path("release");
    fs::create_dir(&folder).unwrap();
    for (name, bytes) in &installation.release {
        fs::write(folder.join(name), bytes).unwrap();
    }
    let ran = installation.run(&["--base", folder.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    assert!(installation.path("home/.local/bin/portcullis").exists());
}

#[test]
fn the_installation_script_refuses_what_it_cannot_verify_and_leaves_nothing_behind() {
    let archive = archive_name();
    let refuse = |change: &dyn Fn(&mut Installation), cut: Option<&str>, why: &str| {
        let mut installation = Installation::new();
        change(&mut installation);
        let server = ReleaseServer::start(&installation.release, cut.map(str::to_owned));
        installation.assert_refused(&installation.run(&["--base", &server.base]), why);
    };
    let flipped = |installation: &mut Installation| {
        let bytes = installation.release.get_mut(&archive_name()).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    };
    refuse(&flipped, None, "is damaged or was replaced");
    let missing: &dyn Fn(&mut Installation) = &|installation| {
        let line = String::from_utf8(installation.sums().clone()).unwrap();
        *installation.sums() = line.replace(&archive_name(), "another.tar.gz").into_bytes();
    };
    refuse(missing, None, "has no checksum of");
    let twice: &dyn Fn(&mut Installation) = &|installation| {
        let line = installation.sums().clone();
        installation.sums().extend(line);
    };
    refuse(twice, None, "does not have exactly one checksum");
    let short: &dyn Fn(&mut Installation) = &|installation| {
        let line = String::from_utf8(installation.sums().clone()).unwrap();
        *installation.sums() = line.as_bytes()[8..].to_vec();
    };
    refuse(short, None, "was cut off at the checksum");
    let gone: &dyn Fn(&mut Installation) = &|installation| drop(installation.release.remove("SHA256SUMS"));
    refuse(gone, None, "did not come completely");
    refuse(&|_| {}, Some(&archive), "did not come completely");
    refuse(&|_| {}, Some("SHA256SUMS"), "did not come completely");
    let unverifiable: &dyn Fn(&mut Installation) = &|installation| {
        installation.unlink("sha256sum");
        installation.unlink("shasum");
    };
    refuse(unverifiable, None, "neither sha256sum nor shasum");
    // A program that would follow a redirection to an unprotected address is not enough.
    let alone: &dyn Fn(&mut Installation) = &|installation| {
        installation.unlink("curl");
        symlink("/bin/sh", installation.path("tools/wget")).unwrap();
    };
    refuse(alone, None, "curl is not there");
    let broken: &dyn Fn(&mut Installation) = &|installation| installation.pack("#!/no/such/interpreter\n");
    refuse(broken, None, "(noexec): try it with TMPDIR=DIR");
}

#[test]
fn the_installation_script_refuses_an_unknown_machine_and_an_unprotected_address() {
    for (uname, why) in [
        ("case $1 in -s) echo Linux ;; *) echo riscv64 ;; esac", "no program for the processor riscv64"),
        ("case $1 in -s) echo Plan9 ;; *) echo x86_64 ;; esac", "no program for Plan9"),
    ] {
        let installation = Installation::new();
        installation.unlink("uname");
        let file = installation.path("tools/uname");
        fs::write(&file, format!("#!/bin/sh\n{uname}\n")).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
        let server = ReleaseServer::start(&installation.release, None);
        installation.assert_refused(&installation.run(&["--base", &server.base]), why);
        assert_eq!(server.requests.load(Ordering::SeqCst), 0);
    }
    let installation = Installation::new();
    installation.assert_refused(&installation.run(&[]), "PORTCULLIS_BASE");
    for base in ["http://example.com/latest", "ftp://example.com", "http://127.0.0.1.example.com/"] {
        installation.assert_refused(&installation.run(&["--base", base]), "https://");
    }
    installation.assert_refused(&installation.run(&["--base", "nowhere"]), "nor a folder");
}

#[test]
fn the_installation_script_does_nothing_if_it_was_cut_off() {
    let installation = Installation::new();
    let server = ReleaseServer::start(&installation.release, None);
    let script = script();
    let complete = script.trim_ascii_end().len();
    let lines = script.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    // After each line, and at each byte of the last ones.
    for cut in lines.filter(|cut| *cut < complete).chain(complete - 40..complete) {
        let ran = installation.run_text(&script[..cut], &["--base", &server.base]);
        assert_eq!(server.requests.load(Ordering::SeqCst), 0, "cut after {cut} bytes: {}{}", ran.out, ran.err);
        installation.assert_nothing_left();
    }
    let ran = installation.run_text(&script, &["--base", &server.base]);
    assert_eq!(ran.code, Some(0), "the whole script installs: {}", ran.err);
}
