//! The isolation report: the limits that are enforced on a source, the mechanism of each, and the gaps. It promises no
//! more than the mechanism does.

use std::borrow::Cow;
use std::path::PathBuf;

use portcullis_core::trust::KEPT_NAMES;
use portcullis_jail::{EnforcementReport, Tier};
use serde::{Serialize, Serializer};

use super::CellGrant;

/// Returns paths as text. Bytes that are not UTF-8 are replaced, since JSON cannot hold them.
pub fn paths_as_text<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Vec<Cow<'a, str>> {
    paths.into_iter().map(|path| path.to_string_lossy()).collect()
}

/// The strength with which something is enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strength {
    /// Enforced by the kernel or the rules of WebAssembly, for the source and all its descendants.
    Enforced,
    /// Enforced by the kernel for each process separately: many processes have many times as much.
    PerProcessOnly,
    /// Enforced as far as the mechanism goes, which is not all the way.
    BestEffort,
    /// Not enforced.
    None,
}

impl Strength {
    /// Returns the name that reports use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::PerProcessOnly => "per-process-only",
            Self::BestEffort => "best-effort",
            Self::None => "none",
        }
    }
}

/// One aspect of the isolation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IsolationAspect {
    /// The subject of the aspect, such as `files`.
    pub subject: &'static str,
    /// The strength with which the aspect is enforced.
    pub strength: Strength,
    /// The mechanism that enforces it.
    pub mechanism: String,
}

/// The isolation of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IsolationReport {
    /// The tier of the cell.
    #[serde(serialize_with = "by_name")]
    pub tier: Tier,
    /// Environment, descriptors, files, network, memory, processes, CPU, kill-tree, in this order.
    pub aspects: Vec<IsolationAspect>,
    /// The facts that the source can learn despite its cell, and then what else it can do.
    pub leaks: Vec<&'static str>,
}

impl IsolationReport {
    /// Returns the report of a grant in a tier, given what the platform was found to enforce.
    #[must_use]
    pub fn of(grant: &CellGrant, tier: Tier, enforced: &EnforcementReport) -> Self {
        let delegated = enforced.cgroup;
        let aspects = vec![
            aspect("environment", Strength::Enforced, "cleared, then listed".to_owned()),
            aspect("descriptors", Strength::Enforced, "closed above standard error".to_owned()),
            files(grant, tier, enforced),
            network(grant, tier),
            memory(grant, tier, delegated),
            processes(grant, tier, delegated),
            cpu(grant, delegated),
            kill_tree(tier),
        ];
        Self { tier, aspects, leaks: leaks(grant, tier, enforced) }
    }
}

fn by_name<S: Serializer>(tier: &Tier, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(tier.name())
}

fn aspect(subject: &'static str, strength: Strength, mechanism: String) -> IsolationAspect {
    IsolationAspect { subject, strength, mechanism }
}

fn is_full(tier: Tier) -> bool {
    match tier {
        Tier::Full | Tier::FullViaBwrap => true,
        Tier::Reduced => false,
    }
}

/// The mechanisms that restrict files and network where the source has no root and no network namespace of its own.
const FILTERS: [&str; 2] = if cfg!(target_os = "macos") { ["Seatbelt", "Seatbelt"] } else { ["Landlock", "seccomp"] };

fn files(grant: &CellGrant, tier: Tier, enforced: &EnforcementReport) -> IsolationAspect {
    let [filter, _] = FILTERS;
    let mechanism = match (is_full(tier), enforced.landlock > 0) {
        (true, true) => "a private root, read-only except for grants; Landlock".to_owned(),
        (true, false) => "a private root, read-only except for grants; this kernel has no Landlock".to_owned(),
        (false, _) => format!("{filter}; names and sizes of other files can be seen"),
    };
    let (read, write) = (grant.read.len(), grant.write.len());
    let names = match (write, enforced.protects_names) {
        (0, _) => String::new(),
        (_, true) => format!(", but not under the names {}", KEPT_NAMES.join(" and ")),
        (_, false) => format!(", also under the names {}, unless such a file already exists", KEPT_NAMES.join(" and ")),
    };
    // Landlock cannot exempt a folder within a granted one; mounts and Seatbelt can.
    let hides = is_full(tier) || cfg!(target_os = "macos");
    let hidden = match (grant.hidden.len(), hides) {
        (0, _) => String::new(),
        (count, true) => format!("; data folders of brokers in them: {count}, hidden"),
        (count, false) => format!("; data folders of brokers in them: {count}, which can be read"),
    };
    aspect("files", Strength::Enforced, format!("{mechanism}; {read} granted to read, {write} to write{names}{hidden}"))
}

fn network(grant: &CellGrant, tier: Tier) -> IsolationAspect {
    let hosts = grant.network.join(" ");
    match (is_full(tier), grant.network.is_empty()) {
        (true, true) => aspect(
            "network",
            Strength::Enforced,
            "a network namespace with a resolver that refuses every name; seccomp".to_owned(),
        ),
        (true, false) => {
            let mechanism = format!("a network namespace that leads only to the broker's proxy, by name: {hosts}");
            aspect("network", Strength::Enforced, mechanism)
        }
        (false, _) => {
            let [_, filter] = FILTERS;
            aspect("network", Strength::Enforced, format!("{filter}: no socket leads out; none was granted"))
        }
    }
}

fn memory(grant: &CellGrant, tier: Tier, delegated: bool) -> IsolationAspect {
    let bound = display_size(grant.limits.memory);
    match (delegated, is_full(tier)) {
        (true, _) => aspect("memory", Strength::Enforced, format!("memory.max of its control group, {bound}")),
        (false, true) => {
            let mechanism = format!(
                "RLIMIT_DATA, {bound} for each process; their sum is checked twice a second, and the cell ended above that; \
                 memory that belongs to no process is denied; buffers of pipes and sockets are not counted"
            );
            aspect("memory", Strength::BestEffort, mechanism)
        }
        (false, false) => {
            let mechanism = format!("RLIMIT_DATA, {bound} for each process, which a hostile one can get around");
            aspect("memory", Strength::PerProcessOnly, mechanism)
        }
    }
}

fn processes(grant: &CellGrant, tier: Tier, delegated: bool) -> IsolationAspect {
    let most = grant.limits.processes;
    match (delegated, is_full(tier)) {
        (true, _) => aspect("processes", Strength::Enforced, format!("pids.max of its control group, {most}")),
        (false, true) => {
            aspect("processes", Strength::Enforced, format!("RLIMIT_NPROC, counted in its user namespace, {most}"))
        }
        (false, false) => {
            let mechanism = format!("RLIMIT_NPROC, {most}, counted with all processes of the user");
            aspect("processes", Strength::BestEffort, mechanism)
        }
    }
}

fn cpu(grant: &CellGrant, delegated: bool) -> IsolationAspect {
    match (grant.limits.cpu, delegated) {
        (Some(cpu), true) => {
            aspect("cpu", Strength::Enforced, format!("cpu.max of its control group, {cpu} processors"))
        }
        (Some(cpu), false) => {
            let mechanism = format!("bound to {} processors, as there is no control group", cpu.ceil());
            aspect("cpu", Strength::BestEffort, mechanism)
        }
        (None, _) => aspect("cpu", Strength::None, "no limit was asked for".to_owned()),
    }
}

fn kill_tree(tier: Tier) -> IsolationAspect {
    if is_full(tier) {
        let mechanism = "a process namespace that ends with the source and with the broker";
        aspect("kill-tree", Strength::Enforced, mechanism.to_owned())
    } else if cfg!(target_os = "macos") {
        let mechanism = "its process group is killed; a process that leaves the group lives on";
        aspect("kill-tree", Strength::BestEffort, mechanism.to_owned())
    } else {
        let mechanism = "its launcher adopts and kills what is left behind, unless the launcher itself is killed";
        aspect("kill-tree", Strength::BestEffort, mechanism.to_owned())
    }
}

fn leaks(grant: &CellGrant, tier: Tier, enforced: &EnforcementReport) -> Vec<&'static str> {
    let mut leaks = vec![
        "what is installed under /usr",
        "the kernel's version, the number of processors, the size of memory, the uptime",
        "the clock, and how busy the machine is",
    ];
    if is_full(tier) {
        leaks.push("where granted folders stand on the disk, in /proc/self/mountinfo");
        return leaks;
    }
    leaks.push("names, sizes and times of files that it cannot open");
    leaks.push("names and command lines of the user's other processes, in /proc");
    if cfg!(target_os = "macos") {
        return leaks;
    }
    leaks.push("the machine's name, and the addresses of its network interfaces and neighbours");
    // Landlock restricts none of these calls on any kernel. A source that writes needs them in its own folders.
    leaks.push(match grant.write.is_empty() {
        true => "and it can change modes and owners of what it may read",
        false => "and it can change modes, times and attributes of all files of the user, since it may write to some",
    });
    if enforced.landlock < 3 {
        leaks.push("and it can empty files that it may only read, as the kernel is older than Linux 6.2");
    }
    if enforced.landlock < 6 {
        leaks.push("and it can end the user's other processes, as the kernel is older than Linux 6.12");
    }
    leaks
}

/// Returns a number of bytes for people, in whole GiB or MiB where it is a multiple of them.
#[must_use]
pub fn display_size(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
    use super::*;

    const fn enforced(cgroup: bool) -> EnforcementReport {
        EnforcementReport { landlock: 7, cgroup, protects_names: true, user: 1000 }
    }

    fn strength(report: &IsolationReport, subject: &str) -> Strength {
        report.aspects.iter().find(|aspect| aspect.subject == subject).unwrap().strength
    }

    #[test]
    fn a_report_promises_no_more_than_its_tier() {
        let mut grant = CellGrant::nothing();
        grant.limits.cpu = Some(0.5);
        let full = IsolationReport::of(&grant, Tier::Full, &enforced(false));
        let subjects: Vec<_> = full.aspects.iter().map(|aspect| aspect.subject).collect();
        let expected = ["environment", "descriptors", "files", "network", "memory", "processes", "cpu", "kill-tree"];
        assert_eq!(subjects, expected);
        assert_eq!(strength(&full, "memory"), Strength::BestEffort);
        assert_eq!(strength(&full, "cpu"), Strength::BestEffort);
        assert_eq!(strength(&full, "kill-tree"), Strength::Enforced);
        let delegated = IsolationReport::of(&grant, Tier::Full, &enforced(true));
        assert!(delegated.aspects.iter().all(|aspect| aspect.strength == Strength::Enforced));
        let reduced = IsolationReport::of(&grant, Tier::Reduced, &enforced(false));
        assert_eq!(strength(&reduced, "memory"), Strength::PerProcessOnly);
        assert_eq!(strength(&reduced, "processes"), Strength::BestEffort);
        assert_eq!(strength(&reduced, "kill-tree"), Strength::BestEffort);
        assert!(reduced.leaks.len() > full.leaks.len());
    }

    #[test]
    fn a_mechanism_that_the_kernel_lacks_is_not_reported() {
        let old = EnforcementReport { landlock: 0, ..enforced(false) };
        let report = IsolationReport::of(&CellGrant::nothing(), Tier::Full, &old);
        assert!(report.aspects.iter().any(|aspect| aspect.mechanism.contains("has no Landlock")), "{report:?}");
    }

    #[test]
    fn a_report_says_whether_a_writable_folder_can_get_a_configuration() {
        let grant = CellGrant { write: vec!["/work".into()], ..CellGrant::nothing() };
        let old = EnforcementReport { protects_names: false, ..enforced(false) };
        let says = |enforced: &EnforcementReport| {
            IsolationReport::of(&grant, Tier::Full, enforced).aspects[2].mechanism.clone()
        };
        assert!(says(&enforced(false)).ends_with("but not under the names portcullis.toml and .portcullis"));
        assert!(says(&old).contains("also under the names"), "{}", says(&old));
    }

    #[test]
    fn a_report_says_whether_data_folders_of_brokers_are_hidden() {
        let mut grant = CellGrant { read: vec!["/code".into()], ..CellGrant::nothing() };
        let says =
            |grant: &CellGrant, tier| IsolationReport::of(grant, tier, &enforced(false)).aspects[2].mechanism.clone();
        assert!(says(&grant, Tier::Full).ends_with("1 granted to read, 0 to write"));
        grant.hidden = vec!["/code/.portcullis".into()];
        assert!(says(&grant, Tier::Full).ends_with("; data folders of brokers in them: 1, hidden"));
        let reduced = if cfg!(target_os = "macos") { "1, hidden" } else { "1, which can be read" };
        assert!(says(&grant, Tier::Reduced).ends_with(reduced), "{}", says(&grant, Tier::Reduced));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_report_says_what_a_reduced_cell_cannot_keep_a_source_from() {
        let mut grant = CellGrant::nothing();
        let says = |grant: &CellGrant, landlock| {
            IsolationReport::of(grant, Tier::Reduced, &EnforcementReport { landlock, ..enforced(false) })
                .leaks
                .join("; ")
        };
        assert!(says(&grant, 7).ends_with("and it can change modes and owners of what it may read"));
        grant.write = vec!["/work".into()];
        assert!(says(&grant, 7).contains("all files of the user"), "{}", says(&grant, 7));
        assert!(
            !says(&grant, 6).contains("processes, as") && says(&grant, 5).contains("end the user's other processes")
        );
        assert!(!says(&grant, 3).contains("can empty") && says(&grant, 2).contains("can empty"));
    }

    #[test]
    fn a_limit_that_is_not_configured_is_reported_as_none() {
        assert_eq!(
            strength(&IsolationReport::of(&CellGrant::nothing(), Tier::Full, &enforced(true)), "cpu"),
            Strength::None
        );
    }

    #[test]
    fn a_report_is_data_for_programs() {
        let report =
            serde_json::to_value(IsolationReport::of(&CellGrant::nothing(), Tier::FullViaBwrap, &enforced(false)))
                .unwrap();
        assert_eq!(report["tier"], "full-via-bwrap");
        assert_eq!(report["aspects"][4]["strength"], "best-effort");
    }
}
