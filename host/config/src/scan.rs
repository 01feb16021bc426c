//! The consequence of what the scanner finds: the `scan` of a source.

use super::raw_source::RawScan;

/// The consequence of findings in a source's definitions and instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub enum ScanMode {
    /// Nothing: they are not scanned.
    Off,
    /// Every definition is shown, and findings are reported.
    Warn,
    /// A definition with a grave finding is neither shown nor called until a person has accepted it. Lesser findings
    /// are reported.
    #[default]
    Quarantine,
}

impl From<RawScan> for ScanMode {
    fn from(raw: RawScan) -> Self {
        match raw {
            RawScan::Off => Self::Off,
            RawScan::Warn => Self::Warn,
            RawScan::Quarantine => Self::Quarantine,
        }
    }
}
