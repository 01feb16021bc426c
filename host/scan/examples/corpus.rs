//! Measures the scanner on files of labelled definitions, one JSON object to a line:
//! `cargo run --release --example corpus -- [--show] FILE…`. A third of the groups (malicious) or servers (benign) is
//! held out, by a hash; `--show` prints what is missed or wrongly found in the other two thirds only.

use std::collections::BTreeMap;
use std::time::Instant;

use portcullis_scan::{Scanner, Severity};
use serde_json::{Value, json};

fn main() {
    let (flags, files): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let scanner = Scanner::new();
    let mut table: BTreeMap<(bool, bool, String), (usize, usize)> = BTreeMap::new();
    let (mut count, mut spent) = (0_u32, 0.0);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| {
            eprintln!("{file} cannot be read: {error}");
            String::new()
        });
        for row in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let member = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            let malicious = member("label") == "malicious";
            let held_out = (hash(&member(if malicious { "group" } else { "server" })) >> 32).is_multiple_of(3);
            let definition = json!({
                "name": row.get("tool_name"), "description": row.get("description"), "inputSchema": row.get("input_schema"),
            });
            let start = Instant::now();
            let findings = scanner.scan(&definition);
            spent += start.elapsed().as_secs_f64();
            count += 1;
            let found = findings.iter().any(|finding| finding.severity >= Severity::Warning);
            let hard = row.get("hard_negative").and_then(Value::as_bool).unwrap_or_default();
            let class =
                if malicious { member("attack_class") } else { format!("benign{}", if hard { ", hard" } else { "" }) };
            for class in [class, "(all)".to_owned()] {
                let entry = table.entry((held_out, malicious, class)).or_default();
                entry.0 += 1;
                entry.1 += usize::from(found);
            }
            if flags.iter().any(|flag| flag == "--show") && !held_out && found != malicious {
                println!(
                    "{} {}",
                    member("id"),
                    definition.get("description").map(Value::to_string).unwrap_or_default()
                );
                for finding in findings.iter().filter(|finding| finding.severity >= Severity::Warning) {
                    println!("    {} {:?} {} {}", finding.rule, finding.severity, finding.pointer, finding.excerpt);
                }
            }
        }
    }
    println!("{:<12} {:<48} {:>5} {:>5}", "half", "class", "rows", "found");
    for ((held_out, malicious, class), (rows, found)) in table {
        let half = if held_out { "held out" } else { "development" };
        println!(
            "{half:<12} {:<48} {rows:>5} {found:>5}",
            format!("{} {class}", if malicious { "malicious" } else { "benign" })
        );
    }
    println!("{:.0} definitions a second", f64::from(count) / spent);
}

/// FNV-1a, which stays the same between versions of Rust.
fn hash(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
