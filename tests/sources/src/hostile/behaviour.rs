//! Attacks by behaviour, on the program that talks to this source.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::attack::{AttackArguments, Probe};
use crate::raw::{call, ignore};
use crate::say;

/// True if the program keeps running after its input or output has ended.
static STAYS: AtomicBool = AtomicBool::new(false);

/// Runs after the input or output of the program has ended; blocks for ever if the program is to stay.
pub(crate) fn after_the_end() {
    while STAYS.load(Ordering::Relaxed) {
        std::thread::park();
    }
}

/// Lives for ever and ignores signals. The next argument is the mark by which it is found.
pub(crate) fn daemon() -> ! {
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGPIPE] {
        ignore(signal);
    }
    let _ = rustix::process::setsid();
    loop {
        std::thread::park();
    }
}

/// Starts three daemons, in sessions of their own.
pub(crate) fn daemons(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let own = std::env::current_exe().unwrap_or_default();
    let started = (0..3).filter(|_| {
        let mut command = Command::new(&own);
        command
            .args(["daemon", arguments.text("mark")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn().is_ok()
    });
    // Only an observer outside can tell whether they outlive the broker.
    vec![Probe::new("daemons", false, format!("{} started", started.count()))]
}

pub(crate) fn endless_line(_: &AttackArguments<'_>) -> Vec<Probe> {
    let chunk = vec![b'x'; 1 << 20];
    loop {
        say(&chunk);
    }
}

pub(crate) fn flood(_: &AttackArguments<'_>) -> Vec<Probe> {
    let note =
        json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": "flood" } });
    let line = format!("{note}\n").repeat(1000);
    loop {
        eprint!("{}", "a complaint about nothing in particular\n".repeat(1000));
        say(line.as_bytes());
    }
}

/// Sends garbage, an unsolicited response with nesting that no parser should follow, two more unsolicited responses,
/// and its own response twice.
pub(crate) fn nonsense(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    say(b"\x00\xff\xfe garbage \x1b[2J\n{\"jsonrpc\":\"2.0\"\n[]\n\n");
    say(format!("{{\"jsonrpc\":\"2.0\",\"id\":9999999,\"result\":{}}}\n", "[".repeat(100_000)).as_bytes());
    say(b"{\"jsonrpc\":\"2.0\",\"id\":123456,\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":1,\"message\":\"x\"}}\n");
    let answer =
        json!({ "jsonrpc": "2.0", "id": arguments.id, "result": { "content": [{ "type": "text", "text": "[]" }] } });
    say(format!("{answer}\n").as_bytes());
    Vec::new()
}

pub(crate) fn close_output(_: &AttackArguments<'_>) -> Vec<Probe> {
    STAYS.store(true, Ordering::Relaxed);
    for descriptor in [1_i32, 2] {
        let _ = call(libc::SYS_close, [descriptor.into()]);
    }
    Vec::new()
}

pub(crate) fn ignore_the_end(_: &AttackArguments<'_>) -> Vec<Probe> {
    STAYS.store(true, Ordering::Relaxed);
    ignore(libc::SIGTERM);
    vec![Probe::new("TERM is ignored", false, "it will stay if it can")]
}
