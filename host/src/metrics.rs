//! What is counted, kept where it happens: calls by their outcome, decisions of plugins, how long they and the ledger take.
//!
//! A count is an atomic that its owner holds. Nothing is looked up by name, locked or allocated for a call, but for the first one
//! of a tool. Names of series come from the configuration and the catalog alone, and there is a limit to those of one source, as
//! sources choose the names of their tools.

mod histogram;
mod text;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(crate) use histogram::{DECISION, Histogram, OPERATION};
pub(crate) use text::{Families, Labels, text};

use crate::limits::MAX_TOOLS_PER_SOURCE;
use crate::protocol::Method;
use crate::sync::{Mutex, MutexGuard};

/// The value of a label for all that has no series of its own: methods that no revision of the protocol has, tools that their
/// source has removed.
const OTHER: &str = "_other";

/// The methods with a series of their own, in each source.
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

/// How a call that was admitted came out, in the words of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Answered well.
    Ok,
    /// The tool says that it failed.
    ToolError,
    /// Answered with an error of the protocol.
    Error,
    /// Answered, and not given to the agent.
    Withheld,
    /// The source may have acted or not.
    Unknown,
    /// The source cannot have acted.
    NotSent,
    /// A notification, which has no answer.
    Sent,
}

impl Ending {
    const ALL: [Self; 7] =
        [Self::Ok, Self::ToolError, Self::Error, Self::Withheld, Self::Unknown, Self::NotSent, Self::Sent];

    /// The word that the ledger and metrics use.
    pub(crate) fn as_str(self) -> &'static str {
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

/// The calls of one tool, or of one method of a source.
#[derive(Debug)]
pub(crate) struct Series {
    endings: [Histogram; Ending::ALL.len()],
    denied: AtomicU64,
}

impl Default for Series {
    fn default() -> Self {
        Self { endings: std::array::from_fn(|_| Histogram::new(OPERATION)), denied: AtomicU64::new(0) }
    }
}

impl Series {
    /// A call has come out, so long after it was handed to its source.
    pub(crate) fn ended(&self, ending: Ending, took: Duration) {
        if let Some(histogram) = self.endings.get(ending as usize) {
            histogram.record(took);
        }
    }

    /// A call was refused before its source could see it.
    pub(crate) fn denied(&self) {
        self.denied.fetch_add(1, Ordering::Relaxed);
    }

    /// How many calls were refused.
    pub(crate) fn denials(&self) -> u64 {
        self.denied.load(Ordering::Relaxed)
    }

    /// Those endings that there were.
    pub(crate) fn endings(&self) -> impl Iterator<Item = (Ending, &Histogram)> {
        Ending::ALL.into_iter().zip(&self.endings).filter(|(_, histogram)| histogram.count() > 0)
    }

    fn absorb(&self, other: &Self) {
        self.endings.iter().zip(&other.endings).for_each(|(own, other)| own.absorb(other));
        self.denied.fetch_add(other.denials(), Ordering::Relaxed);
    }
}

/// Where the calls of one tool are counted: nowhere before the first.
#[derive(Debug, Clone, Default)]
pub struct Tally(OnceLock<Arc<Series>>);

/// A series, and what it is of.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) method: Arc<str>,
    pub(crate) tool: Option<Arc<str>>,
    pub(crate) series: Arc<Series>,
}

/// All calls of one source.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    methods: [OnceLock<Arc<Series>>; METHODS.len()],
    /// Of methods without a series of their own.
    other_methods: OnceLock<Arc<Series>>,
    tools: Mutex<HashMap<Arc<str>, Arc<Series>>>,
    /// Of tools without a series of their own.
    other_tools: OnceLock<Arc<Series>>,
}

impl Traffic {
    /// Returns the series of a tool, by its exposed name. `tally` keeps it, so that only the first call of a tool is looked up.
    pub(crate) fn of_tool(&self, exposed: &Arc<str>, tally: &Tally) -> Arc<Series> {
        Arc::clone(tally.0.get_or_init(|| self.tool(exposed)))
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

    /// The source has other tools now. What was counted of one that is gone is counted among the others, unless a session still
    /// has it.
    pub(crate) fn keep_tools<'a>(&self, names: impl Iterator<Item = &'a Arc<str>>) {
        let names: std::collections::HashSet<_> = names.collect();
        let gone = |name: &Arc<str>, series: &mut Arc<Series>| !names.contains(name) && Arc::strong_count(series) == 1;
        let gone: Vec<_> = self.tools().extract_if(gone).collect();
        for (_, series) in gone {
            self.other_tools.get_or_init(Arc::default).absorb(&series);
        }
    }

    /// Every series there is.
    pub(crate) fn series(&self) -> Vec<Counted> {
        let of_method = |(method, series): (&str, &OnceLock<Arc<Series>>)| {
            Some(Counted { method: method.into(), tool: None, series: series.get()?.clone() })
        };
        let of_tool = |name: &Arc<str>, series: &Arc<Series>| Counted {
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

    /// How many calls there were, by the word for how they came out.
    pub(crate) fn totals(&self) -> serde_json::Value {
        let mut totals = serde_json::Map::new();
        let mut add = |word: &str, count: u64| {
            let so_far = totals.get(word).and_then(serde_json::Value::as_u64).unwrap_or(0);
            totals.insert(word.to_owned(), (so_far + count).into());
        };
        for Counted { series, .. } in self.series() {
            series.endings().for_each(|(ending, histogram)| add(ending.as_str(), histogram.count()));
            add("denied", series.denials());
        }
        totals.into()
    }

    fn tools(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Series>>> {
        self.tools.lock()
    }
}

/// What a plugin decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decided {
    Pass,
    Ask,
    Deny,
    Keep,
    Replace,
    Remembered,
    /// It failed, and so it denied.
    Failed,
}

impl Decided {
    const ALL: [Self; 7] =
        [Self::Pass, Self::Ask, Self::Deny, Self::Keep, Self::Replace, Self::Remembered, Self::Failed];

    /// The word that metrics use.
    pub(crate) fn as_str(self) -> &'static str {
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

/// The decisions of one plugin.
#[derive(Debug)]
pub(crate) struct Decisions([Histogram; Decided::ALL.len()]);

impl Default for Decisions {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Histogram::new(DECISION)))
    }
}

impl Decisions {
    pub(crate) fn record(&self, decided: Decided, took: Duration) {
        if let Some(histogram) = self.0.get(decided as usize) {
            histogram.record(took);
        }
    }

    /// Those that there were.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Decided, &Histogram)> {
        Decided::ALL.into_iter().zip(&self.0).filter(|(_, histogram)| histogram.count() > 0)
    }
}

#[cfg(test)]
mod tests;
