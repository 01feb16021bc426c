//! What people and programs read: data on standard output, everything about it on standard error; colours only on a
//! terminal that wants them (`NO_COLOR`), and nothing from a source that acts on it.

use std::io::Write as _;

use anstyle::{Color, Style};

pub(crate) use portcullis::visible::{visible, visible_json};

/// For headings.
pub(crate) const BOLD: Style = Style::new().bold();
/// For what is wrong.
pub(crate) const BAD: Style = Style::new().bold().fg_color(Some(Color::Ansi(anstyle::AnsiColor::Red)));

/// The program's own log, on standard error: what `PORTCULLIS_LOG` asks for (`info`, `portcullis=debug`), or else from
/// `level` on. Payloads are never in it.
pub(crate) fn log(level: &str) {
    let wanted = tracing_subscriber::EnvFilter::try_from_env("PORTCULLIS_LOG");
    let filter = wanted.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    let colours = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours);
    // Where standard error has gone, as a terminal does, saying so there would be a panic.
    log.with_writer(std::io::stderr).with_target(false).log_internal_errors(false).init();
}

/// Data, indented, on standard output.
pub(crate) fn json(value: &serde_json::Value) -> anyhow::Result<()> {
    text(&format!("{}\n", visible_json(&format!("{value:#}"))))
}

/// Data as JSON text in one line, on standard output.
pub(crate) fn json_line(json: &str) -> anyhow::Result<()> {
    text(&format!("{}\n", visible_json(json)))
}

/// Data as it is, on standard output. A reader that has gone away is no error: `portcullis … | head`.
pub(crate) fn text(text: &str) -> anyhow::Result<()> {
    match anstream::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => Ok(done?),
    }
}

/// Empties the screen, if standard output is one.
pub(crate) fn clear() -> anyhow::Result<()> {
    if std::io::IsTerminal::is_terminal(&std::io::stdout()) { text("\x1b[2J\x1b[H") } else { Ok(()) }
}

/// A line for people, on standard error. Text from elsewhere must have passed [`visible`].
pub(crate) fn note(line: &str) {
    // There is nowhere left to say that this failed.
    let _ = writeln!(anstream::stderr(), "{line}");
}
