//! Output for people and programs: data on standard output, everything about it on standard error. Colours are used
//! only on a terminal that supports them (`NO_COLOR`). Text from a source cannot control the terminal.

use std::io::Write as _;

use anstyle::{Color, Style};
use anyhow::Context as _;

pub(crate) use portcullis::escape::{escape_hidden, escape_hidden_json, plain_shell_word, shell_word};

use crate::standard_error::StandardError;

/// The style of headings.
pub(crate) const BOLD: Style = Style::new().bold();
/// The style of errors and weaknesses.
pub(crate) const BAD: Style = Style::new().bold().fg_color(Some(Color::Ansi(anstyle::AnsiColor::Red)));

/// Starts the program's own log on standard error, filtered by `PORTCULLIS_LOG` (`info`, `portcullis=debug`), or else
/// from `level` on. It never contains payloads.
pub(crate) fn log(level: &str) {
    let wanted = tracing_subscriber::EnvFilter::try_from_env("PORTCULLIS_LOG");
    let filter = wanted.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    // It logs at each attempt the error that it also returns.
    let filter = match "rustls_platform_verifier=off".parse() {
        Ok(off) => filter.add_directive(off),
        Err(_) => filter,
    };
    let colours = error_colours() != anstream::ColorChoice::Never;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours);
    // If standard error is gone, as with a closed terminal, reporting a failed write to it would panic.
    log.with_writer(|| StandardError).with_target(false).log_internal_errors(false).init();
}

/// Returns whether colours are wanted on standard error.
fn error_colours() -> anstream::ColorChoice {
    anstream::AutoStream::choice(&std::io::stderr())
}

/// Prints data as indented JSON on standard output.
pub(crate) fn json(value: &serde_json::Value) -> anyhow::Result<()> {
    text(&format!("{}\n", escape_hidden_json(&format!("{value:#}"))))
}

/// Prints JSON text in one line on standard output.
pub(crate) fn json_line(json: &str) -> anyhow::Result<()> {
    text(&format!("{}\n", escape_hidden_json(json)))
}

/// The error that nobody reads standard output any more, as with `portcullis … | head`. The command then ends without a
/// message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReaderGone;

impl ReaderGone {
    /// The exit code of a program that writes to a pipe without a reader, which other programs get from SIGPIPE.
    pub(crate) const EXIT_CODE: u8 = 128 + 13;
}

impl std::fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the reader of standard output went away")
    }
}

impl std::error::Error for ReaderGone {}

/// Prints data unchanged on standard output.
///
/// # Errors
/// [`ReaderGone`], or another failure to write.
pub(crate) fn text(text: &str) -> anyhow::Result<()> {
    match anstream::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        done => done.context("standard output cannot be written"),
    }
}

/// Returns a line as far as it fits on the terminal of standard output, so that it stays one line there. Elsewhere it
/// is complete.
pub(crate) fn truncate_to_terminal(line: &str) -> String {
    let size = std::io::IsTerminal::is_terminal(&std::io::stdout()).then(crossterm::terminal::size);
    match size.and_then(Result::ok).map(|(columns, _)| usize::from(columns)) {
        Some(columns) if columns > 0 && line.chars().count() > columns => {
            line.chars().take(columns - 1).chain(['…']).collect()
        }
        _ => line.to_owned(),
    }
}

/// Returns a line in at most this many columns of a terminal. Its end states how much is missing.
pub(crate) fn fit(line: &str, columns: usize) -> String {
    if width(line) <= columns {
        return line.to_owned();
    }
    let all = line.chars().count();
    let notice = |missing: usize| format!("… {missing} more characters");
    // In a narrow terminal the mark must be enough.
    let kept = columns.checked_sub(width(&notice(all))).unwrap_or(columns.saturating_sub(1));
    let head = head(line, kept);
    let missing = all - head.chars().count();
    if kept + 1 == columns { format!("{head}…") } else { format!("{head}{}", notice(missing)) }
}

/// Returns the beginning of a text that has at most this many columns.
pub(crate) fn head(text: &str, columns: usize) -> &str {
    let mut used = 0;
    let end = text.char_indices().find(|(_, c)| {
        used += columns_of(*c);
        used > columns
    });
    text.get(..end.map_or(text.len(), |(at, _)| at)).unwrap_or_default()
}

/// Returns the columns that a text takes on a terminal, or more.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

/// Returns the columns of a character: two for each that could be wide. The first wide ones are those of Hangul, and
/// most punctuation, arrows and signs are narrow.
fn columns_of(c: char) -> usize {
    if c < '\u{1100}' || ('\u{2010}'..'\u{2300}').contains(&c) { 1 } else { 2 }
}

/// Returns a number of things in words, such as "1 call" or "2 calls", for things whose plural has an `s`.
pub(crate) fn counted(count: impl TryInto<u64>, thing: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
}

/// Clears the screen, if standard output is a terminal that can.
pub(crate) fn clear() -> anyhow::Result<()> {
    let can_clear = std::io::IsTerminal::is_terminal(&std::io::stdout()) && !is_dumb();
    if can_clear { text("\x1b[2J\x1b[H") } else { Ok(()) }
}

/// Replaces the present line of the terminal on standard error. Writes nothing on one that can only append.
pub(crate) fn status_line(line: &str) {
    if is_dumb() {
        return;
    }
    let text = format!("\r\x1b[K{line}");
    // If this fails, there is nowhere left to report it.
    let _ = StandardError.write_all(text.as_bytes()).and_then(|()| StandardError.flush());
}

/// Reports whether the terminal understands no sequences that move the cursor, as some editors have it.
fn is_dumb() -> bool {
    portcullis::config::environment_variable("TERM").is_some_and(|terminal| terminal == "dumb")
}

/// Prints a line for people on standard error. Text from elsewhere must have passed [`escape_hidden`].
pub(crate) fn message(line: &str) {
    let mut shown = anstream::AutoStream::new(Vec::new(), error_colours());
    // If this fails, there is nowhere left to report it.
    let _ = writeln!(shown, "{line}").and_then(|()| StandardError.write_all(&shown.into_inner()));
}
