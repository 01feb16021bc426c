//! Attacks on interfaces of the kernel that no tool source needs.

use std::fs::File;
use std::io::{self, Write as _};

use crate::attack::{AttackArguments, Probe};
#[cfg(target_arch = "x86_64")]
use crate::raw::call_32;
use crate::raw::{Word, call, in_child};

/// Tries a system call in a child process.
macro_rules! tried {
    ($what:expr, $number:ident $(, $word:expr)*) => {
        Probe::of($what, in_child(|| call(libc::$number, [$(Word::from($word)),*])))
    };
}

pub(crate) fn terminal(_: &AttackArguments<'_>) -> Vec<Probe> {
    let mut byte = b'x';
    let mut probes = vec![Probe::of("`/dev/tty`", File::options().read(true).write(true).open("/dev/tty"))];
    for descriptor in 0..3_i32 {
        let push = call(libc::SYS_ioctl, [descriptor.into(), 0x5412_i32.into(), Word::from(&mut byte)]);
        probes.push(Probe::of(format!("TIOCSTI on descriptor {descriptor}"), push));
    }
    probes
}

pub(crate) fn user_namespaces(_: &AttackArguments<'_>) -> Vec<Probe> {
    let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
    let mut arguments = [0_u64; 8];
    // `CLONE_NEWUSER` and the exit signal `SIGCHLD`, at their places in `struct clone_args`.
    let [first, _, _, _, signal, ..] = &mut arguments;
    (*first, *signal) = (0x1000_0000, 17);
    vec![
        tried!("unshare", SYS_unshare, libc::CLONE_NEWUSER),
        Probe::of("clone", in_child(|| ended(call(libc::SYS_clone, [flags.into(), 0_i32.into(), 0_i32.into()])?))),
        Probe::of("clone3", in_child(|| ended(call(libc::SYS_clone3, [Word::from(&mut arguments), 64_i32.into()])?))),
    ]
}

/// Ends a grandchild at once.
fn ended(pid: i64) -> io::Result<i64> {
    if pid == 0 {
        std::process::exit(0);
    }
    Ok(pid)
}

pub(crate) fn mounts(_: &AttackArguments<'_>) -> Vec<Probe> {
    let (none, tmpfs, tmp, root) = (0_usize, c"tmpfs", c"/tmp", c"/");
    let in_own = |what: fn() -> io::Result<i64>| {
        in_child(|| {
            call(libc::SYS_unshare, [(libc::CLONE_NEWUSER | libc::CLONE_NEWNS).into()])?;
            what()
        })
    };
    let mount = || {
        let none = Word::from(0_usize);
        call(libc::SYS_mount, [Word::from(c"x"), Word::from(c"/tmp"), Word::from(c"tmpfs"), none, none])
    };
    let remount = libc::MS_REMOUNT | libc::MS_BIND;
    let enter = |space: &str| {
        let file = File::open(format!("/proc/1/ns/{space}"))?;
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&file);
        call(libc::SYS_setns, [descriptor.into(), 0_i32.into()])
    };
    let mut probes = vec![
        Probe::of("mount, in a namespace of its own", in_own(mount)),
        tried!("mount", SYS_mount, c"x", tmp, tmpfs, none, none),
        tried!("remount", SYS_mount, c"x", root, tmpfs, usize::try_from(remount).unwrap_or_default(), none),
        tried!("unmount", SYS_umount2, c"/proc", libc::MNT_DETACH),
        tried!("open_tree", SYS_open_tree, libc::AT_FDCWD, root, 1),
        tried!("fsopen", SYS_fsopen, tmpfs, 0),
        tried!("pivot_root", SYS_pivot_root, tmp, tmp),
        tried!("chroot", SYS_chroot, tmp),
        tried!("a device", SYS_mknodat, libc::AT_FDCWD, c"/tmp/device", 0o60_600_i32, 0x700_i32),
        tried!("open_by_handle_at", SYS_open_by_handle_at, libc::AT_FDCWD, 0, 0),
    ];
    // Entering its own namespaces gains nothing; entering those of process 1 does, unless they are its own, too.
    for space in ["mnt", "net", "pid", "user"] {
        probes.push(Probe::of(format!("the {space} namespace of process 1"), in_child(|| enter(space))));
    }
    probes
}

pub(crate) fn interfaces(_: &AttackArguments<'_>) -> Vec<Probe> {
    // Counts its own instructions in user space, which most machines allow every user.
    let mut event = [0_u64; 16];
    let [kind, config, .., last] = &mut event;
    (*kind, *config, *last) = (1 | 128 << 32, 0, 0);
    if let Some(flags) = event.get_mut(5) {
        *flags = 1 << 5 | 1 << 6;
    }
    vec![
        tried!("bpf", SYS_bpf, 0, 0, 0),
        tried!("perf_event_open", SYS_perf_event_open, &mut event, 0, -1, -1, 0),
        tried!("userfaultfd", SYS_userfaultfd, 1),
        tried!("kexec_load", SYS_kexec_load, 0, 0, 0, 0),
        tried!("init_module", SYS_init_module, 0, 0, c""),
        tried!("finit_module", SYS_finit_module, 0, c"", 0),
        tried!("fanotify", SYS_fanotify_init, 0x200, 0),
        tried!("the kernel's log", SYS_syslog, 3, 0, 0),
        tried!("a personality without randomness", SYS_personality, 0x4_0000),
        tried!("a real-time schedule", SYS_sched_setscheduler, 0, 1, &mut 10_i32),
        tried!("the machine's asynchronous requests", SYS_io_setup, 1, &mut [0_usize]),
        tried!("swapon", SYS_swapon, c"/tmp", 0),
        tried!("settimeofday", SYS_settimeofday, &mut [1_i64, 0], 0),
        Probe::of("a program for the packets of a socket", packet_filter()),
    ]
}

/// Attaches a packet filter with one instruction that lets everything pass.
fn packet_filter() -> io::Result<i64> {
    let (pair, _other) = std::os::unix::net::UnixStream::pair()?;
    let mut program = [0x0000_0006_u64 | 0xffff_u64 << 32];
    let mut described = [1_usize, std::ptr::from_mut(&mut program) as usize];
    let option = [libc::SOL_SOCKET.into(), libc::SO_ATTACH_FILTER.into(), Word::from(&mut described), 16_i32.into()];
    let [level, name, value, size] = option;
    call(libc::SYS_setsockopt, [std::os::fd::AsRawFd::as_raw_fd(&pair).into(), level, name, value, size])
}

/// The number of `getpid` on 32-bit machines.
#[cfg(target_arch = "x86_64")]
const GETPID_32: i32 = 20;

pub(crate) fn detours(_: &AttackArguments<'_>) -> Vec<Probe> {
    let mut parameters = [0_u64; 15];
    let x32 = || call(libc::SYS_getpid | 0x4000_0000, []);
    vec![
        tried!("io_uring", SYS_io_uring_setup, 4, &mut parameters),
        Probe::of("a call by its x32 number", in_child(x32)),
        #[cfg(target_arch = "x86_64")]
        Probe::of("a call by its 32-bit number", in_child(|| call_32(GETPID_32))),
    ]
}

pub(crate) fn keys(_: &AttackArguments<'_>) -> Vec<Probe> {
    vec![
        tried!("add_key", SYS_add_key, c"user", c"was-here", c"x", 1, -2),
        tried!("request_key", SYS_keyctl, 0, -4, 1),
        tried!("the session's keyring", SYS_keyctl, 0, -3, 0),
    ]
}

pub(crate) fn privileges(_: &AttackArguments<'_>) -> Vec<Probe> {
    // The kernel is asked by a system call, because `/proc/self/status` is not available everywhere.
    let ask = |option: i32, what: u32| {
        call(libc::SYS_prctl, [option.into(), what.into(), 0_i32.into(), 0_i32.into(), 0_i32.into()])
    };
    let filtered = ask(libc::PR_GET_SECCOMP, 0);
    let locked = ask(libc::PR_GET_NO_NEW_PRIVS, 0);
    let reachable = (0..64).filter(|capability| matches!(ask(libc::PR_CAPBSET_READ, *capability), Ok(1))).count();
    // The header has version 3 and means this process; the sets are effective, permitted and inheritable, twice 32 bits
    // each.
    let (mut header, mut sets) = ([0x2008_0522_u32, 0], [0_u32; 6]);
    let got = call(libc::SYS_capget, [Word::from(&mut header), Word::from(&mut sets)]);
    vec![
        Probe::new("a set-uid program could raise it", !matches!(locked, Ok(1)), format!("{locked:?}")),
        Probe::new("capabilities", got.is_err() || sets != [0; 6], format!("{sets:x?}")),
        Probe::new("capabilities within reach", reachable > 0, format!("{reachable}")),
        Probe::new("no filter of system calls", !matches!(filtered, Ok(2)), format!("{filtered:?}")),
        tried!("setresuid 0", SYS_setresuid, 0, 0, 0),
        tried!("the host's name", SYS_sethostname, c"x", 1),
    ]
}

pub(crate) fn settings(_: &AttackArguments<'_>) -> Vec<Probe> {
    let write = |path: &str, text: &str| File::options().write(true).open(path)?.write_all(text.as_bytes());
    let mut probes = Vec::new();
    // Nothing that would harm the machine if it worked: each setting gets a harmless value, or is only opened.
    for path in [
        "/proc/sys/kernel/core_pattern",
        "/proc/sysrq-trigger",
        "/proc/sys/vm/drop_caches",
        "/sys/kernel/uevent_helper",
    ] {
        probes.push(Probe::of(format!("`{path}`"), File::options().write(true).open(path)));
    }
    probes.push(Probe::of("more user namespaces", write("/proc/sys/user/max_user_namespaces", "1000")));
    probes.push(Probe::of("a lower out-of-memory score", write("/proc/self/oom_score_adj", "-1000")));
    probes.push(Probe::of("another map of users", write("/proc/self/uid_map", "0 0 1")));
    probes
}
