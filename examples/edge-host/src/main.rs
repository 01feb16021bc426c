//! A small program that embeds the broker, for machines on which nothing is compiled and no process is started: it
//! serves MCP over its standard streams, with the sources and policies of the configuration that its one argument
//! names.
//!
//! Plugins are code that `portcullis plugin compile` made ahead of time; the configuration names each with its digest.

use anyhow::Context as _;
use portcullis::{Broker, Config, Launcher, serve_stdio};

fn main() -> anyhow::Result<()> {
    let file = std::env::args_os().nth(1).context("usage: portcullis-edge-host PORTCULLIS.TOML")?;
    let config = Config::load(Some(file.as_ref()))?;
    // One thread serves; disk writes and loading of code run on threads of their own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(serve(config));
    // A read of standard input cannot be cancelled.
    runtime.shutdown_background();
    served
}

async fn serve(config: Config) -> anyhow::Result<()> {
    // Without the feature `process` no process is launched.
    let broker = Broker::build(config, Launcher::SelfExec).await?;
    // Code that is not loaded is an error here, while somebody reads it.
    for (source, cause) in broker.connect_all().await? {
        eprintln!("portcullis-edge-host: `{source}`: {cause}");
    }
    let served = {
        let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
        serve_stdio(broker.clone(), "default".parse()?, input, output, std::future::pending()).await
    };
    broker.shutdown().await;
    Ok(served?)
}
