//! `portcullis audit verify`

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use portcullis::config::user_state_dir;
use portcullis::ledger::{self, ChainReport, ChainStatus, PublicKey, SignedCheckpoint, Verification, VerifiedSegments};

use crate::output::{self, BAD, escape_hidden};

/// Verifies the ledger. `full` also recomputes the parts that were verified before.
pub(super) fn run(
    folder: &Path,
    checkpoints: &[SignedCheckpoint],
    keys: &[PublicKey],
    full: bool,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let mut verified = remembered(folder);
    if full {
        verified = verified.reading_all();
    }
    let found = ledger::verify_after(folder, checkpoints, keys, &mut verified)?;
    save(&verified);
    if json {
        output::json(&serde_json::to_value(&found)?)?;
    }
    let left = |counted: fn(&ChainReport) -> u64| -> u64 {
        found.chains.iter().map(|chain| counted(chain).saturating_sub(chain.removed)).sum()
    };
    let records = left(|chain| chain.records);
    let mut lines: Vec<String> = match &*found.findings {
        [] => {
            let (all, chains) = (output::counted(records, "record"), output::counted(found.chains.len(), "chain"));
            let (kept, given) = (left(|chain| chain.confirmed), left(|chain| chain.confirmed_elsewhere));
            let removed: u64 = found.chains.iter().map(|chain| chain.removed).sum();
            let mut lines = vec![format!("good: {all} in {chains}, every hash as it was written")];
            let before: u64 = found.chains.iter().map(|chain| chain.verified_before).sum();
            if before > 0 {
                lines.push(format!(
                    "{before} of them were verified before, and the bytes of their files are the same; `--full` recomputes them"
                ));
            }
            if removed > 0 {
                lines.push(format!("{removed} older records were removed because of their age, as the ledger says"));
            }
            if !checkpoints.is_empty() {
                let others = records - given;
                lines.push(format!(
                    "the checkpoints that were given confirm {given} of them, and not the {others} others"
                ));
            } else if kept > 0 {
                lines.push(format!("signed checkpoints in the data folder confirm {kept} of them"));
            }
            lines
        }
        findings => findings.iter().map(finding).chain(replaced_folder(&found, &verified)).collect(),
    };
    let crashed = found.chains.iter().filter(|chain| chain.may_miss_calls()).count();
    if crashed > 0 {
        lines.push(format!(
            "{crashed} of {} chains ended in a crash: calls that can have no effect may be missing from their last moments, as \
             `durability = \"effects\"` says",
            found.chains.len()
        ));
    }
    if !json {
        output::text(&format!("{}\n", lines.join("\n")))?;
    }
    Ok(ExitCode::from(match found.verdict {
        ChainStatus::Good => 0,
        ChainStatus::Tampered { .. } => 1,
        ChainStatus::Incomplete { .. } => 2,
    }))
}

fn finding(finding: &ChainStatus) -> String {
    match finding {
        ChainStatus::Good => "good".to_owned(),
        ChainStatus::Tampered { chain, seq, reason } => {
            let at = match (chain, seq) {
                (Some(chain), Some(seq)) => format!("record {seq} of chain {}", escape_hidden(chain)),
                (Some(chain), None) => format!("chain {}", escape_hidden(chain)),
                _ => "the file".to_owned(),
            };
            format!("{BAD}tampered with{BAD:#}: {at}: {}", escape_hidden(reason))
        }
        ChainStatus::Incomplete { chain, reason } => format!("incomplete: chain {}: {reason}", escape_hidden(chain)),
    }
}

/// Forgets what earlier verifications found in a folder that was there before and has another ledger now.
pub(super) fn forget(folder: &Path) {
    if let Some(path) = remembered(folder).path() {
        // It is not there if nothing was verified; otherwise the verification reports what is missing.
        let _ = fs::remove_file(path);
    }
}

/// Runs work that verifies the ledger of a folder: it resumes after the parts that earlier verifications found good,
/// and remembers those that it finds good.
pub(super) fn going_on<T>(folder: &Path, work: impl FnOnce(&mut VerifiedSegments) -> T) -> T {
    let mut verified = remembered(folder);
    let done = work(&mut verified);
    save(&verified);
    done
}

fn save(verified: &VerifiedSegments) {
    if let Err(error) = verified.save() {
        output::message(&format!("the next verification begins anew: {error}"));
    }
}

/// Returns what earlier verifications found good; nothing if the user has no state folder.
fn remembered(folder: &Path) -> VerifiedSegments {
    let Some(state_dir) = user_state_dir() else { return VerifiedSegments::default() };
    VerifiedSegments::load(&state_dir, folder).unwrap_or_else(|error| {
        output::message(&format!("everything is verified anew: {error}"));
        VerifiedSegments::default()
    })
}

/// Returns the advice for a user who replaced the data folder on purpose, if chains are missing that were found before.
fn replaced_folder(found: &Verification, verified: &VerifiedSegments) -> Option<String> {
    let is_gone = |chain: &ChainReport| chain.records == 0 && verified.has(&chain.chain);
    let file = verified.path().filter(|_| found.chains.iter().any(is_gone))?;
    Some(format!("if you replaced or emptied the data folder yourself, remove {} and verify again", file.display()))
}
