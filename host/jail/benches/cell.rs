//! What a cell costs: `true` started plainly, in the reduced tier and in the full one, up to its end, with the processor
//! time that the launcher takes of it; and a runtime up to its first word.
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods, reason = "a bench")]

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use portcullis_jail::{Cell, Launch, Launcher, Mount, Tier};

const TRUE: (&str, &[&str]) = ("/usr/bin/true", &[]);
/// Runtimes that answer when they are asked something, as servers do.
const RUNTIMES: [(&str, &[&str]); 2] = [
    ("/usr/bin/node", &["-e", "process.stdin.once('data', () => { console.log('up'); process.exit(0) })"]),
    ("/usr/bin/python3", &["-c", "import json, asyncio; input(); print('up')"]),
];

/// Runs it to its end, after its first word if it has one.
fn plain((program, arguments): (&str, &[&str])) {
    let mut command = Command::new(program);
    let pipes = command.args(arguments).env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    ask(child.stdin.take().unwrap(), child.stdout.take().unwrap());
    assert!(child.wait().unwrap().success());
}

fn caged(launch: &Launch) {
    let mut started = launch.start(&Launcher::Path(env!("CARGO_BIN_EXE_portcullis-jail").into())).unwrap();
    started.control.ready().unwrap();
    ask(started.input, started.output);
    assert!(started.process.wait().unwrap().success());
}

fn ask(mut input: impl Write, mut output: impl Read) {
    // A program that does not listen has ended.
    let _ = input.write_all(b"speak\n");
    output.read_to_end(&mut Vec::new()).unwrap();
}

fn launch((program, arguments): (&str, &[&str])) -> Launch {
    let links = ["bin", "lib", "lib64"].map(|name| (Path::new("/").join(name), Path::new("usr").join(name)));
    let view = ["/usr", "/etc/ld.so.cache", "/etc/ssl"].map(Mount::read);
    let cell = Cell { view: view.into(), links: links.into(), ..Cell::default() };
    Launch {
        program: program.into(),
        arguments: arguments.iter().map(Into::into).collect(),
        environment: Vec::new(),
        directory: cell.home.clone(),
        cell,
    }
}

/// User and system time of all processes that this one has waited for, and theirs.
fn processor_time() -> Duration {
    /// What Linux tells every program, whatever its own clock.
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    // Fields 16 and 17, of which the first here is 3.
    TICK * fields.split_whitespace().skip(13).take(2).map(|field| field.parse::<u32>().unwrap()).sum()
}

fn cells(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("start_true");
    let launch = launch(TRUE);
    group.bench_function("plain", |bench| bench.iter(|| plain(TRUE)));
    group.bench_function("full", |bench| bench.iter(|| caged(&launch)));
    if !rustix::process::geteuid().is_root() {
        let mut reduced = launch.clone();
        (reduced.cell.tier, reduced.cell.home, reduced.directory) = (Tier::Reduced, std::env::temp_dir(), "/".into());
        group.bench_function("reduced", |bench| bench.iter(|| caged(&reduced)));
    }
    group.finish();
    // The clock of processor time is coarse; many runs are not.
    for (name, run) in [("plain", &(|| plain(TRUE)) as &dyn Fn()), ("full", &|| caged(&launch))] {
        let (before, begun, mut runs) = (processor_time(), Instant::now(), 0);
        while begun.elapsed() < Duration::from_secs(4) {
            run();
            runs += 1;
        }
        println!("start_true/{name}: {:?} of processor time", (processor_time() - before) / runs);
    }
}

fn runtimes(criterion: &mut Criterion) {
    for runtime in RUNTIMES.into_iter().filter(|(program, _)| Path::new(program).exists()) {
        let mut group = criterion.benchmark_group(runtime.0);
        group.sample_size(30);
        let launch = launch(runtime);
        group.bench_function("plain", |bench| bench.iter(|| plain(runtime)));
        group.bench_function("full", |bench| bench.iter(|| caged(&launch)));
        group.finish();
    }
}

criterion_group!(benches, cells, runtimes);
criterion_main!(benches);
