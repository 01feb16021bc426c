//! What the scanner found in the definitions of a source, as text for people.

use serde_json::Value;

use crate::isolation::{list, plain};
use crate::output::{self, BAD, BOLD};

/// Prints the definitions that are quarantined or warned of: what was found, where, and the command that releases each.
pub(crate) fn print_flagged(flagged: &Value) -> anyhow::Result<()> {
    for flagged in list(flagged).iter().filter(|flagged| flagged["state"] != "accepted") {
        let style = if flagged["state"] == "quarantined" { BAD } else { BOLD };
        let (state, kind, name) = (plain(&flagged["state"]), plain(&flagged["kind"]), plain(&flagged["name"]));
        output::text(&format!("  {style}{state:11}{style:#}  {kind} {name}\n"))?;
        for found in list(&flagged["findings"]) {
            let (severity, rule) = (plain(&found["severity"]), plain(&found["rule"]));
            let (place, excerpt) = (plain(&found["pointer"]), plain(&found["excerpt"]));
            output::text(&format!("               {severity}  {rule}  {place}: {excerpt}\n"))?;
        }
        let act = if flagged["state"] == "quarantined" { "release it" } else { "accept it as it is" };
        output::text(&format!("               to {act}: portcullis lock accept {}\n", plain(&flagged["pin"])))?;
    }
    Ok(())
}
