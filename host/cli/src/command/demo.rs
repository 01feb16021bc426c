//! `portcullis demo`

mod stranger;
mod theft;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use futures_util::future::BoxFuture;
use portcullis::agent::{AgentPeer, Elicitation};
use portcullis::broker::Broker;
use portcullis::config::Config;
use portcullis::ledger::{self, ChainStatus};
use portcullis::principal::Principal;
use portcullis::protocol::{Answer, Json, Method, Notification};
use portcullis::session::Session;
use serde_json::json;

use crate::cli::GlobalArgs;
use crate::command::call::to_error;
use crate::output::{self, BOLD, escape_hidden};
use crate::runtime;

/// The configuration of the tour. It is printed, so it is written to be read.
const CONFIGURATION: &str = r#"[sources.calc]                   # a tool source: here a sealed WebAssembly component
component = "builtin:calculator"

[sources.spare]                  # a second one; names never clash: calc__add, spare__add
component = "builtin:calculator"

[[policies]]                     # decides every call
plugin = "builtin:rules"
settings.ask  = ["calc__divide"]
settings.deny = [{ tool = "calc__subtract", arguments = { b = 1000 }, message = "that much may not be taken away" }]

[[policies]]                     # breaks on purpose
plugin = "builtin:saboteur"
settings = { loop = ["calc__multiply"], trap = ["spare__add"] }

[[approvals]]                    # how a question is put, and what may be remembered of the answer
plugin = "builtin:approval-memory"
"#;

/// Take a tour: one agent, its sources, what can happen to a call, a thief in a cell, and how he is found out
///
/// Needs nothing but this program, which also plays the thief, and works in a temporary folder. Nothing is installed
/// or left behind.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args, _: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let folder = tempfile::tempdir().context("no temporary folder can be made")?;
    runtime::block_on(runtime::until_interrupted(tour(folder.path())))?;
    Ok(ExitCode::SUCCESS)
}

async fn tour(folder: &Path) -> anyhow::Result<()> {
    say("Portcullis stands between an agent and its tools. The agent connects to one endpoint; behind it are tool")?;
    say(
        "sources that you have no reason to trust. Every call passes a gate of sandboxed plugins, and all is recorded.",
    )?;
    chapter("The configuration of this tour")?;
    output::text(CONFIGURATION)?;

    let config = Config::parse(CONFIGURATION, &folder.join("portcullis.toml"))?;
    let data_dir = config.data_dir.clone();
    let broker = runtime::broker(config).await?;
    let told = story(&broker).await;
    broker.shutdown().await;
    told?;
    if theft::run_chapter(folder, &data_dir).await? {
        stranger::run_chapter(folder).await?;
    }

    chapter("The ledger")?;
    let found = ledger::verify(&data_dir)?;
    let records: u64 = found.chains.iter().map(|chain| chain.records).sum();
    ensure!(found.verdict == ChainStatus::Good, "the ledger does not verify: {:?}", found.verdict);
    say(&format!("All of this is in the ledger: {records} records, each with the hash of the one before."))?;
    say(
        "Verified: every record is as it was written. Change one byte, and `portcullis audit verify` names the record.",
    )?;

    chapter("Next")?;
    say("Put Portcullis in front of a server you use, with a small change in your client's configuration:")?;
    output::text("  portcullis wrap -- npx -y @modelcontextprotocol/server-everything\n")
}

async fn story(broker: &Broker) -> anyhow::Result<()> {
    let session = broker
        .open_session(&runtime::profile(None)?, &Principal::established("demo"), "demo")
        .await
        .map_err(to_error)?;

    chapter("The agent lists its tools")?;
    let tools = session.tools().await.map_err(to_error)?;
    let names: Vec<_> = tools.iter().filter_map(|tool| tool.get_str("name")).collect();
    say(&format!("  {}", names.join("  ")))?;

    chapter("A call that nobody objects to")?;
    call(&session, "calc__add", json!({ "a": 20, "b": 22 }), Person::Absent, Ending::Answered).await?;

    chapter("A call that a policy denies")?;
    call(&session, "calc__subtract", json!({ "a": 1001, "b": 1000 }), Person::Absent, Ending::Denied("rule")).await?;

    chapter("A call that needs a person, who says yes")?;
    call(&session, "calc__divide", json!({ "a": 84, "b": 2 }), Person::Says("once"), Ending::Answered).await?;

    chapter("The same call again: the yes was for once, and now the person says no")?;
    let no = Ending::Denied("approval-refused");
    call(&session, "calc__divide", json!({ "a": 84, "b": 2 }), Person::Says("refuse"), no).await?;

    chapter("A policy that never answers")?;
    let stopped = Ending::Denied("plugin-deadline");
    call(&session, "calc__multiply", json!({ "a": 6, "b": 7 }), Person::Absent, stopped).await?;
    say("It was stopped at its deadline. A plugin that does not answer counts as a no.")?;

    chapter("A policy that crashes")?;
    let crashed = Ending::Denied("plugin-trap");
    call(&session, "spare__add", json!({ "a": 1, "b": 2 }), Person::Absent, crashed).await?;
    say("A plugin that crashes counts as a no, too. The next call works as before:")?;
    call(&session, "calc__add", json!({ "a": 1, "b": 2 }), Person::Absent, Ending::Answered).await?;

    session.close().await;
    Ok(())
}

/// The ending that the tour expects of a call. If it ends otherwise, the tour fails.
#[derive(Clone, Copy)]
enum Ending {
    Answered,
    Denied(&'static str),
}

async fn call(
    session: &Session,
    tool: &str,
    arguments: serde_json::Value,
    person: Person,
    ending: Ending,
) -> anyhow::Result<()> {
    say(&format!("agent   {BOLD}{tool}{BOLD:#} {arguments}"))?;
    let params = Json::of(&json!({ "name": tool, "arguments": arguments }));
    let answer = session.request(Method::ToolsCall, params, Arc::new(person)).await;
    match (&answer, ending) {
        (Answer::Result(result), Ending::Answered) => {
            let blocks = result.get("content").and_then(|content| content.items()).unwrap_or_default();
            let text = blocks.first().and_then(|block| block.get_str("text")).unwrap_or_default();
            say(&format!("source  {}", escape_hidden(&text)))
        }
        (Answer::Error(error), Ending::Denied(code)) => {
            let found = error.get("data").and_then(|data| data.get_str("code"));
            ensure!(found.as_deref() == Some(code), "{tool} was denied as {found:?}, not as {code:?}");
            say(&format!("gate    {} [{code}]", escape_hidden(&error.get_str("message").unwrap_or_default())))
        }
        (answer, _) => bail!("{tool} did not end as the tour says: {answer:?}"),
    }
}

/// The person at the agent's side.
enum Person {
    Absent,
    Says(&'static str),
}

impl AgentPeer for Person {
    fn notify(&self, _: Notification) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn elicitation(&self) -> Elicitation {
        match self {
            Self::Absent => Elicitation::None,
            Self::Says(_) => Elicitation::Request,
        }
    }

    fn request<'a>(&'a self, _: &'a Method, params: Option<Json>) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let Self::Says(answer) = self else { return Answer::Result(Json::of(&json!({ "action": "cancel" }))) };
            let question = params.and_then(|params| params.get_str("message")).unwrap_or_default();
            // A reader that has gone away does not change the answer.
            let _ = say(&format!("gate    {}", escape_hidden(&question)));
            let _ = say(&format!("person  {answer}"));
            Answer::Result(Json::of(&json!({ "action": "accept", "content": { "answer": answer } })))
        })
    }
}

fn chapter(title: &str) -> anyhow::Result<()> {
    output::text(&format!("\n{BOLD}{title}{BOLD:#}\n"))
}

fn say(line: &str) -> anyhow::Result<()> {
    output::text(&format!("{line}\n"))
}
