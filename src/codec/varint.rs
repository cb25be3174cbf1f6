//! Frames that begin with their length as a protobuf varint.
//!
//! Invariants: each attempt to decode an incomplete frame reads only its length, at most 5 bytes. A
//! frame longer than the limit is never collected: `left` counts its bytes that are still to be
//! dropped.

use crate::{
    buffer::OutboundBuffer,
    error::{EncodeError, PeerError, Result},
    pipeline::Codec,
};
use bytes::{Buf, Bytes};

/// The default of `max_len`, as for [`LengthField`](super::LengthField).
const DEFAULT_MAX_LEN: usize = 1024 * 1024;

/// The largest length, because protobuf's lengths are signed 32-bit numbers.
const MAX_VALUE: u32 = i32::MAX as u32;

/// The largest number of bytes of a length.
const MAX_WIDTH: usize = 5;

/// A codec for frames whose length precedes them as a varint of up to 32 bits.
///
/// This is the framing of protobuf's `writeDelimitedTo` and `parseDelimitedFrom`. The stage
/// `Protobuf` (feature `prost-014`) turns its frames into messages.
///
/// ```text
///   bytes in                          messages
///   02 "hi" 00 AC 02 (300 bytes)   ►  "hi", an empty message, 300 bytes
/// ```
///
/// Each byte of the length has seven bits of it, the lowest ones first. The highest bit is set in
/// all bytes except the last.
///
/// # Errors
///
/// | the peer sent | error | dropped |
/// |---|---|---|
/// | a length over `max_len` | [`PeerError::TooLong`], when its length is known | the frame, as it arrives |
/// | a length of more than 5 bytes, or of 2³¹ or more, which is negative in protobuf | [`PeerError::Corrupted`] | the 5 bytes |
///
/// After an error the next frame is decoded if the handler leaves the channel open. After
/// [`PeerError::Corrupted`] the bytes that follow are probably no frame, so close the channel.
///
/// A length with superfluous zero bits is accepted, because all protobuf implementations accept it.
/// For example, `82 00` is 2. The encoder uses the shortest form. A frame that is incomplete when
/// the peer ends its stream is dropped.
///
/// # Thread and memory
///
/// Runs on the channel's loop. The channel keeps the bytes of an incomplete frame: at most
/// `max_len`, and 5 bytes of length. A message shares the memory of the read buffer. Large messages
/// are written without a copy.
///
/// ```
/// use bytes::Bytes;
/// use netwheel::{Codec, buffer::OutboundBuffer, codec::Varint};
///
/// # fn main() -> netwheel::Result {
/// let mut frames = Varint::new().max_len(64 * 1024);
///
/// let mut output = OutboundBuffer::new();
/// frames.encode(Bytes::from_static(b"hello"), &mut output)?;
/// assert_eq!(output.to_bytes(), &b"\x05hello"[..]);
///
/// let mut input = Bytes::from_static(b"\x05hello\x07wor");
/// assert_eq!(frames.decode(&mut input)?.unwrap(), "hello");
/// assert!(frames.decode(&mut input)?.is_none());
/// assert_eq!(input, &b"\x07wor"[..]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[doc(alias = "ProtobufVarint32FrameDecoder")]
#[doc(alias = "ProtobufVarint32LengthFieldPrepender")]
pub struct Varint {
    max_len: usize,
    /// The bytes of a frame that is too long that have not arrived yet. At most [`MAX_VALUE`].
    left: u32,
}

impl Varint {
    /// Returns a codec for frames of at most 1 MiB.
    pub fn new() -> Self {
        Varint { max_len: DEFAULT_MAX_LEN, left: 0 }
    }

    /// Sets the length of the longest frame in bytes, without its length, for reading and writing.
    /// The default is 1 048 576.
    ///
    /// This bounds the memory that a peer can occupy with an unfinished frame. Frames of 2 GiB and
    /// more are refused with any limit.
    pub fn max_len(mut self, bytes: usize) -> Self {
        self.max_len = bytes;
        self
    }

    /// Drops the bytes of a frame that is too long.
    fn discard(&mut self, input: &mut Bytes) {
        // At most `input.len()` and `left`, so both conversions are exact.
        let here = input.len().min(self.left as usize);
        input.advance(here);
        self.left -= here as u32;
    }

    /// Handles the length of a frame that is too long or no frame at all.
    #[cold]
    fn refuse(&mut self, header: Header, input: &mut Bytes) -> Result<Option<Bytes>> {
        input.advance(header.width);
        match header.length {
            Ok(length) => {
                // The next call drops the bytes of the frame.
                self.left = length;
                let length = u64::from(length);
                Err(PeerError::TooLong { what: "frame", length, limit: self.max_len }.into())
            }
            Err(why) => Err(PeerError::Corrupted(why).into()),
        }
    }
}

impl Default for Varint {
    fn default() -> Self {
        Self::new()
    }
}

/// The length of a frame.
struct Header {
    /// The number of its bytes.
    width: usize,
    /// The length, or the reason why it is none.
    length: Result<u32, &'static str>,
}

impl Header {
    /// Reads the length at the front of `input`. Returns `None` if it is incomplete.
    #[inline]
    fn read(input: &[u8]) -> Option<Header> {
        let mut value = 0u64;
        for (at, byte) in input.iter().take(MAX_WIDTH).enumerate() {
            value |= u64::from(byte & 0x7F) << (7 * at);
            if byte & 0x80 == 0 {
                let length = u32::try_from(value).ok().filter(|length| *length <= MAX_VALUE);
                return Some(Header { width: at + 1, length: length.ok_or("the length is negative") });
            }
        }
        let length = Err("the length has more than 5 bytes");
        (input.len() >= MAX_WIDTH).then_some(Header { width: MAX_WIDTH, length })
    }
}

impl Codec for Varint {
    type Read = Bytes;
    type Write = Bytes;

    #[inline]
    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        if self.left > 0 {
            self.discard(input);
        }
        let Some(header) = Header::read(input) else { return Ok(None) };
        let length = match header.length {
            Ok(length) if length as usize <= self.max_len => length as usize,
            _ => return self.refuse(header, input),
        };
        if input.len() - header.width < length {
            return Ok(None);
        }
        input.advance(header.width);
        Ok(Some(input.split_to(length)))
    }

    /// Appends one frame.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`] for a message longer than `max_len`, or of 2 GiB and more.
    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        let limit = self.max_len.min(MAX_VALUE as usize);
        if message.len() > limit {
            let (length, limit) = (message.len() as u64, limit as u64);
            return Err(EncodeError::TooLong { what: "frame", length, limit }.into());
        }
        let mut value = message.len();
        while value >= 0x80 {
            output.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        output.put_u8(value as u8);
        output.put(message);
        Ok(())
    }

    fn encoded_len_hint(message: &Bytes) -> Option<usize> {
        Some(message.len() + MAX_WIDTH)
    }

    fn encoding_key(&self) -> Option<u64> {
        Some(self.max_len as u64)
    }
}
