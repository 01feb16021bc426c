//! `portcullis call`

use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, bail};
use futures_util::future::BoxFuture;
use portcullis::agent::{AgentPeer, Elicitation};
use portcullis::broker::{Broker, ConnectAllError};
use portcullis::config::{Config, most_similar};
use portcullis::name::{ProfileName, SourceName};
use portcullis::principal::Principal;
use portcullis::protocol::{Answer, Json, Method, Notification, RpcError};
use portcullis::session::Session;
use serde_json::json;

use crate::cli::GlobalArgs;
use crate::completion;
use crate::output::{self, escape_hidden, shell_word};
use crate::running::RunningSession;
use crate::runtime::{self, Interrupted};

/// The message if the person ends the call.
const INTERRUPTED: Interrupted = Interrupted("interrupted; `portcullis audit tail` says how far it got");

/// The code of a call of a tool that is off.
const TOOL_OFF: &str = "tool-off";

/// The code of the error for a call whose question nobody has answered yet.
const APPROVAL_PENDING: &str = "approval-pending";

/// Call one tool, through policies, approval and the ledger as an agent would
///
/// A broker that runs with this configuration makes the call; if none runs, the command starts its own broker with the
/// sources that may have the tool. You are asked at the terminal; without a terminal, the call waits for `portcullis
/// approvals approve`. The exit code is 0 only if the tool answered without an error.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis call calc__add '{\"a\":1,\"b\":2}'
  portcullis call files__read_file '{\"path\":\"docs/a.md\"}' --json
  portcullis call files__write_file @arguments.json
  jq -n '{a: 1, b: 2}' | portcullis call calc__add -
  portcullis call search__query '{\"q\":\"mcp\"}' --fallback mirror --fallback archive")]
pub(crate) struct Args {
    /// The tool's name as agents see it (`portcullis tools`)
    #[arg(add = completion::tools())]
    tool: String,

    /// The arguments, as a JSON object; `@FILE` reads them from a file, `-` from standard input
    #[arg(value_name = "JSON", default_value = "{}")]
    arguments: String,

    /// If the sources before it cannot be reached, call the same tool of this source. Repeat it to give several, in
    /// order; TOOL must then be SOURCE__TOOL
    #[arg(long, value_name = "SOURCE", add = completion::sources())]
    fallback: Vec<SourceName>,

    /// Call under this profile [default: default]
    #[arg(long, value_name = "P", add = completion::profiles())]
    profile: Option<String>,
}

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let arguments = arguments(&args.arguments)?;
    let profile = runtime::profile(args.profile.as_deref())?;
    // The arguments go out byte for byte, so that policies judge what an agent that writes the same would send.
    let (name, arguments) = (Json::of(&args.tool), arguments.as_str());
    let params = format!(r#"{{"name":{},"arguments":{arguments},"_meta":{{"progressToken":"call"}}}}"#, name.as_str());
    let params = Json::parse(params)?;
    let mut config = global.load()?;
    if !args.fallback.is_empty() {
        let source = args.tool.split_once("__").map(|(source, _)| source);
        let source = source.context("with `--fallback` the tool is SOURCE__TOOL, such as `search__query`")?;
        config.fall_back(&source.parse()?, &args.fallback)?;
    }
    let (in_own, (answer, tools)) = runtime::block_on(async {
        match RunningSession::open(&config, &profile, Arc::new(Terminal)).await? {
            Some(running) => Ok((false, in_running_broker(running, params).await?)),
            None => Ok((true, in_own_broker(config, &profile, args, params).await?)),
        }
    })?;
    match answer {
        Answer::Result(result) => {
            print(&result, global.json)?;
            let failed = result.get("isError").is_some_and(|flag| flag.is_true());
            Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
        }
        Answer::Error(error) if global.json => {
            output::json_line(&format!("{{\"error\":{}}}", error.as_str()))?;
            Ok(ExitCode::FAILURE)
        }
        Answer::Error(error) => {
            let message = error.get_str("message").unwrap_or_else(|| error.as_str().to_owned());
            // Another name helps only if there is no tool of this name: a call may be denied for another reason.
            let code = error.get("data").and_then(|data| data.get_str("code"));
            if in_own && code.as_deref() == Some(APPROVAL_PENDING) {
                bail!(
                    "{}: nobody answered in time, so the call was not made, and its question ended with this command; \
                     answer while it waits, with `portcullis approvals --watch` in another terminal",
                    args.tool
                );
            }
            let is_unknown = error.get("code").and_then(|code| code.read().ok()) == Some(RpcError::INVALID_PARAMS);
            let list = || tools_command(global, args.profile.as_deref());
            let suggestion = match is_unknown && code.as_deref() != Some(TOOL_OFF) {
                true => suggestion(&args.tool, &tools, list),
                false => String::new(),
            };
            let about = if message.contains(&args.tool) { String::new() } else { format!("{}: ", args.tool) };
            bail!("{about}{message}{suggestion}");
        }
    }
}

/// Makes the call in a broker that runs already. Returns the answer and the tools that there are.
async fn in_running_broker(mut running: RunningSession, params: Json) -> anyhow::Result<(Answer, Vec<Json>)> {
    let interrupted = runtime::interruption()?;
    let tools = running.tools().await?;
    let answer = tokio::select! {
        answer = running.request(Method::ToolsCall, params) => Some(answer?),
        () = interrupted => None,
    };
    match answer {
        Some(answer) => Ok((answer, tools)),
        None => {
            running.cancel().await?;
            Err(INTERRUPTED.into())
        }
    }
}

/// Makes the call in a broker of this command's own, which starts the sources that may have the tool.
async fn in_own_broker(
    mut config: Config,
    profile: &ProfileName,
    args: &Args,
    params: Json,
) -> anyhow::Result<(Answer, Vec<Json>)> {
    config.disable_all_without(&args.tool);
    runtime::use_broker(config, async |broker| {
        let session = runtime::until_interrupted(session_with(&broker, profile, &args.tool)).await?;
        let interrupted = runtime::interruption()?;
        let tools = session.tools().await.unwrap_or_default();
        let answer = tokio::select! {
            answer = session.request(Method::ToolsCall, params, Arc::new(Terminal)) => Ok(answer),
            () = interrupted => Err(INTERRUPTED.into()),
        };
        session.close().await;
        answer.map(|answer| (answer, tools.to_vec()))
    })
    .await
}

/// Opens a session that has the tool, if any source has it.
async fn session_with(broker: &Broker, profile: &ProfileName, tool: &str) -> anyhow::Result<Arc<Session>> {
    let open =
        async || broker.open_session(profile, &Principal::established("cli"), "portcullis-cli").await.map_err(to_error);
    let session = open().await?;
    let offers = |tools: Arc<[Json]>| tools.iter().any(|offered| offered.get_str("name").as_deref() == Some(tool));
    if session.tools().await.is_ok_and(offers) {
        return Ok(session);
    }
    // A session does not wait long for a slow source, which may have the tool. Here nobody comes back for it. The call
    // itself fails if the tool is of one of these.
    let missing = broker.connect_all().await.unwrap_or_else(|ConnectAllError(all)| all);
    for (source, why) in missing {
        output::message(&format!("source `{source}` is missing: {}", escape_hidden(&why.to_string())));
    }
    session.close().await;
    open().await
}

/// Reads the arguments of the call from the place that the user chose.
fn arguments(given: &str) -> anyhow::Result<Json> {
    let (bytes, origin) = match given.strip_prefix('@') {
        Some(file) => (
            std::fs::read(file).with_context(|| format!("the arguments in {file:?}"))?,
            format!("the arguments in {file:?}"),
        ),
        None if given == "-" => {
            let mut bytes = Vec::new();
            std::io::stdin().lock().read_to_end(&mut bytes).context("the arguments on standard input")?;
            (bytes, "the arguments on standard input".to_owned())
        }
        None => (given.as_bytes().to_vec(), "the arguments".to_owned()),
    };
    let arguments = Json::parse(bytes).with_context(|| origin.clone())?;
    if !arguments.is_object() {
        bail!(
            "{origin} must be a JSON object, such as '{{\"a\":1}}'; `@FILE` reads them from a file, `-` from standard input"
        );
    }
    Ok(arguments)
}

/// Returns the way out if no tool has this name.
fn suggestion(tool: &str, tools: &[Json], list: impl FnOnce() -> String) -> String {
    let names: Vec<String> = tools.iter().filter_map(|tool| tool.get_str("name")).collect();
    if names.iter().any(|name| name == tool) {
        return String::new();
    }
    match most_similar(tool, names.iter().map(String::as_str)) {
        Some(near) => format!("; did you mean `{near}`?"),
        None => format!("; `{}` lists the tools", list()),
    }
}

/// Returns the command that lists the tools which this call could name: those of its profile and its configuration.
fn tools_command(global: &GlobalArgs, profile: Option<&str>) -> String {
    let config = global.config.as_ref().map(|file| format!(" --config {}", shell_word(&file.to_string_lossy())));
    let profile = profile.map(|profile| format!(" --profile {}", shell_word(profile)));
    format!("portcullis{} tools{}", config.unwrap_or_default(), profile.unwrap_or_default())
}

fn print(result: &Json, json: bool) -> anyhow::Result<()> {
    if json {
        return output::json_line(result.as_str());
    }
    let blocks: Vec<Json> = result.get("content").and_then(|content| content.items()).unwrap_or_default();
    for block in &blocks {
        match block.get_str("text") {
            Some(text) => {
                output::text(&format!("{}\n", text.lines().map(escape_hidden).collect::<Vec<_>>().join("\n")))?
            }
            None => {
                let kind = block.get_str("type").unwrap_or_else(|| "?".to_owned());
                output::text(&format!(
                    "[{}, {} bytes; --json shows it]\n",
                    escape_hidden(&kind),
                    block.as_bytes().len()
                ))?;
            }
        }
    }
    if blocks.is_empty() {
        output::json_line(result.as_str())?;
    }
    Ok(())
}

pub(super) fn to_error(error: RpcError) -> anyhow::Error {
    anyhow::anyhow!("{}", error.message)
}

/// The person at this terminal, if there is one.
pub(super) struct Terminal;

impl AgentPeer for Terminal {
    fn notify(&self, notification: Notification) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let message = notification.params.and_then(|params| params.get_str("message"));
            if let Some(message) = message {
                output::message(&escape_hidden(&message));
            }
        })
    }

    fn elicitation(&self) -> Elicitation {
        let both = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        if both { Elicitation::Request } else { Elicitation::None }
    }

    fn request<'a>(&'a self, _: &'a Method, params: Option<Json>) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let asked = tokio::task::spawn_blocking(move || ask(&params.unwrap_or_else(Json::null))).await;
            let answer = asked.ok().and_then(Result::ok).flatten();
            Answer::Result(Json::of(&match answer {
                Some(answer) => json!({ "action": "accept", "content": { "answer": answer } }),
                None => json!({ "action": "cancel" }),
            }))
        })
    }
}

/// Held while the person is asked, so that typed input answers the question that is shown last.
static ASKING: Mutex<()> = Mutex::new(());

/// Puts the single choice of an elicitation to the person. Returns `None` if they gave no answer.
fn ask(params: &Json) -> std::io::Result<Option<String>> {
    let _turn = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
    let message = params.get_str("message").unwrap_or_default();
    let answer = params.get("requestedSchema").and_then(|s| s.get("properties")).and_then(|p| p.get("answer"));
    let list = |key| answer.as_ref().and_then(|a| a.get(key)).and_then(|l| l.read::<Vec<String>>().ok());
    let (values, titles) = (list("enum").unwrap_or_default(), list("enumNames").unwrap_or_default());
    let mut err = std::io::stderr();
    writeln!(err, "{}", escape_hidden(&message))?;
    for (number, title) in titles.iter().enumerate() {
        writeln!(err, "  {number}  {}", escape_hidden(title))?;
    }
    write!(err, "Answer [0-{}]: ", titles.len().saturating_sub(1))?;
    err.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim().parse::<usize>().ok().and_then(|number| values.get(number).cloned()))
}
