//! The body of a message: chunked, of a known length, or until the end of the stream.

mod chunks;
mod decoder;

pub(super) use decoder::{BodyDecoder, BodyPart};

/// Returns the memory of a waiting chunk: its bytes and the overhead of a queue.
pub(crate) fn chunk_weight(chunk: &bytes::Bytes) -> usize {
    const OVERHEAD: usize = 64;
    chunk.len() + OVERHEAD
}
