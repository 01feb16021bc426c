//! A program that embeds the broker: no server, no configuration file, one sandboxed source and one rule.
//!
//! `cargo run -p embed-in-rust`

use portcullis::{Broker, Config, Launcher, PluginTable, SourceTable};
use serde_json::json;

fn main() -> anyhow::Result<()> {
    // A `command` source is launched through this program itself, so this call must come before everything else.
    portcullis::main_if_asked();
    tokio::runtime::Runtime::new()?.block_on(run())
}

async fn run() -> anyhow::Result<()> {
    // The ledger is kept in this folder, and in this example is removed with it.
    let folder = tempfile::tempdir()?;
    let config = Config::builder(folder.path())
        .source("calc", SourceTable::component("builtin:calculator"))
        .policy(PluginTable::new("builtin:rules").settings(json!({ "deny": ["calc__divide"] })))
        .build()?;
    let data_dir = config.data_dir.clone();
    let broker = Broker::build(config, Launcher::SelfExec).await?;
    // Optional: without this call, sources are connected when they are first needed.
    for (source, why) in broker.connect_all().await? {
        println!("away    {source}: {why}");
    }

    let session = broker.open_session(&"default".parse()?, &"me".parse()?, "embed-in-rust").await?;
    for tool in session.discover().await? {
        println!("tool    {} of {}: {}", tool.name, tool.source, tool.description);
    }
    for (tool, arguments) in [("calc__add", json!({ "a": 20, "b": 22 })), ("calc__divide", json!({ "a": 84, "b": 2 }))]
    {
        match session.call_tool(tool, &arguments).await {
            Ok(result) => println!("{tool}  {}", result.text()),
            Err(error) => println!("{tool}  {error}"),
        }
    }
    println!("state   {} tools", broker.state().total_tools);
    session.close().await;
    broker.shutdown().await;

    println!("ledger  {:?}", portcullis::verify_ledger(&data_dir)?.verdict);
    Ok(())
}
