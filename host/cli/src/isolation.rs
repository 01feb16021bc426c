//! What a source may touch and what enforces that, as text for people.

use portcullis::broker::Broker;
use portcullis::cell::{Forecast, Strength, size};
use serde_json::Value;

use crate::output::{self, BAD, BOLD, visible};

/// Prints one fact about a source.
pub(crate) fn line(what: &str, text: &str) -> anyhow::Result<()> {
    output::text(&format!("  {what:11}  {text}\n"))
}

/// Returns the elements of a list, or none for any other value.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns a value without quotes, and without characters that act on a terminal.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => visible(text).into_owned(),
        other => visible(&other.to_string()).into_owned(),
    }
}

/// Prints the cell of one source, as `check` reports it.
pub(crate) fn print_cell(cell: &Value) -> anyhow::Result<()> {
    if let Some(summary) = cell["summary"].as_str() {
        return line("cell", summary);
    }
    if cell.is_null() {
        return line("cell", "none was built, and no code of the source has run");
    }
    let package = &cell["package"];
    if package.is_object() {
        let what = format!(
            "{} → {} {} with {} packages, pinned in portcullis.lock",
            plain(&package["requested"]),
            plain(&package["name"]),
            plain(&package["version"]),
            package["packages"],
        );
        line("installs", &what)?;
        let from = words(&package["registry"]);
        line("", &format!("in a cell of its own that reaches {from} only, install scripts off; then runs read-only"))?;
    }
    match cell["component"].is_string() {
        true => print_component(cell)?,
        false => print_program(cell)?,
    }
    for (what, key) in [("reads", "read"), ("writes", "write"), ("reaches", "network")] {
        line(what, &words(&cell[key]))?;
    }
    let isolation = &cell["isolation"];
    let risk = match cell["harmless"] == true {
        true => "neither writes nor reaches a network: its calls run without a question",
        false => "its calls need approval until a person accepts the tool",
    };
    line("cell", &format!("{BOLD}{}{BOLD:#}; {risk}", plain(&isolation["tier"])))?;
    for aspect in list(&isolation["aspects"]) {
        let (subject, strength) = (plain(&aspect["subject"]), plain(&aspect["strength"]));
        line("", &format!("{subject:11}  {strength:16}  {}", plain(&aspect["mechanism"])))?;
    }
    let leaks: Vec<_> = list(&isolation["leaks"]).iter().map(plain).collect();
    line("", &format!("{:11}  it sees {}", "known leaks", leaks.join("; ")))
}

fn print_program(cell: &Value) -> anyhow::Result<()> {
    line("program", &format!("{} ({})", plain(&cell["program"]), plain(&cell["runtime"])))?;
    for found in list(&cell["found"]) {
        line("", &plain(found))?;
    }
    if !list(&cell["needs"]).is_empty() {
        line("needs", &words(&cell["needs"]))?;
    }
    let directory = if cell["directory"].is_null() { "a private home".to_owned() } else { plain(&cell["directory"]) };
    line("starts in", &directory)
}

fn print_component(cell: &Value) -> anyhow::Result<()> {
    line("component", &format!("{} ({})", plain(&cell["digest"]), plain(&cell["kind"])))?;
    let mut what = "imports";
    for opened in list(&cell["imports"]) {
        let (package, behind) = (plain(&opened["package"]), plain(&opened["behind"]));
        line(what, &format!("{package} {}: {behind}", words(&opened["interfaces"])))?;
        what = "";
    }
    Ok(())
}

fn words(list: &Value) -> String {
    let words: Vec<_> = self::list(list).iter().map(plain).collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(" ") }
}

/// Prints the cell that each process source will run in, to standard error and before anything is served.
pub(crate) async fn banner(broker: &Broker) {
    for (name, forecast) in broker.forecast().await {
        match forecast {
            Ok(forecast) => said(name.as_str(), &forecast).iter().for_each(|line| output::note(line)),
            Err(error) => output::note(&format!(
                "{BOLD}{name}{BOLD:#}: {BAD}will not start{BAD:#}: {}",
                visible(&error.to_string())
            )),
        }
    }
}

fn said(name: &str, forecast: &Forecast) -> Vec<String> {
    let Forecast { grant, report, installs } = forecast;
    let paths = |paths: &[std::path::PathBuf]| match paths {
        [] => "nothing".to_owned(),
        paths => paths.iter().map(|path| visible(&path.to_string_lossy()).into_owned()).collect::<Vec<_>>().join(" "),
    };
    let network = if grant.network.is_empty() { "nothing".to_owned() } else { grant.network.join(" ") };
    let (read, write) = (paths(&grant.read), paths(&grant.write));
    let mut lines = vec![format!(
        "{BOLD}{name}{BOLD:#}: {} cell; reads {read}, writes {write}, reaches {network}; {} of memory, {} processes",
        report.tier.name(),
        size(grant.limits.memory),
        grant.limits.processes,
    )];
    if let Some((requested, registry)) = installs {
        lines.push(format!(
            "  installs {} first, in a cell of its own that reaches {} only, install scripts off; then runs read-only",
            visible(requested),
            visible(registry)
        ));
    }
    let weak = report.aspects.iter().filter(|aspect| aspect.strength != Strength::Enforced);
    lines.extend(weak.map(|aspect| format!("  {} {}: {}", aspect.subject, aspect.strength.as_str(), aspect.mechanism)));
    lines
}
