//! `portcullis doctor`

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use miette::Diagnostic as _;
use portcullis::config::{ConfigCandidate, ConfigError, TrustStatus, no_home, user_data_dir, user_state_dir};
use portcullis::control::{self, ControlRequest};
use portcullis::ledger::{self, ChainStatus, LedgerError};
use portcullis_jail::{CellRefusal, Launcher, ProbeReport, RunningLauncher, Tier};
use serde_json::json;

use crate::cli::GlobalArgs;
use crate::command::status;
use crate::output::{self, BAD, BOLD, escape_hidden, shell_word};
use crate::runtime;

/// Check this machine, the configuration, the ledger and the folders, and say how to fix each problem
///
/// Builds a cell to find out what this machine enforces. It starts no source; `portcullis check` does that. The exit
/// code is 1 if there is a problem.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckResult {
    Good,
    Warning,
    Bad,
}

impl CheckResult {
    fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Bad => "bad",
        }
    }
}

/// One thing that was checked.
#[derive(Debug)]
struct Finding {
    subject: &'static str,
    result: CheckResult,
    message: String,
    /// The way out, if something is not well.
    remedy: Option<String>,
}

impl Finding {
    fn good(subject: &'static str, message: impl Into<String>) -> Self {
        Self { subject, result: CheckResult::Good, message: message.into(), remedy: None }
    }

    fn warning(subject: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { subject, result: CheckResult::Warning, message: message.into(), remedy: Some(remedy.into()) }
    }

    fn bad(subject: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { subject, result: CheckResult::Bad, message: message.into(), remedy: Some(remedy.into()) }
    }
}

pub(crate) fn run(_: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let mut findings = vec![Finding::good("version", format!("portcullis {}", env!("CARGO_PKG_VERSION")))];
    findings.extend(cells(&RunningLauncher::new(&Launcher::SelfExec).context("cannot start the launcher")?.probe()));
    findings.push(state_folder());
    let data_dir = match ConfigCandidate::load(global.config.as_deref()) {
        Ok(found) => {
            findings.push(trust(&found));
            Some(found.config().data_dir.clone())
        }
        // Wrapped servers need no configuration, and keep their ledger in the user's folder.
        Err(error) if error.is_missing() => {
            let (message, remedy) = in_words(&error);
            findings.push(Finding::warning("configuration", message, remedy));
            user_data_dir()
        }
        Err(error) => {
            let (message, remedy) = in_words(&error);
            findings.push(Finding::bad("configuration", message, remedy));
            None
        }
    };
    if let Some(folder) = data_dir {
        findings.push(data_folder(&folder));
        if folder.is_dir() {
            findings.push(ledger(&folder));
            findings.extend(brokers(&folder)?);
        }
    }
    if global.json {
        let of = |finding: &Finding| {
            let Finding { subject, result, message, remedy } = finding;
            json!({ "subject": subject, "finding": result.as_str(), "message": message, "remedy": remedy })
        };
        output::json(&findings.iter().map(of).collect())?;
    } else {
        findings.iter().try_for_each(print)?;
    }
    let bad = findings.iter().any(|finding| finding.result == CheckResult::Bad);
    Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns what the cells of sources are worth on this machine.
fn cells(probe: &ProbeReport) -> Vec<Finding> {
    let (tier, enforced) = match (&probe.full, &probe.bwrap, &probe.reduced) {
        (Ok(enforced), ..) => (Tier::Full, enforced),
        (_, Ok(enforced), _) => (Tier::FullViaBwrap, enforced),
        (Err(refusal), _, Ok(_)) => {
            let message = format!("programs do not start, as only the reduced tier can be built: {}", cause(refusal));
            let accept = "or accept it for a source without a network: `dangerous-allow-reduced = true` in its `cell`";
            let remedy =
                refusal.remedy.as_ref().map_or_else(|| accept.to_owned(), |remedy| format!("{remedy}; {accept}"));
            return vec![Finding::bad("cells", message, remedy)];
        }
        (Err(refusal), Err(via_bwrap), Err(_)) => {
            let message = format!("programs do not start, as no cell can be built: {}", cause(refusal));
            let remedy = refusal.remedy.clone().or_else(|| via_bwrap.remedy.clone());
            return vec![Finding::bad(
                "cells",
                message,
                remedy.unwrap_or_else(|| "run the broker on another machine".to_owned()),
            )];
        }
    };
    let landlock = enforced.landlock;
    let mut findings = vec![Finding::good(
        "cells",
        format!("{tier}: programs run in namespaces of their own, with seccomp and Landlock {landlock}"),
    )];
    if !enforced.protects_names {
        findings.push(Finding::warning(
            "names",
            "a program can make a portcullis.toml and a .portcullis in a folder that it may write, if there is none",
            "use a kernel of Linux 5.19 or newer with `landlock` in `lsm=`, and `kernel.yama.ptrace_scope` below 3",
        ));
    }
    findings.push(match enforced.cgroup {
        true => {
            Finding::good("limits", "memory, processes and processors count for each cell as a whole (a control group)")
        }
        false => Finding::warning(
            "limits",
            "memory, processes and processors are limited without a control group, which is less exact",
            "start the broker with `systemd-run --user --scope -p Delegate=yes portcullis serve`",
        ),
    });
    findings
}

fn cause(refusal: &CellRefusal) -> String {
    let setting = refusal.setting.as_ref().map(|setting| format!(" (decided by {setting})")).unwrap_or_default();
    format!("step `{}` failed: {}{setting}", refusal.step, refusal.cause)
}

fn state_folder() -> Finding {
    match user_state_dir() {
        Some(folder) => match probe_write(&folder) {
            Ok(()) => Finding::good("state folder", folder.display().to_string()),
            Err(error) => Finding::warning(
                "state folder",
                format!(
                    "{} cannot be written, so nothing can be trusted, and plugins are compiled at each start: {error}",
                    folder.display()
                ),
                "set HOME or XDG_STATE_HOME to a folder that you may write, or name a configuration with `--config FILE`",
            ),
        },
        None => Finding::warning(
            "state folder",
            format!("{}, so nothing is trusted, and plugins are compiled at each start", no_home()),
            "set HOME or XDG_STATE_HOME",
        ),
    }
}

/// Makes and removes a file in a folder, or where the folder would be made.
fn probe_write(folder: &Path) -> std::io::Result<()> {
    let existing = folder.ancestors().find(|folder| folder.exists()).unwrap_or(folder);
    tempfile::tempfile_in(existing).map(drop)
}

/// Returns whether the configuration is used.
fn trust(found: &ConfigCandidate) -> Finding {
    let (file, word) = (found.file().display(), shell_word(&found.file().to_string_lossy()));
    let config = found.config();
    let (sources, disabled) = (config.sources.len(), config.disabled.len());
    match found.trust_status() {
        Ok(TrustStatus::Usable) => Finding::good(
            "configuration",
            format!(
                "{file}: {}, {disabled} disabled; `portcullis check` starts them",
                output::counted(sources, "source")
            ),
        ),
        Ok(TrustStatus::Changed(before)) if !before.unseen => Finding::bad(
            "configuration",
            format!("{file} is not what you trusted, so it is not used"),
            format!("`portcullis trust {word}` shows what changed, and asks"),
        ),
        Ok(TrustStatus::Changed(_) | TrustStatus::Unknown) => Finding::bad(
            "configuration",
            format!("{file} is not trusted yet, so it is not used"),
            format!("`portcullis trust {word}` shows what it does, and asks"),
        ),
        Err(error) => {
            let (message, remedy) = in_words(&error);
            Finding::bad("configuration", message, remedy)
        }
    }
}

fn in_words(error: &ConfigError) -> (String, String) {
    let messages: Vec<String> = error.problems().iter().map(ToString::to_string).collect();
    let help = error.problems().iter().find_map(|problem| problem.help()).map(|help| help.to_string());
    (messages.join("; "), help.unwrap_or_else(|| "`portcullis check` shows the place".to_owned()))
}

/// The free space below which a broker soon refuses calls, in bytes: some days of a busy ledger.
const LITTLE_SPACE: u64 = 256 * 1024 * 1024;

fn data_folder(folder: &Path) -> Finding {
    let (shown, word) = (folder.display(), shell_word(&folder.to_string_lossy()));
    let Ok(about) = folder.metadata() else {
        return Finding::good("data folder", format!("{shown} does not exist yet; a broker makes it"));
    };
    let (mode, others) = (about.mode() & 0o7777, about.mode() & 0o077);
    if others != 0 {
        let result = if others & 0o022 == 0 { CheckResult::Warning } else { CheckResult::Bad };
        let message = format!("{shown} is open to other users (mode {mode:04o})");
        return Finding { subject: "data folder", result, message, remedy: Some(format!("chmod 700 {word}")) };
    }
    match rustix::fs::statvfs(folder) {
        Ok(space) if space.f_bavail.saturating_mul(space.f_frsize) < LITTLE_SPACE => Finding::bad(
            "data folder",
            format!(
                "{shown} has less than {} MiB of free space, and calls that cannot be recorded are refused",
                LITTLE_SPACE >> 20
            ),
            format!("make room; `du -sh {word}/*` shows what takes it"),
        ),
        _ => Finding::good("data folder", shown.to_string()),
    }
}

fn ledger(folder: &Path) -> Finding {
    match ledger::verify(folder) {
        Err(LedgerError::Missing(_)) => Finding::good("ledger", "none yet; the first broker makes it"),
        Err(error) => Finding::bad("ledger", error.to_string(), "`portcullis audit verify` looks again"),
        Ok(found) => {
            let records: u64 = found.chains.iter().map(|chain| chain.records).sum();
            let (records, chains) = (output::counted(records, "record"), output::counted(found.chains.len(), "chain"));
            let said = format!("{records} in {chains}");
            let details = "`portcullis audit verify` names each record";
            match found.verdict {
                ChainStatus::Good => Finding::good("ledger", format!("{said}, every hash as it was written")),
                ChainStatus::Tampered { .. } => {
                    Finding::bad("ledger", format!("{said}; it was tampered with"), details)
                }
                ChainStatus::Incomplete { .. } => Finding::warning(
                    "ledger",
                    format!("{said}; a broker was killed"),
                    "the next broker that starts seals its chain",
                ),
            }
        }
    }
}

/// Returns the running brokers, their troubles, and the receivers that do not accept their messages.
fn brokers(folder: &Path) -> anyhow::Result<Vec<Finding>> {
    let all = runtime::block_on(async { Ok(control::all(folder, &ControlRequest::Status).await?) })?;
    let broken = all.iter().any(|(_, answer)| answer.as_ref().map_or(true, status::is_broken));
    let brokers = match (all.len(), broken) {
        (count, true) => Finding::warning(
            "brokers",
            format!("{count} run, and not all is well"),
            "`portcullis status` says what is wrong",
        ),
        (0, false) => Finding::good("brokers", "none runs"),
        (count, false) => Finding::good("brokers", format!("{count} run, and all is well")),
    };
    let answers = all.iter().filter_map(|(chain, answer)| Some((chain, answer.as_ref().ok()?)));
    let failing = answers.flat_map(|(chain, answer)| {
        let of_broker = move |words| {
            let remedy = "start it, or correct its address in the configuration and start the broker again; deliveries \
                          go on by themselves";
            Finding::warning("receivers", format!("of broker {chain}: {words}"), remedy)
        };
        status::failing_receivers_in_words(answer).into_iter().map(of_broker)
    });
    Ok(std::iter::once(brokers).chain(failing).collect())
}

fn print(finding: &Finding) -> anyhow::Result<()> {
    let style = match finding.result {
        CheckResult::Good => anstyle::Style::new(),
        CheckResult::Warning => BOLD,
        CheckResult::Bad => BAD,
    };
    let word = finding.result.as_str();
    let shown = |text: &str| text.lines().map(escape_hidden).collect::<Vec<_>>().join(" ");
    output::text(&format!("{:13}  {style}{word:7}{style:#}  {}\n", finding.subject, shown(&finding.message)))?;
    match &finding.remedy {
        Some(remedy) => output::text(&format!("{:24}{}\n", "", shown(remedy))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
    use portcullis_jail::EnforcementReport;

    use super::*;

    fn refusal(remedy: Option<&str>) -> CellRefusal {
        let (step, cause) = ("namespaces".to_owned(), "not permitted".to_owned());
        CellRefusal {
            step,
            cause,
            errno: Some(1),
            setting: Some("user.max_user_namespaces".to_owned()),
            remedy: remedy.map(str::to_owned),
        }
    }

    #[test]
    fn a_machine_without_full_cells_is_bad_and_the_way_out_is_named() {
        let enforced = EnforcementReport { landlock: 4, cgroup: false, protects_names: true, user: 1000 };
        let full =
            cells(&ProbeReport { full: Ok(enforced.clone()), bwrap: Err(refusal(None)), reduced: Err(refusal(None)) });
        assert_eq!((full[0].result, full[1].result), (CheckResult::Good, CheckResult::Warning));
        assert!(full[1].remedy.as_ref().unwrap().contains("systemd-run --user --scope"));
        let old = EnforcementReport { protects_names: false, ..enforced.clone() };
        let old = cells(&ProbeReport { full: Ok(old), bwrap: Err(refusal(None)), reduced: Err(refusal(None)) });
        assert_eq!((old[1].subject, old[1].result), ("names", CheckResult::Warning));

        let command = "run `sysctl user.max_user_namespaces=10000` as root";
        let reduced =
            cells(&ProbeReport { full: Err(refusal(Some(command))), bwrap: Err(refusal(None)), reduced: Ok(enforced) });
        assert_eq!(reduced[0].result, CheckResult::Bad);
        let remedy = reduced[0].remedy.as_ref().unwrap();
        assert!(remedy.contains(command) && remedy.contains("`dangerous-allow-reduced = true`"), "{remedy}");
        let none = cells(&ProbeReport {
            full: Err(refusal(None)),
            bwrap: Err(refusal(Some(command))),
            reduced: Err(refusal(None)),
        });
        assert_eq!((none[0].result, none[0].remedy.as_deref()), (CheckResult::Bad, Some(command)));
    }
}
