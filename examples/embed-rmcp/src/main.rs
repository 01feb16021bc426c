//! A program whose own MCP server, made with `rmcp`, stands behind the gate: a policy in Rust judges each call, the
//! program answers the questions, and the client of `rmcp` calls the tools.
//!
//! `cargo run -p embed-rmcp`

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use portcullis::{
    AnswerRoute, Broker, CallView, Config, GivenAnswer, Json, Launcher, NativeError, NativePolicy, NativeSource,
    PluginTable, SourceTable, Verdict,
};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::CallToolRequestParams;
use rmcp::{ServiceExt as _, schemars, tool, tool_router};
use tokio::io::DuplexStream;

/// An MCP server as the documentation of `rmcp` shows one: nothing in it knows the broker.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Note {
    text: String,
}

#[tool_router(server_handler)]
impl Notes {
    #[tool(description = "Take a note")]
    fn take(&self, Parameters(Note { text }): Parameters<Note>) -> String {
        let answer = format!("noted: {text}");
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        answer
    }

    #[tool(description = "List all notes", annotations(read_only_hint = true))]
    fn list(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).join(", ")
    }
}

/// The part that makes the server a source.
#[async_trait]
impl NativeSource for Notes {
    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    async fn serve(&self, stream: DuplexStream) -> Result<(), NativeError> {
        self.clone().serve(stream).await?.waiting().await?;
        Ok(())
    }
}

/// A policy that denies calls with the word `secret`, and leaves the others to the settings of the profile.
struct Discreet;

#[async_trait]
impl NativePolicy for Discreet {
    fn version(&self) -> &str {
        "1"
    }

    async fn check(&self, view: &CallView) -> Result<Verdict, NativeError> {
        if has_secret(view.arguments())? {
            return Ok(Verdict::deny("secret", "this is a secret"));
        }
        Ok(Verdict::Pass)
    }
}

/// Reports whether arguments have the word in them as they are read: in JSON, `\u0073ecret` is the same word.
fn has_secret(arguments: &Json) -> Result<bool, serde_json::Error> {
    Ok(arguments.read::<serde_json::Value>()?.to_string().contains("secret"))
}

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    for line in runtime.block_on(run())? {
        println!("{line}");
    }
    Ok(())
}

/// Calls the tools of the server through the gate, and returns what each call was answered with.
async fn run() -> anyhow::Result<Vec<String>> {
    // The ledger is kept in this folder, and in this example is removed with it.
    let folder = tempfile::tempdir()?;
    let config = Config::builder(folder.path())
        // The server's claims about its tools count: one that only reads is called without a question.
        .source("notes", SourceTable::native("notes").key("trust-annotations", true))
        .policy(PluginTable::new("native:discreet"))
        .build()?;
    let broker = Broker::builder(config, Launcher::SelfExec)
        .source("notes", Notes::default())
        .policy("discreet", Discreet)
        .build()
        .await?;
    let answering = tokio::spawn(answer(broker.clone()));

    let client = ().serve(portcullis::connect(&broker, "default".parse()?, &"me".parse()?)).await?;
    let mut lines = Vec::new();
    for (tool, text) in [("take", Some("milk")), ("take", Some("a secret")), ("list", None)] {
        let mut call = CallToolRequestParams::new(format!("notes__{tool}"));
        call.arguments = text.map(|text| [("text".to_owned(), text.into())].into_iter().collect());
        lines.push(match client.call_tool(call).await {
            Ok(result) => result.content.iter().filter_map(|block| Some(block.as_text()?.text.clone())).collect(),
            Err(error) => error.to_string(),
        });
    }
    client.cancel().await?;
    broker.shutdown().await;
    answering.await?;
    Ok(lines)
}

/// Answers every question with yes, where another program asks a person, until the broker shuts down.
async fn answer(broker: Broker) {
    use tokio::sync::broadcast::error::RecvError;

    let inbox = broker.inbox();
    let mut events = inbox.subscribe();
    loop {
        for question in inbox.list() {
            if let Err(error) = inbox.answer(&question.id, &GivenAnswer::yes(), "ada", AnswerRoute::Person).await {
                // No reason to stop: the call may be gone.
                eprintln!("{error}");
            }
        }
        if let Err(RecvError::Closed) = events.recv().await {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_secret_is_found_however_it_is_spelled() -> anyhow::Result<()> {
        let arguments = portcullis::Json::parse(r#"{"text":"a \u0073ecret"}"#.to_owned())?;
        assert!(super::has_secret(&arguments)?);
        Ok(())
    }

    #[tokio::test]
    async fn the_call_that_the_policy_denies_never_reaches_the_server() -> anyhow::Result<()> {
        let lines = super::run().await?;
        let [taken, denied, listed] = lines.as_slice() else { anyhow::bail!("{lines:?}") };
        assert_eq!((taken.as_str(), listed.as_str()), ("noted: milk", "milk"));
        assert!(denied.contains("this is a secret"), "{denied}");
        Ok(())
    }
}
