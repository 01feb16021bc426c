//! A terminal for programs that ask for one.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::test_dir::DEADLINE;

/// A program in a terminal. It is killed when this is dropped.
pub(crate) struct Terminal {
    child: Child,
    keyboard: File,
    screen: Receiver<String>,
    shown: String,
}

impl Terminal {
    /// Runs a command in a terminal of its own.
    pub(crate) fn run(command: Command) -> Self {
        Self::sized(command, 24, 80)
    }

    /// Runs a command in a terminal of its own, of this size.
    pub(crate) fn sized(mut command: Command, rows: u16, columns: u16) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&controller, size).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let side = || Stdio::from(open(&*name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap());
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        // The command holds descriptors of the terminal, which must close for its output to end.
        drop(command);
        let keyboard = File::from(controller);
        let mut output = keyboard.try_clone().unwrap();
        let (sender, screen) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails once no process has the terminal open.
            while let Ok(count) = output.read(&mut bytes) {
                if sender.send(String::from_utf8_lossy(bytes.get(..count).unwrap_or_default()).into_owned()).is_err() {
                    return;
                }
            }
        });
        Self { child, keyboard, screen, shown: String::new() }
    }

    /// Waits until a text is shown, and forgets what was shown up to there. Returns that.
    pub(crate) fn shows(&mut self, text: &str) -> String {
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(at) = self.shown.find(text) {
                let rest = self.shown.split_off(at + text.len());
                return std::mem::replace(&mut self.shown, rest);
            }
            match self.screen.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(more) => self.shown.push_str(&more),
                Err(_) => panic!("{text:?} is not shown, only {:?}", self.shown),
            }
        }
    }

    /// Presses keys.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Asks the program to end, as Ctrl-C does where the terminal controls it.
    pub(crate) fn interrupt(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    }

    /// Waits for the end of the program, and returns its exit code.
    pub(crate) fn ended(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
