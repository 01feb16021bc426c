//! Sinks: plugins that take the ledger's records elsewhere.

use crate::bindings::portcullis::plugin::lines;

/// A sink: a plugin that receives the ledger's records in order, each at least once.
pub trait Audit: Sized + 'static {
    /// Reads the plugin's `settings` table, which is given as JSON.
    ///
    /// # Errors
    /// Says which field is wrong and why; the broker does not start.
    fn configure(settings: &str) -> Result<Self, String>;

    /// Takes a batch of records, each a JSON object as `portcullis audit tail --json` prints it. A record at which the plugin
    /// panics or reaches a limit again and again comes with another body, which says so, and is then left out.
    ///
    /// # Errors
    /// Says why the batch could not be taken; the broker delivers the same batch again later.
    fn deliver(&self, records: &[String], lines: &dyn Lines) -> Result<(), String>;
}

/// The one file that the configuration gives a sink.
pub trait Lines {
    /// Appends one line, given without its line feed. The lines of a batch, up to 64 MiB, are on disk before the broker
    /// moves on to the next batch.
    ///
    /// # Errors
    /// The line contains a line break, the batch is too large, or the file cannot be written.
    fn append(&self, line: &str) -> Result<(), String>;
}

/// The broker's file. It can only be used inside a component.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct HostLines;

impl Lines for HostLines {
    fn append(&self, line: &str) -> Result<(), String> {
        lines::append(line)
    }
}

/// Exports a type that implements [`Audit`] as the plugin. Call it once per crate.
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
