//! Sinks: where the ledger's records go besides the ledger.

use crate::bindings::portcullis::plugin::lines;

/// Receives the ledger's records in order, at least once.
pub trait Audit: Sized + 'static {
    /// Takes the `settings` table as JSON.
    ///
    /// # Errors
    /// Which field is wrong and why; the broker does not start.
    fn configure(settings: &str) -> Result<Self, String>;

    /// Takes a batch of records, each a JSON object as `portcullis audit tail --json` prints it.
    ///
    /// # Errors
    /// Why it could not; the same batch comes again later.
    fn deliver(&self, records: &[String], lines: &dyn Lines) -> Result<(), String>;
}

/// The one file that the configuration gives a sink.
pub trait Lines {
    /// Appends one line, without its line feed. Durable when `deliver` returns.
    ///
    /// # Errors
    /// The line holds a line feed, or it cannot be written.
    fn append(&self, line: &str) -> Result<(), String>;
}

/// The broker's file; exists inside a component.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct HostLines;

impl Lines for HostLines {
    fn append(&self, line: &str) -> Result<(), String> {
        lines::append(line)
    }
}

/// Makes the component export an [`Audit`]. Once per crate.
#[macro_export]
macro_rules! export_audit {
    ($plugin:ty) => {
        $crate::__component! { $plugin: Audit, audit, export_audit_world, {
            fn deliver(
                records: ::std::vec::Vec<::std::string::String>,
            ) -> ::std::result::Result<(), ::std::string::String> {
                PLUGIN.with(|plugin| $crate::Audit::deliver(plugin.get()?, &records, &$crate::HostLines))
            }
        } }
    };
}
