//! Frames that all have the same length.

use crate::{
    buffer::OutboundBuffer,
    error::{EncodeError, Error, Result},
    pipeline::Codec,
};
use bytes::Bytes;

/// A codec for frames of a fixed number of bytes.
///
/// ```text
///   bytes in (FixedLength::new(3))        messages
///   a b ┊ c d e f g                  ►    "abc"  "def"; "g" waits            ┊ = two reads
/// ```
///
/// When the peer ends its stream, an incomplete frame is dropped.
///
/// Runs on the channel's loop. The channel keeps the bytes of an incomplete frame. A message shares
/// the memory of the read buffer.
///
/// ```
/// use bytes::Bytes;
/// use netwheel::{Codec, buffer::OutboundBuffer, codec::FixedLength};
///
/// # fn main() -> netwheel::Result {
/// let mut frames = FixedLength::new(3)?;
///
/// let mut input = Bytes::from_static(b"abcd");
/// assert_eq!(frames.decode(&mut input)?.unwrap(), "abc");
/// assert!(frames.decode(&mut input)?.is_none());
///
/// let mut output = OutboundBuffer::new();
/// frames.encode(Bytes::from_static(b"xyz"), &mut output)?;
/// assert!(frames.encode(Bytes::from_static(b"xy"), &mut output).is_err());
/// assert_eq!(output.to_bytes(), "xyz");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct FixedLength {
    length: usize,
}

impl FixedLength {
    /// Returns a codec for frames of `length` bytes.
    ///
    /// A frame longer than [`max_inbound`](crate::channel::ChannelOptions::max_inbound) never
    /// becomes complete.
    ///
    /// # Errors
    /// [`Error::Setting`] for a length of 0.
    pub fn new(length: usize) -> Result<Self> {
        if length == 0 {
            return Err(Error::setting("length", length, "at least 1 byte"));
        }
        Ok(FixedLength { length })
    }
}

impl Codec for FixedLength {
    type Read = Bytes;
    type Write = Bytes;

    #[inline]
    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        Ok((input.len() >= self.length).then(|| input.split_to(self.length)))
    }

    /// Appends one frame.
    ///
    /// # Errors
    /// [`EncodeError::Unencodable`] for a message of another length.
    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        if message.len() != self.length {
            let why = format!("a message of {} bytes; a frame has {}", message.len(), self.length);
            return Err(EncodeError::Unencodable(why.into()).into());
        }
        output.put(message);
        Ok(())
    }

    fn encoding_key(&self) -> Option<u64> {
        Some(self.length as u64)
    }
}
