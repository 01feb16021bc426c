//! The budget of a profile: calls, bytes and time, each a bucket that fills at an even rate.
//!
//! The cost of a call in bytes and time is known only when the call has ended. So a bucket may fall below zero, and
//! then no call is made until it is above zero again.

use std::time::Duration;

use tokio::time::Instant;

use super::CallRefusal;
use super::refusal::DenialKind;
use crate::call::BudgetLimit;
use crate::config::{BudgetConfig, Rate};
use crate::sync::Mutex;

/// The code of a denial because the budget is spent.
const SPENT: &str = "budget-spent";

/// The budget that is left to all callers of one profile together. It is kept in memory, so that a broker begins with
/// full buckets, and is measured by a monotonic clock.
#[derive(Debug)]
pub struct Budget(Mutex<Buckets>);

#[derive(Debug)]
struct Buckets {
    calls: Option<Bucket>,
    bytes: Option<Bucket>,
    time: Option<Bucket>,
}

impl Budget {
    /// Makes full buckets.
    #[must_use]
    pub fn new(config: &BudgetConfig) -> Self {
        let bucket = |rate: &Option<Rate>| rate.as_ref().map(Bucket::full);
        let BudgetConfig { calls, bytes, time } = config;
        Self(Mutex::new(Buckets { calls: bucket(calls), bytes: bucket(bytes), time: bucket(time) }))
    }

    /// Checks that a call may be made now.
    ///
    /// # Errors
    /// [`CallRefusal::Denied`] with the code [`SPENT`]; its message names the bucket, and when a call is possible
    /// again.
    pub(super) fn check(&self) -> Result<(), CallRefusal> {
        self.look(|_| ())
    }

    /// Checks that a call may be made now, and charges it: one call, and the bytes that it sends.
    pub(super) fn take(&self, bytes: usize) -> Result<(), CallRefusal> {
        self.look(|buckets| {
            buckets.calls.iter_mut().for_each(|calls| calls.level -= 1.0);
            buckets.bytes.iter_mut().for_each(|all| all.level -= bytes as f64);
        })
    }

    /// Charges the rest of what a call cost: the bytes of its answer, and its time.
    pub(super) fn spend(&self, bytes: usize, time: Duration) {
        let mut buckets = self.0.lock();
        buckets.bytes.iter_mut().for_each(|all| all.level -= bytes as f64);
        buckets.time.iter_mut().for_each(|all| all.level -= time.as_secs_f64());
    }

    /// Returns each limit with its current remainder.
    pub(super) fn left(&self) -> Vec<BudgetLimit> {
        let now = Instant::now();
        let limit = |(name, bucket): (&str, &mut Option<Bucket>)| {
            let bucket = bucket.as_mut()?;
            bucket.fill(now);
            let unit = if name == "time" { 1000.0 } else { 1.0 };
            Some(BudgetLimit::stated(name, (bucket.most * unit) as u64, (bucket.level * unit).floor() as i64))
        };
        self.0.lock().each().filter_map(limit).collect()
    }

    fn look(&self, then: impl FnOnce(&mut Buckets)) -> Result<(), CallRefusal> {
        let mut buckets = self.0.lock();
        let now = Instant::now();
        // A call needs a whole unit; of bytes and time any remainder will do, as the cost is not known yet.
        let needs = [1.0, f64::EPSILON, f64::EPSILON];
        let waits =
            buckets.each().zip(needs).filter_map(|((of, bucket), need)| Some((bucket.as_mut()?.wait(need, now)?, of)));
        match waits.max_by_key(|(wait, _)| *wait) {
            None => {
                then(&mut buckets);
                Ok(())
            }
            Some((wait, of)) => {
                let seconds = wait.as_secs() + 1;
                let text = format!("the profile's `budget` of {of} is spent; a call is possible again in {seconds} s");
                Err(CallRefusal::Denied { code: SPENT.to_owned(), message: text, kind: DenialKind::Budget })
            }
        }
    }
}

impl Buckets {
    fn each(&mut self) -> impl Iterator<Item = (&'static str, &mut Option<Bucket>)> {
        [("calls", &mut self.calls), ("bytes", &mut self.bytes), ("time", &mut self.time)].into_iter()
    }
}

#[derive(Debug)]
struct Bucket {
    most: f64,
    per_second: f64,
    level: f64,
    at: Instant,
}

impl Bucket {
    fn full(rate: &Rate) -> Self {
        let most = rate.amount;
        Self { most, per_second: most / rate.per.as_secs_f64(), level: most, at: Instant::now() }
    }

    /// Adds what has come back until now.
    fn fill(&mut self, now: Instant) {
        let filled = now.saturating_duration_since(self.at).as_secs_f64() * self.per_second;
        (self.level, self.at) = ((self.level + filled).min(self.most), now);
    }

    /// Returns how long it takes until the bucket holds that much; `None` if it does now.
    fn wait(&mut self, need: f64, now: Instant) -> Option<Duration> {
        self.fill(now);
        let missing = need - self.level;
        (missing > 0.0).then(|| Duration::from_secs_f64(missing / self.per_second))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn rate(amount: f64, seconds: u64) -> Option<Rate> {
        Some(Rate { amount, per: Duration::from_secs(seconds) })
    }

    fn refused(budget: &Budget) -> String {
        match budget.take(0).unwrap_err() {
            CallRefusal::Denied { code, message, .. } => format!("{code}: {message}"),
            other => format!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_counted_and_come_back_at_an_even_rate() {
        let budget = Budget::new(&BudgetConfig { calls: rate(2.0, 60), ..BudgetConfig::default() });
        budget.take(0).unwrap();
        budget.take(0).unwrap();
        let text = "budget-spent: the profile's `budget` of calls is spent; a call is possible again in 31 s";
        assert_eq!(refused(&budget), text);
        assert!(budget.check().is_err());
        tokio::time::advance(Duration::from_secs(31)).await;
        budget.check().unwrap();
        budget.take(0).unwrap();
        assert!(budget.take(0).is_err());
        assert_eq!(budget.left(), [BudgetLimit::stated("calls", 2, 0)], "a small part of a call has come back");
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert!((0..2).all(|_| budget.take(0).is_ok()) && budget.take(0).is_err(), "no more than full");
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_and_time_are_paid_afterwards_and_debts_are_waited_for() {
        let config = BudgetConfig { calls: None, bytes: rate(100.0, 10), time: rate(10.0, 100) };
        let budget = Budget::new(&config);
        budget.take(50).unwrap();
        budget.spend(250, Duration::from_secs(1));
        assert!(refused(&budget).contains("of bytes is spent; a call is possible again in 21 s"));
        let left: Vec<_> = budget.left().into_iter().map(|limit| (limit.name, limit.left)).collect();
        assert_eq!(left, [("bytes".to_owned(), -200), ("time".to_owned(), 9_000)]);
        tokio::time::advance(Duration::from_secs(21)).await;
        budget.take(0).unwrap();
        budget.spend(0, Duration::from_secs(12));
        assert!(refused(&budget).contains("of time is spent"));
    }
}
