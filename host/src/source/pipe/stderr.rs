//! The standard error of a source: it goes to the source's log file, and its end is kept for the exit reason.
//!
//! All of it is read, so that the source never waits, but the log is limited: a source must not fill the disk.

use std::collections::VecDeque;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio::io::AsyncRead;
use tokio::task::spawn_blocking;

use crate::escape::escape_hidden;
use crate::limited_lines::{LimitedLine, LimitedLines};
use crate::private;
use crate::sync::Mutex;

/// The bytes that are kept for the exit reason: the last lines of a stack trace.
const LAST_WORDS_BYTES: usize = 2 * 1024;

/// The longest line that is kept, in bytes.
const MAX_LINE_BYTES: usize = 8 * 1024;

/// The largest log file, in bytes. One older file is kept next to it.
const MAX_LOG_BYTES: u64 = 4 * 1024 * 1024;

/// The most bytes that are logged per second. A chatty server writes some kilobytes; any excess is counted and dropped.
const MAX_BYTES_PER_SECOND: usize = 64 * 1024;

/// The shortest secret that is searched for in a source's output; shorter ones occur in too many innocent lines.
const MIN_SECRET_CHARS: usize = 6;

/// The last lines that one source wrote to standard error.
#[derive(Clone, Default)]
pub(super) struct StderrTail(Arc<Mutex<VecDeque<u8>>>);

impl StderrTail {
    /// Returns the lines joined to one, with control characters already escaped. Empty if nothing was written.
    pub(super) fn text(&self) -> String {
        let kept: Vec<u8> = self.0.lock().iter().copied().collect();
        String::from_utf8_lossy(&kept).trim_end_matches('\n').replace('\n', " | ")
    }

    fn push(&self, line: &str) {
        let mut kept = self.0.lock();
        kept.extend(line.bytes());
        kept.push_back(b'\n');
        let excess = kept.len().saturating_sub(LAST_WORDS_BYTES);
        kept.drain(..excess);
    }
}

/// Values that are redacted in everything that people and agents read of a source's own output.
#[derive(Clone, Default)]
pub(crate) struct RedactedValues(Arc<[String]>);

impl RedactedValues {
    /// Returns the values to redact. Secrets of several lines, such as keys, are searched for line by line; the longest
    /// first, so that a secret is replaced before another one that is a part of it.
    pub(crate) fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let long_enough = |line: &&str| line.chars().count() >= MIN_SECRET_CHARS;
        let lines = values.into_iter().flat_map(|value| value.lines().map(str::trim)).filter(long_enough);
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.len()));
        Self(lines.into())
    }

    /// Returns a line with secrets redacted and control characters escaped.
    pub(super) fn redacted(&self, line: &[u8]) -> String {
        let mut line = String::from_utf8_lossy(line).into_owned();
        for secret in &*self.0 {
            line = line.replace(secret.as_str(), "[secret]");
        }
        escape(&line)
    }
}

/// Reads standard error to its end, into the log file and the last words. `secrets` are redacted in both.
pub(super) async fn capture(input: impl AsyncRead + Unpin, path: PathBuf, secrets: RedactedValues, words: StderrTail) {
    let mut log = Log::open(path).await;
    let mut lines = LimitedLines::new(input, MAX_LINE_BYTES, MAX_LINE_BYTES);
    loop {
        // Lines that are already there are written at once.
        let line = match lines.next().now_or_never() {
            Some(line) => line,
            None => {
                log = log.flushed().await;
                lines.next().await
            }
        };
        let Ok(Some(line)) = line else { break };
        let text = match line {
            LimitedLine::Whole(text) => secrets.redacted(&text),
            LimitedLine::Oversized { size, .. } => format!("[a line or a part of one, {size} bytes, left out]"),
        };
        words.push(&text);
        log.write(&text);
        if log.unwritten.len() > MAX_BYTES_PER_SECOND {
            log = log.flushed().await;
        }
    }
    log.flushed().await;
}

/// Returns a line with every character escaped that a terminal or a log reader would interpret. Tabs stay: they only
/// move what follows.
pub(in crate::source) fn escape(text: &str) -> String {
    let parts: Vec<_> = text.trim_end_matches('\r').split('\t').map(escape_hidden).collect();
    parts.join("\t")
}

/// A log file that is limited in size and in bytes per second. Lines that cannot be written are dropped: a log must not
/// stop a source.
struct Log {
    file: LogFile,
    /// Lines that are not in the file yet.
    unwritten: String,
    window: Instant,
    spent: usize,
    dropped: usize,
}

impl Log {
    async fn open(path: PathBuf) -> Self {
        let file = spawn_blocking(move || LogFile::open(path)).await.unwrap_or_default();
        Self { file, unwritten: String::new(), window: Instant::now(), spent: 0, dropped: 0 }
    }

    fn write(&mut self, line: &str) {
        if self.window.elapsed() >= Duration::from_secs(1) {
            (self.window, self.spent) = (Instant::now(), 0);
            match std::mem::take(&mut self.dropped) {
                0 => {}
                dropped => self.append(&format!("[{dropped} bytes left out: more than a source may write per second]")),
            }
        }
        self.spent += line.len() + 1;
        if self.spent > MAX_BYTES_PER_SECOND {
            self.dropped += line.len() + 1;
        } else {
            self.append(line);
        }
    }

    fn append(&mut self, line: &str) {
        self.unwritten += &format!("{} {line}\n", jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ"));
    }

    /// Writes the lines that are not in the file yet, on a thread that may wait for the disk.
    async fn flushed(mut self) -> Self {
        if !self.unwritten.is_empty() {
            let (mut file, lines) = (std::mem::take(&mut self.file), std::mem::take(&mut self.unwritten));
            let written = spawn_blocking(move || {
                file.append(&lines);
                file
            });
            self.file = written.await.unwrap_or_default();
        }
        self
    }
}

/// The file of a log. Without one, lines are dropped.
#[derive(Default)]
struct LogFile {
    path: PathBuf,
    file: Option<File>,
    size: u64,
}

impl LogFile {
    fn open(path: PathBuf) -> Self {
        let file = append_to(&path);
        if file.is_none() {
            tracing::warn!(file = %path.display(), "cannot open the log of a source; its standard error is not kept");
        }
        let size = file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |meta| meta.len());
        Self { path, file, size }
    }

    fn append(&mut self, lines: &str) {
        if self.size > MAX_LOG_BYTES {
            self.rotate();
        }
        self.size += lines.len() as u64;
        if let Some(file) = &mut self.file
            && file.write_all(lines.as_bytes()).is_err()
        {
            self.file = None;
        }
    }

    fn rotate(&mut self) {
        // If the rename fails, the file is truncated nevertheless: the limit holds, and the older lines are lost.
        let _ = std::fs::rename(&self.path, self.path.with_extension("log.1"));
        self.file = options().write(true).truncate(true).open(&self.path).ok();
        self.size = 0;
    }
}

fn append_to(path: &Path) -> Option<File> {
    DirBuilder::new().recursive(true).mode(private::FOLDER_MODE).create(path.parent()?).ok()?;
    options().append(true).open(path).ok()
}

/// Returns options that create a private log file and do not follow a symbolic link.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    options.create(true).mode(private::FILE_MODE).custom_flags(no_follow);
    options
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::pin::pin;

    use futures_util::poll;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    async fn captured(text: &[u8], secrets: &[&str]) -> (String, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs/x.log");
        let words = StderrTail::default();
        let secrets = RedactedValues::new(secrets.iter().copied());
        capture(text, path.clone(), secrets, words.clone()).await;
        (std::fs::read_to_string(path).unwrap(), words.text())
    }

    #[tokio::test]
    async fn control_characters_are_escaped_and_secrets_are_redacted() {
        let (log, words) =
            captured("red \x1b[31m \u{202e}gnp key=hunter22\nlast\n".as_bytes(), &["hunter22", "k"]).await;
        assert_eq!(words, "red \\u{1b}[31m \\u{202e}gnp key=[secret] | last");
        assert!(log.contains("key=[secret]") && !log.contains('\x1b'), "{log}");
    }

    #[tokio::test]
    async fn each_line_of_a_secret_of_several_lines_is_redacted() {
        let (log, words) =
            captured(b"of MIIEowIBAAKC\nand QIDAQAB==x\n", &["-----BEGIN\nMIIEowIBAAKC\nQIDAQAB==\n"]).await;
        assert_eq!(words, "of [secret] | and [secret]x");
        assert!(log.contains("of [secret]"), "{log}");
    }

    #[tokio::test]
    async fn a_flood_of_lines_leaves_its_end_and_a_bounded_log() {
        let flood: String = (0..200_000).map(|n| format!("line {n}\n")).collect();
        let (log, words) = captured(flood.as_bytes(), &[]).await;
        assert!(words.ends_with("line 199999") && words.len() <= 3 * LAST_WORDS_BYTES, "{words}");
        assert!(log.len() < flood.len() / 2, "{}", log.len());
    }

    #[test]
    fn a_log_is_opened_and_written_on_no_thread_of_the_runtime() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.log");
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            // The only other thread is busy until it is told.
            let busy = || {
                let (done, wait) = std::sync::mpsc::channel::<()>();
                drop(spawn_blocking(move || wait.recv()));
                done
            };
            let done = busy();
            let mut opening = pin!(Log::open(path.clone()));
            assert!(poll!(opening.as_mut()).is_pending() && !path.exists());
            drop(done);
            let mut log = opening.await;
            let done = busy();
            log.write("one");
            log.write("two");
            let mut flushing = pin!(log.flushed());
            assert!(poll!(flushing.as_mut()).is_pending());
            drop(done);
            flushing.await;
            assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);
        });
    }

    #[tokio::test]
    async fn what_a_source_says_is_in_its_log_before_it_says_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.log");
        let (mut source, input) = tokio::io::duplex(64);
        let words = StderrTail::default();
        let capturing = tokio::spawn(capture(input, path.clone(), RedactedValues::default(), words));
        source.write_all(b"one\ntwo\n").await.unwrap();
        while std::fs::read_to_string(&path).unwrap_or_default().lines().count() < 2 {
            tokio::task::yield_now().await;
        }
        drop(source);
        capturing.await.unwrap();
    }

    #[test]
    fn the_log_is_rotated_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.log");
        let mut log = LogFile::open(path.clone());
        let line = "x".repeat(1024 * 1024);
        for _ in 0..12 {
            log.append(&line);
        }
        let sizes: u64 = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        assert!(sizes < 2 * (MAX_LOG_BYTES + 2 * 1024 * 1024), "{sizes}");
    }
}
