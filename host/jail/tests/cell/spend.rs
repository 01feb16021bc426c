//! Tests of what a source can spend.

use std::os::unix::process::ExitStatusExt;

use portcullis_jail::CellLimits;

use crate::{each, output, shell};

#[test]
fn a_cell_cannot_exceed_its_memory_processes_and_files() {
    each(|_| {
        let mut launch = shell(
            "head -c 20M /dev/zero > big; head -c 20M /dev/zero > /tmp/big; ls -s --block-size=M big /tmp/big; \
             ulimit -n; ulimit -c; nproc; ulimit -Hs; ulimit -r; dd if=/dev/zero of=/dev/null bs=100M count=1; \
             i=0; while [ $i -lt 30 ]; do sleep 1000 & i=$((i+1)); done; kill 0",
        );
        let limits = CellLimits {
            memory: 64 << 20,
            processes: 20,
            cpu: Some(0.5),
            files: 77,
            file_size: 10 << 20,
            tmp: 4 << 20,
        };
        launch.cell.limits = limits;
        let (said, _) = output(&launch);
        assert!(said.contains("4M /tmp/big\n4M big\n77\n0\n1\n8192\n0\n"), "{said}");
        assert!(said.contains("memory exhausted"), "{said}");
        assert!(said.contains("Cannot fork"), "{said}");
        let mut launch = shell("head -c 20M /dev/zero > big; ls -s --block-size=M big");
        launch.cell.limits.file_size = 10 << 20;
        assert!(output(&launch).0.contains("10M big"));
    });
}

#[test]
fn a_cell_whose_processes_exceed_the_memory_limit_together_is_ended_and_says_so() {
    each(|_| {
        // No single process is near its limit.
        let mut launch =
            shell("for n in 1 2 3 4 5 6 7 8; do perl -e '$x = \"x\" x (16 << 20); sleep 30' & done; wait; echo done");
        launch.cell.limits.memory = 64 << 20;
        let (said, status) = output(&launch);
        assert_eq!(status.signal(), Some(9), "{said}");
        assert!(
            said.starts_with("portcullis: ended, as its processes hold ") && said.contains("allows 64 MiB"),
            "{said}"
        );
    });
}

#[test]
fn memory_counts_although_the_first_thread_has_ended() {
    each(|_| {
        // No process is near its own limit. In each, a second thread allocates memory after the first one, which stands
        // for the process, has ended by its own system call.
        let exit = if cfg!(target_arch = "x86_64") { 60 } else { 93 };
        let hoarder = format!(
            "use threads; threads->create(sub {{ my $n = 40 << 20; sleep 1; my $x = 'x' x $n; sleep 30 }}); syscall({exit}, 0)"
        );
        let mut launch = shell("for n in 1 2 3 4; do perl -e \"$0\" & done; wait; echo done");
        launch.arguments.push(hoarder.into());
        launch.cell.limits.memory = 128 << 20;
        let (said, status) = output(&launch);
        assert_eq!(status.signal(), Some(9), "{said}");
        assert!(said.starts_with("portcullis: ended, as its processes hold "), "{said}");
    });
}

#[test]
fn a_source_sets_its_own_limits_and_those_of_no_other_process() {
    each(|_| {
        // Without descriptors, the process that supervises the cell could not read how much memory is held.
        let prlimit = if cfg!(target_arch = "x86_64") { 302 } else { 261 };
        let limits = format!(
            "my $few = pack('QQ', 2, 2); print syscall({prlimit}, 1, 7, $few, 0), ' ', syscall({prlimit}, 0, 7, $few, 0)"
        );
        let mut launch = shell("exec perl -e \"$0\"");
        launch.arguments.push(limits.into());
        assert_eq!(output(&launch).0, "-1 0");
    });
}

/// Returns what these calls of Perl print in a cell.
fn perl(calls: &str) -> String {
    let mut launch = shell("exec perl -e \"$0\"");
    launch.arguments.push(calls.into());
    output(&launch).0
}

#[test]
fn a_source_does_not_change_when_its_supervisor_runs() {
    let [priority, policy, processors, disk] =
        if cfg!(target_arch = "x86_64") { [141, 144, 203, 251] } else { [140, 119, 122, 30] };
    each(move |_| {
        let calls = format!(
            "my ($by, $policy, $one) = (getppid(), pack('i', 0), pack('Q', 1)); print join ' ', syscall({priority}, 0, $by, 19), syscall({priority}, 2, 0, 19), \
             syscall({policy}, $by, 5, $policy), syscall({processors}, $by, 8, $one), \
             syscall({disk}, 1, $by, 3 << 13), syscall({priority}, 0, 0, 5), syscall({policy}, 0, 5, $policy)"
        );
        assert_eq!(perl(&calls), "-1 -1 -1 -1 -1 0 0", "only its own can be changed");
    });
}

#[test]
fn a_source_cannot_hold_memory_that_no_process_shows() {
    let [splice, map] = if cfg!(target_arch = "x86_64") { [278, 9] } else { [75, 222] };
    each(move |_| {
        // A page that was spliced into a pipe, and huge pages that the machine has reserved.
        let calls = format!(
            "syscall({splice}, 1, 0, 0, 0); print $! + 0, ' '; \
             syscall({map}, 0, 2 << 20, 3, 0x40022, -1, 0); print $! + 0"
        );
        assert_eq!(perl(&calls), "38 1");
    });
}

#[test]
fn no_program_of_the_machine_is_given_the_memory_of_a_source_that_crashes() {
    each(|_| {
        let limits = output(&shell("exec cat /proc/self/limits")).0;
        let of = |name: &str| limits.lines().find_map(|line| line.strip_prefix(name)).map(str::split_whitespace);
        assert!(of("Max core file size").unwrap().take(2).eq(["1", "1"]), "{limits}");
        assert!(of("Max pending signals").unwrap().take(2).eq(["1024", "1024"]), "{limits}");
    });
}

#[test]
fn a_source_is_killed_first_when_the_machine_runs_out_of_memory() {
    each(|_| {
        assert_eq!(
            output(&shell("cat /proc/self/oom_score_adj; echo 0 > /proc/self/oom_score_adj")).0.lines().next(),
            Some("1000")
        )
    });
}
