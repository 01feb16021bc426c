//! Evaluates a component: its imports, its offers and its answers. It runs in the broker's own WebAssembly cell, with a
//! false home and without a network. Its attempts are not recorded.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use portcullis::broker::Broker;
use portcullis::config::{Config, Endpoint, PluginRef};
use portcullis::item::ItemKind;
use portcullis::lockfile::Lockfile;
use portcullis::name::{ProfileName, SourceName};
use portcullis::plugin::{Inspection, PluginHost, PluginReader};
use portcullis::principal::Principal;
use portcullis::session::Session;
use portcullis_evaluate::{Condition, Evaluation, EvaluationTarget, Observation, PriorKnowledge};
use portcullis_jail::Launcher;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::false_home::FalseHome;
use super::judged;
use super::run::{EvaluatedSource, EvaluationRun};
use super::server::CALL_TIMEOUT;

/// The name of the source in the broker of the evaluation.
const NAME: &str = "evaluated";

/// A host that no name server knows, by RFC 6761: a component that imports the network gets one, and reaches nothing.
const NOWHERE: &str = "nowhere.invalid:443";

/// The conditions that a component can notice.
const CONDITIONS: [Condition; 3] = [Condition::Baseline, Condition::Values, Condition::Bare];

/// Reports whether a word names a component.
pub(super) fn is_component(word: &str) -> bool {
    let is_file = Path::new(word).extension().is_some_and(|kind| kind == "wasm");
    is_file || word.starts_with("oci://") || word.starts_with("builtin:")
}

/// Runs the component under every condition, one after the other, and judges its messages.
pub(super) async fn evaluate(target: &str, folder: &Path, idle: Duration) -> anyhow::Result<Evaluation> {
    let mut candidate = Candidate { component: written(target)?, folder: folder.to_owned(), ..Candidate::default() };
    let config = candidate.config(&json!({}), &[])?;
    // The component that the registry has now is the one to judge.
    Broker::accept_components(&config, "evaluate").await?;
    let inspection = inspect(&config).await?;
    if !["tools", "command", "functions"].contains(&inspection.world) {
        bail!(
            "`{target}` is not a source: it is of the kind `{}` (`portcullis plugin inspect {target}`)",
            inspection.world
        );
    }
    candidate.take_note_of(&inspection);
    let mut observations = Vec::new();
    for condition in CONDITIONS {
        let observed = candidate.observe(condition, idle).await?;
        let failed = observed.listings.is_empty();
        observations.push(observed);
        if failed {
            break;
        }
    }
    let known =
        PriorKnowledge { about: about(&inspection), unchecked: candidate.unchecked(), ..PriorKnowledge::default() };
    let kind = EvaluationTarget::Component { files: candidate.has_files, network: candidate.reaches_out };
    let command = vec![target.to_owned()];
    judged(move || Evaluation::of(&command, &observations, kind, known)).await
}

/// The beginnings of the imports that give a component variables, files and a network.
const VARIABLES: &[&str] = &["wasi:cli/environment@"];
const FILES: &[&str] = &["wasi:filesystem/preopens@"];
const NETWORK: &[&str] = &["wasi:sockets/", "wasi:http/"];

fn imports(inspection: &Inspection, beginnings: &[&str]) -> bool {
    inspection.imports.iter().any(|import| begins(&import.name, beginnings))
}

fn begins(import: &str, beginnings: &[&str]) -> bool {
    beginnings.iter().any(|beginning| import.starts_with(beginning))
}

/// Returns the component as a configuration names it, from wherever that is read.
fn written(target: &str) -> anyhow::Result<String> {
    if target.starts_with("oci://") || target.starts_with("builtin:") {
        return Ok(target.to_owned());
    }
    let path = std::path::absolute(target).context("the working directory is gone")?;
    path.to_str().map(str::to_owned).with_context(|| format!("the path of `{target}` is not UTF-8"))
}

async fn inspect(config: &Config) -> anyhow::Result<Inspection> {
    let lock = Lockfile::load(&config.data_dir)?;
    let reader = PluginReader::new(&config.data_dir, config.folder(), &lock).trusting(&config.plugin_keys)?;
    let plugins = PluginHost::with_reader(None, reader)?;
    Ok(plugins.inspect(component(config)?).await?)
}

fn component(config: &Config) -> anyhow::Result<&PluginRef> {
    match config.sources.values().next().map(|source| &source.endpoint) {
        Some(Endpoint::Component { component, .. }) => Ok(component),
        _ => bail!("the configuration has no component"),
    }
}

/// The largest number of packages whose imports are reported, and of characters of each.
const SHOWN_PACKAGES: usize = 32;
const SHOWN_CHARS: usize = 300;

/// Describes the component: its kind, its imports, and what each import needs in the source's configuration.
fn about(inspection: &Inspection) -> Vec<String> {
    let grants = inspection.imports.iter().filter_map(|import| import.grant).map(|grant| format!("\"{grant}\""));
    let grants = grants.collect::<Vec<_>>().join(", ");
    let mut packages: BTreeMap<&str, (Vec<&str>, String)> = BTreeMap::new();
    for import in &inspection.imports {
        let (package, interface) = import.name.split_once('/').unwrap_or((&import.name, ""));
        let entry = packages.entry(package).or_default();
        entry.0.push(interface.split('@').next().unwrap_or_default());
        entry.1 = match (import.grant, &import.refused) {
            (Some(_), _) => format!("; it needs `grant = [{grants}]`"),
            _ if begins(&import.name, FILES) => {
                "; it sees the folders that `cell = { read = [\"…\"] }` names".to_owned()
            }
            _ if begins(&import.name, NETWORK) => {
                "; it starts only with `cell = { network = [\"HOST:PORT\"] }`".to_owned()
            }
            (None, Some(refused)) => format!("; {refused}"),
            (None, None) => entry.1.clone(),
        };
    }
    let what = format!("it is a component of the kind `{}`, {}", inspection.world, inspection.digest);
    let left_out = packages.len().checked_sub(SHOWN_PACKAGES).filter(|more| *more > 0);
    let imported = packages.into_iter().take(SHOWN_PACKAGES).map(|(package, (interfaces, needs))| {
        let names: String = format!("{package} ({})", interfaces.join(", ")).chars().take(SHOWN_CHARS).collect();
        format!("it imports {names}{needs}")
    });
    let more = left_out.map(|more| format!("it imports {more} more packages"));
    std::iter::once(what).chain(imported).chain(more).collect()
}

/// The component that is evaluated, and its grants in every run.
#[derive(Default)]
struct Candidate {
    component: String,
    folder: PathBuf,
    /// The words of `grant`; it gets all of them.
    grants: Vec<&'static str>,
    /// True if it imports variables, which then hold false secrets.
    has_variables: bool,
    /// True if it imports folders; it then gets a false home.
    has_files: bool,
    /// True if it imports the network.
    reaches_out: bool,
}

impl Candidate {
    fn take_note_of(&mut self, inspection: &Inspection) {
        self.grants = inspection.imports.iter().filter_map(|import| import.grant).collect();
        self.has_variables = imports(inspection, VARIABLES);
        self.has_files = imports(inspection, FILES);
        self.reaches_out = imports(inspection, NETWORK);
    }

    /// Says what could not be seen.
    fn unchecked(&self) -> Vec<String> {
        let all = [
            (true, "what it tries and does not get: a component is not recorded"),
            (self.reaches_out, "what it sends, and does with the answers of hosts: it had no network"),
            (self.has_files, "what it does with the folders of a real user: it had a false home"),
            (true, "what it does at another time: its clock is not moved"),
            (true, "who made it: a signature is not verified"),
        ];
        all.into_iter().filter(|(is, _)| *is).map(|(_, text)| text.to_owned()).collect()
    }

    /// Returns a configuration in which nobody is asked and nothing is held back: the findings are for the report.
    fn config(&self, variables: &Value, write: &[&Path]) -> anyhow::Result<Config> {
        let write = if self.has_files { write } else { &[] };
        let network: &[&str] = if self.reaches_out { &[NOWHERE] } else { &[] };
        let source = json!({
            "component": self.component,
            "names": "plain",
            "scan": "off",
            "env": variables,
            "grant": self.grants,
            "cell": { "write": write, "network": network },
        });
        let config = Config::builder(&self.folder)
            .broker(json!({ "data-dir": self.folder.join("data"), "max-message": "16MiB" }))
            .profile("default", json!({ "trust": "high", "approve": "never" }))
            .source(NAME, source);
        Ok(config.build()?)
    }

    /// Runs the component under one condition. One that fails is an observation.
    async fn observe(&self, condition: Condition, idle: Duration) -> anyhow::Result<Observation> {
        let folder = tempfile::Builder::new().prefix("run-").tempdir_in(&self.folder)?;
        let mut home = FalseHome::make_real(folder.path(), condition).context("cannot make a false home")?;
        let variables = home.canary_variables().filter(|_| self.has_variables);
        let variables: Value = variables.map(|(name, value)| (name, Value::from(value))).collect();
        let told = home.told().to_owned();
        let mut run = EvaluationRun::begin(condition);
        let done = match Broker::build(self.config(&variables, &[&told])?, Launcher::SelfExec).await {
            Ok(broker) => {
                let work = async {
                    let mut source = BrokeredComponent::open(&self.component, &broker, condition).await?;
                    run.exercise(&mut source, &told.join("projects/notes"), &home.canary_paths(), idle).await
                };
                let done = tokio::select! {
                    done = work => done,
                    why = home.wait_until_over_quota() => Err(anyhow!("it was ended: {why}")),
                };
                broker.shutdown().await;
                done
            }
            // The error already states its cause.
            Err(error) => Err(anyhow!("{error}")),
        };
        let (written, unsearched) = home.written();
        let mut seen = run.observed();
        if unsearched > 0 {
            let what = "files and folders of its home that were too large, too many, too deep or not to be read";
            seen.unseen.insert(what, unsearched as u64);
        }
        Ok(Observation {
            failure: done.err().map(|error| format!("{error:#}")),
            written,
            canaries: std::mem::take(&mut home.canaries),
            home: told,
            ..seen
        })
    }
}

/// The component as a source of a broker.
struct BrokeredComponent {
    component: String,
    broker: Broker,
    session: Arc<Session>,
    name: SourceName,
    /// The names by which its tools are called, by their own.
    exposed: HashMap<String, String>,
}

impl BrokeredComponent {
    async fn open(component: &str, broker: &Broker, condition: Condition) -> anyhow::Result<Self> {
        let profile: ProfileName = "default".parse()?;
        let session = broker.open_session(&profile, &Principal::established("evaluate"), condition.client()).await?;
        let component = Path::new(component).file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { component, broker: broker.clone(), session, name: NAME.parse()?, exposed: HashMap::new() })
    }
}

/// Returns the word for the kind of a definition.
fn word(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Tool => "tool",
        ItemKind::Prompt => "prompt",
        ItemKind::Resource => "resource",
        ItemKind::Template => "template",
        ItemKind::Source => "instructions",
    }
}

impl EvaluatedSource for BrokeredComponent {
    fn name(&self) -> String {
        self.component.clone()
    }

    async fn definitions(
        &mut self,
        unseen: &mut BTreeMap<&'static str, u64>,
    ) -> anyhow::Result<Vec<(&'static str, Value)>> {
        let offered = self.broker.definitions().await.remove(&self.name).context("the source is not there")?;
        let offered = offered.map_err(|error| anyhow!("{error}"))?;
        // Some lists depend on the caller, and exist only for a session.
        let mut listed = Vec::new();
        for (kind, _) in &offered.list_errors {
            match self.session.list(*kind).await {
                Ok(page) => listed.extend(page.items.iter().map(|item| (word(*kind), item.to_value()))),
                Err(_) => *unseen.entry("lists of prompts or resources that could not be fetched").or_default() += 1,
            }
        }
        for tool in offered.of_kind(ItemKind::Tool) {
            self.exposed.insert(tool.name.to_string(), tool.exposed.to_string());
        }
        let items = offered.items.iter().map(|item| (word(item.kind), item.definition.to_value()));
        Ok(items.chain(listed).collect())
    }

    async fn call(&mut self, tool: &str, arguments: &Value) -> (String, bool) {
        let exposed = self.exposed.get(tool).map_or(tool, String::as_str);
        match timeout(CALL_TIMEOUT, self.session.call_tool(exposed, arguments)).await {
            Ok(Ok(result)) => (result.to_string(), result.is_error()),
            Ok(Err(error)) => (json!({ "error": error.to_string() }).to_string(), true),
            Err(_) => (json!({ "error": format!("no answer within {} s", CALL_TIMEOUT.as_secs()) }).to_string(), true),
        }
    }
}
