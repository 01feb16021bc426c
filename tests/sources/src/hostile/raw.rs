//! Raw system calls, for what no safe library offers because no reasonable program needs it.
#![expect(unsafe_code, reason = "a hostile program makes the system calls that safe libraries do not")]

use std::ffi::{CStr, c_long};
use std::io;

/// An argument of a system call.
#[derive(Clone, Copy)]
pub(crate) struct Word(usize);

impl From<u32> for Word {
    fn from(number: u32) -> Self {
        Self(number as usize)
    }
}

impl From<i32> for Word {
    fn from(number: i32) -> Self {
        Self(number as isize as usize)
    }
}

impl From<usize> for Word {
    fn from(number: usize) -> Self {
        Self(number)
    }
}

impl From<&CStr> for Word {
    fn from(text: &CStr) -> Self {
        Self(text.as_ptr() as usize)
    }
}

impl<T> From<&mut T> for Word {
    fn from(place: &mut T) -> Self {
        Self(std::ptr::from_mut(place) as usize)
    }
}

/// Makes a system call with up to six arguments. Pointers are valid for the call, and no kernel interface that is tried
/// here keeps one.
pub(crate) fn call<const N: usize>(number: c_long, words: [Word; N]) -> io::Result<i64> {
    let at = |index: usize| words.get(index).map_or(0, |word| word.0);
    // SAFETY: every pointer among the words was made of a reference that outlives this call, to as many bytes as the
    // callers' sizes say. Calls that replace or duplicate the process are made in a child that ends at once
    // (`in_child`).
    let done = unsafe { libc::syscall(number, at(0), at(1), at(2), at(3), at(4), at(5)) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}

/// Runs something in a child process, which a filter may kill and whose namespaces and privileges are its own.
pub(crate) fn in_child(what: impl FnOnce() -> io::Result<i64>) -> io::Result<i64> {
    // SAFETY: this program has one thread, so the child is a complete copy of it. It ends by `_exit`, which runs no
    // exit handlers.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = match what() {
                Ok(_) => 0,
                Err(error) => error.raw_os_error().filter(|code| (1..=200).contains(code)).unwrap_or(200),
            };
            // SAFETY: ends this process and touches no memory.
            unsafe { libc::_exit(code) }
        }
        child => {
            let mut status = 0;
            call(libc::SYS_wait4, [child.into(), Word::from(&mut status), 0_i32.into(), 0_i32.into()])?;
            match status {
                0 => Ok(0),
                status if status & 0x7f == 0 => Err(io::Error::from_raw_os_error(status >> 8)),
                status => Err(io::Error::other(format!("killed by signal {}", status & 0x7f))),
            }
        }
    }
}

/// Starts a child process that sleeps until it is killed, and returns its pid.
pub(crate) fn sleeping_child() -> io::Result<i32> {
    // SAFETY: as in `in_child`; the child only sleeps.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => loop {
            // SAFETY: takes a number.
            unsafe { libc::sleep(1000) };
        },
        child => Ok(child),
    }
}

/// Ignores a signal from now on.
pub(crate) fn ignore(signal: i32) {
    // SAFETY: installs no handler.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Maps memory and writes to each page of it. It stays for as long as the process lives.
pub(crate) fn take_memory(bytes: usize, flags: i32) -> io::Result<i64> {
    map(bytes, flags | libc::MAP_ANONYMOUS, -1)
}

/// Maps memory of an open file, or anonymous memory for the file -1, and writes to each page of it.
pub(crate) fn map(bytes: usize, flags: i32, file: i32) -> io::Result<i64> {
    let (none, protection) = (Word::from(0_usize), libc::PROT_READ | libc::PROT_WRITE);
    let start = call(libc::SYS_mmap, [none, bytes.into(), protection.into(), flags.into(), file.into(), none])?;
    fill(start, bytes);
    Ok(start)
}

/// Takes a System V segment, which is removed when the process ends.
pub(crate) fn segment(bytes: usize) -> io::Result<i64> {
    let made = call(libc::SYS_shmget, [libc::IPC_PRIVATE.into(), bytes.into(), 0o600_i32.into()])?;
    let made = Word::from(i32::try_from(made).unwrap_or(-1));
    let start = call(libc::SYS_shmat, [made, 0_usize.into(), 0_usize.into()]);
    call(libc::SYS_shmctl, [made, libc::IPC_RMID.into(), 0_usize.into()])?;
    let start = start?;
    fill(start, bytes);
    Ok(start)
}

/// Makes a system call by the number that it has on 32-bit machines.
#[cfg(target_arch = "x86_64")]
pub(crate) fn call_32(number: i32) -> io::Result<i64> {
    let done: i32;
    // SAFETY: the kernel takes the number and gives the result in one register and clobbers no other; no memory is
    // passed.
    unsafe {
        std::arch::asm!("int 0x80", inlateout("eax") number => done, lateout("r8") _, lateout("r9") _, lateout("r10") _, lateout("r11") _)
    };
    if done < 0 { Err(io::Error::from_raw_os_error(-done)) } else { Ok(done.into()) }
}

fn fill(start: i64, bytes: usize) {
    for page in 0..bytes / 4096 {
        // SAFETY: the kernel has just mapped these bytes, writable, and nothing else uses them.
        unsafe { (start as *mut u8).add(page * 4096).write_volatile(1) };
    }
}
