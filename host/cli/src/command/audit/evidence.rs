//! `portcullis audit checkpoint`, `prove` and `key`: evidence for people who do not trust this machine.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use portcullis::config::{no_home, user_state_dir};
use portcullis::ledger::{
    self, CallOrRun, CheckpointKey, LedgerReader, ProofError, PublicKey, RecordProof, SignedCheckpoint,
    read_checkpoints,
};
use serde_json::json;

use super::verify;
use crate::output::{self, BAD, escape_hidden};

/// The largest file of checkpoints or proofs that is read, in bytes. A witness gets some 250 a minute.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Prints checkpoints that cover the whole ledger.
pub(super) fn checkpoint(folder: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let state_dir = state_dir()?;
    let key = CheckpointKey::open(&state_dir)?;
    let keys = CheckpointKey::trusted(&state_dir)?;
    let signed = verify::going_on(folder, |verified| ledger::checkpoints(folder, &key, &keys, verified))?;
    if json {
        let shown = |one: &SignedCheckpoint| json!({ "chain": one.chain(), "size": one.size(), "note": one.note() });
        output::json(&signed.iter().map(shown).collect())?;
    } else {
        let notes: Vec<_> = signed.iter().map(SignedCheckpoint::note).collect();
        output::text(&notes.join("\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the proofs of the records of a call.
pub(super) fn prove(folder: &Path, call: &str, since: Option<&Path>, json: bool) -> anyhow::Result<ExitCode> {
    let Some(CallOrRun::Call { records, .. }) = LedgerReader::open(folder)?.show(call)? else {
        anyhow::bail!(
            "no call {call:?} in the ledger at {}; `portcullis audit` lists the calls with their ids",
            folder.display()
        );
    };
    let state_dir = state_dir()?;
    let key = CheckpointKey::open(&state_dir)?;
    let keys = CheckpointKey::trusted(&state_dir)?;
    let older = match since {
        Some(file) => read_file(file, &keys)?,
        None => Vec::new(),
    };
    // The records of a call are in the chain of the broker that let it through.
    let chain = records.first().map(|record| record.record.chain.clone()).unwrap_or_default();
    let numbers: Vec<u64> =
        records.iter().filter(|entry| entry.record.chain == chain).map(|entry| entry.record.seq).collect();
    let older = older.iter().find(|older| older.chain() == chain);
    if let (Some(file), None) = (since, older) {
        anyhow::bail!(
            "{}: it has no checkpoint of chain {chain}, in which the call stands; leave `--since` out to prove the call alone",
            file.display()
        );
    }
    let proofs =
        verify::going_on(folder, |verified| ledger::prove(folder, &chain, &numbers, older, &key, &keys, verified))?;
    if json {
        output::json(&proofs.iter().map(RecordProof::to_json).collect())?;
    } else {
        let proofs: Vec<_> = proofs.iter().map(RecordProof::to_text).collect();
        output::text(&proofs.join("\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the public key, after replacing the key on request.
pub(super) fn key(rotate: bool, json: bool) -> anyhow::Result<ExitCode> {
    let state_dir = state_dir()?;
    if rotate {
        CheckpointKey::rotate(&state_dir)?;
        output::message("brokers that run sign with the old key until they end; it stays trusted here");
    }
    let keys = match CheckpointKey::trusted(&state_dir)? {
        keys if keys.is_empty() => vec![CheckpointKey::open(&state_dir)?.public().clone()],
        keys => keys,
    };
    let mut texts = keys.iter().map(PublicKey::to_string);
    if json {
        let (present, earlier) = (texts.next(), texts.collect::<Vec<_>>());
        output::json(&json!({ "key": present, "earlier": earlier }))?;
    } else {
        output::text(&format!("{}\n", texts.next().unwrap_or_default()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks the proofs in a file, and that they continue the checkpoints that were kept of the same chain; needs no
/// ledger.
pub(super) fn check_proofs(
    file: &Path,
    kept: &[SignedCheckpoint],
    keys: &[PublicKey],
    json: bool,
) -> anyhow::Result<ExitCode> {
    let text = read(file)?;
    let proofs = match RecordProof::check_all(&text, keys) {
        Ok(proofs) => proofs,
        Err(error @ (ProofError::NotIncluded | ProofError::NotConsistent)) => {
            let shown = escape_hidden(&file.to_string_lossy()).into_owned();
            match json {
                true => output::json(&json!({ "error": format!("not proved: {shown}: {error}") }))?,
                false => output::text(&format!("{BAD}not proved{BAD:#}: {shown}: {error}\n"))?,
            }
            return Ok(ExitCode::from(1));
        }
        Err(error) => anyhow::bail!("{}: {error}", file.display()),
    };
    for proof in &proofs {
        let chain = proof.checkpoint().chain();
        let mut older = kept.iter().filter(|kept| kept.chain() == chain).peekable();
        if !kept.is_empty() && older.peek().is_none() {
            anyhow::bail!(
                "{}: the checkpoints that were given are of other chains than {chain}, so they say nothing about it; leave \
                 `--checkpoint` out to check the proof alone",
                file.display()
            );
        }
        if let Some(older) = older.find(|older| !proof.continues(older)) {
            anyhow::bail!(
                "{}: the proof does not show that chain {chain} continues the checkpoint of {} records that was given: ask for \
                 one that `portcullis audit prove CALL --since FILE` makes with that checkpoint",
                file.display(),
                older.size()
            );
        }
    }
    if json {
        let records: Result<Vec<serde_json::Value>, _> =
            proofs.iter().map(|proof| serde_json::from_str(proof.record())).collect();
        output::json(&records?.into())?;
        return Ok(ExitCode::SUCCESS);
    }
    for proof in &proofs {
        let covered = proof.checkpoint();
        let (size, chain) = (covered.size(), escape_hidden(covered.chain()));
        output::text(&format!(
            "proved: this record is one of the {size} of chain {chain} that the checkpoint covers{}\n{}\n",
            if kept.is_empty() { "" } else { ", and the chain continues the checkpoint that was given" },
            escape_hidden(proof.record())
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the checkpoints of files. Without keys that were named, those of this user count.
pub(super) fn read_files(files: &[PathBuf], keys: &[PublicKey]) -> anyhow::Result<Vec<SignedCheckpoint>> {
    let mut all = Vec::new();
    for file in files {
        all.extend(read_file(file, keys)?);
    }
    Ok(all)
}

/// Returns the keys that were named, or else those of this user.
pub(super) fn trusted(named: &[PublicKey]) -> Vec<PublicKey> {
    let Some(folder) = user_state_dir().filter(|_| named.is_empty()) else { return named.to_vec() };
    CheckpointKey::trusted(&folder).unwrap_or_else(|error| {
        output::message(&format!("checkpoints of this user are not checked: {error}"));
        Vec::new()
    })
}

fn read_file(file: &Path, keys: &[PublicKey]) -> anyhow::Result<Vec<SignedCheckpoint>> {
    read_checkpoints(&read(file)?, keys).with_context(|| format!("{} cannot be used", file.display()))
}

/// Reads a file that somebody else may have sent.
fn read(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = std::fs::File::open(file).and_then(|opened| opened.take(MAX_FILE_BYTES + 1).read_to_string(&mut text));
    let length = read.with_context(|| format!("cannot read {}", file.display()))?;
    if length as u64 > MAX_FILE_BYTES {
        anyhow::bail!("{}: it has more than {} MiB, and is not read", file.display(), MAX_FILE_BYTES >> 20);
    }
    Ok(text)
}

fn state_dir() -> anyhow::Result<PathBuf> {
    user_state_dir()
        .with_context(|| format!("{}, so there is no key to sign with: set HOME or XDG_STATE_HOME", no_home()))
}
