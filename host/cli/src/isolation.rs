//! Text for people on what a source may touch, and what enforces that.

use std::collections::BTreeMap;

use portcullis::broker::Broker;
use portcullis::cell::{CellPreview, Strength, display_size};
use portcullis_osv::OsvCheck;
use serde_json::Value;

use crate::json_text::{items, plain_text, words};
use crate::output::{self, BAD, BOLD, escape_hidden};

/// The largest number of records about packages that are shown for a source.
const SHOWN_RECORDS: usize = 8;

/// Prints one fact about a source.
pub(crate) fn fact(what: &str, text: &str) -> anyhow::Result<()> {
    output::text(&format!("  {what:11}  {text}\n"))
}

/// Prints the cell of one source, as `check` reports it.
pub(crate) fn print_cell(cell: &Value) -> anyhow::Result<()> {
    if let Some(summary) = cell["summary"].as_str() {
        return fact("cell", summary);
    }
    if cell.is_null() {
        return fact("cell", "none was built, and no code of the source has run");
    }
    let package = &cell["package"];
    if package.is_object() {
        let what = format!(
            "{} → {} {} with {} packages, pinned in portcullis.lock",
            plain_text(&package["requested"]),
            plain_text(&package["name"]),
            plain_text(&package["version"]),
            package["packages"],
        );
        fact("installs", &what)?;
        let from = words(&package["registry"]);
        fact("", &format!("in a cell of its own that reaches {from} only, install scripts off; then runs read-only"))?;
        print_known(&package["osv"])?;
    }
    match cell["component"].is_string() {
        true => print_component(cell)?,
        false => print_program(cell)?,
    }
    for (what, key) in [("reads", "read"), ("writes", "write"), ("reaches", "network")] {
        fact(what, &words(&cell[key]))?;
    }
    let isolation = &cell["isolation"];
    let risk = match cell["harmless"] == true {
        true => "neither writes nor reaches a network: its calls run without a question",
        false => "its calls need approval until a person accepts the tool",
    };
    fact("cell", &format!("{BOLD}{}{BOLD:#}; {risk}", plain_text(&isolation["tier"])))?;
    for aspect in items(&isolation["aspects"]) {
        let (subject, strength) = (plain_text(&aspect["subject"]), plain_text(&aspect["strength"]));
        fact("", &format!("{subject:11}  {strength:16}  {}", plain_text(&aspect["mechanism"])))?;
    }
    let leaks: Vec<_> = items(&isolation["leaks"]).iter().map(plain_text).collect();
    fact("", &format!("{:11}  it sees {}", "known leaks", leaks.join("; ")))
}

/// Prints the records that were looked up before the installation, and their content.
pub(crate) fn print_known(check: &Value) -> anyhow::Result<()> {
    let Ok(check) = serde_json::from_value::<OsvCheck>(check.clone()) else { return Ok(()) };
    fact("known", &check.summary())?;
    for found in check.matches.iter().take(SHOWN_RECORDS) {
        fact("", &format!("{BAD}{found}{BAD:#}"))?;
    }
    match check.matches.len().checked_sub(SHOWN_RECORDS) {
        Some(more @ 1..) => fact("", &format!("and {more} more, which --json lists")),
        _ => Ok(()),
    }
}

fn print_program(cell: &Value) -> anyhow::Result<()> {
    fact("program", &format!("{} ({})", plain_text(&cell["program"]), plain_text(&cell["runtime"])))?;
    for found in items(&cell["found"]) {
        fact("", &plain_text(found))?;
    }
    if !items(&cell["needs"]).is_empty() {
        fact("needs", &words(&cell["needs"]))?;
    }
    let directory =
        if cell["directory"].is_null() { "a private home".to_owned() } else { plain_text(&cell["directory"]) };
    fact("starts in", &directory)
}

fn print_component(cell: &Value) -> anyhow::Result<()> {
    fact("component", &format!("{} ({})", plain_text(&cell["digest"]), plain_text(&cell["kind"])))?;
    let mut what = "imports";
    for opened in items(&cell["imports"]) {
        let (package, behind) = (plain_text(&opened["package"]), plain_text(&opened["behind"]));
        fact(what, &format!("{package} {}: {behind}", words(&opened["interfaces"])))?;
        what = "";
    }
    Ok(())
}

/// Prints the cell that each process source will run in, to standard error and before anything is served, and what its
/// configuration gets wrong.
pub(crate) async fn banner(broker: &Broker) {
    let (mut count, mut weak) = (0, BTreeMap::<String, Vec<String>>::new());
    for (name, preview) in broker.cell_previews().await {
        match preview {
            Ok(preview) => {
                said(name.as_str(), &preview).iter().for_each(|line| output::message(line));
                count += 1;
                for line in weak_aspects(&preview) {
                    weak.entry(line).or_default().push(name.to_string());
                }
            }
            Err(error) => output::message(&format!(
                "{BOLD}{name}{BOLD:#}: {BAD}will not start{BAD:#}: {}",
                escape_hidden(&error.to_string())
            )),
        }
    }
    for (line, names) in weak {
        let whose = if names.len() == count && count > 1 { "all cells".to_owned() } else { names.join(", ") };
        output::message(&format!("{BOLD}{whose}{BOLD:#}: {line}"));
    }
    for problem in broker.misconfigured_sources() {
        output::message(&format!("{BOLD}warning{BOLD:#}: {}", escape_hidden(&problem.message)));
    }
}

/// Returns the limits of a cell that are not fully enforced.
fn weak_aspects(CellPreview { grant, report, .. }: &CellPreview) -> impl Iterator<Item = String> {
    let is_limited = |subject: &str| subject != "cpu" || grant.limits.cpu.is_some();
    let weak =
        report.aspects.iter().filter(move |aspect| aspect.strength != Strength::Enforced && is_limited(aspect.subject));
    weak.map(|aspect| format!("{} {}: {}", aspect.subject, aspect.strength.as_str(), aspect.mechanism))
}

fn said(name: &str, preview: &CellPreview) -> Vec<String> {
    let CellPreview { grant, report, installs } = preview;
    let paths = |paths: &[std::path::PathBuf]| match paths {
        [] => "nothing".to_owned(),
        paths => {
            paths.iter().map(|path| escape_hidden(&path.to_string_lossy()).into_owned()).collect::<Vec<_>>().join(" ")
        }
    };
    let network = if grant.network.is_empty() { "nothing".to_owned() } else { grant.network.join(" ") };
    let (read, write) = (paths(&grant.read), paths(&grant.write));
    let mut lines = vec![format!(
        "{BOLD}{name}{BOLD:#}: {} cell; reads {read}, writes {write}, reaches {network}; {} of memory, {} processes",
        report.tier.name(),
        display_size(grant.limits.memory),
        grant.limits.processes,
    )];
    if let Some((requested, registry)) = installs {
        lines.push(format!(
            "  installs {} first, in a cell of its own that reaches {} only, install scripts off; then runs read-only",
            escape_hidden(requested),
            escape_hidden(registry)
        ));
    }
    lines
}
