//! Counts the findings in the labelled set, and compares the table in the book with them.
#![allow(clippy::disallowed_methods, reason = "a test, which reads UPDATE_GOLDEN")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use super::*;
use values::{KEYS, Random};

/// How often each line is filled with other values.
const ROUNDS: u64 = 20;

/// The page with the table, and what begins and ends the table there.
const PAGE: &str = "../../docs/src/guide/redaction.md";
const BEGIN: &str = "<!-- what is found: written by `UPDATE_GOLDEN=1 cargo test -p portcullis-redact labelled` -->\n";
const END: &str = "<!-- end of what is found -->";

/// The counts for a kind.
#[derive(Default, Clone, Copy)]
struct Count {
    /// The values in the set, and those that the search removes completely.
    values: usize,
    hidden: usize,
    /// The replacements of this kind, and those of exactly a value of the set.
    replaced: usize,
    right: usize,
}

/// The counts by kind, for the part of the set that was written along with the detectors and for the hold-out.
type Counts = BTreeMap<String, [Count; 2]>;

/// A text of the set: the JSON of a result, and the values in it with their kinds.
struct Labelled {
    outcome: String,
    values: Vec<(String, String)>,
}

#[test]
fn the_table_in_the_book_is_what_is_found_in_the_labelled_set() {
    let (counts, wrong) = counted();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let new = format!("{before}{BEGIN}{}{END}{after}", table(&counts));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &new).unwrap();
        println!("{wrong}");
    }
    let written = fs::read_to_string(&path).unwrap();
    assert!(
        written == new,
        "other values are found than {PAGE} says; UPDATE_GOLDEN=1 writes the table:\n{}\n{wrong}",
        table(&counts)
    );
}

#[test]
fn every_kind_is_in_the_labelled_set() {
    let (counts, _) = counted();
    let missing: Vec<_> =
        kind::Kind::ALL.iter().map(|kind| kind.name()).filter(|kind| counts[*kind][0].values == 0).collect();
    assert!(missing.is_empty(), "no value of {missing:?}");
}

/// Searches the whole set, and returns the counts and a list of the errors.
fn counted() -> (Counts, String) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("labelled");
    let plugin = redact(EVERYTHING);
    let (mut counts, mut wrong) = (Counts::new(), BTreeSet::new());
    for kind in kind::Kind::ALL {
        counts.insert(kind.name().into(), Default::default());
    }
    let mut files = Vec::new();
    for (part, name) in ["known", "hold-out"].iter().enumerate() {
        files.extend(fs::read_dir(folder.join(name)).unwrap().map(|file| (part, file.unwrap().path())));
    }
    files.sort();
    for (part, file) in files {
        let is_json = file.to_str().unwrap().ends_with(".json.txt");
        for (number, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            for round in 0..ROUNDS {
                for text in filled(line, number as u64 * 1_000 + round, is_json) {
                    count(&plugin, part, &text, &mut counts, &mut |what| {
                        wrong.insert(format!(
                            "{}:{}: {what}: {line}\n",
                            file.file_name().unwrap().display(),
                            number + 1
                        ));
                    });
                }
            }
        }
    }
    (counts, wrong.into_iter().collect())
}

fn count(plugin: &Redact, part: usize, text: &Labelled, counts: &mut Counts, wrong: &mut dyn FnMut(String)) {
    let vault = FakeVault::default();
    let call = FakeCall::new("mail", "read").with_outcome(&text.outcome);
    let after = match plugin.rewrite(&call, &vault).unwrap() {
        Change::Replace(after) => after,
        Change::Keep => text.outcome.clone(),
        Change::Refuse(denial) => panic!("{denial:?}"),
    };
    for (kind, value) in &text.values {
        let count = &mut counts.get_mut(kind).unwrap()[part];
        count.values += 1;
        let quoted = quote(value);
        if after.contains(quoted.trim_matches('"')) {
            wrong(format!("{kind} is not found, as in {value:?}"));
        } else {
            count.hidden += 1;
        }
    }
    for (kind, value, _) in vault.kept() {
        let count = &mut counts.get_mut(&kind).unwrap()[part];
        count.replaced += 1;
        if text.values.iter().any(|(_, labelled)| *labelled == value) {
            count.right += 1;
        } else {
            wrong(format!("{kind} is wrong, as in {value:?}"));
        }
    }
}

/// Fills a line with values: for `«key»`, one text for each service.
fn filled(line: &str, seed: u64, is_json: bool) -> Vec<Labelled> {
    let keys: Vec<&str> = match line.contains("«key»") {
        true => KEYS.iter().map(|(kind, _)| *kind).filter(|kind| !["jwt", "url-password"].contains(kind)).collect(),
        false => vec![""],
    };
    let mut random = Random::new(seed + 1);
    let fill = |key: &str| {
        let (mut text, mut values) = (String::new(), Vec::new());
        for (i, part) in line.split(['«', '»']).enumerate() {
            let label = if part == "key" { key } else { part };
            if i % 2 == 0 {
                text.push_str(&if is_json { part.to_owned() } else { part.replace("\\n", "\n") });
            } else if let Some(form) = part.strip_prefix('!') {
                text.push_str(&random.harmless(form));
            } else {
                let value = random.value(label);
                text.push_str(
                    if is_json { quote(&value).trim_matches('"').to_owned() } else { value.clone() }.as_str(),
                );
                values.push((label.split(':').next().unwrap().to_owned(), value));
            }
        }
        let content = if is_json { text } else { quote(&text) };
        Labelled { outcome: format!("{{\"content\":[{content}]}}"), values }
    };
    keys.into_iter().map(fill).collect()
}

/// Returns the table: for each kind, the number of values, the share of them that is found, and the share of
/// replacements that are values.
fn table(counts: &Counts) -> String {
    let mut out = String::from(
        "| kind | values | recall | precision | hold-out: values | recall | precision |\n|---|--:|--:|--:|--:|--:|--:|\n",
    );
    let mut sum = [Count::default(); 2];
    for kind in kind::Kind::ALL {
        let of_kind = counts[kind.name()];
        for (sum, count) in sum.iter_mut().zip(of_kind) {
            sum.values += count.values;
            sum.hidden += count.hidden;
            sum.replaced += count.replaced;
            sum.right += count.right;
        }
        row(&mut out, &format!("`{}`", kind.name()), of_kind);
    }
    row(&mut out, "all", sum);
    out
}

fn row(out: &mut String, name: &str, counts: [Count; 2]) {
    let _ = write!(out, "| {name} |");
    for count in counts {
        let (recall, precision) = (share(count.hidden, count.values), share(count.right, count.replaced));
        let _ = write!(out, " {} | {recall} | {precision} |", count.values);
    }
    out.push('\n');
}

/// Returns a share in per cent, rounded down: 100 only if nothing is missing.
fn share(part: usize, whole: usize) -> String {
    let thousandths = (part * 1_000).checked_div(whole);
    thousandths.map_or_else(|| "–".into(), |n| format!("{}.{}", n / 10, n % 10))
}
