//! The report of `portcullis check`, for people.

use portcullis_osv::OsvCheck;
use serde_json::Value;

use crate::flagged::{print_flagged, print_off};
use crate::isolation::{fact, print_cell, print_known};
use crate::json_text::{items, plain_text};
use crate::output::{self, BAD, BOLD, escape_hidden};

/// Prints the report. Sources that are `wanted` are shown with all details.
pub(super) fn print(report: &Value, wanted: impl Fn(&str) -> bool) -> anyhow::Result<()> {
    output::text(&format!(
        "configuration  {}\ndata folder    {}\n",
        plain_text(&report["configuration"]),
        plain_text(&report["dataDir"])
    ))?;
    items(&report["plugins"]).iter().try_for_each(print_plugin)?;
    for profile in items(&report["profiles"]) {
        let (name, trust, approve) =
            (plain_text(&profile["name"]), plain_text(&profile["trust"]), plain_text(&profile["approve"]));
        output::text(&format!("profile        {name}  trust level {trust}  approve {approve}\n"))?;
    }
    items(&report["groups"]).iter().try_for_each(print_group)?;
    for name in items(&report["disabled"]) {
        output::text(&format!("disabled       {}  `portcullis enable {0}` starts it\n", plain_text(name)))?;
    }
    print_problems(report)?;
    let wanted = |source: &Value| source["name"].as_str().is_some_and(&wanted);
    let (detailed, well): (Vec<_>, Vec<_>) =
        items(&report["sources"]).iter().partition(|source| is_ill(source) || wanted(source));
    well.iter().try_for_each(|source| print_line(source))?;
    let mut brief = None;
    for source in detailed {
        let details = wanted(source);
        print_source(source, details)?;
        brief = brief.or_else(|| is_brief(source, details).then(|| plain_text(&source["name"])));
    }
    if let Some(first) = brief {
        output::text(&format!("details        `portcullis check {first}` shows what its cell is made of\n"))?;
    }
    Ok(())
}

fn print_plugin(plugin: &Value) -> anyhow::Result<()> {
    let (role, name, digest) =
        (plain_text(&plugin["role"]), plain_text(&plugin["plugin"]), plain_text(&plugin["digest"]));
    let on: Vec<_> = items(&plugin["on"]).iter().map(plain_text).collect();
    let on = if on.is_empty() { String::new() } else { format!("  on {}", on.join(", ")) };
    let shadow = if plugin["shadow"] == true { "  shadow: its verdicts are recorded and not applied" } else { "" };
    output::text(&format!("{role:13}  {name}  {digest}{on}{shadow}\n"))
}

fn print_group(group: &Value) -> anyhow::Result<()> {
    let sources: Vec<_> = items(&group["sources"]).iter().map(plain_text).collect();
    let (name, sources) = (plain_text(&group["name"]), sources.join(", then "));
    output::text(&format!("group          {name}  {} tools of {sources}\n", group["tools"]))?;
    for other in items(&group["mismatched"]) {
        let (tool, source, shown) =
            (plain_text(&other["tool"]), plain_text(&other["source"]), plain_text(&other["shownSource"]));
        let why = format!(
            "{tool} of source {source} is never called: its arguments differ from those of source {shown}, which are shown"
        );
        output::text(&format!("  {BAD}differs{BAD:#}      {why}\n"))?;
    }
    Ok(())
}

/// Reports whether a source has a cell that is not shown.
fn is_brief(source: &Value, details: bool) -> bool {
    !details && !source["cell"].is_null()
}

/// Prints the faults of a source, and on request its details: how schemas are repaired, and its cell.
fn print_source(source: &Value, details: bool) -> anyhow::Result<()> {
    let name = plain_text(&source["name"]);
    let line = output::truncate_to_terminal(&format!("{name}  {}", plain_text(&source["source"])));
    output::text(&format!("\n{BOLD}{name}{BOLD:#}{}\n", line.strip_prefix(&*name).unwrap_or_default()))?;
    match source["error"].as_str() {
        Some(error) => output::text(&format!("  {BAD}fails{BAD:#}        {}\n", escape_hidden(error)))?,
        None => fact("tools", &source["tools"].to_string())?,
    }
    for missing in items(&source["missing"]) {
        fact("missing", &plain_text(missing))?;
    }
    for remark in items(&source["remarks"]) {
        fact("tool", &plain_text(remark))?;
    }
    items(&source["schemas"]).iter().try_for_each(|tool| print_schema(tool, details))?;
    for failed in items(&source["listErrors"]) {
        fact(
            &format!("{}s", plain_text(&failed["kind"])),
            &format!("cannot be listed: {}", plain_text(&failed["error"])),
        )?;
    }
    for item in items(&source["changed"]) {
        let changes: Vec<_> = items(&item["changes"]).iter().map(plain_text).collect();
        let (kind, name) = (plain_text(&item["kind"]), plain_text(&item["name"]));
        let said = format!("{kind} {name} is not what was accepted: {}", changes.join("; "));
        output::text(&format!("  {BAD}changed{BAD:#}      {said}\n"))?;
    }
    print_flagged(&source["flagged"], "")?;
    print_off(&source["off"])?;
    if is_brief(source, details) {
        return print_known(source.pointer("/cell/package/osv").unwrap_or(&Value::Null));
    }
    let names: Vec<_> = items(&source["environment"]).iter().map(plain_text).collect();
    if !names.is_empty() {
        fact("environment", &names.join(" "))?;
    }
    print_cell(&source["cell"])
}

/// Prints the faults of a tool's input schema, and on request how it is repaired.
fn print_schema(tool: &Value, details: bool) -> anyhow::Result<()> {
    let name = plain_text(&tool["tool"]);
    for problem in items(&tool["problems"]) {
        let (at, what) = (plain_text(&problem["at"]), plain_text(&problem["what"]));
        output::text(&format!("  {BAD}schema{BAD:#}       of {name} is invalid at inputSchema{at}: {what}\n"))?;
    }
    for step in items(tool.pointer("/repair/steps").unwrap_or(&Value::Null)).iter().filter(|_| details) {
        let (kind, at, what) = (plain_text(&step["kind"]), plain_text(&step["at"]), plain_text(&step["what"]));
        fact("repaired", &format!("{name} at inputSchema{at}: {kind}, {what}"))?;
    }
    Ok(())
}

/// Reports whether there is something about a source that a person should see.
fn is_ill(source: &Value) -> bool {
    let lists = ["missing", "remarks", "listErrors", "changed", "off"];
    source["error"].is_string()
        || lists.iter().any(|list| !items(&source[list]).is_empty())
        || items(&source["schemas"]).iter().any(|tool| !items(&tool["problems"]).is_empty())
        || osv(source).is_some_and(|check| !check.matches.is_empty())
        || items(&source["flagged"]).iter().any(|flagged| flagged["state"] != "accepted")
}

/// Returns the known facts about the packages of a source, if it is started with `npx` or `uvx`.
fn osv(source: &Value) -> Option<OsvCheck> {
    serde_json::from_value(source.pointer("/cell/package/osv")?.clone()).ok()
}

/// Prints a source that is well in one line.
fn print_line(source: &Value) -> anyhow::Result<()> {
    let cell = &source["cell"];
    let kind = match (cell.pointer("/isolation/tier").and_then(Value::as_str), cell["harmless"].as_bool()) {
        (Some(tier), Some(true)) => format!("{} cell, harmless", escape_hidden(tier)),
        (Some(tier), _) => format!("{} cell", escape_hidden(tier)),
        (None, _) => "remote".to_owned(),
    };
    let (name, tools) = (plain_text(&source["name"]), &source["tools"]);
    let what = plain_text(&source["source"]);
    let line = output::truncate_to_terminal(&format!("{name:16}  {tools:>4} tools  {kind:24}  {what}"));
    let rest = line.strip_prefix(&*name).unwrap_or_default();
    output::text(&format!("{BOLD}{name}{BOLD:#}{rest}\n"))
}

/// Prints what goes wrong when this is served, and which sources are missing.
fn print_problems(report: &Value) -> anyhow::Result<()> {
    for problem in items(&report["problems"]) {
        let message = plain_text(&problem["message"]);
        match problem["fatal"].as_bool() {
            Some(true) => output::text(&format!("{BAD}error{BAD:#}          {message}\n"))?,
            _ => output::text(&format!("{BOLD}warning{BOLD:#}        {message}\n"))?,
        }
    }
    let sources = items(&report["sources"]);
    if let Some(unchecked) = sources.iter().filter_map(osv).find(|check| check.database.is_none()) {
        output::text(&format!("{BOLD}packages{BOLD:#}       {}\n", unchecked.summary()))?;
    }
    let missing = sources.iter().filter(|source| source["error"].is_string());
    let missing: Vec<_> = missing.map(|source| plain_text(&source["name"])).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let (missing, count, all) = (missing.join(", "), missing.len(), sources.len());
    output::text(&format!("{BAD}missing{BAD:#}        {count} of {all} sources: {missing}\n"))
}
