//! A machine with something to steal: secrets, sockets, services, and processes of the same user.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use portcullis_test_support::source_program;
use rustix::process::{Gid, Uid};
use serde_json::{Value, json};

use super::{Tier, ordinary};
use crate::test_dir::{Ran, TestDir, broker, finish, until};

/// The uid of the ordinary user, which no real user has.
pub(super) const USER: u32 = 54_321;

const CANARY: &str = "bait-7f3a91c25e";

/// The content of `.bashrc`, which must not change.
const RC: &str = "# the user's own\n";

const HOSTILE: &str = r#"
[sources.hostile]
command = ["@dir@/bin/portcullis-test-hostile"]
timeout = "@timeout@"
@cell@

[profiles.default]
approve = "never"
"#;

const FULL: &str = r#"cell = { read = ["@dir@/given"], write = ["@dir@/out"], network = ["declared.example:80", "declared.example:443"],
    memory = "128MiB", processes = 32, cpu = 1.0, files = 256, tmp = "32MiB" }"#;

const REDUCED: &str = r#"cell = { read = ["@dir@/given"], write = ["@dir@/out"], dangerous-allow-reduced = true,
    memory = "128MiB", processes = 32, cpu = 1.0, files = 256, tmp = "32MiB" }"#;

pub(super) struct HostileMachine {
    pub(super) tier: Tier,
    pub(super) dir: TestDir,
    /// A mark in names on this machine that no other run has.
    pub(super) mark: String,
    decoy: Child,
    planter: Child,
    port: u16,
    web: u16,
    udp: String,
}

impl HostileMachine {
    pub(super) fn new(tier: Tier) -> Self {
        Self::with(tier, cell(tier), "60s")
    }

    /// Creates a machine with a short timeout for sources that do not answer.
    pub(super) fn hasty(tier: Tier) -> Self {
        Self::with(tier, cell(tier), "3s")
    }

    /// Creates a machine with this cell and timeout.
    pub(super) fn with(tier: Tier, cell: &str, timeout: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("portcullis-bait-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        // Not in `/tmp`, because a cell has its own.
        let dir =
            TestDir::beneath(Path::new("/var/tmp"), &HOSTILE.replace("@cell@", cell).replace("@timeout@", timeout));
        lay_out(&dir, tier);
        answer_unix(&UnixListener::bind_addr(&SocketAddr::from_abstract_name(&mark).unwrap()).unwrap());
        for socket in ["home/docker.sock", "out/agent.sock"] {
            let path = dir.path(socket);
            answer_unix(&UnixListener::bind(&path).unwrap());
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        let hostile = |arguments: &[&str]| {
            let mut command = Command::new(dir.path("bin/portcullis-test-hostile"));
            command.args(arguments);
            dir.prepare(&mut command);
            // Processes of this folder are found by its path. These belong to the machine, so they must not have it.
            command.current_dir("/").env("HOME", "/").env("BAIT", CANARY);
            command
        };
        let decoy = ordinary(&hostile(&["daemon", CANARY])).spawn().unwrap();
        let key = key(&mark).to_string();
        let mut planter = ordinary(&hostile(&["plant", &mark, &key])).stdin(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(planter.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "planted\n");
        let port = answer_tcp(CANARY);
        let web = answer_tcp("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        Self { tier, dir, mark, decoy, planter, port, web, udp: answer_udp() }
    }

    /// Returns the arguments of the attacks.
    pub(super) fn arguments(&self, broker: u32) -> Value {
        let caged = self.tier != Tier::Uncaged;
        let at = |names: &[&str]| names.iter().map(|name| self.dir.path(name)).collect::<Vec<_>>();
        json!({
            "caged": caged,
            "network": self.tier == Tier::Full,
            "canary": CANARY,
            "decoy": self.decoy.id(),
            "broker": if caged { broker } else { 0 },
            "folder": self.dir.path(""),
            "secrets": at(&["home/.ssh/id_rsa", "home/.aws/credentials", "portcullis.toml", ".portcullis/ledger.sqlite"]),
            "out": self.dir.path("out"),
            "movable": self.dir.path("home/movable"),
            "rc": at(&["home/.bashrc", "home/.profile"]),
            "link": self.dir.path("link"),
            "processors": 1,
            "caches": at(&["home/.npm/_cacache", "home/.cache/uv", ".portcullis/sources/other"]),
            "sockets": at(&["home/docker.sock", "out/agent.sock"]),
            "abstract": self.mark,
            "shared": self.mark,
            "mark": format!("{}-daemon", self.mark),
            "key": key(&self.mark),
            "port": self.port,
            "udp": self.udp,
            "forge": if caged { "declared.example:80".to_owned() } else { format!("127.0.0.1:{}", self.web) },
            "forge_tls": "declared.example:443",
            // Somewhat more than the cell allows, to distinguish an attack that is stopped by the limit from one that
            // is not. In a reduced cell the user's other threads count too, whose number changes.
            "processes": if self.tier == Tier::Reduced { 160 } else { 40 },
            "memory": 160,
            "files": 300,
            "tmp": 40,
            "spin": 2000,
        })
    }

    /// Returns a command that runs the hostile program as the user would by hand: with an environment, and an inherited
    /// descriptor.
    pub(super) fn uncaged(&self) -> Command {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(r#"exec 7</etc/passwd; exec "$0""#).arg(self.dir.path("bin/portcullis-test-hostile"));
        self.dir.prepare(&mut command);
        command.env("BAIT", CANARY).env("TMPDIR", self.dir.path("out"));
        ordinary(&command)
    }

    /// Returns a command that runs `portcullis` as on a machine whose best cells are of this tier.
    pub(super) fn broker(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.dir.path("broker/portcullis"));
        command.args(arguments);
        if self.tier == Tier::Reduced {
            command = without_user_namespaces(&command);
        }
        self.dir.prepare(&mut command);
        command.env("BAIT", CANARY);
        ordinary(&command)
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Ran {
        finish(self.broker(arguments))
    }

    /// Returns the bodies of the ledger's records of a kind.
    pub(super) fn records(&self, kind: &str) -> Vec<Value> {
        let ran = self.run(&["audit", "tail", "-n", "100000", "--json"]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let records = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        records.filter(|record| record["kind"] == kind).map(|mut record| record["body"].take()).collect()
    }

    /// Returns the processes of the broker and its source that are still running.
    pub(super) fn left(&self) -> Vec<String> {
        let ours = [self.decoy.id(), self.planter.id()].map(|pid| format!("{pid} "));
        let all = self.dir.processes().into_iter();
        all.filter(|process| !ours.iter().any(|own| process.starts_with(own))).collect()
    }

    pub(super) fn await_no_process(&self) {
        until("all processes are gone", || self.left().is_empty());
    }

    /// Creates a link to the user's secrets at a path that is granted to a source.
    pub(super) fn link(&self) {
        std::os::unix::fs::symlink(self.dir.path("home/.ssh"), self.dir.path("link")).unwrap();
    }

    /// Returns the pids of the daemons that attack 33 has started.
    pub(super) fn marked(&self) -> Vec<u32> {
        let mark = format!("{}-daemon", self.mark);
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_marked = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == mark.as_bytes())
        };
        numbers.filter(is_marked).collect()
    }

    /// Asserts that files that only the user may write are unchanged.
    pub(super) fn assert_untouched(&self) {
        assert_eq!(fs::read_to_string(self.dir.path("home/.bashrc")).unwrap(), RC);
        for file in
            ["home/.npm/_cacache/poison", "home/.cache/uv/poison", ".portcullis/sources/other/poison", "bin/was-here"]
        {
            assert!(!self.dir.path(file).exists(), "{file} was written");
        }
        assert!(self.dir.path("home/movable").exists());
    }
}

impl Drop for HostileMachine {
    fn drop(&mut self) {
        // The planter cleans up when its input ends.
        drop(self.planter.stdin.take());
        let _ = self.planter.wait();
        let _ = self.decoy.kill();
        let _ = self.decoy.wait();
    }
}

/// Returns the command, run in a user namespace in which no other can be created, with the user's own uid and no
/// privileges.
fn without_user_namespaces(command: &Command) -> Command {
    let mut outer = Command::new("unshare");
    let script = r#"echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-all --inh-caps=-all --ambient-caps=-all -- "$0" "$@""#;
    outer.args(["--user", "--map-current-user", "--keep-caps", "/bin/sh", "-c", script]);
    outer.arg(command.get_program()).args(command.get_args());
    outer
}

fn cell(tier: Tier) -> &'static str {
    if tier == Tier::Reduced { REDUCED } else { FULL }
}

fn lay_out(dir: &TestDir, tier: Tier) {
    for folder in ["bin", "broker", "given", "out", "home/.ssh", "home/.aws", "home/.npm/_cacache", "home/.cache/uv"] {
        fs::create_dir_all(dir.path(folder)).unwrap();
    }
    // The hostile program belongs to the user, who may change it; the broker does not.
    fs::copy(source_program("portcullis-test-hostile"), dir.path("bin/portcullis-test-hostile")).unwrap();
    let (from, to) = (broker(), dir.path("broker/portcullis"));
    fs::hard_link(&from, &to).or_else(|_| fs::copy(&from, &to).map(drop)).unwrap();
    for secret in ["home/.ssh/id_rsa", "home/.aws/credentials", "home/movable"] {
        fs::write(dir.path(secret), CANARY).unwrap();
        fs::set_permissions(dir.path(secret), fs::Permissions::from_mode(0o600)).unwrap();
    }
    for rc in ["home/.bashrc", "home/.profile"] {
        fs::write(dir.path(rc), RC).unwrap();
    }
    fs::write(dir.path("given/readme"), "for the source\n").unwrap();
    if tier != Tier::Reduced {
        plant_configuration(dir);
    }
    if tier == Tier::Uncaged {
        fs::create_dir_all(dir.data("sources/other")).unwrap();
        fs::write(dir.data("ledger.sqlite"), "SQLite").unwrap();
    }
    if rustix::process::geteuid().is_root() {
        own(&dir.path(""));
    }
}

/// Creates the configuration and data folder of another broker, whose project is the folder that the source may write.
pub(super) fn plant_configuration(dir: &TestDir) {
    fs::create_dir(dir.path("out/.portcullis")).unwrap();
    fs::write(dir.path("out/portcullis.toml"), "").unwrap();
    fs::write(dir.path("out/.portcullis/trust"), "").unwrap();
}

/// Makes the ordinary user the owner of everything but the broker.
fn own(path: &Path) {
    if path.ends_with("broker") {
        return;
    }
    rustix::fs::chown(path, Some(Uid::from_raw(USER)), Some(Gid::from_raw(USER))).unwrap();
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        own(&entry.path());
    }
}

fn key(mark: &str) -> u32 {
    mark.bytes().fold(7, |key: u32, byte| key.wrapping_mul(31).wrapping_add(byte.into()) & 0x7fff_ffff)
}

/// Sends the canary on each connection, for as long as the tests run.
fn answer_unix(listener: &UnixListener) {
    let listener = listener.try_clone().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(CANARY.as_bytes());
        }
    });
}

fn answer_tcp(text: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                if text.starts_with("HTTP") {
                    let _ = stream.read(&mut [0; 1024]);
                }
                let _ = stream.write_all(text.as_bytes());
            });
        }
    });
    port
}

/// Starts a DNS resolver that resolves every name, and returns its address.
fn answer_udp() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((size, from)) = socket.recv_from(&mut question) {
            question[3] = 0;
            let _ = socket.send_to(&question[..size], from);
        }
    });
    address
}
