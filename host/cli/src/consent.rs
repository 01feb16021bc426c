//! Questions that a person at the terminal answers with yes or no.

use std::io::{BufRead as _, IsTerminal as _};

use crate::{output, runtime};

/// Reports whether somebody can be asked.
pub(crate) fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks a question, and reports whether the answer is yes.
///
/// # Errors
/// The answer cannot be read.
pub(crate) fn agreed(question: &str) -> std::io::Result<bool> {
    output::message(&format!("{question} Type `yes` or `no`:"));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Asks a question while a command has something to end in order.
///
/// # Errors
/// The answer cannot be read, or [`Interrupted`](runtime::Interrupted).
pub(crate) async fn agreed_or_interrupted(question: &'static str) -> anyhow::Result<bool> {
    runtime::until_interrupted(async { Ok(tokio::task::spawn_blocking(|| agreed(question)).await??) }).await
}
