//! The table of what the scanner finds in labelled definitions, by class: recall for malicious ones, false positives
//! for benign ones.

use std::collections::BTreeMap;
use std::fmt;

use portcullis_scan::{Finding, Severity};
use serde_json::{Value, json};

/// One labelled definition.
pub(crate) struct LabelledRow<'a>(&'a Value);

impl<'a> LabelledRow<'a> {
    pub(crate) fn of(row: &'a Value) -> Self {
        Self(row)
    }

    pub(crate) fn member(&self, key: &str) -> &'a str {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn is_malicious(&self) -> bool {
        self.member("label") == "malicious"
    }

    /// Reports whether the row is one of the third that no rule may be written from. Rows of one group (malicious) or
    /// one server (benign) are on the same side.
    pub(crate) fn is_held_out(&self) -> bool {
        let key = self.member(if self.is_malicious() { "group" } else { "server" });
        (hash(key) >> 32).is_multiple_of(3)
    }

    pub(crate) fn definition(&self) -> Value {
        let Self(row) = self;
        json!({
            "name": row.get("tool_name"), "description": row.get("description"), "inputSchema": row.get("input_schema"),
            "outputSchema": row.get("output_schema"), "_meta": row.get("meta"),
        })
    }

    fn class(&self) -> String {
        if self.is_malicious() {
            return self.member("attack_class").to_owned();
        }
        let hard = self.0.get("hard_negative").and_then(Value::as_bool).unwrap_or_default();
        if hard { "(hard)".to_owned() } else { "(ordinary)".to_owned() }
    }
}

/// The numbers of rows by half, label and class.
#[derive(Default)]
pub(crate) struct DetectionTable(BTreeMap<(bool, bool, String), Counts>);

#[derive(Default)]
struct Counts {
    rows: usize,
    /// With a warning or a grave finding.
    found: usize,
    /// With a grave finding.
    grave: usize,
}

impl DetectionTable {
    pub(crate) fn add(&mut self, row: &LabelledRow<'_>, findings: &[Finding]) {
        let worst = findings.iter().map(|finding| finding.severity).max();
        for class in [row.class(), "(all)".to_owned()] {
            let counts = self.0.entry((row.is_held_out(), row.is_malicious(), class)).or_default();
            counts.rows += 1;
            counts.found += usize::from(worst >= Some(Severity::Warning));
            counts.grave += usize::from(worst >= Some(Severity::Grave));
        }
    }
}

impl fmt::Display for DetectionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<12} {:<9} {:<42} {:>5} {:>12} {:>12}", "half", "label", "class", "rows", "found", "grave")?;
        for ((held_out, malicious, class), Counts { rows, found, grave }) in &self.0 {
            let half = if *held_out { "held out" } else { "development" };
            let label = if *malicious { "malicious" } else { "benign" };
            let of = |count: usize| format!("{count} {:.1} %", 100.0 * count as f64 / *rows as f64);
            writeln!(f, "{half:<12} {label:<9} {class:<42} {rows:>5} {:>12} {:>12}", of(*found), of(*grave))?;
        }
        Ok(())
    }
}

/// Returns the FNV-1a hash, which stays the same between versions of Rust.
fn hash(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
