//! The conversation of one run: everything is listed, the tools are called, and everything is listed again.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use portcullis_evaluate::{
    Condition, Observation, ObservedCall, ObservedListing, ObservedMessage, PlannedCall, SETTLE, planned,
};
use serde_json::Value;
use tokio::time::Instant;

/// The longest time for the calls of one run together, and for those of one tool: a slow one is called less often.
const CALLS_TIMEOUT: Duration = Duration::from_secs(40);
const TOOL_TIMEOUT: Duration = Duration::from_secs(6);

/// The largest size of the answers of one run that are kept, in bytes. The rest is cut.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// An evaluated source that answers, whatever carries the messages.
pub(super) trait EvaluatedSource: Send {
    /// Returns its name and version, as it gives them.
    fn name(&self) -> String;

    /// Returns everything that it offers, each with its kind. Adds omissions to `unseen`.
    fn definitions(
        &mut self,
        unseen: &mut BTreeMap<&'static str, u64>,
    ) -> impl Future<Output = anyhow::Result<Vec<(&'static str, Value)>>> + Send;

    /// Calls a tool. The answer is the result or the error, as JSON text, with whether it is a failure.
    fn call(&mut self, tool: &str, arguments: &Value) -> impl Future<Output = (String, bool)> + Send;

    /// Returns its requests and notifications since the last time, and how many were not kept in full.
    fn messages(&mut self) -> (Vec<ObservedMessage>, u64) {
        (Vec::new(), 0)
    }
}

/// A run in progress.
pub(super) struct EvaluationRun {
    seen: Observation,
    began: Instant,
    /// The bytes of all answers that are kept.
    answered: usize,
}

impl EvaluationRun {
    /// Begins a run under a condition.
    pub(super) fn begin(condition: Condition) -> Self {
        Self { seen: Observation::begin(condition), began: Instant::now(), answered: 0 }
    }

    /// Returns the condition of the run.
    pub(super) fn condition(&self) -> Condition {
        self.seen.condition
    }

    /// Returns the observations so far.
    pub(super) fn observed(self) -> Observation {
        let took = self.began.elapsed();
        Observation { took, ..self.seen }
    }

    /// Lists, calls and lists again. A text that means a path becomes `path`; `canaries` are paths of false secrets.
    /// After the calls of the baseline, it waits for `idle`.
    pub(super) async fn exercise(
        &mut self,
        server: &mut impl EvaluatedSource,
        path: &Path,
        canaries: &[String],
        idle: Duration,
    ) -> anyhow::Result<()> {
        let condition = self.seen.condition;
        self.seen.server = server.name();
        let tools = self.list(server, "at first").await.context("it does not list its tools")?;
        for call in planned(condition, &tools, path, canaries) {
            let began = self.began.elapsed();
            let of_tool = self.seen.calls.iter().filter(|made| made.tool == call.tool);
            let is_slow = of_tool.map(|made| made.took).sum::<Duration>() > TOOL_TIMEOUT;
            if began > CALLS_TIMEOUT || is_slow {
                *self.seen.skipped.entry(call.tool).or_default() += 1;
            } else {
                self.call(server, call, began).await;
            }
        }
        if condition == Condition::Baseline {
            // Behaviour that waits for a while must be seen, too.
            tokio::time::sleep(idle).await;
        }
        self.list(server, "after the calls").await.context("after the calls it no longer lists its tools")?;
        Ok(())
    }

    /// Lists everything, and returns the tools.
    async fn list(&mut self, server: &mut impl EvaluatedSource, when: &'static str) -> anyhow::Result<Vec<Value>> {
        let definitions = server.definitions(&mut self.seen.unseen).await;
        self.take_messages(server);
        let definitions = definitions?;
        let tools = definitions.iter().filter(|(kind, _)| *kind == "tool").map(|(_, tool)| tool.clone()).collect();
        self.seen.listings.push(ObservedListing { when, definitions });
        Ok(tools)
    }

    async fn call(&mut self, server: &mut impl EvaluatedSource, call: PlannedCall, began: Duration) {
        let PlannedCall { tool, arguments, asked, asks_for_secret } = call;
        let (answer, failed) = server.call(&tool, &arguments).await;
        self.take_messages(server);
        let took = self.began.elapsed().saturating_sub(began);
        if asks_for_secret {
            tokio::time::sleep(SETTLE).await;
        }
        let answer = self.kept(answer);
        self.seen.calls.push(ObservedCall { tool, arguments, asked, answer, failed, began, took });
    }

    fn take_messages(&mut self, server: &mut impl EvaluatedSource) {
        let (messages, cut) = server.messages();
        self.seen.messages.extend(messages);
        self.seen.missed += cut;
    }

    /// Returns as much of an answer as there is room for.
    fn kept(&mut self, mut answer: String) -> String {
        let room = answer.floor_char_boundary(MAX_ANSWER_BYTES.saturating_sub(self.answered));
        self.seen.missed += u64::from(room < answer.len());
        answer.truncate(room);
        self.answered += answer.len();
        answer
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    /// A source with two tools, one of which takes long to answer.
    struct SlowSource;

    impl EvaluatedSource for SlowSource {
        fn name(&self) -> String {
            "slow 1.0".to_owned()
        }

        async fn definitions(
            &mut self,
            _: &mut BTreeMap<&'static str, u64>,
        ) -> anyhow::Result<Vec<(&'static str, Value)>> {
            Ok(["forecast", "quick"].map(|name| ("tool", json!({ "name": name }))).into())
        }

        async fn call(&mut self, tool: &str, _: &Value) -> (String, bool) {
            if tool == "forecast" {
                tokio::time::sleep(Duration::from_secs(4)).await;
            }
            ("{}".to_owned(), false)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_calls_that_a_slow_tool_did_not_get_are_counted() {
        let mut run = EvaluationRun::begin(Condition::Baseline);
        run.exercise(&mut SlowSource, Path::new("/w"), &[], Duration::ZERO).await.unwrap();
        let seen = run.observed();
        let made = |tool: &str| u64::try_from(seen.calls.iter().filter(|call| call.tool == tool).count()).unwrap();
        assert_eq!((made("forecast"), seen.skipped.get("forecast")), (2, Some(&(made("quick") - 2))), "{seen:?}");
        assert_eq!(seen.skipped.len(), 1, "{seen:?}");
    }
}
