//! The buffer in which a message is received. The buffers of large messages are used again.
//!
//! The system fills each new page of memory with zeros and maps it when it is first written to, which costs a large
//! message more than reading it does.

use bytes::Bytes;

use crate::sync::Mutex;

/// The sizes in bytes of the smallest and the largest buffer that are reused; the others are the powers of two between
/// them, so that no buffer is more than twice as large as needed. Allocators keep smaller ones themselves, and larger
/// ones are rare.
const SMALLEST: usize = 256 * 1024;
const LARGEST: usize = 2 * 1024 * 1024;

/// The most buffers that are kept for later. A call takes three, and gives them back at about the time at which the next
/// one comes; two may come at once.
const MAX_IDLE: usize = 8;

/// The buffers that are kept for later, for all connections together: at most 16 MiB.
static IDLE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// A message that is being received, of at most a certain size.
#[derive(Debug, Default)]
pub struct MessageBuffer(Vec<u8>);

impl MessageBuffer {
    /// Returns a buffer for a message of this size in bytes, if it is known, which may be an estimate.
    #[must_use]
    pub fn with_capacity(size: usize) -> Self {
        Self(if (SMALLEST..=LARGEST).contains(&size) { recycled(size) } else { Vec::with_capacity(size) })
    }

    /// Adds bytes of a message of at most `limit` bytes; the limit is for the caller to enforce. The buffer of a large
    /// message is grown to the largest size that is used again, and that of a very large one to the limit: memory that
    /// is never written to is not resident, and growing in steps would hold the old and the new buffer together.
    pub fn extend(&mut self, part: &[u8], limit: usize) {
        let needed = self.0.len().saturating_add(part.len());
        if needed > self.0.capacity() && needed > SMALLEST {
            let larger = if needed <= LARGEST { recycled(LARGEST) } else { Vec::with_capacity(limit.max(needed)) };
            let held = std::mem::replace(self, Self(larger));
            self.0.extend_from_slice(&held.0);
        }
        self.0.extend_from_slice(part);
    }

    /// Returns the bytes so far.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// Returns the number of bytes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Reports whether there are no bytes yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Gives back the capacity that the message does not need. A buffer that is used again may be up to twice as large as
    /// its message.
    pub fn shrink(&mut self) {
        if !is_recyclable(&self.0) {
            self.0.shrink_to_fit();
        } else if self.0.len() < self.0.capacity() / 2 {
            let mut fitting = Self::with_capacity(self.0.len());
            fitting.0.extend_from_slice(&self.0);
            *self = fitting;
        }
    }

    /// Returns the message. Its buffer is kept for reuse once no part of it is in use.
    #[must_use]
    pub fn into_bytes(mut self) -> Bytes {
        self.shrink();
        if is_recyclable(&self.0) { Bytes::from_owner(self) } else { std::mem::take(&mut self.0).into() }
    }
}

impl AsRef<[u8]> for MessageBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for MessageBuffer {
    fn drop(&mut self) {
        if is_recyclable(&self.0) {
            let mut buffer = std::mem::take(&mut self.0);
            buffer.clear();
            let mut idle = IDLE.lock();
            if idle.len() == MAX_IDLE {
                // The oldest one, perhaps of a size that nobody needs any more.
                idle.remove(0);
            }
            idle.push(buffer);
        }
    }
}

/// Returns an empty buffer that is at least this large.
fn recycled(size: usize) -> Vec<u8> {
    let capacity = size.next_power_of_two();
    let mut idle = IDLE.lock();
    let found = idle.iter().position(|buffer| buffer.capacity() == capacity);
    let found = found.map(|at| idle.remove(at));
    drop(idle);
    found.unwrap_or_else(|| Vec::with_capacity(capacity))
}

fn is_recyclable(buffer: &Vec<u8>) -> bool {
    (SMALLEST..=LARGEST).contains(&buffer.capacity()) && buffer.capacity().is_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_what_was_added_whatever_its_size_and_whatever_the_buffer_held_before() {
        for (round, size) in
            [10, SMALLEST, SMALLEST + 1, 1_000_000, LARGEST, LARGEST + 1, 300_000, 5].into_iter().enumerate()
        {
            let byte = b'a' + u8::try_from(round).unwrap_or_default();
            for announced in [0, size] {
                let mut buffer = MessageBuffer::with_capacity(announced);
                let whole = vec![byte; size];
                for part in whole.chunks(64 * 1024) {
                    buffer.extend(part, 3 * LARGEST);
                }
                assert_eq!(buffer.len(), size);
                buffer.shrink();
                assert!(buffer.0.capacity() <= 2 * size, "{size} bytes");
                let bytes = buffer.into_bytes();
                assert!(bytes == whole, "{size} bytes");
            }
            assert!(IDLE.lock().len() <= MAX_IDLE);
        }
    }

    #[test]
    fn the_buffer_of_a_message_is_kept_until_its_last_part_is_gone() {
        let mut buffer = MessageBuffer::with_capacity(SMALLEST);
        buffer.extend(&[7; SMALLEST], SMALLEST);
        let place = buffer.as_slice().as_ptr();
        let part = buffer.into_bytes().slice(10..20);
        assert!(!IDLE.lock().iter().any(|idle| idle.as_ptr() == place));
        assert_eq!(part, [7; 10].as_slice());
    }
}
