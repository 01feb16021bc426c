//! Tests what each attack of a hostile source obtains: as a process of the user, in a full cell, and in a reduced one.
//! This test writes the table in SECURITY.md (`UPDATE_GOLDEN=1`), and otherwise compares its results with it.
//!
//! A probe that obtains nothing without a cell proves nothing inside one. Each is therefore tried without a cell first,
//! as an ordinary user: if the tests run as root, everything here runs under a uid that no user has. Nothing leaves the
//! machine, and attacks that use up resources stop by themselves.

mod behaviours;
mod hostile_machine;
mod table;
mod without_broker;

use std::io::Write as _;
use std::process::Command;
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::agent::{Agent, Era};
use crate::test_dir::Ran;
use hostile_machine::HostileMachine;
use table::{Row, Rows};

/// The confinement under which a hostile program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tier {
    Uncaged,
    Full,
    Reduced,
}

/// The attacks that a tool tries and answers with what it obtained. The others are in `behaviours`, and without
/// a cell in `without_broker`.
const TRIED: [u8; 36] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32,
    39, 41, 44, 46, 45,
];

/// Held while the attacks run, because they use up what the machine has only once, such as inotify watches.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn every_attack_has_the_results_that_the_table_in_security_md_lists() {
    let _alone = ALONE.lock().unwrap();
    let mut rows = Rows::new();
    tried(Tier::Uncaged, &mut rows);
    without_broker::all(&mut rows);
    for (tier, behaviours) in [(Tier::Full, behaviours::full as fn(&mut Rows)), (Tier::Reduced, behaviours::reduced)] {
        match refusal(tier) {
            None => {
                tried(tier, &mut rows);
                behaviours(&mut rows);
            }
            Some(why) => say_loudly(&format!(
                "this machine has no {tier:?} cell, so what leaks from one is NOT TESTED here: {why}"
            )),
        }
    }
    rows.compare();
}

/// Returns the reason why this machine has no cell of this tier, or `None` if it has one.
fn refusal(tier: Tier) -> Option<String> {
    let machine = HostileMachine::new(tier);
    let Ran { code, err, .. } = machine.run(&["tools"]);
    (code != Some(0)).then_some(err)
}

fn tried(tier: Tier, rows: &mut Rows) {
    let machine = HostileMachine::new(tier);
    let mut agent = agent(&machine);
    // A reduced cell does not start with the configuration that attack 45 is about in its folder.
    for number in TRIED.into_iter().filter(|number| tier != Tier::Reduced || *number != 45) {
        let probes = attack(&mut agent, &machine, number);
        rows.add(Row { number, tier, probes });
    }
    agent.leave();
    if tier != Tier::Uncaged {
        machine.await_no_process();
        machine.assert_untouched();
    }
    if tier == Tier::Full {
        // The ledger has every attempt to get out by name, and every forged name.
        let refused = machine.records("egress.refused");
        for (via, host) in [
            ("dns", "c2VjcmV0.exfiltration.test"),
            ("http", "declared.example"),
            ("tls", "declared.example"),
            ("proxy", "evil.test"),
        ] {
            assert!(refused.iter().any(|body| body["via"] == via && body["host"] == host), "{via} {host}: {refused:?}");
        }
        assert_eq!(machine.records("egress.allowed"), Vec::<Value>::new());
    }
}

/// Starts an agent of the hostile program itself, or of the broker in front of it.
fn agent(machine: &HostileMachine) -> Agent {
    match machine.tier {
        Tier::Uncaged => Agent::of(machine.uncaged(), Era::Legacy, json!({})),
        _ => Agent::of(machine.broker(&["serve", "--stdio"]), Era::Legacy, json!({})),
    }
}

/// Runs an attack. Returns its probes: the name, whether it leaks, and what it saw.
fn attack(agent: &mut Agent, machine: &HostileMachine, number: u8) -> Vec<(String, bool, String)> {
    let name = tool(machine.tier, number);
    let arguments = machine.arguments(agent.running.pid());
    let answer = agent.call(&name, &arguments, None);
    let Some(text) = answer["ok"].as_str() else { panic!("{name} in {:?}: {answer}", machine.tier) };
    let probes: Vec<Value> = serde_json::from_str(text).unwrap();
    let text = |probe: &Value, key: &str| probe[key].as_str().unwrap().to_owned();
    probes.iter().map(|probe| (text(probe, "what"), probe["leak"] == true, text(probe, "saw"))).collect()
}

fn tool(tier: Tier, number: u8) -> String {
    let prefix = if tier == Tier::Uncaged { "" } else { "hostile__" };
    format!("{prefix}a{number:02}")
}

/// Writes to standard error directly, because the test harness does not show what passing tests print.
fn say_loudly(text: &str) {
    let _ = writeln!(std::io::stderr(), "\n*** {text}\n");
}

/// Returns the command, run as an ordinary user if this is root.
fn ordinary(command: &Command) -> Command {
    let mut ordinary = match rustix::process::geteuid().is_root() {
        true => {
            let user = hostile_machine::USER.to_string();
            let mut outer = Command::new("setpriv");
            outer.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"]).arg(command.get_program());
            outer
        }
        false => Command::new(command.get_program()),
    };
    ordinary.args(command.get_args()).env_clear();
    ordinary.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    ordinary.current_dir(command.get_current_dir().unwrap());
    ordinary
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    ordinary
}
