//! Attacks by behaviour of a source behind the broker, observed from outside.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use serde_json::json;

use super::hostile_machine::{HostileMachine, plant_configuration};
use super::table::{NOTHING, Rows};
use super::{Tier, agent, tool};
use crate::agent::Agent;
use crate::test_dir::{Ran, signal, until};

/// Longer than the grace period that a source gets before it is killed.
const GRACE: Duration = Duration::from_secs(60);

/// More memory than a broker ever needs, and less than an endless line would fill in the time.
const MAX_BROKER_KIB: u64 = 600 * 1024;

/// The number of connections that the racing attack makes.
const RACE: u64 = 60;

pub(super) fn full(rows: &mut Rows) {
    rows.set(40, Tier::Full, &tunnel());
    rows.set(42, Tier::Full, &race());
    caged(Tier::Full, rows);
}

pub(super) fn reduced(rows: &mut Rows) {
    for number in [40, 42] {
        rows.set(number, Tier::Reduced, &no_way_out(number));
    }
    rows.set(45, Tier::Reduced, beside_a_configuration());
    caged(Tier::Reduced, rows);
}

/// Returns what a program in a reduced cell can do to a configuration in a folder that it may write. Such a cell could
/// not protect the configuration, so the program does not start.
fn beside_a_configuration() -> &'static str {
    let machine = HostileMachine::new(Tier::Reduced);
    plant_configuration(&machine.dir);
    let Ran { code, err, .. } = machine.run(&["tools"]);
    let refused = code != Some(0) && err.contains("out/portcullis.toml") && err.contains("a full cell");
    if refused { NOTHING } else { "changing it, exchanging it, moving it, removing it" }
}

fn caged(tier: Tier, rows: &mut Rows) {
    // Links in granted paths are handled alike in both tiers.
    rows.set(19, tier, &links_in_paths(tier));
    for hoard in ["read-only", "many"] {
        hoards(tier, 29, hoard).into_iter().for_each(|leak| rows.also(29, tier, &leak));
    }
    rows.set(43, tier, hoards(tier, 43, "").as_deref().unwrap_or(NOTHING));
    let machine = HostileMachine::new(tier);
    let left = daemons(&machine, &mut agent(&machine), GRACE);
    rows.set(33, tier, if left.is_empty() { NOTHING } else { "daemons live on" });
    left.into_iter().for_each(|pid| signal(pid, Signal::KILL));
    for number in [34, 35, 36] {
        rows.set(number, tier, &talks(tier, number));
    }
    for number in [37, 38] {
        rows.set(number, tier, &stays(tier, number));
    }
    if spins(tier) {
        rows.also(41, tier, "the broker waits for it");
    }
}

/// Checks that a source whose cell names a path with a symbolic link in it does not start.
fn links_in_paths(tier: Tier) -> String {
    let machine =
        HostileMachine::with(tier, r#"cell = { read = ["@dir@/link"], dangerous-allow-reduced = true }"#, "60s");
    machine.link();
    let ran = machine.run(&["tools"]);
    if ran.code == Some(0) {
        return "the link is followed".to_owned();
    }
    assert!(ran.err.contains("link"), "{}", ran.err);
    NOTHING.to_owned()
}

/// Runs a source whose processes together take more memory than allowed, while no single one exceeds a limit. Returns
/// the leak, or `None` if the source was ended for it.
pub(super) fn hoards(tier: Tier, number: u8, how: &str) -> Option<String> {
    let machine = HostileMachine::new(tier);
    let mut agent = agent(&machine);
    let mut arguments = machine.arguments(agent.running.pid());
    arguments["hoard"] = how.into();
    let answer = agent.call(&tool(tier, number), &arguments, None);
    agent.leave();
    let text = answer["ok"].as_str()?;
    let probes: serde_json::Value = serde_json::from_str(text).unwrap();
    (probes[0]["leak"] == true).then(|| probes[0]["what"].as_str().unwrap().to_owned())
}

/// Starts a server on this machine that sends one byte on each connection. Returns its address and the connections.
pub(super) fn peer() -> (String, Receiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("localhost:{}", listener.local_addr().unwrap().port());
    let (sender, opened) = mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A client that has already gone counts as connected nevertheless.
            let _ = stream.write_all(b"x");
            let mut greeting = [0; 20];
            let _ = stream.read(&mut greeting);
            if sender.send(stream).is_err() {
                return;
            }
        }
    });
    (to, opened)
}

/// Returns a machine whose source may reach this address.
fn reaching(to: &str) -> HostileMachine {
    HostileMachine::with(
        Tier::Full,
        &format!("dangerous-allow-private = true\ncell = {{ network = [\"{to}\"] }}"),
        "60s",
    )
}

/// Tries to keep a tunnel to a declared host open beyond the end of the source, in a child of it.
fn tunnel() -> String {
    let (to, opened) = peer();
    let machine = reaching(&to);
    let mut agent = agent(&machine);
    let mut arguments = machine.arguments(agent.running.pid());
    arguments["tunnel"] = to.clone().into();
    let answer = agent.call(&tool(Tier::Full, 40), &arguments, None);
    assert!(answer["ok"].as_str().is_some_and(|text| text.contains("it works")), "{answer}");
    let mut stream = opened.recv_timeout(GRACE).unwrap();
    stream.set_nonblocking(true).unwrap();
    assert!(stream.read(&mut [0; 64]).is_err(), "it is open as long as its source lives");
    stream.set_nonblocking(false).unwrap();
    agent.leave();
    let allowed = machine.records("egress.allowed");
    assert_eq!(format!("{}:{}", allowed[0]["host"].as_str().unwrap(), allowed[0]["port"]), to);
    stream.set_read_timeout(Some(GRACE)).unwrap();
    match stream.read_to_end(&mut Vec::new()) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => "a tunnel".to_owned(),
        _ => NOTHING.to_owned(),
    }
}

/// Makes connections in processes that end before they can be looked at, and checks that each that arrives is in the
/// ledger.
fn race() -> String {
    let (to, opened) = peer();
    let machine = reaching(&to);
    let mut agent = agent(&machine);
    let mut arguments = machine.arguments(agent.running.pid());
    arguments["tunnel"] = to.into();
    arguments["race"] = RACE.into();
    let answer = agent.call(&tool(Tier::Full, 42), &arguments, None);
    assert!(answer["ok"].as_str().is_some_and(|text| text.contains(&format!("{RACE} made"))), "{answer}");
    agent.leave();
    let arrived = u64::try_from(opened.try_iter().count()).unwrap();
    assert!(arrived > 0, "none of {RACE} connections arrived");
    let recorded: u64 = machine.records("egress.allowed").iter().map(|body| body["count"].as_u64().unwrap()).sum();
    if recorded >= arrived {
        NOTHING.to_owned()
    } else {
        format!("{} connections without a record", arrived - recorded)
    }
}

/// Checks that a cell without a network reaches nothing.
fn no_way_out(number: u8) -> String {
    let (to, opened) = peer();
    let machine = HostileMachine::new(Tier::Reduced);
    let mut agent = agent(&machine);
    let mut arguments = machine.arguments(agent.running.pid());
    arguments["tunnel"] = to.into();
    arguments["race"] = RACE.into();
    let answer = agent.call(&tool(Tier::Reduced, number), &arguments, None);
    assert!(answer["ok"].is_string(), "{answer}");
    agent.leave();
    if opened.try_iter().next().is_none() { NOTHING.to_owned() } else { "a connection".to_owned() }
}

/// Starts daemons and kills the broker or program that started them. Returns the daemons that are left after this time.
pub(super) fn daemons(machine: &HostileMachine, agent: &mut Agent, within: Duration) -> Vec<u32> {
    let broker = agent.running.pid();
    let started = agent.call(&tool(machine.tier, 33), &machine.arguments(broker), None);
    assert!(started["ok"].as_str().is_some_and(|text| text.contains("3 started")), "{started}");
    until("the daemons are up", || machine.marked().len() == 3);
    let daemons = machine.marked();
    agent.running.signal(Signal::KILL);
    end(&daemons, within)
}

/// Waits until these processes have ended. Returns those that have not ended in time.
pub(super) fn end(pids: &[u32], within: Duration) -> Vec<u32> {
    let begun = Instant::now();
    let lives = |pid: &&u32| {
        let Ok(process) = pidfd_open(Pid::from_raw(pid.cast_signed()).unwrap(), PidfdFlags::empty()) else {
            return false;
        };
        let left = Timespec::try_from(within.saturating_sub(begun.elapsed())).unwrap();
        poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) == Ok(0)
    };
    pids.iter().filter(lives).copied().collect()
}

/// Runs a source that writes endlessly or nonsense: the broker survives, stays small, and answers.
fn talks(tier: Tier, number: u8) -> String {
    let machine = HostileMachine::hasty(tier);
    let mut agent = agent(&machine);
    let broker = agent.running.pid();
    let call = agent.send_call(&tool(tier, number), &machine.arguments(broker));
    let answer = agent.answer(call, None);
    assert!(!answer.is_null());
    assert!(agent.list()["tools"].is_array(), "the broker answers after attack {number}");
    let used = peak_kib(broker);
    agent.leave();
    machine.await_no_process();
    if used > MAX_BROKER_KIB { format!("the broker takes {used} KiB") } else { NOTHING.to_owned() }
}

/// Runs a source that keeps its processors busy. Returns true if the broker does not answer other requests meanwhile.
fn spins(tier: Tier) -> bool {
    let machine = HostileMachine::new(tier);
    let mut agent = agent(&machine);
    agent.list();
    let spinning = agent.send_call(&tool(tier, 41), &machine.arguments(agent.running.pid()));
    let listing = agent.send("tools/list", json!({}));
    let answers = std::iter::from_fn(|| agent.next()).filter_map(|message| message["id"].as_u64());
    let order: Vec<_> = answers.take(2).collect();
    agent.leave();
    order != [listing, spinning]
}

/// Returns the peak memory of the broker. `setpriv` replaces itself with the broker, so the pid is that of the broker.
fn peak_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Runs a source that tries to outlive its session.
fn stays(tier: Tier, number: u8) -> String {
    let machine = HostileMachine::new(tier);
    let mut agent = agent(&machine);
    agent.list();
    let all: Vec<u32> = machine.left().iter().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
    assert!(all.len() > 1, "the broker and its source: {all:?}");
    let call = agent.send_call(&tool(tier, number), &machine.arguments(agent.running.pid()));
    agent.answer(call, None);
    agent.leave();
    match end(&all, GRACE).len() {
        0 => NOTHING.to_owned(),
        left => format!("{left} processes live on"),
    }
}
