//! A folder with a configuration, the commands that run in it, and what they may leave behind.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use portcullis::config::{Config, real_file};
use portcullis::digest::Digest;
use portcullis::trust::{DataFolder, TrustStore};
use portcullis_test_support::{guest, source_program};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::compiled_plugins;

/// The timeout of every wait. It is longer than anything takes on a slow machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// Returns the `portcullis` binary: the one that `PORTCULLIS_SUITE_BINARY` names, as `host/dist/check` does, or the one
/// that cargo has built from the same sources as this test.
pub(crate) fn broker() -> PathBuf {
    std::env::var_os("PORTCULLIS_SUITE_BINARY").map_or_else(|| env!("CARGO_BIN_EXE_portcullis").into(), PathBuf::from)
}

/// Returns the folder `tests` of the repository.
pub(crate) fn tests_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").canonicalize().unwrap()
}

pub(crate) struct TestDir {
    dir: TempDir,
}

impl Drop for TestDir {
    fn drop(&mut self) {
        compiled_plugins::take(&self.compiled());
    }
}

/// The exit code and output of a command that has ended.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Returns where the frames of a segment begin.
pub(crate) fn frames(segment: &Path) -> Vec<u64> {
    let bytes = fs::read(segment).unwrap();
    bytes.windows(4).zip(0..).filter(|(window, _)| window == b"PLF2").map(|(_, at)| at).collect()
}

impl TestDir {
    /// Creates a folder with a configuration. In it `@source@` is the program of fake sources, `@guest:NAME@` a plugin
    /// of `tests/guests`, `@outside@` the policy from outside the workspace, `@dir@` the folder itself, and `@cell@` a
    /// cell that may write the folder `open`.
    pub(crate) fn new(config: &str) -> Self {
        let dir = Self::beneath(&std::env::temp_dir(), config);
        compiled_plugins::give(&dir.compiled());
        dir
    }

    /// Creates one below this folder, for a user who has compiled no plugin yet.
    pub(crate) fn beneath(folder: &Path, config: &str) -> Self {
        let dir = Self { dir: tempfile::Builder::new().prefix("portcullis-suite-").tempdir_in(folder).unwrap() };
        for folder in ["home", "open"] {
            fs::create_dir(dir.path(folder)).unwrap();
        }
        dir.configure(config);
        dir
    }

    /// Trusts the configuration as its user would, and then writes it: a broker that looks at the file at any moment
    /// sees none that is not trusted.
    pub(crate) fn configure(&self, config: &str) {
        let text = self.filled(config);
        self.trust_text(&self.path("portcullis.toml"), &text);
        self.replace_configuration(&text);
    }

    /// Trusts a configuration as the user of this folder would after a look at it.
    pub(crate) fn trust(&self, file: &Path) {
        self.trust_text(file, &fs::read_to_string(file).unwrap());
    }

    fn trust_text(&self, file: &Path, text: &str) {
        // A configuration that cannot be parsed is refused for that reason anyway.
        if let Ok(config) = Config::parse(text, file) {
            let data = DataFolder::at(&config.data_dir).map_or_else(|| DataFolder::make(&config.data_dir), Ok).unwrap();
            let trust = TrustStore::new(&self.state());
            trust.record(&real_file(file), Digest::of(text.as_bytes()), config.effects(), data).unwrap();
        }
    }

    /// Writes the configuration without trusting it.
    pub(crate) fn write_configuration(&self, config: &str) -> PathBuf {
        self.replace_configuration(&self.filled(config))
    }

    fn replace_configuration(&self, text: &str) -> PathBuf {
        let (next, file) = (self.path("portcullis.toml.next"), self.path("portcullis.toml"));
        fs::write(&next, text).unwrap();
        fs::set_permissions(&next, fs::Permissions::from_mode(0o644)).unwrap();
        fs::rename(next, &file).unwrap();
        file
    }

    /// Returns the state folder of the user of this folder.
    pub(crate) fn state(&self) -> PathBuf {
        self.path("home/.local/state/portcullis")
    }

    fn compiled(&self) -> PathBuf {
        self.state().join("compiled")
    }

    fn filled(&self, text: &str) -> String {
        let mut text = text.replace("@cell@", "cell = { write = [\"@dir@/open\"] }");
        text = text.replace("@dir@", &self.dir.path().display().to_string());
        if text.contains("@source@") {
            text = text.replace("@source@", &source_program("portcullis-test-source").display().to_string());
        }
        if text.contains("@outside@") {
            text = text.replace("@outside@", &portcullis_test_support::outside_policy().display().to_string());
        }
        while let Some((before, rest)) = text.split_once("@guest:") {
            let (name, after) = rest.split_once('@').unwrap();
            text = format!("{before}{}{after}", guest(name).display());
        }
        text
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn data(&self, name: &str) -> PathBuf {
        self.path(".portcullis").join(name)
    }

    /// Returns a command that runs `portcullis` in this folder, with an environment of its own.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(broker());
        command.args(arguments);
        self.prepare(&mut command);
        command
    }

    /// Sets the folder, the environment and the streams of a command for any program.
    pub(crate) fn prepare(&self, command: &mut Command) {
        command.current_dir(self.dir.path()).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.path("home"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    }

    /// Runs `portcullis` with these arguments to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        finish(self.command(arguments))
    }

    /// Returns the ledger's records, oldest first.
    pub(crate) fn records(&self) -> Vec<Value> {
        let ran = self.run(&["audit", "tail", "-n", "1000000", "--json"]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn records_of(&self, kind: &str) -> Vec<Value> {
        self.records().into_iter().filter(|record| record["kind"] == kind).collect()
    }

    /// Returns the state of a call in the ledger: `done`, `unknown`, …
    pub(crate) fn state_of(&self, call: &Value) -> String {
        let ran = self.run(&["audit", "show", call.as_str().unwrap(), "--json"]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let shown: Value = serde_json::from_str(&ran.out).unwrap();
        shown["row"]["state"].as_str().unwrap().to_owned()
    }

    /// Asserts that every record is as it was written, and that every chain has its end.
    pub(crate) fn assert_good(&self) {
        let ran = self.run(&["audit", "verify"]);
        assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    }

    /// Replaces paths of this machine in a text, so that it can be compared.
    pub(crate) fn plain(&self, text: &str) -> String {
        let mut text = text.replace(&self.dir.path().display().to_string(), "@dir@");
        let source = source_program("portcullis-test-source");
        text = text.replace(&source.display().to_string(), "@source@");
        // Guests are in target/guests/TRIPLE/release.
        while let Some((before, rest)) = text.split_once("/target/guests/") {
            let start = before.rfind(|c: char| c.is_whitespace() || "\"'`".contains(c)).map_or(0, |at| at + 1);
            let (file, after) = rest.split_once(".wasm").unwrap();
            let name = file.rsplit('/').next().unwrap().replace("guest_", "").replace('_', "-");
            text = format!("{}@guest:{name}@{after}", &before[..start]);
        }
        text
    }

    /// Asserts that no socket or half-written file is left, that every process ends, and that the ledger verifies.
    pub(crate) fn assert_nothing_left(&self) {
        for file in files(self.dir.path()) {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            assert!(!fs::symlink_metadata(&file).unwrap().file_type().is_socket(), "a socket is left: {name}");
            let half = name.starts_with(".tmp") || name.ends_with(".tmp") || name.ends_with(".new");
            assert!(!half, "a half-written file is left: {}", file.display());
        }
        self.await_no_process();
        if self.data("ledger.sqlite").exists() {
            self.assert_good();
        }
    }

    /// Returns the file to which the newest broker wrote its records.
    pub(crate) fn segment(&self) -> PathBuf {
        // The names begin with the time at which their brokers started.
        files(&self.data("records")).into_iter().max().unwrap()
    }

    /// Waits until no process of this folder is left. It polls, because there is no event for the end of another
    /// process' child.
    pub(crate) fn await_no_process(&self) {
        let begun = Instant::now();
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            assert!(begun.elapsed() < DEADLINE, "processes are left: {left:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the processes that were started for this folder: it is in their arguments, their environment or their
    /// mounts.
    pub(crate) fn processes(&self) -> Vec<String> {
        let needle = self.dir.path().display().to_string();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.parse::<u32>().is_err() || name == std::process::id().to_string() {
                continue;
            }
            let read = |file: &str| {
                let bytes = fs::read(entry.path().join(file)).unwrap_or_default();
                String::from_utf8_lossy(&bytes).replace('\0', " ")
            };
            if ["cmdline", "environ", "mountinfo"].into_iter().any(|file| read(file).contains(&needle)) {
                found.push(format!("{name} {}", read("cmdline")));
            }
        }
        found
    }
}

/// Returns everything below a folder that is not itself a folder.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

/// Runs a command to its end. Kills it and panics if it does not end in time.
pub(crate) fn finish(mut command: Command) -> Ran {
    let child = command.spawn().unwrap();
    let pid = child.id();
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let output: Output = match ended.recv_timeout(DEADLINE) {
        Ok(output) => output.unwrap(),
        Err(_) => {
            signal(pid, Signal::KILL);
            panic!("{command:?} does not end");
        }
    };
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    // The process may have ended meanwhile.
    let _ = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal);
}

/// Polls until a condition holds, for conditions without an event.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < DEADLINE, "timed out waiting: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
