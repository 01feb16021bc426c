//! `portcullis scan`

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use portcullis::digest::Digest;
use portcullis::protocol::Json;
use portcullis_scan::{Finding, Scanner, Severity};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::cli::GlobalArgs;
use crate::output::{self, BAD, escape_hidden};
use crate::report;

/// The largest input in bytes: the list of a source with thousands of tools has a tenth of it.
const MAX_BYTES: u64 = 64 << 20;

/// The exit code of an input that cannot be judged.
const NOT_JUDGED: u8 = 2;

/// Scan definitions of tools, prompts and resources for attempts to steer a model, without starting anything
///
/// Reads JSON: a result of `tools/list` (also of prompts or resources), an array, or one result or definition a line. A
/// definition without findings is not thereby safe: the cell decides what a source can do. The exit code is 0 if
/// nothing was found, 1 if there is a warning or a grave finding, and 2 if the input cannot be read.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis tools --json | portcullis scan -
  portcullis scan tools.json
  portcullis scan --json definitions.jsonl     # one line for each definition, in order")]
pub(crate) struct Args {
    /// The file to read, or - for standard input
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
}

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let shown = if args.file == Path::new("-") { "standard input".into() } else { args.file.to_string_lossy() };
    let shown = escape_hidden(&shown).into_owned();
    let read = read(&args.file).and_then(|text| definitions(&text).with_context(|| shown));
    let definitions = match read {
        Ok(definitions) => definitions,
        Err(error) => {
            report::failure(&error, global.json);
            return Ok(ExitCode::from(NOT_JUDGED));
        }
    };
    let scanner = Scanner::new();
    let (mut with_findings, mut worst) = (0, None);
    for definition in &definitions {
        let findings = scanner.scan(definition);
        worst = worst.max(findings.first().map(|finding| finding.severity));
        with_findings += usize::from(!findings.is_empty());
        if global.json {
            output::json_line(&json!({ "name": name(definition), "findings": findings }).to_string())?;
        } else {
            show(&scanner, &name(definition), &findings)?;
        }
    }
    if !global.json {
        output::message(&format!(
            "{}, {with_findings} with findings",
            output::counted(definitions.len(), "definition")
        ));
    }
    Ok(if worst >= Some(Severity::Warning) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn show(scanner: &Scanner, name: &str, findings: &[Finding]) -> anyhow::Result<()> {
    for Finding { rule, severity, pointer, excerpt } in findings {
        let reason = scanner.rules().find(|known| known.name == *rule).map(|known| known.reason).unwrap_or_default();
        let severity = match severity {
            Severity::Grave => format!("{BAD}grave{BAD:#}"),
            Severity::Warning => "warning".to_owned(),
            Severity::Note => "note".to_owned(),
        };
        output::text(&format!("{}  {severity}  {rule}: {reason}\n    {pointer}: {excerpt}\n", escape_hidden(name)))?;
    }
    Ok(())
}

fn name(definition: &Value) -> String {
    ["name", "uri", "uriTemplate"].iter().find_map(|key| definition[*key].as_str()).unwrap_or_default().to_owned()
}

fn read(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().take(MAX_BYTES + 1).read_to_string(&mut text)
    } else {
        let opened = std::fs::File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
        opened.take(MAX_BYTES + 1).read_to_string(&mut text)
    };
    let read = read.with_context(|| format!("cannot read {} as text", file.display()))?;
    if read as u64 > MAX_BYTES {
        bail!("{} has more than the {} MiB that are scanned at once; split it", file.display(), MAX_BYTES >> 20);
    }
    Ok(text)
}

/// Returns the definitions in a text: of one JSON document, or of those on its lines.
fn definitions(text: &str) -> anyhow::Result<Vec<Value>> {
    if serde_json::from_str::<Box<RawValue>>(text).is_ok() {
        return in_document(parse(text)?);
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let mut definitions = Vec::new();
    for (number, line) in lines {
        let found = parse(line).and_then(in_document);
        definitions.extend(found.with_context(|| format!("line {} cannot be judged", number + 1))?);
    }
    if definitions.is_empty() {
        bail!("there is no definition to scan; give a result of `tools/list`, or one definition on each line");
    }
    Ok(definitions)
}

/// Parses a text that all readers understand alike: of two members of one name a reader may take either.
fn parse(text: &str) -> anyhow::Result<Value> {
    let json = Json::parse(text.to_owned())?;
    Digest::of_json(&json)?;
    Ok(serde_json::from_str(json.as_str())?)
}

/// Returns the definitions in one document: a response, a result, a list or a single definition.
fn in_document(document: Value) -> anyhow::Result<Vec<Value>> {
    let mut object = match document {
        Value::Object(object) => object,
        other => return in_list(other),
    };
    // Any object may have a member of this name; only that of a response is its result.
    let is_response = object.contains_key("jsonrpc") || object.len() == 1;
    let is_response = is_response && object.get("result").is_some_and(Value::is_object);
    let result = if is_response { object.remove("result") } else { None };
    let Some(Value::Object(result)) = result else { return in_result(object) };
    let mut found = in_result(result)?;
    found.extend(beside(object));
    Ok(found)
}

/// Returns the definitions in a result, or the object itself if it has no list of them.
fn in_result(mut result: Map<String, Value>) -> anyhow::Result<Vec<Value>> {
    let lists = ["tools", "prompts", "resources", "resourceTemplates"];
    let lists: Vec<Value> = lists.iter().filter_map(|list| result.remove(*list)).collect();
    if lists.is_empty() {
        return Ok(vec![Value::Object(result)]);
    }
    let mut found = Vec::new();
    for list in lists {
        found.extend(in_list(list)?);
    }
    found.extend(beside(result));
    Ok(found)
}

fn in_list(list: Value) -> anyhow::Result<Vec<Value>> {
    match list {
        Value::Array(list) => match list.iter().position(|item| !item.is_object()) {
            Some(other) => bail!("element {other} of the list is not a definition"),
            None => Ok(list),
        },
        definition @ Value::Object(_) => Ok(vec![definition]),
        other => bail!("{other} is not a definition"),
    }
}

/// Returns the other members next to a result or its lists, if they may be or hold definitions: no member hides
/// another.
fn beside(rest: Map<String, Value>) -> Option<Value> {
    let says = |key: &str| ["name", "title", "uri", "uriTemplate", "description", "instructions"].contains(&key);
    let holds =
        |(key, member): (&String, &Value)| says(key) || key != "_meta" && (member.is_object() || member.is_array());
    rest.iter().any(holds).then_some(Value::Object(rest))
}
