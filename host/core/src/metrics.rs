//! Metrics: calls by their outcome, decisions of plugins, and how long these and the ledger take.
//!
//! Each count is an atomic that is kept where the event happens. A call looks up no name, takes no lock and allocates
//! nothing, except for the first call of a tool. Names of series come only from the configuration and the catalog, and
//! the series of one source are limited in number, because sources choose the names of their tools.

mod families;
mod histogram;
mod text;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use families::{DurationCounts, MetricFamily, MetricSeries, OwnedLabels, families};
pub use histogram::{DECISION, Histogram, OPERATION};
pub use text::{Labels, MetricsEncoder, text};

use crate::limits::MAX_TOOLS_PER_SOURCE;
use crate::protocol::Method;
use crate::sync::{Mutex, MutexGuard};

/// The label value for everything without its own series: methods that are not in `METHODS`, tools beyond the limit,
/// and tools that their source has removed.
const OTHER: &str = "_other";

/// The methods that have their own series, in each source.
const METHODS: [Method; 14] = [
    Method::ToolsCall,
    Method::PromptsGet,
    Method::ResourcesRead,
    Method::ResourcesSubscribe,
    Method::ResourcesUnsubscribe,
    Method::SubscriptionsListen,
    Method::CompletionComplete,
    Method::LoggingSetLevel,
    Method::TasksGet,
    Method::TasksResult,
    Method::TasksCancel,
    Method::SamplingCreateMessage,
    Method::ElicitationCreate,
    Method::RootsList,
];

/// The ending of an admitted call, in the terms of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The source answered with a result.
    Ok,
    /// The tool reported that it failed.
    ToolError,
    /// The source answered with an error of the protocol.
    Error,
    /// The source answered, but the answer was not given to the agent.
    Withheld,
    /// The source may or may not have acted.
    Unknown,
    /// The source cannot have acted.
    NotSent,
    /// A notification, which has no answer.
    Sent,
}

impl Ending {
    const ALL: [Self; 7] =
        [Self::Ok, Self::ToolError, Self::Error, Self::Withheld, Self::Unknown, Self::NotSent, Self::Sent];

    /// Returns the word that the ledger and metrics use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::Error => "error",
            Self::Withheld => "withheld",
            Self::Unknown => "unknown",
            Self::NotSent => "not-sent",
            Self::Sent => "sent",
        }
    }
}

/// The counts of the calls of one tool, or of one method of a source.
#[derive(Debug)]
pub struct Series {
    endings: [Histogram; Ending::ALL.len()],
    denied: AtomicU64,
}

impl Default for Series {
    fn default() -> Self {
        Self { endings: std::array::from_fn(|_| Histogram::new(OPERATION)), denied: AtomicU64::new(0) }
    }
}

impl Series {
    /// Counts a call that ended `took` after it was handed to its source.
    pub fn ended(&self, ending: Ending, took: Duration) {
        if let Some(histogram) = self.endings.get(ending as usize) {
            histogram.record(took);
        }
    }

    /// Counts a call that was refused before its source could see it.
    pub fn denied(&self) {
        self.denied.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many calls were refused.
    pub fn denials(&self) -> u64 {
        self.denied.load(Ordering::Relaxed)
    }

    /// Returns the endings that occurred, with their durations.
    pub fn endings(&self) -> impl Iterator<Item = (Ending, &Histogram)> {
        Ending::ALL.into_iter().zip(&self.endings).filter(|(_, histogram)| histogram.count() > 0)
    }

    fn absorb(&self, other: &Self) {
        self.endings.iter().zip(&other.endings).for_each(|(own, other)| own.absorb(other));
        self.denied.fetch_add(other.denials(), Ordering::Relaxed);
    }
}

/// A tool's link to its series, which is empty until the tool's first call.
#[derive(Debug, Clone, Default)]
pub struct SeriesLink(OnceLock<Arc<Series>>);

/// A series, with the method and the tool that it counts.
#[derive(Debug)]
pub struct LabelledSeries {
    /// The method, as the protocol writes it.
    pub method: Arc<str>,
    /// The exposed name, for a tool that has its own series.
    pub tool: Option<Arc<str>>,
    /// The counts and durations of these calls.
    pub series: Arc<Series>,
}

/// The counts of all calls of one source.
#[derive(Debug, Default)]
pub struct SourceMetrics {
    methods: [OnceLock<Arc<Series>>; METHODS.len()],
    /// The series of all methods without one of their own.
    other_methods: OnceLock<Arc<Series>>,
    tools: Mutex<HashMap<Arc<str>, Arc<Series>>>,
    /// The series of all tools without one of their own.
    other_tools: OnceLock<Arc<Series>>,
}

impl SourceMetrics {
    /// Returns the series of a tool, by its exposed name. `link` keeps it, so that only a tool's first call is looked
    /// up.
    pub(crate) fn of_tool(&self, exposed: &Arc<str>, link: &SeriesLink) -> Arc<Series> {
        Arc::clone(link.0.get_or_init(|| self.tool(exposed)))
    }

    /// Returns the series of a method.
    pub(crate) fn of_method(&self, method: &Method) -> Arc<Series> {
        let known = METHODS.iter().position(|known| known == method);
        let series = known.and_then(|known| self.methods.get(known)).unwrap_or(&self.other_methods);
        series.get_or_init(Arc::default).clone()
    }

    fn tool(&self, exposed: &Arc<str>) -> Arc<Series> {
        let mut tools = self.tools();
        if tools.len() >= MAX_TOOLS_PER_SOURCE && !tools.contains_key(exposed) {
            return self.other_tools.get_or_init(Arc::default).clone();
        }
        tools.entry(Arc::clone(exposed)).or_default().clone()
    }

    /// Adds the counts of tools that are not among `names` to those of other tools, unless a session still has the
    /// tool. Must be called when the source has listed its tools again.
    pub fn keep_tools<'a>(&self, names: impl Iterator<Item = &'a Arc<str>>) {
        let names: std::collections::HashSet<_> = names.collect();
        let gone = |name: &Arc<str>, series: &mut Arc<Series>| !names.contains(name) && Arc::strong_count(series) == 1;
        let gone: Vec<_> = self.tools().extract_if(gone).collect();
        for (_, series) in gone {
            self.other_tools.get_or_init(Arc::default).absorb(&series);
        }
    }

    /// Returns every series that exists.
    pub fn series(&self) -> Vec<LabelledSeries> {
        let of_method = |(method, series): (&str, &OnceLock<Arc<Series>>)| {
            Some(LabelledSeries { method: method.into(), tool: None, series: series.get()?.clone() })
        };
        let of_tool = |name: &Arc<str>, series: &Arc<Series>| LabelledSeries {
            method: Method::ToolsCall.as_str().into(),
            tool: Some(name.clone()),
            series: series.clone(),
        };
        let known = METHODS.iter().map(Method::as_str).zip(&self.methods);
        let methods = known.chain([(OTHER, &self.other_methods)]).filter_map(of_method);
        let others = self.other_tools.get().map(|series| of_tool(&OTHER.into(), series));
        let tools = self.tools();
        let tools = tools.iter().map(|(name, series)| of_tool(name, series));
        let mut all: Vec<_> = methods.chain(others).chain(tools).collect();
        all.sort_by(|a, b| (&a.method, &a.tool).cmp(&(&b.method, &b.tool)));
        all
    }

    /// Returns the number of calls for each ending, and of those that were denied, as a JSON object.
    pub fn totals(&self) -> serde_json::Value {
        let mut totals = serde_json::Map::new();
        let mut add = |word: &str, count: u64| {
            let so_far = totals.get(word).and_then(serde_json::Value::as_u64).unwrap_or(0);
            totals.insert(word.to_owned(), (so_far + count).into());
        };
        for LabelledSeries { series, .. } in self.series() {
            series.endings().for_each(|(ending, histogram)| add(ending.as_str(), histogram.count()));
            add("denied", series.denials());
        }
        totals.into()
    }

    fn tools(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Series>>> {
        self.tools.lock()
    }
}

/// The decision of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PluginDecision {
    /// A policy has no objection.
    Pass,
    /// A policy wants a person to be asked.
    Ask,
    /// A policy denies the call.
    Deny,
    /// A transform leaves the bytes unchanged.
    Keep,
    /// A transform replaces them.
    Replace,
    /// An approval plugin answers in place of a person.
    Remembered,
    /// The plugin failed, which denies the call.
    Failed,
}

impl PluginDecision {
    const ALL: [Self; 7] =
        [Self::Pass, Self::Ask, Self::Deny, Self::Keep, Self::Replace, Self::Remembered, Self::Failed];

    /// Returns the word that metrics use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Ask => "ask",
            Self::Deny => "deny",
            Self::Keep => "keep",
            Self::Replace => "replace",
            Self::Remembered => "remembered",
            Self::Failed => "failed",
        }
    }
}

/// The decisions of one plugin, with their durations.
#[derive(Debug)]
pub struct Decisions([Histogram; PluginDecision::ALL.len()]);

impl Default for Decisions {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Histogram::new(DECISION)))
    }
}

impl Decisions {
    /// Counts a decision and the time it took.
    pub fn record(&self, decided: PluginDecision, took: Duration) {
        if let Some(histogram) = self.0.get(decided as usize) {
            histogram.record(took);
        }
    }

    /// Returns the decisions that occurred, with their durations.
    pub fn all(&self) -> impl Iterator<Item = (PluginDecision, &Histogram)> {
        PluginDecision::ALL.into_iter().zip(&self.0).filter(|(_, histogram)| histogram.count() > 0)
    }
}

#[cfg(test)]
mod tests;
