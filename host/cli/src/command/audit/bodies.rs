//! `portcullis audit keygen` and `forget`: the keys of sealed bodies.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use jiff::civil::Date;
use portcullis::broker::Broker;
use portcullis::config::Config;
use portcullis::ledger::new_identity;
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::output;
use crate::runtime;

/// Makes an identity in a new file, and prints its recipient.
pub(super) fn keygen(path: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let (identity, recipient) = new_identity().context("this machine has no random bytes")?;
    let failed = || format!("cannot create {}: name a file that does not exist yet", path.display());
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).with_context(failed)?;
    let text = format!("# public key: {recipient}\n{}\n", identity.to_text().expose_secret());
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).with_context(failed)?;
    if json {
        output::json(&json!({ "recipient": recipient.to_string(), "identity": path }))?;
        return Ok(ExitCode::SUCCESS);
    }
    output::text(&format!("[ledger]\nrecipients = [\"{recipient}\"]\n"))?;
    output::message(&format!(
        "add these lines to the configuration, and `record = \"sealed\"` to a profile. Only {} opens what is recorded then: keep \
         it where the broker cannot read it, and a copy of it",
        path.display()
    ));
    Ok(ExitCode::SUCCESS)
}

/// Deletes the data keys of the days before one.
pub(super) fn forget(mut config: Config, data_dir: PathBuf, before: Date, json: bool) -> anyhow::Result<ExitCode> {
    config.data_dir = data_dir;
    let count = runtime::block_on(async { Ok(Broker::forget_bodies_before(&config, before).await?) })?;
    if json {
        output::json(&json!({ "keys": count }))?;
    } else {
        output::message(&format!(
            "data keys of the days before {before} (UTC) that were deleted: {count}; that of today is in use and stays. Bodies that were sealed with them cannot be opened any more; copies, \
             such as archives, may still have the keys"
        ));
    }
    Ok(ExitCode::SUCCESS)
}
