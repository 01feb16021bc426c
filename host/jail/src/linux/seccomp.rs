//! Denies system calls that no source needs and that reach far into the kernel.

use std::collections::BTreeMap;
use std::io;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter, sock_filter,
};

pub(super) use self::listened::{install_deputy_filter, record};

mod attributes;
mod listened;
mod sockets;
mod supervisor;

/// System calls that fail as if the caller were not allowed to make them.
const DENIED: &[(c_long, &str)] = &[
    // Other processes.
    (libc::SYS_ptrace, "ptrace"),
    (libc::SYS_process_vm_readv, "process_vm_readv"),
    (libc::SYS_process_vm_writev, "process_vm_writev"),
    (libc::SYS_process_madvise, "process_madvise"),
    (libc::SYS_pidfd_getfd, "pidfd_getfd"),
    (libc::SYS_kcmp, "kcmp"),
    // Mounts and roots.
    (libc::SYS_mount, "mount"),
    (libc::SYS_umount2, "umount2"),
    (libc::SYS_pivot_root, "pivot_root"),
    (libc::SYS_chroot, "chroot"),
    (libc::SYS_open_tree, "open_tree"),
    (libc::SYS_move_mount, "move_mount"),
    (libc::SYS_fsopen, "fsopen"),
    (libc::SYS_fsconfig, "fsconfig"),
    (libc::SYS_fsmount, "fsmount"),
    (libc::SYS_fspick, "fspick"),
    (libc::SYS_mount_setattr, "mount_setattr"),
    (libc::SYS_open_by_handle_at, "open_by_handle_at"),
    (libc::SYS_name_to_handle_at, "name_to_handle_at"),
    (libc::SYS_mknodat, "mknodat"),
    (libc::SYS_swapon, "swapon"),
    (libc::SYS_swapoff, "swapoff"),
    (libc::SYS_quotactl, "quotactl"),
    (QUOTACTL_FD, "quotactl_fd"),
    (OPEN_TREE_ATTR, "open_tree_attr"),
    (STATMOUNT, "statmount"),
    (LISTMOUNT, "listmount"),
    (libc::SYS_acct, "acct"),
    // Namespaces.
    (libc::SYS_unshare, "unshare"),
    (libc::SYS_setns, "setns"),
    // Programs, events and keys in the kernel.
    (libc::SYS_bpf, "bpf"),
    (libc::SYS_perf_event_open, "perf_event_open"),
    (libc::SYS_userfaultfd, "userfaultfd"),
    (libc::SYS_fanotify_init, "fanotify_init"),
    (libc::SYS_keyctl, "keyctl"),
    (libc::SYS_add_key, "add_key"),
    (libc::SYS_request_key, "request_key"),
    // The machine itself.
    (libc::SYS_kexec_load, "kexec_load"),
    (KEXEC_FILE_LOAD, "kexec_file_load"),
    (libc::SYS_init_module, "init_module"),
    (libc::SYS_finit_module, "finit_module"),
    (libc::SYS_delete_module, "delete_module"),
    (libc::SYS_reboot, "reboot"),
    (libc::SYS_settimeofday, "settimeofday"),
    (libc::SYS_clock_settime, "clock_settime"),
    (libc::SYS_adjtimex, "adjtimex"),
    (libc::SYS_clock_adjtime, "clock_adjtime"),
    (libc::SYS_sethostname, "sethostname"),
    (libc::SYS_setdomainname, "setdomainname"),
    (libc::SYS_syslog, "syslog"),
    (libc::SYS_vhangup, "vhangup"),
    (libc::SYS_personality, "personality"),
    (LSM_SET_SELF_ATTR, "lsm_set_self_attr"),
    // Placement of memory across nodes.
    (libc::SYS_migrate_pages, "migrate_pages"),
    (libc::SYS_move_pages, "move_pages"),
    (libc::SYS_mbind, "mbind"),
    (libc::SYS_set_mempolicy, "set_mempolicy"),
    (SET_MEMPOLICY_HOME_NODE, "set_mempolicy_home_node"),
];

/// Denied system calls that only this architecture has.
#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[(c_long, &str)] = &[
    (libc::SYS_mknod, "mknod"),
    (libc::SYS_iopl, "iopl"),
    (libc::SYS_ioperm, "ioperm"),
    (libc::SYS_modify_ldt, "modify_ldt"),
    (libc::SYS_uselib, "uselib"),
    (libc::SYS_ustat, "ustat"),
];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_HERE: &[(c_long, &str)] = &[];

/// System calls that fail as if the kernel did not have them, so that callers use older ones instead. Some pass their
/// flags in memory, where no filter sees them; io_uring makes system calls that no filter sees. Of System V IPC, only
/// the calls that make or find an object: it belongs to no process, so no limit counts it. The same holds for secret
/// memory, and for a page that was spliced into a pipe: it may be one byte of two mebibytes. The older asynchronous
/// calls share one number of requests for the whole machine, which a source could use up.
const UNKNOWN: &[c_long] = &[
    libc::SYS_clone3,
    libc::SYS_openat2,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_setup,
    CACHESTAT,
    libc::SYS_shmget,
    libc::SYS_semget,
    libc::SYS_msgget,
    MEMFD_SECRET,
    libc::SYS_vmsplice,
];

/// These numbers are the same on all architectures; `libc` does not have them for all.
const QUOTACTL_FD: c_long = 443;
const MEMFD_SECRET: c_long = 447;
const SET_MEMPOLICY_HOME_NODE: c_long = 450;
const CACHESTAT: c_long = 451;
const FCHMODAT2: c_long = 452;
const STATMOUNT: c_long = 457;
const LISTMOUNT: c_long = 458;
const LSM_SET_SELF_ATTR: c_long = 460;
const OPEN_TREE_ATTR: c_long = 467;

/// `libc` does not have this number for aarch64 with musl.
const KEXEC_FILE_LOAD: c_long = if cfg!(target_arch = "x86_64") { 320 } else { 294 };

/// System calls that set a mode: which argument is the mode, and which has the flags that must ask for a new file.
const MODES: &[(c_long, u8, Option<u8>)] =
    &[(libc::SYS_fchmod, 1, None), (libc::SYS_fchmodat, 2, None), (FCHMODAT2, 2, None), (libc::SYS_openat, 3, Some(2))];

/// The mode-changing system calls that only this architecture has.
#[cfg(target_arch = "x86_64")]
const MODES_HERE: &[(c_long, u8, Option<u8>)] =
    &[(libc::SYS_chmod, 1, None), (libc::SYS_creat, 1, None), (libc::SYS_open, 2, Some(1))];
#[cfg(not(target_arch = "x86_64"))]
const MODES_HERE: &[(c_long, u8, Option<u8>)] = &[];

/// Flags of `clone` that make a namespace.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Requests of `ioctl` that make and remove folders and files by names that neither Landlock nor a deputy sees: in
/// btrfs subvolumes and snapshots, in bcachefs subvolumes, in OCFS2 copies.
const MAKING_REQUESTS: [u64; 9] = [
    0x5000_9401,
    0x5000_940e,
    0x5000_940f,
    0x5000_9417,
    0x5000_9418,
    0x5000_943f,
    0x4020_bc10,
    0x4020_bc11,
    0x4018_6f04,
];

/// The flag of `seccomp` that asks for a listener.
const NEW_LISTENER: i32 = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER as i32;

/// The rules that differ from cell to cell.
#[derive(Debug, Clone, Copy)]
pub(super) struct FilterOptions {
    /// True to allow internet sockets, which are harmless in a network of the cell's own.
    pub(super) internet: bool,
    /// True if the cell is restricted to some processors, which it must not change.
    pub(super) pinned: bool,
    /// True if a cgroup counts memory that belongs to no process.
    pub(super) counted: bool,
    /// True if the calls that are always denied, and Unix sockets, are left to the filter of [`record`], whose listener
    /// denies them.
    pub(super) recorded: bool,
    /// True if the source has a deputy. The deputy does not know restrictions that a process of the source puts on
    /// itself, so that Landlock is not offered to it.
    pub(super) deputized: bool,
    /// True to deny changes of modes, owners, times and attributes by path.
    pub(super) fixed_attributes: bool,
    /// The process that supervises the cell, and counts its memory.
    pub(super) supervisor: i32,
    /// True to deny signals to that process. The first process of a namespace needs no rule: the kernel keeps those from
    /// it that it does not expect.
    pub(super) guards_signals: bool,
}

/// Installs the filters for this process and all that it will start. Needs `no_new_privs`.
pub(super) fn apply(rules: FilterOptions) -> io::Result<()> {
    for program in programs(rules)? {
        apply_filter(&program).map_err(io::Error::other)?;
    }
    Ok(())
}

fn programs(rules: FilterOptions) -> io::Result<Vec<BpfProgram>> {
    let mut denied = if rules.recorded { Filter::new() } else { always_denied() };
    denied.extend(supervisor::scheduling(rules.supervisor)?);
    if rules.guards_signals {
        denied.extend(supervisor::signals(rules.supervisor)?);
    }
    if rules.pinned {
        denied.insert(libc::SYS_sched_setaffinity, Vec::new());
    }
    denied.insert(libc::SYS_socket, sockets::alone(rules)?);
    denied.insert(libc::SYS_socketpair, sockets::pairs()?);
    for &(call, mode, flags) in MODES.iter().chain(MODES_HERE) {
        denied.insert(call, raising(mode, flags)?);
    }
    if rules.fixed_attributes {
        denied.extend(attributes::by_path()?);
    }
    // The limits of the process that counts the memory of the cell, or of any process of the user in a reduced cell.
    denied.insert(libc::SYS_prlimit64, vec![all([differs(0, 0)?, is_given(2)?])?]);
    // Both put characters into a terminal's input.
    let mut requests = vec![all([is(1, libc::TIOCSTI)?])?, all([is(1, libc::TIOCLINUX)?])?];
    for request in MAKING_REQUESTS {
        requests.push(all([is(1, request)?])?);
    }
    denied.insert(libc::SYS_ioctl, requests);
    denied.insert(libc::SYS_clone, NAMESPACES.map(|flag| all([has(0, flag)?])).into_iter().collect::<Result<_, _>>()?);
    // A listener of its own could let calls continue that the one of a recorded cell denies.
    denied.insert(libc::SYS_seccomp, vec![all([has(1, NEW_LISTENER)?])?]);
    denied.insert(libc::SYS_mmap, mappings(rules.counted)?);
    denied.insert(libc::SYS_setsockopt, options()?);
    let mut unknown: Filter = UNKNOWN.iter().map(|&call| (call, Vec::new())).collect();
    if !rules.counted {
        unknown.insert(libc::SYS_memfd_create, Vec::new());
    }
    denied.insert(libc::SYS_memfd_create, vec![all([has(1, libc::MFD_HUGETLB as i32)?])?]);
    if rules.deputized {
        unknown.insert(libc::SYS_landlock_create_ruleset, Vec::new());
    }
    let mut programs = vec![compiled(unknown, libc::ENOSYS)?, compiled(denied, libc::EPERM)?];
    if cfg!(target_arch = "x86_64") {
        programs.push(x32_guard());
    }
    Ok(programs)
}

fn always_denied() -> Filter {
    DENIED.iter().chain(DENIED_HERE).map(|&(call, _)| (call, Vec::new())).collect()
}

/// Returns the name of a call that every cell denies.
#[must_use]
pub fn denied_call(number: c_long) -> Option<&'static str> {
    DENIED.iter().chain(DENIED_HERE).find(|(call, _)| *call == number).map(|(_, name)| *name)
}

/// The rules of each system call: any rule that matches denies the call, and an empty list denies it always.
type Filter = BTreeMap<c_long, Vec<SeccompRule>>;

/// Denies memory that no limit of a process counts: stacks that grow, huge pages that the machine reserves for others,
/// and shared memory that is not a file in a private folder, whose size is limited.
fn mappings(counted: bool) -> io::Result<Vec<SeccompRule>> {
    let mut rules = vec![all([has(3, libc::MAP_GROWSDOWN)?])?, all([has(3, libc::MAP_HUGETLB)?])?];
    if !counted {
        rules.push(all([has(3, libc::MAP_SHARED)?, has(3, libc::MAP_ANONYMOUS)?])?);
    }
    Ok(rules)
}

/// Denies programs that the kernel would run on packets, and protocols on top of TCP: no source needs their code.
fn options() -> io::Result<Vec<SeccompRule>> {
    const FILTERS: [i32; 4] =
        [libc::SO_ATTACH_FILTER, libc::SO_ATTACH_BPF, libc::SO_ATTACH_REUSEPORT_CBPF, libc::SO_ATTACH_REUSEPORT_EBPF];
    let filters = FILTERS.map(|option| all([is(1, libc::SOL_SOCKET)?, is(2, option)?]));
    let upper = all([is(1, libc::IPPROTO_TCP)?, is(2, libc::TCP_ULP)?]);
    filters.into_iter().chain([upper]).collect()
}

/// Denies the setuid and setgid bits. A file with them in a writable folder would raise the rights of everyone who
/// executes it on the machine to those of its owner, who is root if the broker is.
fn raising(mode: u8, flags: Option<u8>) -> io::Result<Vec<SeccompRule>> {
    let mut rules = Vec::new();
    for bit in [libc::S_ISUID, libc::S_ISGID] {
        let raises = || condition(mode, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bit.into()), bit);
        match flags {
            None => rules.push(all([raises()?])?),
            // Without these flags the argument is not a mode, but whatever was in the register.
            Some(flags) => {
                // Only those bits of `O_TMPFILE` that are not also `O_DIRECTORY`.
                for new in [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY] {
                    rules.push(all([raises()?, has(flags, new)?])?);
                }
            }
        }
    }
    Ok(rules)
}

fn compiled(filter: Filter, errno: i32) -> io::Result<BpfProgram> {
    with_action(filter, SeccompAction::Errno(errno.unsigned_abs()))
}

fn with_action(filter: Filter, action: SeccompAction) -> io::Result<BpfProgram> {
    let architecture = if cfg!(target_arch = "x86_64") { TargetArch::x86_64 } else { TargetArch::aarch64 };
    let filter = SeccompFilter::new(filter, SeccompAction::Allow, action, architecture).map_err(io::Error::other)?;
    filter.try_into().map_err(io::Error::other)
}

/// Denies x32 calls: they have the same architecture number but their own call numbers, which the filters above do not
/// know.
fn x32_guard() -> BpfProgram {
    const X32: u32 = 0x4000_0000;
    let step = |code: u32, jump_false: u8, k: u32| sock_filter { code: code as u16, jt: 0, jf: jump_false, k };
    vec![
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, X32),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs()),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

fn all(conditions: impl Into<Vec<SeccompCondition>>) -> io::Result<SeccompRule> {
    SeccompRule::new(conditions.into()).map_err(io::Error::other)
}

fn is(argument: u8, value: impl TryInto<u64>) -> io::Result<SeccompCondition> {
    condition(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

fn differs(argument: u8, value: impl TryInto<u64>) -> io::Result<SeccompCondition> {
    condition(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value)
}

/// Matches a pointer that is not null.
fn is_given(argument: u8) -> io::Result<SeccompCondition> {
    condition(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0_u64)
}

fn has(argument: u8, flag: i32) -> io::Result<SeccompCondition> {
    let bit = u64::from(flag.cast_unsigned());
    condition(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(bit), bit)
}

fn condition(
    argument: u8,
    length: SeccompCmpArgLen,
    operator: SeccompCmpOp,
    value: impl TryInto<u64>,
) -> io::Result<SeccompCondition> {
    let value = value.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    SeccompCondition::new(argument, length, operator, value).map_err(io::Error::other)
}
