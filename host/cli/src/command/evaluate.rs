//! `portcullis evaluate`

mod component;
mod false_home;
mod observe;
mod package_review;
mod placeholders;
mod remote;
mod report_files;
mod run;
mod server;
mod show;
mod update_osv;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use portcullis::cell::CellError;
use portcullis::config::{Config, Endpoint};
use portcullis_evaluate::{Condition, Evaluation, EvaluationTarget, Judgement, Observation};
use portcullis_learn::SourceFacts;
use serde_json::json;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::bundle::{self, Bundle};
use crate::cli::GlobalArgs;
use crate::output;
use crate::{report, runtime};
use observe::Candidate;
use package_review::PackageReview;
pub(crate) use placeholders::PlaceholderSettings;
use report_files::ReportFiles;

/// The exit code of a server that cannot be judged.
const NOT_JUDGED: u8 = 2;

/// The number of runs that are made at once. More would wait for each other, and a call that waits looks slow.
const MAX_AT_ONCE: usize = 4;

/// The longest wait for a server that does something later, in seconds.
const MAX_IDLE: u64 = 600;

/// Run an untrusted server in sealed cells, and report what it does
///
/// Runs the server several times in cells that are recorded, with a false home full of false secrets and a false
/// internet that answers every name, and calls all its tools: many times, as several clients and users, with a later
/// clock, with particular values, and without anything to find. Nothing of yours is in these cells but the
/// folder of the server's own program, and nothing leaves the machine. A folder that the command names is replaced by a
/// false one; `npx` and `uvx` install the package first, as `wrap` does; a bundle is unpacked, and its settings are
/// filled with placeholders. A component runs in the broker's own WebAssembly cell. Of a server at a URL, only what it
/// says is seen; nothing but its address is reached.
///
/// The report says what the server tried, the smallest cell for what it needs, what it could do at worst in that, and
/// what was not exercised. The exit code is 0 if nothing was seen, 1 if there is a finding that a person should look
/// at, and 2 if the server could not be judged.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis evaluate -- npx -y some-server
  portcullis evaluate --html report.html -- uvx some-server
  portcullis evaluate --json -- ./server --stdio
  portcullis evaluate server.mcpb
  portcullis evaluate server.wasm
  portcullis evaluate https://mcp.example.com/mcp
  portcullis evaluate --update-osv
  portcullis evaluate --update-osv=https://mirror.example.com/osv")]
pub(crate) struct Args {
    /// Write the report as SARIF 2.1.0 to FILE
    #[arg(long, value_name = "FILE")]
    sarif: Option<PathBuf>,

    /// Write the report as one HTML page to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// The time in seconds to wait after the last call for delayed actions of the server
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=MAX_IDLE))]
    idle: u64,

    /// A database of OSV for this evaluation: a folder of its JSON records or a ZIP archive of them. A package that it
    /// calls malicious is not installed [default: the database that --update-osv fetched]
    #[arg(long, value_name = "DIR|FILE")]
    osv: Option<PathBuf>,

    /// Fetch the database of OSV about npm and PyPI, from the OSV project or a copy of what it publishes. From then on,
    /// every package is looked up in it before it is installed or started, and one that it calls malicious is refused
    #[arg(long, value_name = "URL|DIR|FILE", num_args = 0..=1, require_equals = true,
          default_missing_value = portcullis_osv::DEFAULT_ADDRESS)]
    update_osv: Option<String>,

    /// In place of a command: a bundle (`.mcpb`), a component (`.wasm`, `oci://…`, `builtin:…`), or the URL of a server
    #[arg(value_name = "FILE|URL", conflicts_with = "command")]
    target: Option<String>,

    /// The server's program and its arguments
    #[arg(required_unless_present_any = ["update_osv", "target"], last = true, value_name = "CMD")]
    command: Vec<String>,
}

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    if let Some(from) = &args.update_osv {
        if let Err(error) = update_osv::update(from) {
            return report::not_judged(error, global.json);
        }
        if args.command.is_empty() && args.target.is_none() {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let files = match ReportFiles::open(args) {
        Ok(files) => files,
        Err(error) => {
            report::failure(&error, global.json);
            return Ok(ExitCode::from(NOT_JUDGED));
        }
    };
    let idle = Duration::from_secs(args.idle);
    let command: Vec<String> = args.target.iter().chain(&args.command).cloned().collect();
    let config = global.config.as_deref();
    let evaluated =
        runtime::block_on(runtime::until_interrupted(evaluate(&command, idle, args.osv.as_deref(), config)));
    let evaluation = match evaluated {
        Ok(evaluation) => evaluation,
        Err(error) => return report::not_judged(error, global.json),
    };
    if global.json {
        output::json(&json!(evaluation))?;
    } else {
        show::evaluation(&evaluation)?;
    }
    let sarif = || {
        let sarif = portcullis_evaluate::sarif(&evaluation, env!("CARGO_PKG_VERSION"));
        output::escape_hidden_json(&format!("{sarif:#}\n")).into_owned()
    };
    let written = files.sarif.map_or(Ok(()), |file| file.write(&sarif()));
    let html = || portcullis_evaluate::html(&evaluation);
    let written = written.and_then(|()| files.html.map_or(Ok(()), |file| file.write(&html())));
    if let Err(error) = written {
        report::failure(&error, global.json);
        return Ok(ExitCode::from(NOT_JUDGED));
    }
    Ok(match evaluation.judgement {
        Judgement::NothingSeen => ExitCode::SUCCESS,
        Judgement::Findings => ExitCode::FAILURE,
        Judgement::NotJudged => ExitCode::from(NOT_JUDGED),
    })
}

/// Runs a server under every condition and judges the observations. Waits for `idle` after the calls of each run. `osv`
/// is a database of known vulnerabilities. `config` is the configuration whose lock file may pin the package.
pub(crate) async fn evaluate(
    command: &[String],
    idle: Duration,
    osv: Option<&Path>,
    config: Option<&Path>,
) -> anyhow::Result<Evaluation> {
    if let [word] = command
        && let Some(url) = remote::url(word)
    {
        return remote::evaluate(url?, idle).await;
    }
    let folder = tempfile::Builder::new().prefix("portcullis-").tempdir().context("cannot make a temporary folder")?;
    // A cell grants only real paths.
    let folder_path = folder.path().canonicalize()?;
    match command {
        [word] if component::is_component(word) => return component::evaluate(word, &folder_path, idle).await,
        _ => {}
    }
    let bundle = match command {
        [file] if bundle::is_bundle(file) => Some({
            let mut values = PlaceholderSettings(false_home::work_folder(Condition::Baseline));
            bundle::open(Path::new(file), &folder_path.join("bundle"), &mut values)?
        }),
        _ => None,
    };
    let started = bundle.as_ref().map_or(command, |bundle| &bundle.command);
    let named = if bundle.is_none() { named_folders(command) } else { Vec::new() };
    let replaced = with_false_folders(started, &named);
    let osv = match osv {
        Some(named) => Some(update_osv::build_for(&folder_path, named)?),
        None => update_osv::file(),
    };
    let mut candidate = candidate(&replaced, &folder_path, idle, osv)?;
    if let Some(bundle) = &bundle {
        candidate.source.cell.read.push(bundle.folder.clone());
        candidate.variables.clone_from(&bundle.variables);
    }
    let ReviewedFiles { inside, review } = review_files(&candidate, bundle.as_ref(), config).await?;
    let observations = match review.malicious {
        true => Vec::new(),
        false => {
            let candidate = Arc::new(candidate);
            let observe = move |condition| {
                let candidate = Arc::clone(&candidate);
                async move { observe::observe(&candidate, condition).await }
            };
            observe_all(&Condition::ALL, observe).await?
        }
    };
    let facts = SourceFacts { named, inside, home: home(), ..SourceFacts::default() };
    let (command, known) = (command.to_vec(), review.known);
    judged(move || Evaluation::of(&command, &observations, EvaluationTarget::Program(&facts), known)).await
}

/// The files of the server, as they were reviewed before it ran.
struct ReviewedFiles {
    /// The paths that the cell opens for the program itself.
    inside: Vec<PathBuf>,
    review: PackageReview,
}

/// Installs the server's package, if it has one, and reviews it and the bundle without running either.
async fn review_files(
    candidate: &Candidate,
    bundle: Option<&Bundle>,
    config: Option<&Path>,
) -> anyhow::Result<ReviewedFiles> {
    let osv = candidate.osv.as_deref();
    let (mut inside, mut review) = match observe::prepare(candidate).await {
        Ok((inside, Some((package, provenance)))) => {
            let mut review = package_review::look(&package.folder, Some(&package.name), osv)?;
            package_review::look_at_lock(&package, &mut review);
            package_review::compare_with_pins(&package, config, &mut review.known);
            package_review::say_provenance(&package, &provenance, &mut review.known);
            (inside, review)
        }
        Ok((inside, None)) if bundle.is_none() => (inside, PackageReview::of_no_package()),
        Ok((inside, None)) => (inside, PackageReview::default()),
        Err(CellError::Malicious { record, database, .. }) => (Vec::new(), package_review::refused(&record, &database)),
        Err(error) => return Err(error.into()),
    };
    if let Some(bundle) = bundle {
        review.take_in(package_review::look(&bundle.folder, None, osv)?);
        review.known.unchecked.push("who made the bundle: a signature is not verified".to_owned());
        review.known.about.splice(0..0, bundle.about.iter().cloned());
        inside.push(bundle.folder.clone());
    }
    Ok(ReviewedFiles { inside, review })
}

/// Judges on a separate thread, so that a signal ends the command meanwhile.
async fn judged(judge: impl FnOnce() -> Evaluation + Send + 'static) -> anyhow::Result<Evaluation> {
    let (tell, judged) = oneshot::channel();
    let judge = move || drop(tell.send(judge()));
    std::thread::Builder::new().name("judge".to_owned()).spawn(judge).context("cannot start a thread")?;
    judged.await.context("what was observed cannot be judged")
}

/// Returns the folders that the command names as something to work on. The first argument of an interpreter is its
/// script.
fn named_folders(command: &[String]) -> Vec<PathBuf> {
    let program = command
        .first()
        .map(|program| Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned());
    let interprets =
        program.is_some_and(|name| ["node", "python", "deno", "bun"].iter().any(|known| name.starts_with(known)));
    let words = command.iter().skip(1).filter(|word| !word.starts_with('-')).skip(usize::from(interprets));
    words.map(PathBuf::from).filter(|path| path.is_dir()).collect()
}

/// Replaces folders of the user by the folder of the false home that has something to work on.
fn with_false_folders(command: &[String], named: &[PathBuf]) -> Vec<String> {
    let replaced = |word: &String| match named.iter().any(|folder| folder.as_os_str() == word.as_str()) {
        true => false_home::work_folder(Condition::Baseline).to_string_lossy().into_owned(),
        false => word.clone(),
    };
    command.iter().enumerate().map(|(at, word)| if at == 0 { word.clone() } else { replaced(word) }).collect()
}

fn candidate(command: &[String], folder: &Path, idle: Duration, osv: Option<PathBuf>) -> anyhow::Result<Candidate> {
    let data_dir = folder.join("data");
    std::fs::create_dir(&data_dir)?;
    let here = std::env::current_dir().context("the working directory is gone")?;
    let config = Config::builder(folder)
        .broker(json!({ "data-dir": data_dir.to_string_lossy() }))
        .source("evaluated", json!({ "command": command, "cwd": here.to_string_lossy() }))
        .build()?;
    let own = config.own_files();
    let source = config.sources.into_values().next().context("the configuration has no source")?;
    debug_assert!(matches!(source.endpoint, Endpoint::Command { .. }));
    Ok(Candidate { source, folder: folder.to_owned(), data_dir, own, osv, variables: Vec::new(), idle })
}

/// Observes a server under every condition: first the one that installs it, alone, then the others together.
async fn observe_all<F>(conditions: &[Condition], observe: impl Fn(Condition) -> F) -> anyhow::Result<Vec<Observation>>
where
    F: Future<Output = anyhow::Result<Observation>> + Send + 'static,
{
    let Some((first, others)) = conditions.split_first() else { return Ok(Vec::new()) };
    let baseline = observe(*first).await?;
    if baseline.listings.is_empty() {
        return Ok(vec![baseline]);
    }
    let room = Arc::new(Semaphore::new(MAX_AT_ONCE));
    let mut runs = JoinSet::new();
    for (at, condition) in others.iter().enumerate() {
        let (observed, room) = (observe(*condition), Arc::clone(&room));
        runs.spawn(async move {
            let _place = room.acquire_owned().await;
            (at, observed.await)
        });
    }
    let mut all = runs.join_all().await;
    all.sort_by_key(|(at, _)| *at);
    let mut observed = vec![baseline];
    for (_, run) in all {
        observed.push(run?);
    }
    Ok(observed)
}

fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| home.is_absolute()).and_then(|home| home.canonicalize().ok())
}
