//! `portcullis audit`

mod archive;
mod bodies;
mod evidence;
mod export;
mod list;
mod show;
mod verify;

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;

use clap::Subcommand;
use jiff::civil::Date;
use portcullis::ledger::{LedgerReader, PositionedRecord, PublicKey, RecordFilter};

use crate::call_query::CallQuery;
use crate::cli::GlobalArgs;
use crate::identity::IdentityArgs;
use crate::output::{self, BOLD, escape_hidden};
use crate::{report, runtime};

use list::ListingForm;
pub(crate) use list::{duration, line};

/// Show the calls of agents, and read and check the ledger
///
/// Without a subcommand it prints one line for each call: when it began, its id, who called, how it ended, how long it
/// took, and what was called. All options must match. Without a period these are the last 20 calls.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis audit --since yesterday
  portcullis audit --since 2026-11-20 --until 2026-11-22 --csv > calls.csv
  portcullis audit --outcome denied --tool 'files__*' -n 100
  portcullis audit --follow
  portcullis audit show 01JD8Z…                          # a call or a run in words
  portcullis audit show 01JD8Z… --identity key.txt       # with what was sealed
  portcullis audit archive ledger-2026.zip               # a copy; later: audit restore ledger-2026.zip DIR
  portcullis audit export --format ocsf -o calls.ocsf --resume   # every hour: what ended since
  portcullis audit tail -n 100 --kind source.state       # the records themselves
  portcullis audit verify
  portcullis audit checkpoint > elsewhere.checkpoint     # later: audit verify --checkpoint elsewhere.checkpoint
  portcullis audit prove 01JD8Z… > call.tlog-proof       # there: audit verify --proof call.tlog-proof --pubkey …")]
pub(crate) struct Args {
    #[command(flatten)]
    query: CallQuery,

    #[command(flatten)]
    listing: Listing,

    /// Read the ledger of this data folder
    #[arg(long, value_name = "DIR", global = true)]
    data_dir: Option<PathBuf>,

    #[command(subcommand)]
    action: Option<Action>,
}

/// The options that say how calls are listed.
#[derive(Debug, Default, PartialEq, clap::Args)]
struct Listing {
    /// The largest number of calls to print, the newest of those that match [default: 20, or all of a period]
    #[arg(short, long, value_name = "N")]
    n: Option<usize>,

    /// Keep running, and print each call when a person is asked about it and when it ends
    #[arg(short, long)]
    follow: bool,

    /// Print comma-separated values
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the last records, of every kind
    Tail {
        /// How many records to print
        #[arg(short, long, default_value_t = 20, value_name = "N")]
        n: usize,
        /// Only records of this kind, such as call.denied
        #[arg(long)]
        kind: Option<String>,
        /// Keep running, and print new records as they are written
        #[arg(short, long)]
        follow: bool,
    },
    /// Show a call or a run in words: arguments, verdicts, who approved, what was refused
    Show {
        /// The id of a call, of a run, or of a question about a call; of a call, its first six characters or more
        id: String,
        #[command(flatten)]
        identities: IdentityArgs,
    },
    /// Export calls for other systems, as JSON lines, comma-separated values, OCSF, CEF or Parquet, or as test fixtures
    ///
    /// Each call that ended is one line. A file can be continued later with `--resume`, also after an interruption. A
    /// Parquet file has a row for each call.
    Export(Box<export::Args>),
    /// Verify every chain
    ///
    /// The exit code is 0 if all are good, 1 if one was tampered with, and 2 if one is incomplete because its broker
    /// was killed and no later broker has sealed it yet, or if the ledger cannot be judged.
    ///
    /// What an earlier verification found good is not recomputed where the bytes of its files are still the same.
    Verify(Verify),
    /// Print signed checkpoints that cover the whole ledger, to be kept on another machine
    ///
    /// With them, anyone can detect later that a record was changed or removed, even if all hashes were recomputed.
    Checkpoint,
    /// Print a proof that the ledger contains the records of a call, which others can check without the ledger
    Prove {
        /// The id of a call
        call: String,
        /// Also prove that the ledger continues the older checkpoint that is in this file
        #[arg(long, value_name = "FILE")]
        since: Option<PathBuf>,
    },
    /// Write a copy of the ledger into a new ZIP archive, also while brokers run
    ///
    /// The keys of payloads' hashes, and what people allowed for later calls, stay here.
    Archive {
        /// The archive
        file: PathBuf,
    },
    /// Unpack an archive into a new data folder and verify it; read it with `--data-dir`
    Restore {
        /// The archive
        file: PathBuf,
        /// The data folder, which must not exist
        dir: PathBuf,
    },
    /// Make a key for sealed bodies in a new file, and print the line for the configuration
    ///
    /// With `record = "sealed"` in a profile, arguments and results are recorded so that only this key opens them.
    Keygen {
        /// The file for the private key
        file: PathBuf,
    },
    /// Delete the data keys of sealed bodies of past days, so that nobody can open them any more
    ///
    /// The records stay, and the ledger can be verified as before. The deletion is recorded.
    Forget {
        /// The day (UTC) before which bodies are to be forgotten, such as 2026-11-01
        #[arg(long, value_name = "DAY")]
        before: Date,
    },
    /// Print the public key of this user's checkpoints, for those who check them
    Key {
        /// Make a new key first; the old one stays trusted here
        #[arg(long)]
        rotate: bool,
    },
}

/// The options of `audit verify`.
#[derive(Debug, clap::Args)]
struct Verify {
    /// Compare the ledger with the checkpoints in this file, which were kept elsewhere; can be given several times
    #[arg(long = "checkpoint", value_name = "FILE")]
    checkpoints: Vec<PathBuf>,
    /// Recompute every hash, and compare every entry of the index, also of what was verified before
    #[arg(long, conflicts_with = "proof")]
    full: bool,
    /// Check the proofs in this file instead of a ledger; with a checkpoint, also that its chain continues that one
    #[arg(long, value_name = "FILE")]
    proof: Option<PathBuf>,
    /// Trust checkpoints that this key signed, instead of this user's keys; can be given several times
    #[arg(long = "pubkey", value_name = "KEY")]
    keys: Vec<PublicKey>,
}

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let folder = || folder(global, args.data_dir.as_ref());
    let Some(action) = &args.action else {
        let form = if global.json { ListingForm::Json } else { ListingForm::Line };
        let form = if args.listing.csv { ListingForm::Csv } else { form };
        return list::run(&folder()?, &args.query, args.listing.n, args.listing.follow, form);
    };
    if args.query != CallQuery::default() || args.listing != Listing::default() {
        anyhow::bail!(
            "an option that selects calls stands before a subcommand, which does not take it; leave one of them out"
        );
    }
    match action {
        Action::Tail { n, kind, follow } => tail(&folder()?, *n, kind.clone(), *follow, global.json),
        Action::Show { id, identities } => show::run(&folder()?, id, identities, global.json),
        Action::Export(args) if args.fixtures => export::run_fixtures(&folder()?, args, &global.load()?.policies),
        Action::Export(args) => export::run(&folder()?, args),
        Action::Verify(Verify { checkpoints, full, proof, keys }) => {
            let keys = evidence::trusted(keys);
            let judged = evidence::read_files(checkpoints, &keys).and_then(|checkpoints| match proof {
                Some(file) => evidence::check_proofs(file, &checkpoints, &keys, global.json),
                None => verify::run(&folder()?, &checkpoints, &keys, *full, global.json),
            });
            // A ledger that cannot be judged is not a sign of tampering.
            judged.or_else(|error| report::not_judged(error, global.json))
        }
        Action::Checkpoint => evidence::checkpoint(&folder()?, global.json),
        Action::Prove { call, since } => evidence::prove(&folder()?, call, since.as_deref(), global.json),
        Action::Archive { file } => archive::archive(&folder()?, file),
        Action::Restore { file, dir } => archive::restore(file, dir, &evidence::trusted(&[]), global.json),
        Action::Keygen { file } => bodies::keygen(file, global.json),
        Action::Forget { before } => bodies::forget(global.load()?, folder()?, *before, global.json),
        Action::Key { rotate } => evidence::key(*rotate, global.json),
    }
}

/// Returns the first data folder that has a ledger or had one. A folder whose ledger is lost must not be skipped.
pub(crate) fn folder(global: &GlobalArgs, named: Option<&PathBuf>) -> anyhow::Result<PathBuf> {
    let folders = runtime::data_dirs(global, named)?;
    let found = folders.iter().find(|folder| ["ledger.sqlite", "chains"].iter().any(|name| folder.join(name).exists()));
    let first = folders.first().cloned().unwrap_or_default();
    Ok(found.cloned().unwrap_or(first))
}

fn tail(folder: &Path, n: usize, kind: Option<String>, follow: bool, json: bool) -> anyhow::Result<ExitCode> {
    let reader = LedgerReader::open(folder)?;
    let filter = RecordFilter { kind, ..RecordFilter::default() };
    // Records that are written meanwhile are left to `--follow`, so that no record is missed or printed twice.
    let from = reader.tail(1, &RecordFilter::default())?.last().map_or(0, |record| record.position);
    let records = reader.tail(n, &filter)?;
    records.iter().filter(|record| record.position <= from).try_for_each(|record| print(record, json))?;
    if follow {
        runtime::block_on(async {
            let mut follow = reader.follow(from, filter);
            let mut interrupted = pin!(runtime::interruption()?);
            loop {
                tokio::select! {
                    records = follow.next() => records?.iter().try_for_each(|record| print(record, json))?,
                    () = &mut interrupted => return Ok(()),
                }
            }
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(record: &PositionedRecord, json: bool) -> anyhow::Result<()> {
    let value = &serde_json::to_value(record)?;
    if json {
        return output::json_line(&value.to_string());
    }
    let text = |key: &str| escape_hidden(value[key].as_str().unwrap_or("-")).into_owned();
    let at = value["at"].as_u64().and_then(|at| i64::try_from(at).ok());
    let at = at.and_then(|at| jiff::Timestamp::from_millisecond(at).ok()).map(|at| at.to_string()).unwrap_or_default();
    // The fields that a reader looks for come first; `--json` prints the whole record.
    let body = &value["body"];
    let first =
        ["tool", "prompt", "resource", "source", "outcome", "code"].into_iter().filter_map(|key| body[key].as_str());
    let first: Vec<_> = first.map(brief).collect();
    let (kind, call, first) = (text("kind"), text("call"), first.join(" "));
    output::text(&format!("{at:24}  {BOLD}{kind:15}{BOLD:#}  {call:26}  {first}  {}\n", brief(&body.to_string())))
}

/// Returns the first 160 characters of a text.
fn brief(body: &str) -> String {
    let shown = escape_hidden(body);
    match shown.char_indices().nth(160) {
        Some((cut, _)) => format!("{}…", shown.get(..cut).unwrap_or_default()),
        None => shown.into_owned(),
    }
}
