//! The attacks by number, their arguments and their results.

use std::io;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{behaviour, exhaust, files, kernel, network, processes};

/// One attack. The numbers are those of SECURITY.md and never change their meaning.
pub(crate) struct Attack {
    pub(crate) number: u8,
    pub(crate) run: fn(&AttackArguments<'_>) -> Vec<Probe>,
}

impl Attack {
    pub(crate) fn tool(&self) -> String {
        format!("a{:02}", self.number)
    }
}

const fn attack(number: u8, run: fn(&AttackArguments<'_>) -> Vec<Probe>) -> Attack {
    Attack { number, run }
}

pub(crate) const ATTACKS: &[Attack] = &[
    attack(1, processes::environment),
    attack(2, processes::environments),
    attack(3, processes::descriptors),
    attack(4, processes::trace),
    attack(5, processes::take_descriptors),
    attack(6, processes::walk),
    attack(7, processes::signal),
    attack(8, network::unix),
    attack(9, network::abstract_unix),
    attack(10, network::loopback),
    attack(11, network::metadata),
    attack(12, network::dns),
    attack(13, network::forge),
    attack(14, network::families),
    attack(15, files::secrets),
    attack(16, files::shell),
    attack(17, files::programs),
    attack(18, files::links),
    attack(19, files::through_a_link),
    attack(20, kernel::terminal),
    attack(21, kernel::user_namespaces),
    attack(22, kernel::mounts),
    attack(23, kernel::interfaces),
    attack(24, kernel::detours),
    attack(25, kernel::keys),
    attack(26, kernel::privileges),
    attack(27, kernel::settings),
    attack(28, exhaust::forks),
    attack(29, exhaust::memory),
    attack(30, exhaust::descriptors),
    attack(31, exhaust::disk),
    attack(32, files::shared),
    attack(33, behaviour::daemons),
    attack(34, behaviour::endless_line),
    attack(35, behaviour::flood),
    attack(36, behaviour::nonsense),
    attack(37, behaviour::close_output),
    attack(38, behaviour::ignore_the_end),
    attack(39, files::caches),
    attack(40, network::tunnel),
    attack(41, exhaust::spin),
    attack(42, network::race),
    attack(43, exhaust::hidden),
    attack(44, network::unix_kinds),
    attack(45, files::configurations),
    attack(46, files::plants),
];

/// The arguments of an attack: they name the places on the machine with something to steal, which a real attacker would
/// need to find.
pub(crate) struct AttackArguments<'a> {
    pub(crate) id: &'a Value,
    arguments: &'a Value,
}

impl<'a> AttackArguments<'a> {
    pub(crate) fn new(id: &'a Value, arguments: &'a Value) -> Self {
        Self { id, arguments }
    }

    pub(crate) fn text(&self, key: &str) -> &'a str {
        self.arguments.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn texts(&self, key: &str) -> impl Iterator<Item = &'a str> {
        self.arguments.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    }

    pub(crate) fn path(&self, key: &str) -> PathBuf {
        self.text(key).into()
    }

    pub(crate) fn number(&self, key: &str) -> u64 {
        self.arguments.get(key).and_then(Value::as_u64).unwrap_or_default()
    }

    /// Reports whether the program runs in a cell. Attacks that could send something off the machine are tried only
    /// there.
    pub(crate) fn caged(&self) -> bool {
        self.arguments.get("caged").and_then(Value::as_bool).unwrap_or_default()
    }

    /// Reports whether the cell has a network.
    pub(crate) fn connected(&self) -> bool {
        self.arguments.get("network").and_then(Value::as_bool).unwrap_or_default()
    }

    /// Reports whether the bytes contain the canary, a text that only the bait contains.
    pub(crate) fn is_in(&self, bytes: &[u8]) -> bool {
        let canary = self.text("canary").as_bytes();
        !canary.is_empty() && bytes.windows(canary.len()).any(|window| window == canary)
    }
}

/// One attempt of an attack and its result.
pub(crate) struct Probe {
    what: String,
    leak: bool,
    saw: String,
}

impl Probe {
    pub(crate) fn new(what: impl Into<String>, leak: bool, saw: impl Into<String>) -> Self {
        Self { what: what.into(), leak, saw: saw.into() }
    }

    /// Creates a probe for an attempt that must not succeed.
    pub(crate) fn of<T>(what: impl Into<String>, tried: io::Result<T>) -> Self {
        match tried {
            Ok(_) => Self::new(what, true, "it works"),
            Err(error) => Self::new(what, false, error.to_string()),
        }
    }

    /// Creates a probe for something that must end at a limit: how much was obtained, and how much would be a leak.
    pub(crate) fn limit(what: impl Into<String>, had: u64, leak: u64, end: &str) -> Self {
        Self::new(what, had >= leak, format!("{had}, then {end}"))
    }

    pub(crate) fn json(&self) -> Value {
        json!({ "what": self.what, "leak": self.leak, "saw": self.saw })
    }
}
