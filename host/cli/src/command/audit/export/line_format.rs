//! The forms of an export that have a line for each call.

use portcullis::ledger::CallEntry;
use ulid::Ulid;

use super::super::list;
use super::{cef, ocsf};
use crate::output::escape_hidden_json;

/// The form of an export that has a line for each call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineFormat {
    Jsonl,
    Csv,
    Ocsf,
    Cef,
}

impl LineFormat {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Csv => "csv",
            Self::Ocsf => "ocsf",
            Self::Cef => "cef",
        }
    }

    /// Returns the line before all others, with its end.
    pub(super) fn heading(self) -> String {
        if self == Self::Csv { list::csv_heading() + "\r\n" } else { String::new() }
    }

    /// Reports whether a file that has this text and no whole line may be an export that broke off in its first line.
    pub(super) fn may_begin_with(self, text: &[u8]) -> bool {
        let heading = self.heading();
        let beginning = match self {
            Self::Jsonl => "{\"call\":\"",
            Self::Csv => &heading,
            Self::Ocsf => "{\"activity_id\":",
            Self::Cef => "CEF:0|Portcullis|",
        };
        beginning.as_bytes().starts_with(text) || text.starts_with(beginning.as_bytes())
    }

    /// Returns a call as one line, with its end.
    pub(super) fn line(self, entry: &CallEntry) -> anyhow::Result<String> {
        Ok(match self {
            Self::Jsonl => escape_hidden_json(&serde_json::to_string(entry)?).into_owned() + "\n",
            Self::Csv => list::csv(entry) + "\r\n",
            Self::Ocsf => escape_hidden_json(&ocsf::event(entry).to_string()).into_owned() + "\n",
            Self::Cef => cef::line(entry) + "\n",
        })
    }

    /// Returns the call that a line is about.
    pub(super) fn call(self, line: &str) -> Option<Ulid> {
        let json = || serde_json::from_str::<serde_json::Value>(line).ok();
        let call = match self {
            Self::Jsonl => json()?.get("call")?.as_str()?.to_owned(),
            Self::Ocsf => json()?.pointer("/metadata/uid")?.as_str()?.to_owned(),
            Self::Csv => line.split(',').nth(1)?.to_owned(),
            Self::Cef => line.split_once("externalId=")?.1.split(' ').next()?.to_owned(),
        };
        call.parse().ok()
    }
}
