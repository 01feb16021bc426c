//! Attacks without a broker in between: whether they would harm a client that talks to the program itself.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::behaviours::{end, hoards, peer};
use super::hostile_machine::HostileMachine;
use super::table::{NOTHING, Row, Rows};
use super::{Tier, agent, attack, ordinary, say_loudly, tool};
use crate::agent::{Agent, Era};
use crate::test_dir::{signal, until};

const TIER: Tier = Tier::Uncaged;

/// A little more than the longest line that the broker accepts; a line that is still longer counts as endless.
const ENDLESS_BYTES: u64 = 65 << 20;

/// The longest time that an obedient program would take to end, on a busy machine.
const OBEDIENT: Duration = Duration::from_secs(3);

pub(super) fn all(rows: &mut Rows) {
    rows.set(11, TIER, &metadata());
    rows.add(Row { number: 19, tier: TIER, probes: behind_a_link() });
    rows.set(33, TIER, bites(daemons()));
    rows.set(34, TIER, bites(!talks(34).contains(&b'\n')));
    rows.set(35, TIER, bites(talks(35).iter().filter(|byte| **byte == b'\n').count() > 100_000));
    rows.set(36, TIER, bites(answers_twice()));
    for number in [37, 38] {
        rows.set(number, TIER, bites(stays(number)));
    }
    rows.set(40, TIER, bites(tunnel()));
    // Without a broker nothing is recorded, so this attack always succeeds.
    rows.set(42, TIER, "bites");
    rows.set(43, TIER, bites(hoards(TIER, 43, "").is_some()));
}

fn bites(it_does: bool) -> &'static str {
    if it_does { "bites" } else { NOTHING }
}

/// Tries to reach the metadata service of a cloud, in a network namespace that any user can create: nothing leaves the
/// machine.
fn metadata() -> String {
    let machine = HostileMachine::new(TIER);
    let script = r#"ip link set lo up && ip address add 169.254.169.254/32 dev lo && exec "$0" metadata"#;
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "/bin/sh", "-c", script]);
    command.arg(machine.dir.path("bin/portcullis-test-hostile"));
    machine.dir.prepare(&mut command);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    if !["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip"].iter().any(|ip| std::path::Path::new(ip).exists()) {
        say_loudly("attack 11 is not tried uncaged, as there is no `ip` here to make a network with (iproute2)");
        return "not tried".to_owned();
    }
    let mut agent = Agent::of(ordinary(&command), Era::Legacy, json!({}));
    let mut arguments = machine.arguments(agent.running.pid());
    arguments["service"] = 1.into();
    let answer = agent.call(&tool(TIER, 11), &arguments, None);
    agent.leave();
    bites(answer["ok"].as_str().is_some_and(|text| text.contains("it works"))).to_owned()
}

fn behind_a_link() -> Vec<(String, bool, String)> {
    let machine = HostileMachine::new(TIER);
    machine.link();
    let mut agent = agent(&machine);
    let probes = attack(&mut agent, &machine, 19);
    agent.leave();
    probes
}

fn daemons() -> bool {
    let machine = HostileMachine::new(TIER);
    let left = super::behaviours::daemons(&machine, &mut agent(&machine), OBEDIENT);
    left.iter().for_each(|pid| signal(*pid, Signal::KILL));
    !left.is_empty()
}

/// Returns the first [`ENDLESS_BYTES`] that a program writes that never stops.
fn talks(number: u8) -> Vec<u8> {
    let machine = HostileMachine::new(TIER);
    let mut running = started(&machine, number);
    let mut said = Vec::new();
    running.stdout.take().unwrap().take(ENDLESS_BYTES).read_to_end(&mut said).unwrap();
    running.kill().unwrap();
    running.wait().unwrap();
    said
}

fn answers_twice() -> bool {
    let machine = HostileMachine::new(TIER);
    let mut running = started(&machine, 36);
    drop(running.stdin.take());
    let mut said = Vec::new();
    running.stdout.take().unwrap().read_to_end(&mut said).unwrap();
    running.wait().unwrap();
    let own = |line: &&[u8]| serde_json::from_slice::<Value>(line).is_ok_and(|answer| answer["id"] == CALL);
    said.split(|byte| *byte == b'\n').filter(own).count() == 2
}

fn stays(number: u8) -> bool {
    let machine = HostileMachine::new(TIER);
    let mut running = started(&machine, number);
    // Waits for its response, or the end of its output.
    let mut line = String::new();
    BufReader::new(running.stdout.take().unwrap()).read_line(&mut line).unwrap();
    drop(running.stdin.take());
    if number == 38 {
        signal(running.id(), Signal::TERM);
    }
    let stays = !end(&[running.id()], OBEDIENT).is_empty();
    running.kill().unwrap();
    running.wait().unwrap();
    stays
}

fn tunnel() -> bool {
    let machine = HostileMachine::new(TIER);
    let (to, opened) = peer();
    let mut agent = agent(&machine);
    let mut arguments = machine.arguments(agent.running.pid());
    arguments["tunnel"] = to.into();
    agent.call(&tool(TIER, 40), &arguments, None);
    let mut stream = opened.recv().unwrap();
    // The program is killed, and its child is not.
    agent.running.signal(Signal::KILL);
    until("it has ended", || machine.left().len() == 1);
    stream.set_nonblocking(true).unwrap();
    let open = stream.read(&mut [0; 64]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
    for left in machine.left() {
        signal(left.split(' ').next().unwrap().parse().unwrap(), Signal::KILL);
    }
    open
}

const CALL: u64 = 1;

/// Starts the program and sends it one call, which is all that it receives.
fn started(machine: &HostileMachine, number: u8) -> Child {
    let mut running = machine.uncaged().stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let params = json!({ "name": tool(TIER, number), "arguments": machine.arguments(running.id()) });
    let call = json!({ "jsonrpc": "2.0", "id": CALL, "method": "tools/call", "params": params });
    writeln!(running.stdin.as_mut().unwrap(), "{call}").unwrap();
    running
}
