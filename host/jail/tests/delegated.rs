//! Limits on all processes of a cell together, by a delegated cgroup. Only a broker that is alone in one can set them,
//! and it moves itself for that. So this is a separate program, started in a cgroup that is made by systemd, by root,
//! or by root in another kernel (User Mode Linux, if that is installed). If no cgroup can be made, it says so and
//! proves nothing.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

#[cfg(target_os = "linux")]
fn main() {
    match std::env::args().nth(1).as_deref() {
        Some(linux::INSIDE) => linux::where_a_cgroup_is_delegated_it_bounds_all_processes_together(),
        Some(linux::FIRST) => linux::first_process(),
        _ => linux::outside(),
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::os::unix::process::ExitStatusExt;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use portcullis_jail::{CellSpec, LaunchSpec, Launcher, Mount, RunningLauncher};
    use rustix::mount::{MountFlags, mount};
    use rustix::system::RebootCommand;

    pub(crate) const INSIDE: &str = "inside";

    /// The argument for the first process of another kernel.
    pub(crate) const FIRST: &str = "first";

    const DONE: &str = "a delegated cgroup bounds all processes of a cell together";

    pub(crate) fn outside() {
        let said = by_systemd().or_else(by_root).or_else(by_another_kernel);
        match said {
            Some(said) => assert!(said.contains(DONE), "{said}"),
            None => eprintln!(
                "\n*** limits by a delegated cgroup are NOT TESTED here: `systemd-run --user --scope` does not work, there is no \
                 cgroup of version 2 with cpu, memory and pids in which this user could make one, and no user-mode-linux\n"
            ),
        }
    }

    fn by_systemd() -> Option<String> {
        let scope = || {
            let mut command = Command::new("systemd-run");
            command.args(["--user", "--scope", "--quiet", "--property=Delegate=yes"]);
            command
        };
        scope().arg("true").output().ok().filter(|ran| ran.status.success())?;
        Some(said(scope().arg(std::env::current_exe().unwrap()).arg(INSIDE)))
    }

    fn by_root() -> Option<String> {
        let made = Made::here()?;
        let script = r#"echo 0 > "$0/cgroup.procs" && exec "$1" inside"#;
        Some(said(Command::new("sh").args(["-c", script]).arg(&made.0).arg(std::env::current_exe().unwrap())))
    }

    /// Boots on this machine's own files, which it can change no further than this user can.
    fn by_another_kernel() -> Option<String> {
        Command::new("linux.uml").arg("--version").output().ok()?;
        let own = std::env::current_exe().unwrap();
        let mut kernel = Command::new("linux.uml");
        kernel.args(["mem=1024M", "rootfstype=hostfs", "rootflags=/", "rw", "con=null", "con0=null,fd:1"]);
        kernel.arg(format!("init={}", own.display())).args(["--", FIRST]);
        Some(said(kernel.current_dir(std::env::temp_dir()).stdin(std::process::Stdio::null())))
    }

    /// Sets up a minimal system, runs the test as root in it, and powers it off.
    pub(crate) fn first_process() {
        for (kind, place) in [("proc", "/proc"), ("tmpfs", "/tmp"), ("tmpfs", "/run"), ("cgroup2", "/run")] {
            mount(kind, place, kind, MountFlags::empty(), None).unwrap();
        }
        match by_root() {
            Some(said) => println!("{said}"),
            None => println!("no cgroup could be made"),
        }
        rustix::system::reboot(RebootCommand::PowerOff).unwrap();
    }

    fn said(command: &mut Command) -> String {
        let ran = command.output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr))
    }

    /// Each single process of the source would stay below the limit; all together exceed it.
    pub(crate) fn where_a_cgroup_is_delegated_it_bounds_all_processes_together() {
        let script = "for n in 1 2 3 4; do dd if=/dev/zero bs=50M count=1 | sleep 1000 & done; wait";
        let links = ["bin", "lib", "lib64"].map(|name| (Path::new("/").join(name), Path::new("usr").join(name)));
        let mut cell = CellSpec { links: links.into(), ..CellSpec::default() };
        cell.mounts = ["/usr", "/etc/ld.so.cache"].map(Mount::public).into();
        cell.limits.memory = 100 << 20;
        let launch = LaunchSpec {
            program: "/usr/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: vec![("PATH".to_owned(), "/usr/bin".into())],
            directory: cell.home.clone(),
            cell,
        };
        let launcher = Launcher::Path(env!("CARGO_BIN_EXE_portcullis-jail").into());
        let mut started = RunningLauncher::new(&launcher).unwrap().start(&launch).unwrap();
        let ready = started.control.ready(drop).unwrap_or_else(|refusal| panic!("{refusal}"));
        assert!(ready.enforced.cgroup, "the cgroup is there, and used");
        assert_eq!(started.process.wait().unwrap().signal(), Some(9), "killed together");
        println!("{DONE}");
    }

    /// A cgroup for this run, which is removed on drop.
    struct Made(PathBuf);

    impl Made {
        fn here() -> Option<Self> {
            let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
            let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
            let root = Path::new(mount.split(' ').nth(4)?);
            fs::write(root.join("cgroup.subtree_control"), "+cpu +memory +pids").ok()?;
            let folder = root.join(format!("portcullis-test-{}", std::process::id()));
            fs::create_dir(&folder).ok()?;
            Some(Self(folder))
        }
    }

    impl Drop for Made {
        fn drop(&mut self) {
            // This fails if a process is left in the group; that process is then the error to look at.
            let _ = fs::remove_dir(self.0.join("broker"));
            let _ = fs::remove_dir(&self.0);
        }
    }
}
