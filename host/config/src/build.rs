//! Turns the raw tables into a validated configuration, and collects every problem on the way.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portcullis_core::call::{Phase, TrustLevel};
use portcullis_core::name::{ProfileName, SourceName};
use portcullis_core::protocol::MAX_MESSAGE_BYTES;
use portcullis_core::trust::DATA_FOLDER;

use super::cell;
use super::error::{UnlocatedProblem, suggest};
use super::raw::{Located, RawConfig, RawMode, RawProfile};
use super::{
    Approve, Config, Destructive, Detail, PluginConfig, ProfileConfig, SourceConfig, group, ledger, plugin, questions,
    quota, serve, sink, source, telemetry, value,
};

/// The default time to answer a question, enough for a person at the terminal, and the limits of the setting.
const ASK_TIMEOUT: Duration = Duration::from_secs(5 * 60);
const ASK_TIMEOUT_LEAST: Duration = Duration::from_secs(1);
const ASK_TIMEOUT_MOST: Duration = Duration::from_secs(24 * 60 * 60);

/// The possible sizes of the largest message, in bytes: below this range ordinary results fail, above it one result can
/// exhaust the machine's memory.
const MESSAGE_LIMITS: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 30;

/// The possible sizes of the largest result that an agent gets at once, in bytes: below this range a note on the rest
/// takes most of it, and no model reads more than it allows.
const RESULT_LIMITS: std::ops::RangeInclusive<u64> = 8 << 10..=16 << 20;

/// The most sources in one file: every session connects to each of them.
pub(super) const MAX_SOURCES: usize = 1024;

/// The most entries of any other kind in one file: each is loaded, or asked about every call.
const MAX_ENTRIES: usize = 256;

/// The problems that were found so far.
#[derive(Debug, Default)]
pub(super) struct ProblemCollector(pub Vec<UnlocatedProblem>);

impl ProblemCollector {
    /// Returns the value, or records the problem.
    pub(super) fn keep<T>(&mut self, result: Result<T, UnlocatedProblem>) -> Option<T> {
        result.map_err(|problem| self.0.push(problem)).ok()
    }
}

/// Records a problem if the value is not `good`, and returns `good`.
pub(super) fn within<T: std::fmt::Debug>(
    good: bool,
    at: &Located<T>,
    what: &str,
    help: &str,
    problems: &mut ProblemCollector,
) -> bool {
    if !good {
        problems.0.push(UnlocatedProblem::new(at.span(), format!("{what} {:?} is out of range", **at)).help(help));
    }
    good
}

/// Returns the data folder, which need not exist yet.
fn data_dir(raw: &RawConfig, base: &Path, problems: &mut ProblemCollector) -> PathBuf {
    let given = raw.broker.data_dir.as_ref();
    let path = given.and_then(|at| problems.keep(value::path(at, base)));
    let path = path.unwrap_or_else(|| value::normal(&base.join(DATA_FOLDER)));
    if path.exists() && !path.is_dir() {
        let (place, message) = (given.map_or(0..0, Located::span), format!("the data folder {path:?} is a file"));
        let help = "move the file away, or name a folder with `data-dir` under `[broker]`";
        problems.0.push(UnlocatedProblem::new(place, message).help(help));
    }
    path
}

/// Builds the configuration, with paths relative to `base`, or returns everything that is wrong with it.
pub(super) fn build(raw: &RawConfig, file: Option<PathBuf>, base: &Path) -> Result<Config, Vec<UnlocatedProblem>> {
    let mut problems = ProblemCollector::default();
    let data_dir = data_dir(raw, base, &mut problems);
    let ask_timeout = raw.broker.ask_timeout.as_ref();
    let ask_timeout = ask_timeout
        .and_then(|at| problems.keep(value::duration_within(at, ASK_TIMEOUT_LEAST, ASK_TIMEOUT_MOST)))
        .unwrap_or(ASK_TIMEOUT);
    let plugin_keys = raw.broker.plugin_keys.iter().filter_map(|at| problems.keep(value::path(at, base))).collect();
    let own = cell::BrokerFiles { file: file.as_deref(), data_dir: &data_dir };
    let mut sources = sources(raw, base, &own, &mut problems);
    group::build(raw, &mut sources, &mut problems);
    let max_message = raw.broker.max_message.as_ref().and_then(|at| max_message(at, &mut problems));
    let max_message = max_message.unwrap_or(MAX_MESSAGE_BYTES);
    sources.values_mut().for_each(|source| source.max_message = max_message);
    let profiles = profiles(&raw.profiles, &sources, &mut problems);
    let sealed = raw.profiles.values().filter_map(|profile| profile.record.as_ref());
    let sealed = sealed.filter(|record| ***record == Detail::Sealed);
    let ledger = ledger::ledger(&raw.ledger, base, sealed, &mut problems);
    let (sources, disabled) = sources.into_iter().partition(|(_, source): &(_, SourceConfig)| source.enabled);
    let (plugin_sinks, remote_sinks) = sink::sinks(&raw.sinks, base, &mut problems);
    let config = Config {
        serve: serve::serve(&raw.serve, &profiles, &mut problems),
        questions: questions::questions(&raw.questions, &mut problems),
        telemetry: raw.telemetry.as_ref().and_then(|raw| telemetry::telemetry(raw, &mut problems)),
        ask_timeout,
        ledger,
        max_message,
        plugin_keys,
        policies: policies(raw, base, &mut problems),
        transforms: transforms(raw, base, &mut problems),
        approvals: approvals(raw, base, &mut problems),
        sinks: plugin_sinks,
        remote_sinks,
        profiles,
        sources,
        disabled,
        data_dir,
        state_dir: None,
        file,
    };
    let counts = [
        raw.groups.len(),
        raw.profiles.len(),
        raw.policies.len(),
        raw.transforms.len(),
        raw.approvals.len(),
        raw.sinks.len(),
    ];
    let most = [(raw.sources.len(), MAX_SOURCES)].into_iter().chain(counts.map(|count| (count, MAX_ENTRIES)));
    for (_, most) in most.filter(|(count, most)| count > most).take(1) {
        problems.0.push(
            UnlocatedProblem::new(0..0, format!("more than {most} entries of one kind")).help("use several brokers"),
        );
    }
    if problems.0.is_empty() { Ok(config) } else { Err(problems.0) }
}

fn max_message(at: &Located<String>, problems: &mut ProblemCollector) -> Option<usize> {
    let bytes = problems.keep(value::size(at))?;
    if !MESSAGE_LIMITS.contains(&bytes) {
        let problem = UnlocatedProblem::new(at.span(), format!("`max-message` of {:?} is out of range", at.as_str()));
        problems.0.push(problem.help("from 1MiB to 1GiB are possible; 64MiB is the default"));
    }
    usize::try_from(bytes).ok()
}

fn max_result(at: &Located<String>, problems: &mut ProblemCollector) -> Option<usize> {
    let bytes = problems.keep(value::size(at))?;
    if !RESULT_LIMITS.contains(&bytes) {
        let problem = UnlocatedProblem::new(at.span(), format!("`max-result` of {:?} is out of range", at.as_str()));
        problems.0.push(
            problem.help("from 8KiB to 16MiB are possible; without it, results have the limit of messages alone"),
        );
    }
    usize::try_from(bytes).ok()
}

fn sources(
    raw: &RawConfig,
    base: &Path,
    own: &cell::BrokerFiles<'_>,
    problems: &mut ProblemCollector,
) -> BTreeMap<SourceName, SourceConfig> {
    let mut sources = BTreeMap::new();
    for (at, raw) in &raw.sources {
        // The rest of a source is also checked if its name is wrong, so that all problems are reported at once.
        let name = problems.keep(at.parse::<SourceName>().map_err(|error| {
            UnlocatedProblem::new(at.span(), format!("source {error}"))
                .help("rename the source, such as to \"my-files\"")
        }));
        let source = source::build(at, name.as_ref(), raw, base, own, problems);
        sources.extend(name.zip(source));
    }
    sources
}

fn policies(raw: &RawConfig, base: &Path, problems: &mut ProblemCollector) -> Vec<PluginConfig> {
    let build = |raw: &super::raw::RawPolicy| {
        let common = (&raw.plugin, raw.settings.as_ref(), raw.grant.as_slice());
        let on = on(raw.on.as_ref(), &[Phase::Call], &[Phase::Call, Phase::Result, Phase::List], problems);
        Some(PluginConfig { on, shadow: raw.mode == Some(RawMode::Shadow), ..plugin(common, base, problems)? })
    };
    raw.policies.iter().filter_map(build).collect()
}

fn transforms(raw: &RawConfig, base: &Path, problems: &mut ProblemCollector) -> Vec<PluginConfig> {
    let both = [Phase::Call, Phase::Result];
    let build = |raw: &super::raw::RawTransform| {
        let common = (&raw.plugin, raw.settings.as_ref(), raw.grant.as_slice());
        Some(PluginConfig { on: on(raw.on.as_ref(), &both, &both, problems), ..plugin(common, base, problems)? })
    };
    raw.transforms.iter().filter_map(build).collect()
}

fn approvals(raw: &RawConfig, base: &Path, problems: &mut ProblemCollector) -> Vec<PluginConfig> {
    let build =
        |raw: &super::raw::RawApproval| plugin((&raw.plugin, raw.settings.as_ref(), &raw.grant), base, problems);
    raw.approvals.iter().filter_map(build).collect()
}

pub(super) type Common<'a> = (&'a Located<String>, Option<&'a Located<toml::Table>>, &'a [Located<String>]);

pub(super) fn plugin(
    (plugin, settings, grant): Common<'_>,
    base: &Path,
    problems: &mut ProblemCollector,
) -> Option<PluginConfig> {
    let settings = problems.keep(json_settings(settings));
    let grant = grant_list(grant, problems);
    let plugin = problems.keep(plugin::parse(plugin, base))?;
    Some(PluginConfig { plugin, settings: settings?, on: Vec::new(), shadow: false, grant, file: None })
}

/// Validates names of capabilities. Which capabilities exist is known only where components are loaded.
pub(super) fn grant_list(list: &[Located<String>], problems: &mut ProblemCollector) -> Vec<String> {
    let check = |at: &Located<String>| {
        if !at.is_empty() && at.bytes().all(|b| b.is_ascii_graphic()) {
            return Ok(at.to_string());
        }
        Err(UnlocatedProblem::new(at.span(), format!("{:?} names no capability", at.as_str()))
            .help("name the imported interface"))
    };
    list.iter().filter_map(|at| problems.keep(check(at))).collect()
}

fn on(
    at: Option<&Located<Vec<Located<Phase>>>>,
    default: &[Phase],
    possible: &[Phase],
    problems: &mut ProblemCollector,
) -> Vec<Phase> {
    let Some(at) = at else { return default.to_vec() };
    let names = || possible.iter().map(|phase| format!("{:?}", phase.as_str())).collect::<Vec<_>>().join(", ");
    if at.is_empty() {
        problems.0.push(
            UnlocatedProblem::new(at.span(), "`on` is empty, so the plugin would never be asked")
                .help(format!("name some of {}", names())),
        );
    }
    let mut phases = Vec::new();
    for phase in at.iter() {
        if !possible.contains(phase) {
            let message = format!("a plugin of this kind is not asked on {:?}", phase.as_str());
            problems.0.push(UnlocatedProblem::new(phase.span(), message).help(format!("possible here: {}", names())));
        } else if !phases.contains(&**phase) {
            phases.push(**phase);
        }
    }
    phases
}

/// Converts settings to the JSON object that a plugin receives.
pub(super) fn json_settings(at: Option<&Located<toml::Table>>) -> Result<serde_json::Value, UnlocatedProblem> {
    let Some(at) = at else { return Ok(serde_json::Value::Object(serde_json::Map::new())) };
    let json = at.iter().map(|(key, value)| Some((key.clone(), json(value)?))).collect::<Option<_>>();
    json.map(serde_json::Value::Object).ok_or_else(|| {
        UnlocatedProblem::new(at.span(), "these settings hold `nan` or `inf`, which JSON cannot express")
            .help("write a finite number")
    })
}

/// Converts a TOML value to JSON. Dates become strings; `None` for numbers that JSON does not have. TOML's parser
/// limits the depth.
fn json(value: &toml::Value) -> Option<serde_json::Value> {
    Some(match value {
        toml::Value::String(text) => text.clone().into(),
        toml::Value::Integer(number) => (*number).into(),
        toml::Value::Float(number) => serde_json::Number::from_f64(*number)?.into(),
        toml::Value::Boolean(yes) => (*yes).into(),
        toml::Value::Datetime(date) => date.to_string().into(),
        toml::Value::Array(list) => serde_json::Value::Array(list.iter().map(json).collect::<Option<_>>()?),
        toml::Value::Table(table) => {
            let entries = table.iter().map(|(key, value)| Some((key.clone(), json(value)?)));
            serde_json::Value::Object(entries.collect::<Option<_>>()?)
        }
    })
}

fn profiles(
    raw: &BTreeMap<Located<String>, RawProfile>,
    sources: &BTreeMap<SourceName, SourceConfig>,
    problems: &mut ProblemCollector,
) -> BTreeMap<ProfileName, ProfileConfig> {
    let mut profiles = BTreeMap::new();
    for (at, raw) in raw {
        let name = problems.keep(at.parse::<ProfileName>().map_err(|error| {
            UnlocatedProblem::new(at.span(), format!("profile {error}"))
                .help("rename the profile, such as to \"review\"")
        }));
        let profile = profile(raw, sources, problems);
        profiles.extend(name.map(|name| (name, profile)));
    }
    if let Ok(default) = "default".parse::<ProfileName>() {
        profiles.entry(default).or_insert_with(|| profile(&RawProfile::default(), sources, problems));
    }
    profiles
}

fn profile(
    raw: &RawProfile,
    sources: &BTreeMap<SourceName, SourceConfig>,
    problems: &mut ProblemCollector,
) -> ProfileConfig {
    for at in raw.sources.iter().flatten() {
        if let Some(matcher) = problems.keep(value::glob(at))
            && at.as_str() != "*"
            && !sources.values().any(|source| source.names().any(|name| matcher.is_match(name.as_str())))
        {
            let known: Vec<&str> = sources.values().flat_map(SourceConfig::names).map(SourceName::as_str).collect();
            problems.0.push(
                UnlocatedProblem::new(at.span(), format!("{:?} matches no source", at.as_str())).help(suggest(
                    at,
                    &known,
                    "configured sources",
                )),
            );
        }
    }
    let approve = raw.approve.unwrap_or(Approve::Risky);
    // A user who is asked before every call, or before none, has decided about destructive ones too.
    let destructive = if approve == Approve::Risky { Destructive::Off } else { Destructive::Ask };
    ProfileConfig {
        trust: raw.trust.unwrap_or(TrustLevel::Medium),
        sources: raw
            .sources
            .as_ref()
            .map_or_else(|| vec!["*".to_owned()], |s| s.iter().map(|at| at.to_string()).collect()),
        allow: raw.allow.as_ref().and_then(|list| problems.keep(value::globs(list))),
        deny: problems.keep(value::globs(&raw.deny)).unwrap_or_default(),
        tools: raw.tools.unwrap_or_default(),
        schemas: raw.schemas.unwrap_or_default(),
        images: raw.images.unwrap_or_default(),
        structured_content: raw.structured_content.unwrap_or_default(),
        links: raw.links.unwrap_or_default(),
        instructions: raw.instructions.unwrap_or_default(),
        max_result: raw.max_result.as_ref().and_then(|at| max_result(at, problems)),
        approve,
        destructive: raw.destructive.unwrap_or(destructive),
        sampling: raw.sampling.unwrap_or(false),
        status: raw.status.unwrap_or(false),
        record: raw.record.as_deref().copied().unwrap_or(Detail::Shape),
        budget: raw.budget.as_ref().map(|at| quota::budget(at, problems)),
    }
}
