//! `portcullis approvals --watch`: shows each question as it comes, and takes the answer from the keyboard.

mod screen;

use std::collections::HashSet;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::terminal;
use portcullis::gate::{GivenAnswer, ScopeChoice};
use serde_json::Value;

use crate::output;

/// The pause between two looks for questions: a call waits for the answer.
const LOOK: Duration = Duration::from_millis(300);

/// A person's choice about a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// Answers with the choice of this number: 0 is no, and the others are the scopes.
    Answer(usize),
    /// Leaves it open, and does not show it again.
    Later,
    /// Ends the command.
    Quit,
}

/// The keyboard, read key by key. The terminal is as before when it is dropped.
struct Keys;

impl Keys {
    fn open() -> anyhow::Result<Self> {
        terminal::enable_raw_mode()?;
        Ok(Self)
    }

    /// Waits for a key for a while, on a thread for blocking work.
    async fn next(&self, pause: Duration) -> anyhow::Result<Option<KeyCode>> {
        let read = tokio::task::spawn_blocking(move || -> std::io::Result<Option<KeyCode>> {
            if !event::poll(pause)? {
                return Ok(None);
            }
            let Event::Key(key) = event::read()? else { return Ok(None) };
            let interrupts = key.modifiers == KeyModifiers::CONTROL && matches!(key.code, KeyCode::Char('c' | 'd'));
            Ok(match key.kind {
                KeyEventKind::Release => None,
                _ if interrupts => Some(KeyCode::Char('q')),
                _ => Some(key.code),
            })
        });
        Ok(read.await??)
    }

    /// Forgets the keys that are waiting: they were pressed for a question that is gone.
    async fn forget(&self) -> anyhow::Result<()> {
        let forgotten = tokio::task::spawn_blocking(|| -> std::io::Result<()> {
            while event::poll(Duration::ZERO)? {
                event::read()?;
            }
            Ok(())
        });
        Ok(forgotten.await??)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // If this fails, there is nowhere left to report it.
        let _ = terminal::disable_raw_mode();
    }
}

/// Shows the open questions one after another, and waits for more, until the person quits.
pub(super) async fn watch(folders: &[PathBuf]) -> anyhow::Result<ExitCode> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        bail!(
            "`approvals --watch` takes keys, so it needs a terminal: elsewhere use `approvals list`, `approve` and `refuse`"
        );
    }
    let mut left_open = HashSet::new();
    let mut says_idle = true;
    let keys = Keys::open()?;
    loop {
        let open = super::questions(folders).await?;
        let mut waiting = open.iter().filter(|question| !left_open.contains(id(question)));
        let Some(question) = waiting.next() else {
            if std::mem::take(&mut says_idle) {
                lines("waiting for questions; q quits")?;
            }
            if keys.next(LOOK).await? == Some(KeyCode::Char('q')) {
                return Ok(ExitCode::SUCCESS);
            }
            continue;
        };
        says_idle = true;
        let others: Vec<&Value> = waiting.collect();
        let (alike, others): (Vec<&Value>, Vec<&Value>) =
            others.into_iter().partition(|other| super::are_alike(question, other));
        let mut batch = Batch { question, alike, others: others.len(), is_whole: false };
        match batch.choose(&keys, folders).await? {
            None => {
                keys.forget().await?;
                lines("it was answered elsewhere, or has expired")?;
            }
            Some(Choice::Quit) => return Ok(ExitCode::SUCCESS),
            Some(Choice::Later) => left_open.extend(batch.meant().map(|question| id(question).to_owned())),
            Some(Choice::Answer(number)) => {
                let scope = number.checked_sub(1).and_then(|number| scopes(question).nth(number));
                let given = scope.map_or_else(GivenAnswer::no, |scope| GivenAnswer::yes().scope(scope.as_str()));
                for question in batch.meant() {
                    match super::give(folders, id(question), &given).await {
                        Ok(answered) => lines(&super::described(&answered))?,
                        Err(error) => {
                            keys.forget().await?;
                            lines(&format!("not answered: {error}"))?;
                        }
                    }
                }
            }
        }
    }
}

/// A question on the screen, with those that one answer can be given to as well.
struct Batch<'a> {
    question: &'a Value,
    /// The other open questions about the same tool, by the same caller.
    alike: Vec<&'a Value>,
    /// The number of open questions besides these.
    others: usize,
    /// True if the person answers all of them at once.
    is_whole: bool,
}

impl<'a> Batch<'a> {
    /// Returns the questions that the answer is for.
    fn meant(&self) -> impl Iterator<Item = &'a Value> {
        let alike: &[&Value] = if self.is_whole { &self.alike } else { &[] };
        std::iter::once(self.question).chain(alike.to_vec())
    }

    /// Shows the questions until the person has chosen. Returns `None` if the first one is no longer open.
    async fn choose(&mut self, keys: &Keys, folders: &[PathBuf]) -> anyhow::Result<Option<Choice>> {
        let count = 1 + scopes(self.question).count();
        let mut at = 0;
        self.show(at)?;
        loop {
            match keys.next(LOOK).await? {
                Some(KeyCode::Up | KeyCode::Char('k')) => at = (at + count - 1) % count,
                Some(KeyCode::Down | KeyCode::Char('j')) => at = (at + 1) % count,
                Some(KeyCode::Char('b')) if !self.alike.is_empty() => self.is_whole = !self.is_whole,
                Some(KeyCode::Enter) => return Ok(Some(Choice::Answer(at))),
                Some(KeyCode::Char('s')) => return Ok(Some(Choice::Later)),
                Some(KeyCode::Char('q') | KeyCode::Esc) => return Ok(Some(Choice::Quit)),
                Some(_) => continue,
                None if super::questions(folders).await?.iter().any(|other| id(other) == id(self.question)) => continue,
                None => return Ok(None),
            }
            self.show(at)?;
        }
    }

    fn show(&self, at: usize) -> anyhow::Result<()> {
        // A terminal that does not know its size reports 0.
        let known = terminal::size().ok().filter(|(columns, rows)| *columns > 0 && *rows > 0);
        let size = known.map_or((80, 24), |(columns, rows)| (columns.into(), rows.into()));
        let shown = screen::screen(self, at, size);
        output::clear()?;
        lines(&shown.join("\n"))
    }
}

/// Prints lines on a terminal that is read key by key, where a line feed does not return to the left edge.
fn lines(text: &str) -> anyhow::Result<()> {
    output::text(&format!("{}\r\n", text.replace('\n', "\r\n")))
}

fn id(question: &Value) -> &str {
    question["id"].as_str().unwrap_or_default()
}

/// Returns the scopes that a question offers, without those that only another version of the broker knows.
fn scopes(question: &Value) -> impl Iterator<Item = ScopeChoice> {
    let words = question["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    words.filter_map(|word| word.parse().ok())
}
