//! Standard error. Its reader may stop reading, and a write to a full pipe then waits for ever. A command that serves
//! therefore writes to it from a separate thread, and drops lines rather than wait for a reader.

use std::backtrace::Backtrace;
use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::output::escape_hidden;

/// The most text that waits for the reader, in bytes.
const CAPACITY: usize = 256 * 1024;
/// The longest that the end of the program waits for the reader.
const LAST_WAIT: Duration = Duration::from_secs(1);

static BACKGROUND: OnceLock<Queue> = OnceLock::new();

/// Has a separate thread write everything from now on, also the message of a panic.
///
/// # Errors
/// The system does not start the thread.
pub(crate) fn write_in_background() -> io::Result<()> {
    let queue = Queue::start(io::stderr())?;
    if BACKGROUND.set(queue).is_ok() {
        std::panic::set_hook(Box::new(|panic| {
            // If this fails, there is nowhere left to report it.
            let _ = StandardError.write_all(panic_text(panic).as_bytes());
        }));
    }
    Ok(())
}

/// A guard that, when it is dropped, waits until everything is written, for one second at most: nobody may be reading.
pub(crate) struct FinishOnDrop;

impl Drop for FinishOnDrop {
    fn drop(&mut self) {
        if let Some(queue) = BACKGROUND.get() {
            queue.finish(LAST_WAIT);
        }
    }
}

fn panic_text(panic: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let text = format!("thread `{}` {panic}\n{}", thread.name().unwrap_or_default(), Backtrace::capture());
    text.lines().map(|line| format!("{}\n", escape_hidden(line))).collect()
}

/// The writer of whole lines to standard error: at once, or in the background after [`write_in_background`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct StandardError;

impl Write for StandardError {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        match BACKGROUND.get() {
            Some(queue) => queue.push(lines),
            None => io::stderr().write_all(lines)?,
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        match BACKGROUND.get() {
            Some(_) => Ok(()),
            None => io::stderr().flush(),
        }
    }
}

/// A queue of lines, and the thread that writes them.
struct Queue {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    /// The number of writes that found no room behind the text that waits.
    dropped: u64,
    is_writing: bool,
}

impl Queue {
    fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        std::thread::Builder::new().name("standard-error".to_owned()).spawn(move || of_thread.write_to(out))?;
        Ok(Self { shared })
    }

    /// Queues lines, or drops them where there is no room. It never waits for the reader.
    fn push(&self, lines: &[u8]) {
        let mut state = self.shared.lock();
        if state.waiting.len() + lines.len() > CAPACITY {
            state.dropped += 1;
            return;
        }
        state.waiting.extend_from_slice(lines);
        drop(state);
        self.shared.changed.notify_all();
    }

    fn finish(&self, longest: Duration) {
        let state = self.shared.lock();
        let is_busy = |state: &mut State| state.is_writing || !state.waiting.is_empty();
        drop(self.shared.changed.wait_timeout_while(state, longest, is_busy));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_to(&self, mut out: impl Write) {
        loop {
            let lines = self.next();
            // If this fails, there is nowhere left to report it.
            let _ = out.write_all(&lines).and_then(|()| out.flush());
            self.lock().is_writing = false;
            self.changed.notify_all();
        }
    }

    /// Waits for lines and takes all that there are, with the number of those that were dropped after them.
    fn next(&self) -> Vec<u8> {
        let waited = self.changed.wait_while(self.lock(), |state| state.waiting.is_empty());
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let mut lines = std::mem::take(&mut state.waiting);
        let dropped = std::mem::take(&mut state.dropped);
        if dropped > 0 {
            lines.extend(format!("{dropped} messages were dropped here: nobody read standard error\n").bytes());
        }
        state.is_writing = true;
        lines
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

    use super::*;

    /// A pipe without room: a write says that it has begun, and waits until it is read.
    struct Pipe {
        begun: Sender<()>,
        content: SyncSender<Vec<u8>>,
    }

    impl Write for Pipe {
        fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
            let _ = self.begun.send(());
            self.content.send(lines.to_owned()).map(|()| lines.len()).map_err(io::Error::other)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn queue() -> (Queue, Receiver<()>, Receiver<Vec<u8>>) {
        let ((begun, writes), (content, read)) = (channel(), sync_channel(0));
        (Queue::start(Pipe { begun, content }).unwrap(), writes, read)
    }

    #[test]
    fn the_end_waits_until_everything_is_written() {
        let (queue, _, read) = queue();
        queue.push(b"one\n");
        queue.push(b"two\n");
        let reader = std::thread::spawn(move || read.iter().flatten().take(8).collect::<Vec<u8>>());
        queue.finish(Duration::MAX);
        assert_eq!(reader.join().unwrap(), b"one\ntwo\n");
    }

    #[test]
    fn without_a_reader_nothing_waits_and_what_has_no_room_is_counted() {
        let (queue, writes, read) = queue();
        queue.push(b"one\n");
        writes.recv().unwrap();
        queue.push(&[b'x'; CAPACITY]);
        queue.push(b"no room\n");
        queue.push(b"no room\n");
        queue.finish(Duration::ZERO);
        assert_eq!(read.recv().unwrap(), b"one\n");
        let rest = String::from_utf8(read.recv().unwrap()).unwrap();
        let after = "2 messages were dropped here: nobody read standard error\n";
        assert_eq!(rest.trim_start_matches('x'), after);
    }
}
