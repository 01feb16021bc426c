//! A temporary folder with files to work on, and `portcullis` running in it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::timeout;

use crate::installed::{self, TOOLS};

/// The timeout of every wait in these tests. Interpreters start slowly on a busy machine, and no test depends on how
/// slowly.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// A folder with `portcullis.toml`, `docs/hello.txt` and a git repository `repo/` with one commit.
pub(crate) struct TestDir {
    dir: tempfile::TempDir,
}

impl TestDir {
    /// Creates a place with all servers as sources, and `more` at the end of the configuration. Every source is
    /// required, because a session begins without another one that starts slowly.
    pub(crate) async fn new(more: &str) -> Self {
        let dir = Self { dir: tempfile::Builder::new().prefix("portcullis-interop-").tempdir().unwrap() };
        for folder in ["docs", "home", "memory"] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        std::fs::write(dir.path().join("docs/hello.txt"), "hello, café\n").unwrap();
        dir.git(&["init", "--quiet", "repo"]).await;
        std::fs::write(dir.path().join("repo/file"), "one\n").unwrap();
        dir.git(&["-C", "repo", "add", "file"]).await;
        let author = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.com"];
        dir.git(&[&["-C", "repo"], &author[..], &["commit", "--quiet", "--message", "the first"]].concat()).await;

        let mut toml = String::from("[serve]\nlisten = \"127.0.0.1:0\"\n");
        for (server, _) in TOOLS {
            let command = serde_json::to_string(&installed::command(server, dir.path())).unwrap();
            toml += &format!("[sources.{server}]\ncommand = {command}\ntimeout = \"120s\"\nrequired = true\n");
            for [option, value] in installed::cell(server, dir.path()) {
                toml += &format!("cell.{} = [{value:?}]\n", option.trim_start_matches("--"));
            }
            if server == "memory" {
                toml += &format!("env = {{ MEMORY_FILE_PATH = '{}' }}\n", dir.at("memory/graph.json"));
            }
        }
        std::fs::write(dir.path().join("portcullis.toml"), toml + more).unwrap();
        dir
    }

    /// Creates a place with this configuration and nothing else.
    pub(crate) fn bare(configuration: &str) -> Self {
        let dir = Self { dir: tempfile::Builder::new().prefix("portcullis-interop-").tempdir().unwrap() };
        std::fs::create_dir(dir.path().join("home")).unwrap();
        std::fs::write(dir.path().join("portcullis.toml"), configuration).unwrap();
        dir
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn at(&self, name: &str) -> String {
        self.path().join(name).into_os_string().into_string().unwrap()
    }

    /// Returns a command that runs in this place, with a home folder of its own and a variable that no server may see.
    /// The process is killed when it is dropped.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path()).env("HOME", self.path().join("home")).env("ONLY_FOR_THE_BROKER", "1");
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Returns a command that runs `portcullis` with these arguments in this place.
    pub(crate) fn portcullis(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(&installed::portcullis());
        // The configuration is named: one that is found in the folder would need trust after every change by a test.
        let file = self.path().join("portcullis.toml");
        // The mode must not depend on the umask under which the tests run.
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        command.arg("--config").arg(file).args(arguments);
        command
    }

    /// Runs `portcullis` to its end and returns what it printed. Panics if it fails.
    pub(crate) async fn run(&self, arguments: &[&str]) -> String {
        succeeded(output(self.portcullis(arguments)).await, arguments)
    }

    /// Runs `portcullis` with `--json` and returns the parsed output.
    pub(crate) async fn json(&self, arguments: &[&str]) -> Value {
        let text = self.run(&[arguments, &["--json"]].concat()).await;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?} printed no JSON: {error}\n{text}"))
    }

    /// Starts `portcullis serve` over HTTP.
    pub(crate) async fn serve(&self) -> Served {
        let mut child = self.portcullis(&["serve"]).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let url = timeout(DEADLINE, async {
            while let Some(line) = said.next_line().await.unwrap() {
                assert!(!line.contains('\x1b'), "colours although this is not a terminal: {line:?}");
                if let Some(url) = line.strip_prefix("serving ") {
                    return url.to_owned();
                }
            }
            panic!("`portcullis serve` ended without serving");
        });
        let url = url.await.expect("`portcullis serve` says where it serves");
        let token = std::fs::read_to_string(self.path().join(".portcullis/token")).unwrap().trim().to_owned();
        Served { child, said, url, token }
    }

    /// Asserts that every chain of the ledger is complete and that no process of this place is left.
    pub(crate) async fn verify(&self, data_dir: Option<&str>) {
        let arguments: Vec<&str> =
            ["audit", "verify"].into_iter().chain(data_dir.iter().flat_map(|d| ["--data-dir", d])).collect();
        let said = self.run(&arguments).await;
        assert!(said.starts_with("good: "), "{said}");
        assert_eq!(self.processes(), Vec::<PathBuf>::new(), "left alive");
    }

    /// Returns the running processes with a path of this place on their command line, in their environment or in their
    /// mounts.
    fn processes(&self) -> Vec<PathBuf> {
        let here = self.at("").into_bytes();
        let ours = |process: &PathBuf| {
            ["cmdline", "environ", "mountinfo"].iter().any(|file| {
                let text = std::fs::read(process.join(file)).unwrap_or_default();
                text.windows(here.len()).any(|window| window == here)
            })
        };
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
        all.filter(ours).collect()
    }

    async fn git(&self, arguments: &[&str]) {
        let mut command = self.command(Path::new("git"));
        succeeded(output(command.args(arguments)).await, arguments);
    }
}

/// A running `portcullis serve`. Dropping it kills it.
pub(crate) struct Served {
    child: Child,
    said: Lines<BufReader<ChildStderr>>,
    pub(crate) url: String,
    pub(crate) token: String,
}

impl Served {
    /// Asks it to end, as a person or a service manager would, and waits until it has.
    pub(crate) async fn end(mut self) {
        terminate(&self.child);
        let ended = timeout(DEADLINE, async {
            while let Some(line) = self.said.next_line().await.unwrap() {
                assert!(!line.contains("ERROR"), "{line}");
            }
            self.child.wait().await.unwrap()
        });
        let status = ended.await.expect("it ends when asked");
        assert!(status.success(), "it ended with {status}");
    }
}

/// Sends SIGTERM to a process.
pub(crate) fn terminate(child: &Child) {
    let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).expect("it still runs");
    kill_process(pid, Signal::TERM).unwrap();
}

/// Runs a program to its end and returns its output.
pub(crate) async fn output(mut command: impl std::borrow::BorrowMut<Command>) -> Output {
    let command = command.borrow_mut().stdout(Stdio::piped()).stderr(Stdio::piped());
    timeout(DEADLINE, command.output()).await.expect("it ends").unwrap()
}

/// Returns the standard output of a program that must have succeeded.
pub(crate) fn succeeded(output: Output, what: &[&str]) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what:?} ended with {}:\n{said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}
