//! One run of the server under one condition.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use portcullis::cell::{
    AttemptAction, AttemptAvailability, AttemptSubject as Attempted, CellError, CellFactory, CellProcess, ChildStreams,
    InstallReport, ProcessCell, Provenance, RecordedAttempt, Recording, Tier,
};
use portcullis::config::{Endpoint, SourceConfig};
use portcullis_evaluate::{Condition, Observation};
use portcullis_jail::{Launcher, Network};
use portcullis_net::egress::{FalseAddresses, FalseInternet, SentMessage};
use tokio::time::timeout;

use super::false_home::{CLOCK_FOLDER, FalseHome, visible_home_of, work_folder};
use super::run::EvaluationRun;
use super::server::{ServerConnection, ServerConversation, ServerPipe};

/// The longest time for one run, in which the server starts, lists twice and is called; the wait after the calls is
/// added.
pub(super) const RUN_TIMEOUT: Duration = Duration::from_secs(120);

/// The server that is evaluated.
pub(super) struct Candidate {
    pub(super) source: SourceConfig,
    /// The folder of this evaluation.
    pub(super) folder: PathBuf,
    pub(super) data_dir: PathBuf,
    /// Files that no source gets.
    pub(super) own: Vec<PathBuf>,
    /// The database of malicious packages.
    pub(super) osv: Option<PathBuf>,
    /// Variables that the server is given besides those of the false home, for the home of the baseline.
    pub(super) variables: Vec<(String, String)>,
    /// The wait after the calls of the baseline.
    pub(super) idle: Duration,
}

/// Installs the package, if the command asks for one. Returns the paths that the cell opens for the program itself, and
/// the package with the attestations that its registry reports.
pub(super) async fn prepare(
    candidate: &Candidate,
) -> Result<(Vec<PathBuf>, Option<(InstallReport, Provenance)>), CellError> {
    let cell = candidate.cell(&candidate.source);
    cell.plan(&[]).await?;
    let described = cell.described();
    let needs = described.iter().flat_map(|described| &described.needs.read).cloned().collect();
    let package = match described.and_then(|described| described.package.clone()) {
        Some(package) => {
            let provenance = cell.provenance(&package).await;
            let provenance = provenance.unwrap_or_else(|error| Provenance::Unknown(error.to_string()));
            Some((package, provenance))
        }
        None => None,
    };
    Ok((needs, package))
}

impl Candidate {
    /// Returns the cell of the source as configured now.
    fn cell(&self, source: &SourceConfig) -> ProcessCell {
        let cells = CellFactory::new(Launcher::SelfExec, &self.data_dir, self.own.clone(), None, |_| {})
            .with_osv(self.osv.clone());
        ProcessCell::new(Arc::new(cells), source)
    }

    /// Returns the source and its variables for a run in this home. Its command and variables were written for that of
    /// the baseline.
    fn under(&self, condition: Condition, home: &FalseHome) -> (SourceConfig, Vec<(String, String)>) {
        let (usual, now) = (work_folder(Condition::Baseline), work_folder(condition));
        let replaced = |value: &str| value.replace(&*usual.to_string_lossy(), &now.to_string_lossy());
        let mut source = self.source.clone();
        home.grant(&mut source.cell);
        if let Endpoint::Command { argv, .. } = &mut source.endpoint {
            argv.iter_mut().for_each(|word| *word = replaced(word));
        }
        let mut variables = home.variables(condition);
        variables.retain(|(name, _)| !self.variables.iter().any(|(own, _)| own == name));
        variables.extend(self.variables.iter().map(|(name, value)| (name.clone(), replaced(value))));
        (source, variables)
    }
}

/// Runs the server under a condition. A server that fails is an observation; an error is one of this machine.
pub(super) async fn observe(candidate: &Candidate, condition: Condition) -> anyhow::Result<Observation> {
    let folder = tempfile::Builder::new().prefix("run-").tempdir_in(&candidate.folder)?;
    let home = FalseHome::make(folder.path(), condition).context("cannot make a false home")?;
    let (source, variables) = candidate.under(condition, &home);
    let cell = candidate.cell(&source);
    // The recording begins now, too.
    let mut run = EvaluationRun::begin(condition);
    let mut plan = cell.plan(&variables).await?;
    // Only a full cell can have every address.
    let everywhere = plan.launch.cell.tier == Tier::Full;
    let addresses = if everywhere { FalseAddresses::Public } else { FalseAddresses::Loopback };
    let internet = FalseInternet::new(addresses).context("cannot make a false internet")?;
    home.place(&mut plan, condition, internet.certificate());
    if condition != Condition::Bare {
        let listeners = FalseInternet::listeners(addresses);
        plan.launch.cell.network =
            if everywhere { Network::Everywhere(listeners) } else { Network::Listeners(listeners) };
    }
    let program = plan.launch.program.clone();
    let recording = cell.recording().cloned().context("the cell is not recorded")?;
    recording.follow_unix_sockets();
    for file in home.canary_files() {
        recording.watch(&file).context("a false secret is gone")?;
    }

    let (child, streams, ready) =
        CellProcess::start(plan.launch, Launcher::SelfExec, Some(Arc::clone(&recording))).await?;
    let (served, _resolver) = match condition {
        Condition::Bare => (None, cell.started(ready)?),
        _ => (Some(internet.serve(ready.listeners)?), None),
    };
    let failure = converse(candidate, &mut run, &home, &child, streams).await;
    child.kill();
    child.wait().await;
    // Its last messages are read to the end.
    if let Some(served) = served {
        served.finish().await;
    }

    Ok(Observation {
        failure: failure.map(|error| format!("{error:#}")),
        ..observation(run, home, &internet, &recording, program)
    })
}

/// Talks with the server and calls its tools, for as long as it may run. Returns why that failed, if it did.
async fn converse(
    candidate: &Candidate,
    run: &mut EvaluationRun,
    home: &FalseHome,
    child: &CellProcess,
    streams: ChildStreams,
) -> Option<anyhow::Error> {
    let condition = run.condition();
    let limit = RUN_TIMEOUT + candidate.idle;
    let work = async {
        let (pipe, last_words) = ServerPipe::of(streams)?;
        match ServerConversation::begin(ServerConnection::Pipe(pipe), condition.client(), condition.era()).await {
            Ok(mut server) => {
                run.exercise(&mut server, &work_folder(condition), &home.canary_paths(), candidate.idle).await
            }
            // It does not speak the revision, which the report states.
            Err(_) if condition == Condition::Modern => Ok(()),
            Err(error) => Err(last_words.explain(child, error).await),
        }
    };
    tokio::select! {
        done = timeout(limit, work) => match done {
            Ok(done) => done.err(),
            Err(_) => Some(anyhow!("it was not done within {} s", limit.as_secs())),
        },
        why = home.wait_until_over_quota() => Some(anyhow!("it was ended: {why}")),
    }
}

/// Returns what was observed in a run that is over, of a server that was started as `program`.
fn observation(
    run: EvaluationRun,
    mut home: FalseHome,
    internet: &FalseInternet,
    recording: &Recording,
    program: PathBuf,
) -> Observation {
    let condition = run.condition();
    let attempts = recording.attempts();
    let mut observed = run.observed();
    let sent = internet.sent();
    let unanswered = unanswered_ports(&attempts, &sent, |address| internet.name_of(address));
    count(&mut observed.unseen, "connections to ports at which nothing answers", unanswered);
    let attempts = as_told(attempts, internet, &home);
    let (written, unsearched) = home.written();
    count(
        &mut observed.unseen,
        "files and folders of its home that were too large, too many, too deep or not to be read",
        unsearched,
    );
    Observation {
        sent,
        missed: observed.missed + internet.others() + recording.crowded_out(),
        written,
        canaries: std::mem::take(&mut home.canaries),
        home: visible_home_of(condition),
        programs: [program, PathBuf::from("/usr/bin/env")].into_iter().chain(first_program(&attempts)).collect(),
        clock_moved: reads_clock(&attempts),
        attempts,
        ..observed
    }
}

/// Returns the attempts as the server meant them: at hosts by their names, and at paths of the home that it was given.
fn as_told(mut attempts: Vec<RecordedAttempt>, internet: &FalseInternet, home: &FalseHome) -> Vec<RecordedAttempt> {
    for attempt in &mut attempts {
        name_address(attempt, |address| internet.name_of(address));
        if let Attempted::Path(path) = &mut attempt.subject {
            *path = home.as_told(path);
        }
    }
    // Port 0 is how the C library asks which of its addresses would be used.
    attempts.retain(|attempt| !matches!(attempt.subject, Attempted::Host(_, Some(0))));
    attempts
}

/// Returns the program that was executed first.
fn first_program(attempts: &[RecordedAttempt]) -> Option<PathBuf> {
    let started = attempts.iter().find(|attempt| attempt.action == AttemptAction::Execute)?;
    match &started.subject {
        Attempted::Path(path) => Some(path.clone()),
        _ => None,
    }
}

/// Reports whether the library was read that moves the clock of the server.
fn reads_clock(attempts: &[RecordedAttempt]) -> bool {
    attempts.iter().any(|attempt| {
        let of_clock = matches!(&attempt.subject, Attempted::Path(path) if path.starts_with(CLOCK_FOLDER) && path.extension().is_some());
        of_clock && attempt.action == AttemptAction::Read && attempt.availability == AttemptAvailability::Granted
    })
}

/// Takes an address that a name was given for that name. Outside of an evaluation, a cell refuses it.
fn name_address(attempt: &mut RecordedAttempt, name_of: impl Fn(Ipv4Addr) -> Option<String>) {
    if let Attempted::Address(SocketAddr::V4(address)) = attempt.subject
        && let Some(name) = name_of(*address.ip())
    {
        attempt.subject = Attempted::Host(name, Some(address.port()));
        attempt.availability = AttemptAvailability::Denied;
    }
}

/// Returns the number of ports of named hosts at which the source found nobody to hear it.
fn unanswered_ports(
    attempts: &[RecordedAttempt],
    sent: &[SentMessage],
    name_of: impl Fn(Ipv4Addr) -> Option<String>,
) -> usize {
    let is_unheard = |attempt: &&RecordedAttempt| {
        let Attempted::Address(SocketAddr::V4(to)) = attempt.subject else { return false };
        let Some(host) = name_of(*to.ip()).filter(|_| to.port() != 0) else { return false };
        // Datagrams are received on every port.
        let heard = |message: &SentMessage| message.host == host && message.port == to.port();
        !FalseInternet::answers_at(to.port()) && !sent.iter().any(heard)
    };
    attempts.iter().filter(is_unheard).count()
}

/// Counts what could not be seen.
fn count(unseen: &mut BTreeMap<&'static str, u64>, what: &'static str, times: usize) {
    if times > 0 {
        *unseen.entry(what).or_default() += times as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use portcullis_net::egress::MessageProtocol;

    use super::*;

    #[test]
    fn a_port_of_a_named_host_at_which_nothing_answers_is_counted() {
        let name_of = |address: Ipv4Addr| (address == Ipv4Addr::new(93, 184, 0, 1)).then(|| "a.test".to_owned());
        let attempt = |to: [u8; 4], port| RecordedAttempt {
            action: AttemptAction::Connect,
            subject: Attempted::Address((to, port).into()),
            availability: AttemptAvailability::Denied,
            count: 1,
            after: Duration::ZERO,
            program: String::new(),
        };
        let (known, unknown) = ([93, 184, 0, 1], [93, 184, 0, 2]);
        let attempts = [attempt(known, 4711), attempt(known, 80), attempt(known, 0), attempt(unknown, 4711)];
        assert_eq!(unanswered_ports(&attempts, &[], name_of), 1);
        let sent = SentMessage {
            at: Instant::now(),
            channel: MessageProtocol::Udp,
            host: "a.test".to_owned(),
            port: 4711,
            parts: Vec::new(),
        };
        assert_eq!(unanswered_ports(&attempts, &[sent], name_of), 0, "a datagram is heard");
    }
}
