//! A program with the broker inside: no server, no configuration file, one sealed source and one rule.
//!
//! `cargo run -p embed-in-rust`

use std::sync::Arc;

use portcullis::broker::Broker;
use portcullis::config::Config;
use portcullis::message::{Answer, Json};
use portcullis::session::{Nobody, Session};
use portcullis::{Launcher, ledger};
use serde_json::{Value, json};

const CONFIGURATION: &str = r#"
[sources.calc]
component = "builtin:calculator"

[[policies]]
plugin = "builtin:rules"
settings = { deny = ["calc__divide"] }
"#;

fn main() -> anyhow::Result<()> {
    // A `command` source is launched through this very program. Nothing may happen before this.
    portcullis::main_if_asked();
    tokio::runtime::Runtime::new()?.block_on(run())
}

async fn run() -> anyhow::Result<()> {
    // Relative paths in a configuration are relative to its file, which need not exist. Here the ledger goes with the folder.
    let folder = tempfile::tempdir()?;
    let config = Config::parse(CONFIGURATION, &folder.path().join("portcullis.toml"))?;
    let data_dir = config.data_dir.clone();
    let broker = Broker::build(config, Launcher::SelfExec).await?;

    let session = broker.open_session(&"default".parse()?, "me", "embed-in-rust").await?;
    for tool in &*session.tools().await? {
        println!("tool    {}", tool.get_str("name").unwrap_or_default());
    }
    println!("add     {}", call(&session, "calc__add", json!({ "a": 20, "b": 22 })).await);
    println!("divide  {}", call(&session, "calc__divide", json!({ "a": 84, "b": 2 })).await);
    session.close().await;
    broker.close().await;

    println!("ledger  {:?}", ledger::verify(&data_dir)?.verdict);
    Ok(())
}

/// What the tool says, or why it may not say it.
async fn call(session: &Session, tool: &str, arguments: Value) -> String {
    let params = Json::of(&json!({ "name": tool, "arguments": arguments }));
    match session.call_tool(params, Arc::new(Nobody)).await {
        Answer::Result(result) => result.as_str().to_owned(),
        Answer::Error(error) => error.get_str("message").unwrap_or_default(),
    }
}
