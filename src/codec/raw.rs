//! No framing: each read is one message.

use crate::{buffer::OutboundBuffer, error::Result, pipeline::Codec};
use bytes::Bytes;

/// A codec without framing: the bytes of each read are one message.
///
/// The network decides where one message ends and the next begins. Use it for echo servers,
/// proxies, and handlers that do their own framing.
///
/// ```text
///   bytes in                     messages
///   68 65 6C ┊ 6C 6F 21    ►     "hel"  "lo!"            ┊ = two reads
/// ```
///
/// Runs on the channel's loop and has no state. A message shares the memory of the loop's read
/// buffer.
///
/// ```
/// use bytes::Bytes;
/// use netwheel::{Codec, buffer::OutboundBuffer, codec::RawBytes};
///
/// # fn main() -> netwheel::Result {
/// let mut input = Bytes::from_static(b"whatever");
/// let message = RawBytes.decode(&mut input)?.unwrap();
/// assert_eq!(message, "whatever");
/// assert!(RawBytes.decode(&mut input)?.is_none());
///
/// let mut output = OutboundBuffer::new();
/// RawBytes.encode(message, &mut output)?;
/// assert_eq!(output.to_bytes(), "whatever");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default, Clone, Copy)]
pub struct RawBytes;

impl Codec for RawBytes {
    type Read = Bytes;
    type Write = Bytes;

    #[inline]
    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        Ok((!input.is_empty()).then(|| std::mem::take(input)))
    }

    #[inline]
    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        output.put(message);
        Ok(())
    }

    fn encoded_len_hint(message: &Bytes) -> Option<usize> {
        Some(message.len())
    }

    #[inline]
    fn encoding_key(&self) -> Option<u64> {
        Some(0)
    }
}
