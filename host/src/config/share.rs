//! What a source and a profile may have of what all share: places, calls, bytes, time.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::build::Faults;
use super::error::Fault;
use super::raw::{At, RawBudget, RawSource};
use super::value;

/// What a source can be given: no more calls than its table of pending ones holds.
const MOST: i64 = 1024;

/// What a member of a group has that says nothing.
const PRIORITY: u8 = 50;

/// How many calls wait for a source that is busy, where nothing is said: a burst, and less than would take their time to wait.
const QUEUE: usize = 64;

/// How many calls a source has at once, and how many wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// Calls at once, 1 to 1,024.
    pub concurrency: usize,
    /// Calls that wait for one of those to end, 0 to 1,024.
    pub queue: usize,
}

/// `budget` of a profile: what all who call under it may spend together. What is None is not bounded.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BudgetConfig {
    /// Calls.
    pub calls: Option<Rate>,
    /// Bytes of arguments and results.
    pub bytes: Option<Rate>,
    /// Seconds that calls take at their sources.
    pub time: Option<Rate>,
}

/// So much in so long; as much may be had at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// How much; above 0.
    pub amount: f64,
    /// In how long; above 0.
    pub per: Duration,
}

/// The places of a source. None means as many as there are.
pub(super) fn places(raw: &RawSource, faults: &mut Faults) -> Option<Places> {
    let concurrency = raw.concurrency.as_ref().and_then(|at| faults.keep(number(at, "concurrency", 1..=MOST)));
    let queue = raw.queue.as_ref().and_then(|at| faults.keep(number(at, "queue", 0..=MOST)));
    if let (None, Some(at)) = (&raw.concurrency, &raw.queue) {
        let fault =
            Fault::new(at.span(), "`queue` without `concurrency` means nothing: nobody waits for such a source");
        faults.0.push(fault.help("say how many calls it has at once, such as `concurrency = 8`"));
    }
    Some(Places { concurrency: concurrency?, queue: queue.unwrap_or(QUEUE) })
}

/// Which members of a group go first.
pub(super) fn priority(raw: &RawSource, faults: &mut Faults) -> u8 {
    raw.priority.as_ref().and_then(|at| faults.keep(number(at, "priority", 0..=100))).unwrap_or(PRIORITY)
}

fn number<T: TryFrom<i64>>(at: &At<i64>, key: &str, possible: RangeInclusive<i64>) -> Result<T, Fault> {
    let number = possible.contains(&**at).then(|| T::try_from(**at).ok()).flatten();
    number.ok_or_else(|| {
        let help = format!("from {} to {} are possible", possible.start(), possible.end());
        Fault::new(at.span(), format!("`{key} = {}` is out of range", **at)).help(help)
    })
}

/// The budget of a profile.
pub(super) fn budget(at: &At<RawBudget>, faults: &mut Faults) -> BudgetConfig {
    let calls = |at: &At<String>| at.parse::<u32>().ok().map(f64::from);
    let bytes = |at: &At<String>| value::size(at).ok().map(|bytes| bytes as f64);
    let time = |at: &At<String>| value::duration(at).ok().map(|time| time.as_secs_f64());
    let budget = BudgetConfig {
        calls: at.calls.as_ref().and_then(|at| faults.keep(rate(at, calls, "1000/h"))),
        bytes: at.bytes.as_ref().and_then(|at| faults.keep(rate(at, bytes, "100MiB/h"))),
        time: at.time.as_ref().and_then(|at| faults.keep(rate(at, time, "30m/h"))),
    };
    if at.calls.is_none() && at.bytes.is_none() && at.time.is_none() {
        let fault = Fault::new(at.span(), "`budget` bounds nothing");
        faults.0.push(fault.help("write some of `calls = \"1000/h\"`, `bytes = \"100MiB/h\"`, `time = \"30m/h\"`"));
    }
    budget
}

/// An amount, a slash and a unit of time.
fn rate(at: &At<String>, amount: impl Fn(&At<String>) -> Option<f64>, example: &str) -> Result<Rate, Fault> {
    let read = || {
        let (much, unit) = at.split_once('/')?;
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 60 * 60,
            "d" => 24 * 60 * 60,
            _ => return None,
        };
        let amount = amount(&at.part(much)).filter(|amount| *amount > 0.0)?;
        Some(Rate { amount, per: Duration::from_secs(seconds) })
    };
    read().ok_or_else(|| {
        let help = format!("write it like {example:?}: for each s, m, h or d");
        Fault::new(at.span(), format!("{:?} is no such budget", at.as_str())).help(help)
    })
}
