//! The limits on what sources and profiles share: concurrent calls, and budgets of calls, bytes and time.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::build::ProblemCollector;
use super::error::UnlocatedProblem;
use super::raw::{Located, RawBudget, RawSource};
use super::value;

/// The largest number of calls for a source: its table of pending calls holds no more.
const MOST: i64 = 1024;

/// The largest number of connections that belong to one session, or one call if each has its own. As many as the agents
/// of one team use at once, and not so many that they exhaust a machine.
const MOST_CONNECTIONS: u16 = 256;

/// The default priority of a group's member.
const PRIORITY: u8 = 50;

/// The default number of calls that may wait for a busy source: enough for a burst, and few enough that calls do not
/// spend their whole timeout in the queue.
const QUEUE: usize = 64;

/// The limits on the calls that a source handles at once, and on those that wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct ConcurrencyConfig {
    /// The number of concurrent calls, 1 to 1,024.
    pub concurrency: usize,
    /// The number of calls that may wait for one of those to end, 0 to 1,024.
    pub queue: usize,
}

/// The `budget` of a profile: the amounts that all its callers together may use. `None` means no limit.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct BudgetConfig {
    /// The number of calls.
    pub calls: Option<Rate>,
    /// The bytes of arguments and results.
    pub bytes: Option<Rate>,
    /// The seconds that calls take at their sources.
    pub time: Option<Rate>,
}

/// An amount per period. The whole amount may be used at once.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Rate {
    /// The amount; above 0.
    pub amount: f64,
    /// The period; above 0.
    pub per: Duration,
}

/// Parses the concurrency of a source. `None` means no limit.
pub(super) fn concurrency(raw: &RawSource, problems: &mut ProblemCollector) -> Option<ConcurrencyConfig> {
    let concurrency = raw.concurrency.as_ref().and_then(|at| problems.keep(number(at, "concurrency", 1..=MOST)));
    let queue = raw.queue.as_ref().and_then(|at| problems.keep(number(at, "queue", 0..=MOST)));
    if let (None, Some(at)) = (&raw.concurrency, &raw.queue) {
        let problem = UnlocatedProblem::new(
            at.span(),
            "`queue` has no effect without `concurrency`: calls never wait for such a source",
        );
        problems.0.push(problem.help("say how many calls it has at once, such as `concurrency = 8`"));
    }
    Some(ConcurrencyConfig { concurrency: concurrency?, queue: queue.unwrap_or(QUEUE) })
}

/// Parses the number of connections that belong to one session each.
pub(super) fn max_connections(raw: &RawSource, problems: &mut ProblemCollector) -> usize {
    let given = raw.max_connections.as_ref();
    let number = given.and_then(|at| problems.keep(number(at, "max-connections", 1..=MOST_CONNECTIONS.into())));
    number.unwrap_or(MOST_CONNECTIONS.into())
}

/// Parses the priority of a source in its group.
pub(super) fn priority(raw: &RawSource, problems: &mut ProblemCollector) -> u8 {
    raw.priority.as_ref().and_then(|at| problems.keep(number(at, "priority", 0..=100))).unwrap_or(PRIORITY)
}

fn number<T: TryFrom<i64>>(at: &Located<i64>, key: &str, possible: RangeInclusive<i64>) -> Result<T, UnlocatedProblem> {
    let number = possible.contains(&**at).then(|| T::try_from(**at).ok()).flatten();
    number.ok_or_else(|| {
        let help = format!("from {} to {} are possible", possible.start(), possible.end());
        UnlocatedProblem::new(at.span(), format!("`{key} = {}` is out of range", **at)).help(help)
    })
}

/// Parses the budget of a profile.
pub(super) fn budget(at: &Located<RawBudget>, problems: &mut ProblemCollector) -> BudgetConfig {
    let calls = |at: &Located<String>| at.parse::<u32>().ok().map(f64::from);
    let bytes = |at: &Located<String>| value::size(at).ok().map(|bytes| bytes as f64);
    let time = |at: &Located<String>| value::duration(at).ok().map(|time| time.as_secs_f64());
    let budget = BudgetConfig {
        calls: at.calls.as_ref().and_then(|at| problems.keep(rate(at, calls, "1000/h"))),
        bytes: at.bytes.as_ref().and_then(|at| problems.keep(rate(at, bytes, "100MiB/h"))),
        time: at.time.as_ref().and_then(|at| problems.keep(rate(at, time, "30m/h"))),
    };
    if at.calls.is_none() && at.bytes.is_none() && at.time.is_none() {
        let problem = UnlocatedProblem::new(at.span(), "`budget` sets no limit");
        problems.0.push(problem.help("write some of `calls = \"1000/h\"`, `bytes = \"100MiB/h\"`, `time = \"30m/h\"`"));
    }
    budget
}

/// Parses a rate: an amount, a slash and a unit of time.
fn rate(
    at: &Located<String>,
    amount: impl Fn(&Located<String>) -> Option<f64>,
    example: &str,
) -> Result<Rate, UnlocatedProblem> {
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
        UnlocatedProblem::new(at.span(), format!("{:?} is not a valid budget", at.as_str())).help(help)
    })
}
