//! Prints errors for people and programs.

use std::process::ExitCode;

use miette::{GraphicalReportHandler, GraphicalTheme};
use portcullis::config::{ConfigError, ConfigProblem};

use crate::output::{self, BAD, ReaderGone, escape_hidden};
use crate::runtime::Interrupted;

/// Shows why the command failed, on standard error; with `--json`, as one JSON object.
pub(crate) fn failure(error: &anyhow::Error, json: bool) -> ExitCode {
    if error.is::<ReaderGone>() {
        return ExitCode::from(ReaderGone::EXIT_CODE);
    }
    let config = error.downcast_ref::<ConfigError>();
    match config {
        _ if json => {
            output::message(&output::escape_hidden_json(&serde_json::json!({ "error": message(error) }).to_string()))
        }
        Some(config) => {
            // The subject of the command, when a configuration was refused.
            let about = error.chain().take_while(|cause| !cause.is::<ConfigError>());
            about.for_each(|cause| {
                output::message(&format!("{BAD}error{BAD:#}: {}", escape_hidden(&cause.to_string())))
            });
            config.problems().iter().for_each(|problem| output::message(&rendered(problem)));
        }
        None => output::message(&format!("{BAD}error{BAD:#}: {}", message(error))),
    }
    if error.is::<Interrupted>() { ExitCode::from(Interrupted::EXIT_CODE) } else { ExitCode::FAILURE }
}

/// Shows why the command could not judge, for a command whose exit code 1 is a judgement.
///
/// # Errors
/// The error of an output that nobody reads any more, or [`Interrupted`].
pub(crate) fn not_judged(error: anyhow::Error, json: bool) -> anyhow::Result<ExitCode> {
    if error.is::<ReaderGone>() || error.is::<Interrupted>() {
        return Err(error);
    }
    failure(&error, json);
    Ok(ExitCode::from(2))
}

/// Returns the error and its causes joined by colons, without characters that act on the terminal. Text after the first
/// line is indented, so that it cannot pass for a line of this program.
fn message(error: &anyhow::Error) -> String {
    let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    let text = causes.join(": ");
    text.lines().map(output::escape_hidden).collect::<Vec<_>>().join("\n  ")
}

/// Returns a problem with the lines of the file that it is about. `anstream` removes the colours if they are not
/// wanted.
fn rendered(problem: &ConfigProblem) -> String {
    let mut shown = String::new();
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode()).with_width(100);
    match handler.render_report(&mut shown, problem) {
        Ok(()) => shown,
        Err(_) => problem.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::message;

    #[test]
    fn the_lines_of_an_error_cannot_pass_for_those_of_the_program() {
        let error = anyhow::anyhow!("failed\nportcullis.toml is trusted as it is now\n\u{1b}[2Jx").context("the call");
        let shown = message(&error);
        assert_eq!(shown, "the call: failed\n  portcullis.toml is trusted as it is now\n  \\u{1b}[2Jx");
    }
}
