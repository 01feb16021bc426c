//! Measures what a cell costs: `true` from start to end, without a cell and in each tier, with the processor time of
//! the launcher as a program of its own and as the `portcullis` binary; real servers from their start to the list of
//! their tools, with and without a cell in turn; and fifty of them at once. The servers are those of
//! `tests/interop/setup.sh`, the binary is that of `cargo build --release`.
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods, reason = "a bench")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use portcullis_jail::{CellSpec, LaunchSpec, Launcher, Mount, RunningLauncher, Tier};

/// Runs of each variant of a pair; the two alternate.
const PAIRS: usize = 21;

/// Servers that are started together.
const TOGETHER: usize = 50;

const QUESTIONS: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n",
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}"#,
    "\n"
);

fn own() -> Launcher {
    Launcher::Path(env!("CARGO_BIN_EXE_portcullis-jail").into())
}

/// Returns `target`, from `target/release/portcullis-jail`.
fn target() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_portcullis-jail")).ancestors().nth(2).unwrap().to_owned()
}

/// Sends the requests, and reads until the list of tools has come or the program has ended.
fn ask(mut input: impl Write, output: impl Read) {
    // A program that does not read has ended.
    let _ = input.write_all(QUESTIONS.as_bytes());
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if line.contains(r#""id":2"#) {
            assert!(line.contains(r#""tools""#), "{line}");
            return;
        }
    }
}

/// Starts a program without a cell. Returns the time until it has answered.
fn plain(launch: &LaunchSpec) -> Duration {
    let begun = Instant::now();
    let mut command = Command::new(&launch.program);
    command.args(&launch.arguments).env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    ask(child.stdin.as_mut().unwrap(), child.stdout.as_mut().unwrap());
    let took = begun.elapsed();
    drop(child.stdin.take());
    let _ = child.kill();
    child.wait().unwrap();
    took
}

/// Starts a program in a cell. Returns the time until it has answered.
fn caged(launch: &LaunchSpec, launcher: &mut RunningLauncher) -> Duration {
    let begun = Instant::now();
    let mut started = launcher.start(launch).unwrap();
    started.control.ready(drop).unwrap();
    ask(&mut started.input, &mut started.output);
    let took = begun.elapsed();
    drop(started.control);
    started.process.wait().unwrap();
    took
}

/// Returns the launch of a program of the system, or of one that also needs the paths in `more`.
fn launch(program: impl Into<PathBuf>, arguments: &[&str], more: &[PathBuf]) -> LaunchSpec {
    let links = ["bin", "lib", "lib64"].map(|name| (Path::new("/").join(name), Path::new("usr").join(name)));
    let mut mounts = vec![Mount::public("/usr"), Mount::public("/etc/ld.so.cache")];
    mounts.extend(more.iter().map(Mount::read));
    let cell = CellSpec { mounts, links: links.into(), ..CellSpec::default() };
    LaunchSpec {
        program: program.into(),
        arguments: arguments.iter().map(Into::into).collect(),
        environment: Vec::new(),
        directory: cell.home.clone(),
        cell,
    }
}

/// Returns the real servers that are installed.
fn servers() -> Vec<(&'static str, LaunchSpec)> {
    let installed = target().join("interop");
    if !installed.join("installed").exists() {
        println!("NOT MEASURED: real servers, as {} is empty; run tests/interop/setup.sh", installed.display());
        return Vec::new();
    }
    let modules = installed.join("node/node_modules");
    let everything = modules.join("@modelcontextprotocol/server-everything/dist/index.js");
    let python = installed.join("python/bin/python");
    let prefix = python.canonicalize().unwrap().ancestors().nth(2).unwrap().to_owned();
    let outside = if prefix.starts_with("/usr") { Vec::new() } else { vec![prefix] };
    vec![
        ("node", launch("/usr/bin/node", &[everything.to_str().unwrap()], &[modules])),
        ("python", launch(python, &["-m", "mcp_server_time"], &[outside, vec![installed.join("python")]].concat())),
    ]
}

/// Returns the user and system time of all processes that this one has waited for, and of their children.
fn processor_time() -> Duration {
    /// The unit that Linux reports to every program, whatever the kernel's own tick.
    const TICK: Duration = Duration::from_millis(10);
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    // Fields 16 and 17; the first one here is field 3.
    TICK * fields.split_whitespace().skip(13).take(2).map(|field| field.parse::<u32>().unwrap()).sum()
}

fn cells(criterion: &mut Criterion) {
    let launch = launch("/usr/bin/true", &[], &[]);
    let mut launcher = RunningLauncher::new(&own()).unwrap();
    let mut group = criterion.benchmark_group("start_true");
    group.bench_function("plain", |bench| bench.iter(|| plain(&launch)));
    group.bench_function("full", |bench| bench.iter(|| caged(&launch, &mut launcher)));
    if !rustix::process::geteuid().is_root() {
        let mut reduced = launch.clone();
        (reduced.cell.tier, reduced.cell.home, reduced.directory) = (Tier::Reduced, std::env::temp_dir(), "/".into());
        group.bench_function("reduced", |bench| bench.iter(|| caged(&reduced, &mut launcher)));
    }
    group.finish();
    processor_time_of("plain", || _ = plain(&launch));
    processor_time_of("full", || _ = caged(&launch, &mut launcher));
    let command_line = target().join("release/portcullis");
    match command_line.exists() {
        true => {
            let mut launcher = RunningLauncher::new(&Launcher::Path(command_line)).unwrap();
            processor_time_of("full, by the portcullis binary", || _ = caged(&launch, &mut launcher));
        }
        false => println!("NOT MEASURED: the `portcullis` binary as the launcher; cargo build --release --bins"),
    }
}

/// Measures many runs together, since the clock of processor time is coarse.
fn processor_time_of(name: &str, mut run: impl FnMut()) {
    let (before, begun, mut count) = (processor_time(), Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(4) {
        run();
        count += 1;
    }
    println!("start_true/{name}: {:?} of processor time", (processor_time() - before) / count);
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.into_iter().nth(PAIRS / 2).unwrap()
}

fn real_servers(_: &mut Criterion) {
    for (name, launch) in servers() {
        // The first run reads files from disk that the others find in memory.
        let mut launcher = RunningLauncher::new(&own()).unwrap();
        caged(&launch, &mut launcher);
        let (without, within) = (0..PAIRS).map(|_| (plain(&launch), caged(&launch, &mut launcher))).unzip();
        let (without, within) = (median(without), median(within));
        let ratio = within.as_secs_f64() / without.as_secs_f64();
        println!(
            "tools/list of {name}: plain {without:?}, in a cell {within:?}, ratio {ratio:.3} (medians of {PAIRS} pairs)"
        );
    }
    for (name, launch) in servers() {
        let all = |start: &(dyn Fn() -> Duration + Sync)| {
            let begun = Instant::now();
            std::thread::scope(|scope| (0..TOGETHER).for_each(|_| drop(scope.spawn(start))));
            begun.elapsed()
        };
        let (without, within) =
            (all(&|| plain(&launch)), all(&|| caged(&launch, &mut RunningLauncher::new(&own()).unwrap())));
        println!("{TOGETHER} × tools/list of {name} at once: plain {without:?}, in a cell {within:?}");
    }
}

/// Measures what it costs that a deputy makes and removes files for a source.
fn making_files(_: &mut Criterion) {
    const SCRIPT: &str = "import os, sys, time\nos.chdir(sys.argv[1])\nbegun = time.monotonic()\n\
        for _ in range(10000): os.close(os.open('file', os.O_CREAT | os.O_EXCL | os.O_WRONLY)); os.unlink('file')\n\
        print((time.monotonic() - begun) / 10000 * 1e6)";
    let folder = tempfile::tempdir().unwrap();
    let mut launch = launch("/usr/bin/python3", &["-ISc", SCRIPT], &[]);
    if !launch.program.exists() {
        println!("NOT MEASURED: making files, as there is no /usr/bin/python3");
        return;
    }
    launch.arguments.push(folder.path().into());
    launch.cell.mounts.push(Mount::write(folder.path()));
    for names in [Vec::new(), vec!["protected".to_owned()]] {
        launch.cell.protected_names = names.clone();
        let mut started = RunningLauncher::new(&own()).unwrap().start(&launch).unwrap();
        started.control.ready(drop).unwrap();
        let mut said = String::new();
        started.output.read_to_string(&mut said).unwrap();
        started.process.wait().unwrap();
        println!("make and remove a file, protected names {names:?}: {} µs", said.trim());
    }
}

criterion_group!(benches, cells, making_files, real_servers);
criterion_main!(benches);
