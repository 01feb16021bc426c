//! Measures the scanner on files of labelled definitions, one JSON object to a line: `cargo run --release --example
//! corpus -- [--show] FILE…`. A third of the groups (malicious) or servers (benign) is held out, by a hash; `--show`
//! prints the misses and the false findings in the other two thirds only.

#[path = "corpus/table.rs"]
mod table;

use std::time::Instant;

use portcullis_scan::{Scanner, Severity};
use serde_json::Value;

use table::{DetectionTable, LabelledRow};

fn main() {
    let (flags, files): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let scanner = Scanner::new();
    let mut table = DetectionTable::default();
    let (mut count, mut spent) = (0_u32, 0.0);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| {
            eprintln!("{file} cannot be read: {error}");
            String::new()
        });
        for row in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let row = LabelledRow::of(&row);
            let definition = row.definition();
            let start = Instant::now();
            let findings = scanner.scan(&definition);
            spent += start.elapsed().as_secs_f64();
            count += 1;
            table.add(&row, &findings);
            let found = findings.iter().any(|finding| finding.severity >= Severity::Warning);
            if flags.iter().any(|flag| flag == "--show") && !row.is_held_out() && found != row.is_malicious() {
                let description = definition.get("description").map(Value::to_string).unwrap_or_default();
                println!("{} {description}", row.member("id"));
                for finding in findings.iter().filter(|finding| finding.severity >= Severity::Warning) {
                    println!("    {} {:?} {} {}", finding.rule, finding.severity, finding.pointer, finding.excerpt);
                }
            }
        }
    }
    print!("{table}");
    eprintln!("{:.0} definitions a second", f64::from(count) / spent);
}
