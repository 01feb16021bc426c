//! Text for people on the tools of a source that agents do not see unchanged until a person accepts them.

use serde_json::Value;

use crate::json_text::{items, plain_text};
use crate::output::{self, BAD, BOLD};

/// Prints the definitions that are quarantined or warned of: each finding, its place, and the command that releases it,
/// with a switch that names the data folder.
pub(crate) fn print_flagged(flagged: &Value, switch: &str) -> anyhow::Result<()> {
    for flagged in items(flagged).iter().filter(|flagged| flagged["state"] != "accepted") {
        let style = if flagged["state"] == "quarantined" { BAD } else { BOLD };
        let (state, kind, name) =
            (plain_text(&flagged["state"]), plain_text(&flagged["kind"]), plain_text(&flagged["name"]));
        output::text(&format!("  {style}{state:11}{style:#}  {kind} {name}\n"))?;
        for found in items(&flagged["findings"]) {
            let (severity, rule) = (plain_text(&found["severity"]), plain_text(&found["rule"]));
            let (place, excerpt) = (plain_text(&found["pointer"]), plain_text(&found["excerpt"]));
            output::text(&format!("               {severity}  {rule}  {place}: {excerpt}\n"))?;
        }
        let act = if flagged["state"] == "quarantined" { "release it" } else { "accept it as it is" };
        output::text(&format!(
            "               to {act}: portcullis lock accept{switch} {}\n",
            plain_text(&flagged["pin"])
        ))?;
    }
    Ok(())
}

/// Prints the tools that are off because their source calls them destructive, and the command that turns them on.
pub(crate) fn print_off(off: &Value) -> anyhow::Result<()> {
    let names: Vec<_> = items(off).iter().map(plain_text).collect();
    if !names.is_empty() {
        let (tools, them) = (output::counted(names.len(), "tool"), if names.len() == 1 { "it" } else { "them" });
        let names = names.join(" ");
        output::text(&format!(
            "  {BOLD}off{BOLD:#}          {tools} that the source calls destructive; to turn {them} on: portcullis lock accept {names}\n"
        ))?;
    }
    Ok(())
}
