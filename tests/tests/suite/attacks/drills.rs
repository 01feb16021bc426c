//! Attacks that are ways to behave, seen from outside.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::ground::Ground;
use super::table::{NOTHING, Rows};
use super::{Tier, agent, tool};
use crate::agent::Agent;
use crate::place::{signal, until};
use rustix::process::Signal;
use serde_json::json;

/// Longer than the grace that a source gets before it is killed.
const GRACE: Duration = Duration::from_secs(20);

/// More than a broker ever needs, and less than a line without end would take in the time.
const MAX_BROKER_KIB: u64 = 600 * 1024;

pub(super) fn uncaged(rows: &mut Rows) {
    let tier = Tier::Uncaged;
    rows.set(19, tier, "not tried");
    let ground = Ground::new(tier);
    let mut hostile = agent(&ground);
    rows.set(33, tier, if daemons(&ground, &mut hostile) > 0 { "bites" } else { NOTHING });
    for pid in marked(&ground) {
        signal(pid, Signal::KILL);
    }
    // There is no broker to be talked at, no tunnel to be kept, and nobody who records.
    for number in [34, 35, 36, 37, 38, 40, 41, 42] {
        rows.set(number, tier, "not tried");
    }
}

pub(super) fn full(rows: &mut Rows) {
    rows.set(19, Tier::Full, &links_in_paths(Tier::Full));
    rows.set(40, Tier::Full, &tunnel());
    caged(Tier::Full, rows);
}

pub(super) fn reduced(rows: &mut Rows) {
    // What a link leads to is opened there as here; a network there is none.
    rows.set(19, Tier::Reduced, &links_in_paths(Tier::Reduced));
    rows.set(40, Tier::Reduced, "not tried");
    caged(Tier::Reduced, rows);
}

fn caged(tier: Tier, rows: &mut Rows) {
    for number in [34, 35, 36] {
        rows.set(number, tier, &talks(tier, number));
    }
    for number in [37, 38] {
        rows.set(number, tier, &stays(tier, number));
    }
    rows.set(41, tier, &spins(tier));
    let ground = Ground::new(tier);
    let left = daemons(&ground, &mut agent(&ground));
    rows.set(33, tier, if left == 0 { NOTHING } else { "daemons live on" });
    for pid in marked(&ground) {
        signal(pid, Signal::KILL);
    }
    // Nothing is enforced by a recorder.
    rows.set(42, tier, "not tried");
}

/// A source whose cell names a path with a link in it does not start.
fn links_in_paths(tier: Tier) -> String {
    let ground = Ground::with(tier, r#"cell = { read = ["@dir@/link"], dangerous-allow-reduced = true }"#, "60s");
    std::os::unix::fs::symlink(ground.place.path("home/.ssh"), ground.place.path("link")).unwrap();
    let ran = ground.run(&["tools"]);
    if ran.code == Some(0) {
        return "the link is followed".to_owned();
    }
    assert!(ran.err.contains("link"), "{}", ran.err);
    NOTHING.to_owned()
}

/// A tunnel to a host that is declared, kept open by a source that has ended.
fn tunnel() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("localhost:{}", listener.local_addr().unwrap().port());
    let (sender, closed) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"x").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
        sender.send(())
    });
    let cell = format!("dangerous-allow-private = true\ncell = {{ network = [\"{to}\"] }}");
    let ground = Ground::with(Tier::Full, &cell, "60s");
    let mut agent = agent(&ground);
    let mut bait = ground.bait(agent.running.pid());
    bait["tunnel"] = to.clone().into();
    let opened = agent.call(&tool(Tier::Full, 40), &bait, None);
    assert!(opened["ok"].as_str().is_some_and(|text| text.contains("it works")), "{opened}");
    assert!(closed.try_recv().is_err(), "it is open as long as its source lives");
    agent.leave();
    let allowed = ground.records("egress.allowed");
    assert_eq!(format!("{}:{}", allowed[0]["host"].as_str().unwrap(), allowed[0]["port"]), to);
    if closed.recv_timeout(GRACE).is_ok() { NOTHING.to_owned() } else { "a tunnel".to_owned() }
}

/// Daemons that are left when whoever started them was killed.
fn daemons(ground: &Ground, agent: &mut Agent) -> usize {
    let broker = agent.running.pid();
    let started = agent.call(&tool(ground.tier, 33), &ground.bait(broker), None);
    assert!(started["ok"].as_str().is_some_and(|text| text.contains("3 started")), "{started}");
    until("the daemons are up", || marked(ground).len() == 3);
    agent.running.signal(Signal::KILL);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) && !marked(ground).is_empty() {
        std::thread::sleep(Duration::from_millis(20));
    }
    marked(ground).len()
}

fn marked(ground: &Ground) -> Vec<u32> {
    let mark = format!("{}-daemon", ground.mark);
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let named = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    named
        .filter(|pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == mark.as_bytes())
        })
        .collect()
}

/// A source that talks without end or sense: the broker stays, stays small, and answers.
fn talks(tier: Tier, number: u8) -> String {
    let ground = Ground::hasty(tier);
    let mut agent = agent(&ground);
    let broker = agent.running.pid();
    let call = agent.send_call(&tool(tier, number), &ground.bait(broker));
    let answer = agent.answer(call, None);
    assert!(!answer.is_null());
    assert!(agent.list()["tools"].is_array(), "the broker answers after attack {number}");
    let used = peak_kib(broker);
    agent.leave();
    ground.await_no_process();
    if used > MAX_BROKER_KIB { format!("the broker takes {used} KiB") } else { NOTHING.to_owned() }
}

/// A source that keeps its processors busy: the broker answers meanwhile.
fn spins(tier: Tier) -> String {
    let ground = Ground::new(tier);
    let mut agent = agent(&ground);
    agent.list();
    let spinning = agent.send_call(&tool(tier, 41), &ground.bait(agent.running.pid()));
    let listing = agent.send("tools/list", json!({}));
    let answers = std::iter::from_fn(|| agent.next()).filter_map(|message| message["id"].as_u64());
    let order: Vec<_> = answers.take(2).collect();
    agent.leave();
    if order == [listing, spinning] { NOTHING.to_owned() } else { "the broker waits for it".to_owned() }
}

/// The most memory that the broker has had. It may stand behind `setpriv`, which became it.
fn peak_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A source that wants to outlive its session.
fn stays(tier: Tier, number: u8) -> String {
    let ground = Ground::new(tier);
    let mut agent = agent(&ground);
    let call = agent.send_call(&tool(tier, number), &ground.bait(agent.running.pid()));
    agent.answer(call, None);
    agent.leave();
    let begun = Instant::now();
    while begun.elapsed() < GRACE && !ground.left().is_empty() {
        std::thread::sleep(Duration::from_millis(20));
    }
    match ground.left().len() {
        0 => NOTHING.to_owned(),
        left => format!("{left} processes live on"),
    }
}
