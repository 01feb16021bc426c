//! Fixtures of recorded calls, for `portcullis plugin test`.

use std::io::Write;

use anyhow::Context as _;
use portcullis::call::Phase;
use portcullis::config::PluginConfig;
use portcullis::flow::Origin;
use portcullis::ledger::{CallEntry, LedgerReader, PositionedRecord};
use toml::{Table, Value};

use crate::recorded_call::{Definitions, NotDecided, RecordedDecision, decisions};

/// A writer of fixtures.
pub(super) struct FixtureWriter<W> {
    out: W,
    definitions: Definitions,
    pub(super) cases: u64,
    /// The number of decisions about which too little was recorded.
    pub(super) left_out: u64,
    /// The number of calls about which there was no final verdict.
    pub(super) not_asked: u64,
}

impl<W: Write> FixtureWriter<W> {
    /// Begins a file with the policies of the cases.
    ///
    /// # Errors
    /// The ledger cannot be read, or the file cannot be written.
    pub(super) fn new(mut out: W, reader: &LedgerReader, policies: &[PluginConfig]) -> anyhow::Result<Self> {
        let definitions = Definitions::read(reader)?;
        writeln!(
            out,
            "# Recorded calls, and what the policies decided about them. Run them with `portcullis plugin test FILE`.\n"
        )?;
        let policies: Vec<Value> = policies.iter().map(policy).collect::<anyhow::Result<_>>()?;
        out.write_all(toml::to_string(&Table::from_iter([("policies".to_owned(), policies.into())]))?.as_bytes())?;
        Ok(Self { out, definitions, cases: 0, left_out: 0, not_asked: 0 })
    }

    /// Writes a case for each decision about a call that was recorded in full.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn add(&mut self, entry: &CallEntry, records: &[PositionedRecord]) -> anyhow::Result<()> {
        for decision in decisions(entry, records, &self.definitions) {
            match decision {
                Ok(decision) if !decision.unknown.any() => {
                    let cases = Value::from(vec![Value::from(case(&decision))]);
                    let text = toml::to_string(&Table::from_iter([("cases".to_owned(), cases)]))?;
                    self.out.write_all(b"\n")?;
                    self.out.write_all(text.as_bytes())?;
                    self.cases += 1;
                }
                Err(NotDecided::NotAsked) => self.not_asked += 1,
                _ => self.left_out += 1,
            }
        }
        Ok(())
    }

    /// Ends the file.
    pub(super) fn into_inner(self) -> W {
        self.out
    }
}

fn policy(config: &PluginConfig) -> anyhow::Result<Value> {
    let settings = Value::try_from(&config.settings).with_context(|| format!("the settings of {}", config.plugin))?;
    let on: Vec<Value> = config.on.iter().map(|phase| phase.as_str().into()).collect();
    let mut table = Table::from_iter([
        ("plugin".to_owned(), config.plugin.to_string().into()),
        ("on".to_owned(), on.into()),
        ("settings".to_owned(), settings),
    ]);
    if !config.grant.is_empty() {
        table.insert("grant".to_owned(), config.grant.clone().into());
    }
    Ok(table.into())
}

fn case(decision: &RecordedDecision) -> Table {
    let (view, call) = (&decision.view, &decision.view.call);
    let is_result = view.phase == Phase::Result;
    let verdict = if is_result { decision.verdict.clone().of_result() } else { decision.verdict.clone() };
    let mut facts = Table::new();
    let mut set = |key: &str, value: Value| drop(facts.insert(key.to_owned(), value));
    let text = |text: &str| Value::from(text);
    set("tool", text(&call.item.name));
    set("source", text(call.source().as_str()));
    set("exposed-name", text(&call.item.exposed));
    set("method", text(call.method.as_str()));
    // As JSON text, because TOML has no null.
    set("arguments", text(call.arguments.as_str()));
    if let Some(outcome) = &view.outcome {
        set("outcome", text(outcome.as_str()));
        set("failed", view.failed.into());
    }
    set("definition", text(call.item.definition.as_str()));
    set("principal", text(&call.caller.principal));
    set("profile", text(call.caller.profile.as_str()));
    set("trust", text(call.caller.trust.as_str()));
    set("risk", text(call.risk.as_str()));
    set("tags", call.item.tags.to_vec().into());
    set("client", text(&call.caller.client));
    set("received-at", i64::try_from(call.received_at).unwrap_or(i64::MAX).into());
    if let Some(flow) = &view.flow {
        let effects: Vec<Value> = flow.effects().iter().map(|effect| effect.as_str().into()).collect();
        set("source-labels", flow.source_labels().to_vec().into());
        set("effects", effects.into());
        set("labels", flow.labels().to_vec().into());
        set("traced", flow.is_traced().into());
        set("origins", flow.origins().iter().map(|origin| Value::from(written(origin))).collect::<Vec<_>>().into());
    }
    let name = format!("{} {}{}", decision.call, decision.item, if is_result { ", its result" } else { "" });
    let mut case =
        Table::from_iter([("name".to_owned(), name.into()), ("expect".to_owned(), verdict.joint.word().into())]);
    if let Some(code) = verdict.code() {
        case.insert("code".to_owned(), code.into());
    }
    case.insert("call".to_owned(), facts.into());
    case
}

/// Returns an origin as a fixture has it.
fn written(origin: &Origin) -> Table {
    let tool = origin.exposed.strip_prefix(&format!("{}__", origin.source)).unwrap_or(&origin.exposed);
    Table::from_iter([
        ("source".to_owned(), Value::from(&*origin.source)),
        ("tool".to_owned(), Value::from(tool)),
        ("calls-ago".to_owned(), Value::from(i64::from(origin.calls_ago))),
        ("labels".to_owned(), Value::from(origin.labels.to_vec())),
        ("pointer".to_owned(), Value::from(origin.pointer.as_str())),
    ])
}
