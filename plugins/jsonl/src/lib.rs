//! A sink that appends the ledger's records to its file, one line each, byte for byte.
//!
//! ```toml
//! kinds = ["call.*", "tool.completed"]   # globs over the kind of the record; by default, every record is written
//! ```
//!
//! Delivery is at least once: a batch is repeated after a crash or an error, so a reader must drop records that it has
//! already seen, by their `chain` and `seq`.

use std::borrow::Cow;

use portcullis_plugin::{Audit, Lines, NameGlob, settings};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Jsonl {
    kinds: Option<Vec<NameGlob>>,
}

/// The member of a record that the sink reads. The others are passed over, as the tree of a record, whose body a source
/// may have written, can take more than a plugin's memory.
#[derive(Deserialize)]
struct Record<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

impl Audit for Jsonl {
    fn configure(settings: &str) -> Result<Self, String> {
        settings::parse(settings)
    }

    fn deliver(&self, records: &[String], lines: &dyn Lines) -> Result<(), String> {
        records.iter().try_for_each(|record| if self.wants(record)? { lines.append(record) } else { Ok(()) })
    }
}

impl Jsonl {
    fn wants(&self, record: &str) -> Result<bool, String> {
        let Some(kinds) = &self.kinds else { return Ok(true) };
        let Record { kind } = serde_json::from_str(record).map_err(|error| error.to_string())?;
        Ok(kinds.iter().any(|glob| glob.matches(&kind)))
    }
}

portcullis_plugin::export_audit!(Jsonl);
portcullis_plugin::describe!(include_str!("../description.json"));

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use portcullis_plugin::fake::FakeLines;

    use super::*;

    const RECORDS: [&str; 3] = [
        r#"{"v":1,"seq":1,"kind":"run.started"}"#,
        r#"{ "seq":2, "kind":"call.intent" }"#,
        r#"{"seq":3,"kind":"tool.completed"}"#,
    ];

    fn deliver(settings: &str, lines: &FakeLines) -> Result<(), String> {
        Jsonl::configure(settings).unwrap().deliver(&RECORDS.map(String::from), lines)
    }

    #[test]
    fn every_record_is_a_line_byte_for_byte_and_in_order() {
        let lines = FakeLines::default();
        deliver("{}", &lines).unwrap();
        assert_eq!(lines.lines(), RECORDS);
    }

    #[test]
    fn only_records_of_the_listed_kinds_are_written() {
        let lines = FakeLines::default();
        deliver(r#"{"kinds":["call.*","run.started"]}"#, &lines).unwrap();
        assert_eq!(lines.lines(), RECORDS[..2]);
        deliver(r#"{"kinds":[]}"#, &lines).unwrap();
        assert_eq!(lines.lines().len(), 2);
    }

    #[test]
    fn what_cannot_be_written_or_judged_is_an_error_so_that_it_comes_again() {
        let broken = FakeLines::broken("disk full");
        assert_eq!(deliver("{}", &broken), Err("disk full".into()));
        let sink = Jsonl::configure(r#"{"kinds":["*"]}"#).unwrap();
        assert!(sink.deliver(&[r#"{"seq":1}"#.into()], &FakeLines::default()).is_err());
    }

    /// As a tree, the first body takes some 60 MB, and the second one is nested deeper than the SDK reads.
    #[test]
    fn a_record_whose_body_takes_much_as_a_tree_is_judged_by_its_kind() {
        let wide = format!("[{}0]", "[0],".repeat(250_000));
        let deep = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
        let record =
            |body: &str| format!(r#"{{"at":1,"body":{{"kind":"x","y":{body}}},"kind":"tool.completed","seq":1}}"#);
        let sink = Jsonl::configure(r#"{"kinds":["call.*"]}"#).unwrap();
        let lines = FakeLines::default();
        sink.deliver(&[record(&wide), record(&deep), RECORDS[1].into()], &lines).unwrap();
        assert_eq!(lines.lines(), [RECORDS[1]]);
    }

    #[test]
    fn a_wrong_setting_is_named() {
        let error = |settings| Jsonl::configure(settings).err().unwrap();
        assert!(error(r#"{"only":[]}"#).starts_with("settings.only: unknown field"));
        assert!(error(r#"{"kinds":["call.{a,b}"]}"#).starts_with("settings.kinds[0]: '{' is not allowed"));
    }
}
