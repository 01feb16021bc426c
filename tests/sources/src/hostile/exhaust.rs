//! Attacks that use up resources. Each stops on its own at a small multiple of the limit of the cell in which it is
//! tried.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::attack::{AttackArguments, Probe};
use crate::raw::{Word, call, in_child, map, segment, sleeping_child, take_memory};

const MEBIBYTE: usize = 1 << 20;

pub(crate) fn forks(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let most = arguments.number("processes");
    let mut children = Vec::new();
    let end = loop {
        match sleeping_child() {
            Ok(child) => children.push(child),
            Err(error) => break error.to_string(),
        }
        if children.len() as u64 >= 2 * most {
            break "no end".to_owned();
        }
    };
    for child in &children {
        let _ = call(libc::SYS_kill, [(*child).into(), libc::SIGKILL.into()]);
        let _ = call(libc::SYS_wait4, [(*child).into(), 0_i32.into(), 0_i32.into(), 0_i32.into()]);
    }
    vec![Probe::limit("processes", children.len() as u64, most, &end)]
}

/// The time for which memory is held. The broker measures the memory of a cell several times in it.
const HELD: Duration = Duration::from_secs(5);

pub(crate) fn memory(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let most = arguments.number("memory");
    match arguments.text("hoard") {
        "" => {}
        "read-only" => return vec![Probe::of("made read-only", in_child(|| read_only(most)))],
        _ => return vec![Probe::of("of many processes", many(most, "whole"))],
    }
    let mapped = |flags: i32| move || each(most, || take_memory(8 * MEBIBYTE, flags));
    // In files of 64 MiB, so that no limit on a single file is reached.
    let file = || {
        let chunk = vec![1; 8 * MEBIBYTE];
        let mut newest = 0;
        for taken in 0..2 * most / 8 {
            if taken % 8 == 0 {
                newest = call(libc::SYS_memfd_create, [c"was-here".into(), 0_i32.into()])?;
            }
            File::options().append(true).open(format!("/proc/self/fd/{newest}"))?.write_all(&chunk)?;
        }
        Ok(0)
    };
    vec![
        Probe::of("private", in_child(mapped(libc::MAP_PRIVATE))),
        Probe::of("a stack", in_child(mapped(libc::MAP_PRIVATE | libc::MAP_GROWSDOWN))),
        Probe::of("shared", in_child(mapped(libc::MAP_SHARED))),
        Probe::of("shared by `/dev/zero`", in_child(|| zeros(most))),
        Probe::of("System V segments", in_child(|| each(most, || segment(8 * MEBIBYTE)))),
        Probe::of("a file in memory", in_child(file)),
    ]
}

/// Takes twice the allowed memory, in steps of 8 MiB.
fn each(most: u64, take: impl Fn() -> io::Result<i64>) -> io::Result<i64> {
    (0..2 * most / 8).try_for_each(|_| take().map(drop))?;
    Ok(0)
}

fn zeros(most: u64) -> io::Result<i64> {
    let zero = File::options().read(true).write(true).open("/dev/zero")?;
    each(most, || map(8 * MEBIBYTE, libc::MAP_SHARED, zero.as_raw_fd()))
}

/// Takes pages that are written once and then only read: the limit of a process does not count them.
fn read_only(most: u64) -> io::Result<i64> {
    each(most, || {
        let start = take_memory(8 * MEBIBYTE, libc::MAP_PRIVATE)?;
        let start = usize::try_from(start).unwrap_or_default();
        call(libc::SYS_mprotect, [start.into(), (8 * MEBIBYTE).into(), libc::PROT_READ.into()])
    })?;
    std::thread::sleep(HELD);
    Ok(0)
}

/// Takes memory in processes whose first thread has ended: for such a process `/proc/PID` shows no memory.
pub(crate) fn hidden(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    vec![Probe::of("of processes without a first thread", many(arguments.number("memory"), "headless"))]
}

/// Starts four processes, each of which is below the limit.
fn many(most: u64, how: &str) -> io::Result<i64> {
    let half = usize::try_from(most).unwrap_or_default() * MEBIBYTE / 2;
    let start = || {
        let mut command = Command::new(std::env::current_exe()?);
        let child =
            command.args(["hoarder", &half.to_string(), how]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        child.map(Ended)
    };
    let mut children = (0..4).map(|_| start()).collect::<io::Result<Vec<_>>>()?;
    for Ended(child) in &mut children {
        child.stdout.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.read_exact(&mut [0])?;
    }
    std::thread::sleep(HELD);
    Ok(0)
}

/// A child process that is killed when this is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs as one of these processes: takes memory, reports it, and waits to be killed, in its first thread or in another
/// one after the first has ended.
pub(crate) fn hoarder() -> ! {
    let bytes = std::env::args().nth(2).and_then(|bytes| bytes.parse().ok()).unwrap_or_default();
    if take_memory(bytes, libc::MAP_PRIVATE).is_err() {
        std::process::exit(1);
    }
    if std::env::args().nth(3).as_deref() == Some("headless") {
        std::thread::spawn(|| {
            while first_thread_lives() {
                std::thread::yield_now();
            }
            say_taken()
        });
        // Ends only this thread.
        let _ = call(libc::SYS_exit, [0_i32.into()]);
    }
    say_taken()
}

fn say_taken() -> ! {
    println!("taken");
    loop {
        std::thread::park();
    }
}

/// Reports whether the first thread of this process is still running.
fn first_thread_lives() -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", std::process::id())).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains("zombie"))
}

pub(crate) fn descriptors(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let most = arguments.number("files");
    let mut open = Vec::new();
    let end = loop {
        match File::open("/dev/null") {
            Ok(file) => open.push(file),
            Err(error) => break error.to_string(),
        }
        if open.len() as u64 >= 2 * most {
            break "no end".to_owned();
        }
    };
    let files = Probe::limit("descriptors", open.len() as u64, most, &end);
    drop(open);
    // The user's quota is 128 inotify instances on most machines, shared by all programs.
    let (mut watches, most) = (Vec::new(), 64);
    let end = loop {
        match call(libc::SYS_inotify_init1, [libc::O_CLOEXEC.into()]) {
            Ok(watch) => watches.push(i32::try_from(watch).unwrap_or(-1)),
            Err(error) => break error.to_string(),
        }
        if watches.len() >= most {
            break "no end".to_owned();
        }
    };
    for watch in &watches {
        let _ = call(libc::SYS_close, [(*watch).into()]);
    }
    vec![files, Probe::limit("watches of files", watches.len() as u64, most as u64, &end)]
}

pub(crate) fn disk(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    // A file over the size limit must cause an error and not end the program.
    crate::raw::ignore(libc::SIGXFSZ);
    let most = arguments.number("tmp");
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| "/tmp".to_owned());
    let places =
        [("`/tmp`", variable("TMPDIR")), ("its home", variable("HOME")), ("`/dev/shm`", "/dev/shm".to_owned())];
    places.into_iter().map(|(what, folder)| fill(what, Path::new(&folder), most)).collect()
}

fn fill(what: &str, folder: &Path, most: u64) -> Probe {
    let mut made = Vec::new();
    let chunk = vec![1; MEBIBYTE];
    // In files of 8 MiB, so that only the limit of the folder is reached.
    let end = loop {
        let path = folder.join(format!("filling-{}", made.len() / 8));
        let written = File::options().append(true).create(true).open(&path).and_then(|mut file| file.write_all(&chunk));
        match written {
            Ok(()) => made.push(path),
            Err(error) => break error.to_string(),
        }
        if made.len() as u64 >= 2 * most {
            break "no end".to_owned();
        }
    };
    let _ = fs::remove_file(folder.join(format!("filling-{}", made.len() / 8)));
    for path in &made {
        let _ = fs::remove_file(path);
    }
    Probe::limit(format!("MiB in {what}"), made.len() as u64, most, &end)
}

/// Spins for a while and then answers.
pub(crate) fn spin(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let begun = Instant::now();
    let lasts = Duration::from_millis(arguments.number("spin"));
    let done = in_child(|| {
        while begun.elapsed() < lasts {
            std::hint::spin_loop();
        }
        Ok(0)
    });
    let spun = done.map_or_else(|error| error.to_string(), |_| "spun".to_owned());
    let (mut all, mut may) = ([u64::MAX; 16], [0_u64; 16]);
    let widened = call(libc::SYS_sched_setaffinity, [0_i32.into(), 128_usize.into(), Word::from(&mut all)]);
    let asked = call(libc::SYS_sched_getaffinity, [0_i32.into(), 128_usize.into(), Word::from(&mut may)]);
    let processors: u32 = may.iter().map(|word| word.count_ones()).sum();
    let more = asked.is_err() || u64::from(processors) > arguments.number("processors");
    vec![Probe::new("more processors than it is given", more, format!("{spun} on {processors}, {widened:?}"))]
}
