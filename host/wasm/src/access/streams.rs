//! The streams of files, which pass a part at a time: data that a stream has taken and not yet given to the system is
//! memory of the broker that no limit of the component counts.

use bytes::Bytes;
use wasmtime_wasi::p2::{
    DynInputStream, DynOutputStream, InputStream, OutputStream, Pollable, StreamError, StreamResult,
};

/// The most bytes that a stream of a file reads or writes at a time, as a pipe of the system does. An instance has some
/// 250 streams.
const PART_BYTES: usize = 64 << 10;

/// A stream of a file that passes at most [`PART_BYTES`] at a time.
pub(super) struct InParts<S>(pub(super) S);

#[async_trait::async_trait]
impl<S: Pollable> Pollable for InParts<S> {
    async fn ready(&mut self) {
        self.0.ready().await;
    }
}

#[async_trait::async_trait]
impl InputStream for InParts<DynInputStream> {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        self.0.read(size.min(PART_BYTES))
    }

    async fn blocking_read(&mut self, size: usize) -> StreamResult<Bytes> {
        self.0.blocking_read(size.min(PART_BYTES)).await
    }

    async fn cancel(&mut self) {
        self.0.cancel().await;
    }
}

#[async_trait::async_trait]
impl OutputStream for InParts<DynOutputStream> {
    /// A file's stream would otherwise take whatever it is given, permitted or not.
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if bytes.len() > PART_BYTES {
            let length = bytes.len();
            return Err(StreamError::trap(&format!(
                "it wrote {length} bytes to a file at a time, of which {PART_BYTES} are permitted"
            )));
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.0.flush()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(self.0.check_write()?.min(PART_BYTES))
    }

    async fn blocking_write_and_flush(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.0.blocking_write_and_flush(bytes).await
    }

    async fn cancel(&mut self) {
        self.0.cancel().await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use wasmtime_wasi::p2::pipe::{MemoryInputPipe, MemoryOutputPipe};

    use super::*;

    #[tokio::test]
    async fn a_stream_of_a_file_passes_a_part_at_a_time_and_takes_no_more() {
        let inner: DynOutputStream = Box::new(MemoryOutputPipe::new(1 << 20));
        let mut output = InParts(inner);
        assert_eq!(output.check_write().unwrap(), PART_BYTES);
        let refused = output.write(Bytes::from(vec![0_u8; PART_BYTES + 1])).unwrap_err();
        assert!(matches!(&refused, StreamError::Trap(_)) && refused.to_string().contains("65537 bytes"), "{refused}");
        assert!(matches!(output.write_zeroes(PART_BYTES + 1), Err(StreamError::Trap(_))));
        output.write(Bytes::from(vec![0_u8; PART_BYTES])).unwrap();

        let inner: DynInputStream = Box::new(MemoryInputPipe::new(vec![0_u8; 1 << 20]));
        let mut input = InParts(inner);
        assert_eq!(input.read(1 << 20).unwrap().len(), PART_BYTES);
        assert_eq!(input.blocking_read(1 << 20).await.unwrap().len(), PART_BYTES);
    }
}
