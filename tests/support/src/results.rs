//! Results of tools as they usually are, for measuring what a plugin costs.

use std::fmt::Write as _;

use crate::chance::Chance;

const WORDS: &str = "the a of to and in that is was he for it with as his on be at by had are but from or have an they which one \
    you were all her she there would their we him been has when who will no more if out so up said what its about than into them \
    can only other time new some could these two may first then do any like my now over such our man me even most made after also \
    did many off before must well back through years where much your way down should because long each just state those people too \
    server request response value result table index query account message report window package release change";

/// Returns the outcomes of calls, each of at least this many bytes, with what they are: prose, JSON, a log and source
/// code without anything that is to be hidden, and JSON with an e-mail address in each record.
#[must_use]
pub fn ordinary_results(bytes: usize) -> [(&'static str, String); 5] {
    let mut chance = Chance(7);
    let mut of = |line: fn(&mut Chance, &mut String)| {
        let mut text = String::new();
        while text.len() < bytes {
            line(&mut chance, &mut text);
        }
        text
    };
    let (prose, log, code, records) =
        (of(sentence), of(log_line), of(function), of(|chance, text| record(chance, text, "id")));
    let addresses = of(|chance, text| record(chance, text, "mail"));
    [
        ("prose", content(&prose)),
        ("json", format!("{{\"structuredContent\":{{\"rows\":[{}]}}}}", records.trim_end_matches(','))),
        ("log", content(&log)),
        ("code", content(&code)),
        ("addresses", format!("{{\"structuredContent\":{{\"rows\":[{}]}}}}", addresses.trim_end_matches(','))),
    ]
}

/// Returns the outcome with one text.
fn content(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{{\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}]}}")
}

fn words(chance: &mut Chance, count: usize) -> String {
    let all: Vec<&str> = WORDS.split_whitespace().collect();
    (0..count).map(|_| chance.of(&all)).collect::<Vec<_>>().join(" ")
}

fn hex(chance: &mut Chance, length: usize) -> String {
    let digits: Vec<char> = "0123456789abcdef".chars().collect();
    (0..length).map(|_| chance.of(&digits)).collect()
}

fn sentence(chance: &mut Chance, text: &mut String) {
    let length = 6 + chance.below(14);
    let (before, behind, end) =
        (words(chance, length), words(chance, 4), chance.of(&[". ", ", ", ": ", ".\n\n", "? "]));
    let _ = write!(text, "The {before} ({behind}) in {}{end}", 1990 + chance.below(40));
}

fn log_line(chance: &mut Chance, text: &mut String) {
    let (level, message) = (chance.of(&["INFO", "WARN", "DEBUG"]), words(chance, 5));
    let (id, minute, took) = (hex(chance, 32), chance.below(60), chance.below(900));
    let _ = writeln!(
        text,
        "2026-03-04T10:{minute:02}:31.{took:03}Z {level} app::server: {message} request={id} status=200 took={took}ms user_id={}",
        chance.below(90_000)
    );
}

fn function(chance: &mut Chance, text: &mut String) {
    let (name, what) = (words(chance, 2).replace(' ', "_"), words(chance, 8));
    let _ = write!(
        text,
        "    /// Returns {what}.\n    pub fn {name}(&self, index: usize) -> Option<&Value> {{\n        let found = self.rows.get(index)?;\n        \
         match found.kind {{\n            Kind::Object => Some(&found.value[\"{name}\"]),\n            _ => None,\n        }}\n    }}\n\n"
    );
}

fn record(chance: &mut Chance, text: &mut String, name: &str) {
    let id =
        format!("{}-{}-4{}-a{}-{}", hex(chance, 8), hex(chance, 4), hex(chance, 3), hex(chance, 3), hex(chance, 12));
    let own = if name == "mail" { format!("ann{}@example.org", chance.below(1_000)) } else { id };
    let (title, count, time) = (words(chance, 6), chance.below(10_000), chance.below(1_000_000_000));
    let _ = write!(
        text,
        "{{\"{name}\": \"{own}\", \"title\": \"{title}\", \"count\": {count}, \"created_at\": \"2026-03-04T10:22:31Z\", \"size\": {time}, \"tags\": [\"open\", \"v1.{count}\"]}},"
    );
}
