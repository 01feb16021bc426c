//! `portcullis approvals`

mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;
use portcullis::control::{self, ControlError, ControlRequest};
use portcullis::gate::GivenAnswer;
use portcullis::protocol::Json;
use serde_json::{Value, json};

use crate::cli::GlobalArgs;
use crate::output::{self, BOLD, escape_hidden};
use crate::{moment, runtime};

/// The largest arguments, in bytes, that `show --json` prints as JSON and not as a string with their text.
const MAX_TREE_BYTES: usize = 1024 * 1024;

/// The number of characters at the end of an id that are enough to name a question. They are random, unlike the first
/// ones.
const END_CHARS: usize = 6;

/// Answer the questions that calls are waiting for
///
/// Running brokers hold the questions. The last 6 characters of an id are enough; the first ones are only a time. A
/// question that expires counts as a no. With --json, the answer to one id is an object; several ids, and --batch, give
/// a list.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis approvals
  portcullis approvals show 6R8S0T
  portcullis approvals approve 6R8S0T --scope session
  portcullis approvals approve 6R8S0T --for 2h     # and --until 18:00
  portcullis approvals approve --batch 6R8S0T      # and all other open questions about the same tool
  portcullis approvals refuse 6R8S0T Q4M7XC
  portcullis approvals --watch")]
pub(crate) struct Args {
    /// Look only into this data folder
    #[arg(long, value_name = "DIR", global = true)]
    data_dir: Option<PathBuf>,

    /// Show each question as it comes, and take the answer from the keyboard
    #[arg(long)]
    watch: bool,

    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the open questions
    List,
    /// Show one question with its whole arguments
    Show {
        /// The id of the question, or its end
        #[arg(value_parser = id_or_end)]
        id: String,
    },
    /// Approve a question
    Approve {
        #[command(flatten)]
        answered: Answered,
        /// The reach of the answer: `once`, or another scope that the question offers; `always` accepts the tool
        /// until it changes
        #[arg(long)]
        scope: Option<String>,
        /// The answer holds for this long, such as `90m` or `2h`: for the tool with any arguments
        #[arg(long, value_name = "DURATION", value_parser = moment::after, conflicts_with = "until")]
        r#for: Option<u64>,
        /// The answer holds until then, such as `18:00` or `2026-11-22T18:00:00Z`: for the tool with any arguments
        #[arg(long, value_name = "TIME", value_parser = moment::future_moment)]
        until: Option<u64>,
    },
    /// Refuse a question
    Refuse {
        #[command(flatten)]
        answered: Answered,
    },
}

/// The questions that are answered at once.
#[derive(Debug, clap::Args)]
struct Answered {
    /// The ids of the questions, or their ends
    #[arg(required = true, value_name = "ID", value_parser = id_or_end)]
    ids: Vec<String>,

    /// Answer all open questions about the same tool by the same caller too
    #[arg(long)]
    batch: bool,
}

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let folders = runtime::data_dirs(global, args.data_dir.as_ref())?;
    runtime::block_on(async {
        if args.watch && args.action.is_some() {
            bail!("`--watch` shows all questions, and takes no subcommand");
        }
        if args.watch {
            return watch::watch(&folders).await;
        }
        match args.action.as_ref().unwrap_or(&Action::List) {
            Action::List => list(&questions(&folders).await?, global.json),
            Action::Show { id } => show(&folders, id, global.json).await,
            Action::Approve { answered, scope, r#for, until } => {
                let mut given = GivenAnswer::yes();
                (given.scope, given.until) = (scope.clone(), until.or(*r#for));
                answer(&folders, answered, &given, global.json).await
            }
            Action::Refuse { answered } => answer(&folders, answered, &GivenAnswer::no(), global.json).await,
        }
    })
}

async fn questions(folders: &[PathBuf]) -> anyhow::Result<Vec<Value>> {
    let mut questions = Vec::new();
    for folder in folders {
        for (chain, answer) in control::all(folder, &ControlRequest::Questions).await? {
            match answer {
                Ok(Value::Array(open)) => questions.extend(open),
                Ok(_) => {}
                Err(error) => output::message(&format!("broker {chain} does not answer: {error}")),
            }
        }
    }
    Ok(questions)
}

fn list(questions: &[Value], json: bool) -> anyhow::Result<ExitCode> {
    if json {
        output::json(&json!(questions))?;
    } else if questions.is_empty() {
        output::message("no question is open");
    }
    for question in questions.iter().filter(|_| !json) {
        let text = |key: &str| escape_hidden(question[key].as_str().unwrap_or_default()).into_owned();
        let line = output::truncate_to_terminal(&format!(
            "{}  {}  {}  by {} ({})  {} waiting, {} s left",
            text("id"),
            text("method"),
            text("tool"),
            text("principal"),
            text("profile"),
            question["waiting"],
            question["expiresIn"],
        ));
        let (id, rest) = line.split_once(' ').unwrap_or((line.as_str(), ""));
        let (time, end) = id.split_at_checked(id.len().saturating_sub(END_CHARS)).unwrap_or(("", id));
        output::text(&format!("{time}{BOLD}{end}{BOLD:#} {rest}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(folders: &[PathBuf], id: &str, json: bool) -> anyhow::Result<ExitCode> {
    let questions = questions(folders).await?;
    let question = whole(folders, find(&questions, id)?).await?;
    if json {
        output::json(&question)?;
        return Ok(ExitCode::SUCCESS);
    }
    // The arguments come last, so that nothing in them can pass for what follows them.
    let is_last = |(key, _): &(&String, &Value)| *key == "arguments";
    let (last, first): (Vec<_>, Vec<_>) = question.as_object().into_iter().flatten().partition(is_last);
    for (key, value) in first.into_iter().chain(last) {
        let shown = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        output::text(&format!("{key:10}  {}\n", escape_hidden(&shown)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a question in full, with the parts that the list leaves out. Large arguments are their text, as a tree takes
/// many times the memory.
async fn whole(folders: &[PathBuf], question: &Value) -> anyhow::Result<Value> {
    if question["cut"] != true {
        return Ok(question.clone());
    }
    let id = question["id"].as_str().unwrap_or_default();
    let (mut question, mut text, mut next) = (Value::Null, String::new(), Some(0));
    while let Some(from) = next {
        let mut part = request(folders, &ControlRequest::Show { question: id.to_owned(), from }).await?;
        if from == 0 {
            question = part.get_mut("question").map(Value::take).unwrap_or_default();
        }
        text.push_str(part.get("text").and_then(Value::as_str).unwrap_or_default());
        next = part
            .get("next")
            .and_then(Value::as_u64)
            .and_then(|next| usize::try_from(next).ok())
            .filter(|next| *next > from);
    }
    let Some(members) =
        question.as_object_mut().filter(|members| members.get("argumentsBytes") == Some(&json!(text.len())))
    else {
        bail!("the broker of question {id} did not say all of its arguments");
    };
    let arguments = match Json::parse(text.clone()) {
        Ok(arguments) if text.len() <= MAX_TREE_BYTES => arguments.to_value(),
        _ => Value::String(text),
    };
    members.insert("arguments".to_owned(), arguments);
    Ok(question)
}

/// Parses the id of a question or its end. Fewer characters could name a question by chance.
fn id_or_end(text: &str) -> Result<String, String> {
    if text.len() < END_CHARS || !text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(format!("give the id as `portcullis approvals` shows it, or its last {END_CHARS} characters"));
    }
    Ok(text.to_ascii_uppercase())
}

fn find<'a>(questions: &'a [Value], id: &str) -> anyhow::Result<&'a Value> {
    let fits = |question: &&Value| question["id"].as_str().is_some_and(|full| full.ends_with(id));
    let mut found = questions.iter().filter(fits);
    match (found.next(), found.next()) {
        (Some(question), None) => Ok(question),
        (Some(_), Some(_)) => bail!("{id:?} matches several open questions: give a longer part of the id"),
        _ => bail!("the id of no open question ends with {id:?}: it was answered, has expired, or never existed"),
    }
}

/// Reports whether two questions are about the same tool, by the same caller, and with the same harm: one answer can be
/// given to both.
fn are_alike(one: &Value, other: &Value) -> bool {
    ["source", "method", "name", "principal", "profile", "mayDoHarm", "scopes"]
        .iter()
        .all(|key| one[*key] == other[*key])
}

async fn answer(folders: &[PathBuf], answered: &Answered, given: &GivenAnswer, json: bool) -> anyhow::Result<ExitCode> {
    // The full ids, so that a prefix is unique among the questions of all brokers and not only of one.
    let questions = questions(folders).await?;
    let named: Vec<&Value> = answered.ids.iter().map(|id| find(&questions, id)).collect::<Result<_, _>>()?;
    let is_meant = |question: &&Value| {
        named.iter().any(|named| *named == *question || answered.batch && are_alike(named, question))
    };
    let (mut good, mut given_answers) = (true, Vec::new());
    for question in questions.iter().filter(is_meant) {
        match give(folders, question["id"].as_str().unwrap_or_default(), given).await {
            Ok(answered) if json => given_answers.push(answered),
            Ok(answered) => output::text(&format!("{}\n", described(&answered)))?,
            // The others are answered none the less.
            Err(error) => {
                good = false;
                output::message(&format!("{}: not answered: {error:#}", question["id"].as_str().unwrap_or_default()));
            }
        }
    }
    if json && (answered.batch || answered.ids.len() > 1) {
        output::json(&json!(given_answers))?;
    } else {
        given_answers.iter().try_for_each(output::json)?;
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Gives the answer to the broker that holds the question of this id. Returns the broker's reply.
async fn give(folders: &[PathBuf], id: &str, given: &GivenAnswer) -> anyhow::Result<Value> {
    let by = format!("cli (uid {})", rustix::process::getuid().as_raw());
    let GivenAnswer { approve, scope, until, .. } = given.clone();
    let answer = ControlRequest::Answer { question: id.to_owned(), approve, scope, until, by };
    request(folders, &answer).await
}

/// Makes a request about a question to all brokers. Returns the reply of the broker that holds it.
async fn request(folders: &[PathBuf], request: &ControlRequest) -> anyhow::Result<Value> {
    let mut refusal = None;
    for folder in folders {
        for (_, answer) in control::all(folder, request).await? {
            match answer {
                Ok(reply) => return Ok(reply),
                Err(error) => {
                    // The other brokers do not know the question; the answer of the broker that holds it counts.
                    if !matches!(error, ControlError::Absent(_)) || refusal.is_none() {
                        refusal = Some(error.to_string());
                    }
                }
            }
        }
    }
    bail!("{}", refusal.unwrap_or_else(|| "no broker holds the question".to_owned()))
}

fn described(answered: &Value) -> String {
    let word = if answered["approved"] == true { "approved" } else { "refused" };
    let tool = escape_hidden(answered["tool"].as_str().unwrap_or_default()).into_owned();
    let next = match (answered["approved"] == true, answered["waited"] == true) {
        (true, false) => "; no call was waiting, so the next identical one passes",
        _ => "",
    };
    let until = answered["until"].as_u64().map(|until| format!(" until {}", moment::local(until))).unwrap_or_default();
    format!("{word}: {tool} ({}{until}){next}", answered["scope"].as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_question_is_named_by_its_id_or_the_end_of_it_and_by_nothing_shorter() {
        const ID: &str = "01JDQ8Z5V7W3XK9M2N4P6R8S0T";
        let questions = [json!({ "id": ID })];
        let named = |text: &str| id_or_end(text).ok().is_some_and(|id| find(&questions, &id).is_ok());
        for text in [ID, &ID.to_ascii_lowercase(), "6R8S0T", "p6r8s0t"] {
            assert!(named(text), "{text}");
        }
        for text in ["", "0", "T", "8S0T", "01JDQ8", "01JDQ8Z5V7", "%", "      "] {
            assert!(!named(text), "{text}");
        }
        let said = id_or_end("").unwrap_err();
        assert!(said.contains("as `portcullis approvals` shows it"), "{said}");
        let alike = [json!({ "id": ID }), json!({ "id": "01JDQ8Z5V7W3XK9M2N4X6R8S0T" })];
        assert!(find(&alike, "6R8S0T").unwrap_err().to_string().contains("several"));
        assert!(find(&alike, "4P6R8S0T").is_ok());
    }
}
