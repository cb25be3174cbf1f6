//! Frames that begin with a header that contains their length.
//!
//! Invariants: each attempt to decode an incomplete frame reads only its header. A frame longer
//! than the limit is never collected: `left` counts its bytes that are still to be dropped, and
//! nothing is decoded before that. The arithmetic neither wraps nor panics for any 64-bit length.

use super::header_shape::{Narrow, Shape};
use crate::{
    buffer::OutboundBuffer,
    error::{EncodeError, Error, PeerError, Result},
    pipeline::{Codec, combine},
};
use bytes::{Buf, Bytes};

/// The default of `max_len`, which bounds the memory that a peer can occupy with an unfinished
/// frame.
const DEFAULT_MAX_LEN: usize = 1024 * 1024;

/// A codec for frames with a length field in their header.
///
/// For the usual protocols use [`u8`](LengthField::u8), [`u16`](LengthField::u16),
/// [`u24`](LengthField::u24), [`u32`](LengthField::u32) or [`u64`](LengthField::u64): a length in
/// network byte order, followed by the payload. Reading strips the length, writing prepends it. For
/// any other header use [`builder`](LengthField::builder), which checks that its settings agree.
///
/// # A frame
///
/// ```text
///   ┌───────────┬───────────┬──────────────────────────┐
///   │  offset   │   width   │   length + adjustment    │   the whole is at most max_len
///   └───────────┴───────────┴──────────────────────────┘
///   ◄──────── strip ────────┤◄─────── message ─────────►
/// ```
///
/// # Configurations
///
/// `"hi"` is the payload. `CA` and `FE` are other bytes of the header.
///
/// | configuration | bytes on the wire | message |
/// |---|---|---|
/// | `u16()` | `00 02 "hi"` | `"hi"` |
/// | `u16().little_endian()` | `02 00 "hi"` | `"hi"` |
/// | `builder().width(2).strip(0)` | `00 02 "hi"` | `00 02 "hi"` |
/// | `builder().width(2).adjustment(-2)`: the length counts itself | `00 04 "hi"` | `"hi"` |
/// | `builder().width(2).adjustment(2)`: the length leaves out `CA FE` | `00 02 CA FE "hi"` | `CA FE "hi"` |
/// | `builder().width(2).offset(1)` | `CA 00 02 "hi"` | `CA 00 02 "hi"` |
/// | `builder().width(2).offset(1).strip(3)` | `CA 00 02 "hi"` | `"hi"` |
/// | `builder().width(2).offset(1).adjustment(-3).strip(3)`: the length counts the whole frame | `CA 00 06 FE "hi"` | `FE "hi"` |
///
/// # Writing
///
/// A message to write has the form of a message that was read. Encoding inserts the stripped part
/// of the length field; all other bytes of the frame must be in the message, at their positions:
///
/// - If only the length field at the front is stripped, the length is prepended. This is the case
///   for the shortcuts, and by default for the builder.
/// - If nothing is stripped, a message is a whole frame, and its length field must be correct.
/// - If other bytes of the header are stripped, the message to write must contain them, because the
///   codec does not know their values. With the configuration in the last row but one, `CA "hi"` is
///   written and `"hi"` is read.
///
/// In the first two cases the peer reads exactly the message that was written.
///
/// # Errors
///
/// | the peer sent | error | dropped |
/// |---|---|---|
/// | a frame over `max_len` | [`PeerError::TooLong`], once, when its length is known | the frame, as it arrives |
/// | a length that is negative, or ends the frame inside its own header | [`PeerError::Corrupted`] | the header |
/// | a complete frame shorter than `strip` | [`PeerError::Corrupted`] | the frame |
///
/// With [`fail_slow`](LengthField::fail_slow) the first error is reported when the whole frame has
/// arrived. After an error the next frame is decoded if the handler leaves the channel open. A
/// frame that is incomplete when the peer ends its stream is dropped. Eight-byte lengths are
/// signed, so 2⁶³ and more are negative.
///
/// # Thread and memory
///
/// Runs on the channel's loop. The channel keeps the bytes of an incomplete frame, at most
/// `max_len`. A message shares the memory of the read buffer. Large messages are written without a
/// copy.
///
/// ```
/// use bytes::Bytes;
/// use netwheel::{Codec, buffer::OutboundBuffer, codec::LengthField};
///
/// # fn main() -> netwheel::Result {
/// let mut frames = LengthField::u32().max_len(64 * 1024);
///
/// let mut output = OutboundBuffer::new();
/// frames.encode(Bytes::from_static(b"hello"), &mut output)?;
/// assert_eq!(output.to_bytes(), &b"\0\0\0\x05hello"[..]);
///
/// let mut input = Bytes::from_static(b"\0\0\0\x05hello\0\0\0\x07wor");
/// assert_eq!(frames.decode(&mut input)?.unwrap(), "hello");
/// assert!(frames.decode(&mut input)?.is_none());
/// assert_eq!(input, &b"\0\0\0\x07wor"[..]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[doc(alias = "LengthFieldBasedFrameDecoder")]
#[doc(alias = "LengthDelimitedCodec")]
pub struct LengthField {
    max_len: usize,
    /// The shape of the header, unless `seldom` has one.
    narrow: Narrow,
    width: u8,
    little_endian: bool,
    fail_slow: bool,
    /// Whether the fast path applies: four bytes of length in network byte order, and the payload.
    plain: bool,
    /// Boxed, because every channel has a codec and few need this.
    seldom: Option<Box<Seldom>>,
}

/// The allocator uses 32 bytes for a pipeline with this codec, and 48 if the codec is larger.
#[cfg(all(test, target_pointer_width = "64"))]
const _: () = assert!(size_of::<LengthField>() == 24);

#[derive(Debug, Clone)]
struct Seldom {
    /// The shape of the header, which may also be narrow.
    shape: Shape,
    /// A frame that is too long and has not ended.
    overlong: Option<Overlong>,
}

#[derive(Debug, Clone, Copy)]
struct Overlong {
    length: u64,
    /// The number of its bytes that have not arrived yet.
    left: u64,
}

impl LengthField {
    /// Returns a codec for a length of one byte, followed by at most 255 bytes of payload.
    pub fn u8() -> Self {
        Self::with_width(1)
    }

    /// Returns a codec for a length of two bytes, followed by the payload.
    pub fn u16() -> Self {
        Self::with_width(2)
    }

    /// Returns a codec for a length of three bytes, followed by the payload.
    pub fn u24() -> Self {
        Self::with_width(3)
    }

    /// Returns a codec for a length of four bytes, followed by the payload.
    pub fn u32() -> Self {
        Self::with_width(4)
    }

    /// Returns a codec for a length of eight bytes, followed by the payload.
    pub fn u64() -> Self {
        Self::with_width(8)
    }

    /// Returns a builder for any header. It starts with the settings of [`LengthField::u32`].
    pub fn builder() -> LengthFieldBuilder {
        LengthFieldBuilder { frames: Self::u32(), width: 4, offset: 0, adjustment: 0, strip: None }
    }

    fn with_width(width: u8) -> Self {
        let frames = LengthField {
            max_len: DEFAULT_MAX_LEN,
            narrow: Narrow::of_width(width),
            width,
            little_endian: false,
            fail_slow: false,
            plain: false,
            seldom: None,
        };
        frames.prepared()
    }

    /// Sets the length of the longest frame in bytes, including its header, for reading and
    /// writing. The default is 1 MiB (1 048 576).
    ///
    /// This bounds the memory that a peer can occupy with an unfinished frame. It counts bytes on
    /// the wire, like Netty's `maxFrameLength`. A limit below the length of the header rejects all
    /// frames.
    pub fn max_len(mut self, bytes: usize) -> Self {
        self.max_len = bytes;
        self.prepared()
    }

    /// Reads and writes the length with its least significant byte first. The default is network
    /// byte order.
    pub fn little_endian(mut self) -> Self {
        self.little_endian = true;
        self.prepared()
    }

    /// Reports a frame that is too long when all of it has arrived and was dropped, instead of when
    /// its length is known.
    ///
    /// Choose this if the peer gets an answer, and should have finished sending by then.
    pub fn fail_slow(mut self) -> Self {
        self.fail_slow = true;
        self
    }

    fn prepared(mut self) -> Self {
        self.plain = self.shape() == Shape { adjustment: 0, offset: 0, strip: 4 }
            && self.width == 4
            && !self.little_endian
            && self.max_len >= 4;
        self
    }

    fn shape(&self) -> Shape {
        if let Some(seldom) = &self.seldom {
            return seldom.shape;
        }
        self.narrow.widened()
    }

    /// Sets the shape of the header, and forgets a frame that is too long.
    fn set_shape(&mut self, shape: Shape) {
        if let Some(narrow) = shape.narrowed() {
            (self.narrow, self.seldom) = (narrow, None);
        } else {
            self.seldom = Some(Box::new(Seldom { shape, overlong: None }));
        }
    }

    fn set_overlong(&mut self, overlong: Option<Overlong>) {
        let shape = self.shape();
        if overlong.is_some() {
            self.seldom = Some(Box::new(Seldom { shape, overlong }));
        } else {
            self.set_shape(shape);
        }
    }

    fn width(&self) -> usize {
        self.width.into()
    }

    /// Returns the end of the length field.
    fn header(&self, shape: Shape) -> usize {
        shape.offset() + self.width()
    }

    /// Returns the largest value of the length field.
    fn max_value(&self) -> u64 {
        if self.width == 8 { i64::MAX as u64 } else { (1 << (8 * self.width)) - 1 }
    }

    /// Returns the length of the longest frame that is allowed and that the length field can
    /// express, or `None` if no value of the length field makes a frame.
    fn longest(&self, shape: Shape) -> Option<u64> {
        let header = self.header(shape) as u64;
        let expressible = self.max_value().checked_add_signed(shape.adjustment)?.saturating_add(header);
        Some(expressible.min(self.max_len as u64))
    }

    /// Decodes with any configuration, in any state. Not inlined, so that the fast path does not
    /// pay for its registers and stack.
    #[inline(never)]
    fn decode_any(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        if let Some(overlong) = self.seldom.as_mut().and_then(|seldom| seldom.overlong.as_mut()) {
            let length = overlong.length;
            if !overlong.discard(input) {
                return Ok(None);
            }
            self.set_overlong(None);
            if self.fail_slow {
                return Err(self.too_long(length));
            }
        }
        let shape = self.shape();
        let header = self.header(shape);
        let Some(field) = input.get(shape.offset()..header) else { return Ok(None) };
        let value = self.read_length(field);
        let Some(rest) = value.checked_add_signed(shape.adjustment).filter(|_| value <= self.max_value())
        else {
            input.advance(header);
            return Err(self.corrupted(value));
        };
        let length = rest.saturating_add(header as u64);
        if length > self.max_len as u64 {
            let mut overlong = Overlong { length, left: length };
            let over = overlong.discard(input);
            if !over {
                self.set_overlong(Some(overlong));
            }
            let report = !self.fail_slow || over;
            return if report { Err(self.too_long(length)) } else { Ok(None) };
        }
        // At most `max_len`, so it fits.
        let frame = length as usize;
        if input.len() < frame {
            return Ok(None);
        }
        if shape.strip() > frame {
            input.advance(frame);
            return Err(PeerError::Corrupted("a frame is shorter than what is stripped from it").into());
        }
        input.advance(shape.strip());
        Ok(Some(input.split_to(frame - shape.strip())))
    }

    fn read_length(&self, field: &[u8]) -> u64 {
        let append = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        if self.little_endian { field.iter().rev().fold(0, append) } else { field.iter().fold(0, append) }
    }

    #[cold]
    fn too_long(&self, length: u64) -> Error {
        PeerError::TooLong { what: "frame", length, limit: self.max_len }.into()
    }

    #[cold]
    fn corrupted(&self, value: u64) -> Error {
        let why = if value > self.max_value() {
            "the length is negative"
        } else {
            "the length ends the frame inside its own header"
        };
        PeerError::Corrupted(why).into()
    }

    /// Encodes with any configuration; see `decode_any`.
    #[inline(never)]
    fn encode_any(&self, mut message: Bytes, output: &mut OutboundBuffer) -> Result {
        let shape = self.shape();
        let (header, offset) = (self.header(shape), shape.offset());
        // The part of the length field that reading does not strip.
        let left_in = header.saturating_sub(shape.strip().max(offset));
        let own = offset + left_in;
        let Some(rest) = message.len().checked_sub(own) else {
            return unencodable(format!("{} bytes, the header alone has {own}", message.len()));
        };
        let frame = (rest + header) as u64;
        let limit = self.longest(shape).unwrap_or(0);
        if frame > limit {
            return Err(EncodeError::TooLong { what: "frame", length: frame, limit }.into());
        }
        if frame < u64::from(shape.strip) {
            return unencodable(format!("a frame of {frame} bytes, {} are stripped", shape.strip));
        }
        // Not beyond `max_value`, or the frame would be longer than `longest`.
        let value = rest as i128 - i128::from(shape.adjustment);
        let Ok(value) = u64::try_from(value) else {
            return unencodable(format!("a length of {value}"));
        };
        let bytes = if self.little_endian { value.to_le_bytes() } else { value.to_be_bytes() };
        let field = if self.little_endian { &bytes[..self.width()] } else { &bytes[8 - self.width()..] };
        if message[offset..own] != field[self.width() - left_in..] {
            return unencodable(format!("the message's own length field does not say {value}"));
        }
        output.put_slice(&message[..offset]);
        output.put_slice(field);
        message.advance(own);
        output.put(message);
        Ok(())
    }
}

#[cold]
fn unencodable(why: String) -> Result {
    Err(EncodeError::Unencodable(why.into()).into())
}

impl Overlong {
    /// Drops the bytes of the frame that have arrived. Returns whether the frame has ended.
    fn discard(&mut self, input: &mut Bytes) -> bool {
        let here = self.left.min(input.len() as u64);
        // At most `input.len()`, so it fits.
        input.advance(here as usize);
        self.left -= here;
        self.left == 0
    }
}

impl Codec for LengthField {
    type Read = Bytes;
    type Write = Bytes;

    #[inline]
    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        if self.plain && self.seldom.is_none() {
            let Some(field) = input.first_chunk::<4>() else { return Ok(None) };
            let payload = u32::from_be_bytes(*field) as usize;
            if payload <= self.max_len - 4 {
                if input.len() - 4 < payload {
                    return Ok(None);
                }
                input.advance(4);
                return Ok(Some(input.split_to(payload)));
            }
        }
        self.decode_any(input)
    }

    /// Decodes the remaining bytes at the end of the stream. An incomplete frame is dropped.
    ///
    /// # Errors
    /// The errors of `decode`, and an error for an incomplete frame that is too long and was not
    /// reported yet.
    fn decode_last(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        if let Some(frame) = self.decode(input)? {
            return Ok(Some(frame));
        }
        let overlong = self.seldom.as_ref().and_then(|seldom| seldom.overlong);
        self.set_overlong(None);
        match overlong {
            Some(overlong) if self.fail_slow => Err(self.too_long(overlong.length)),
            _ => Ok(None),
        }
    }

    /// Appends one frame.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`] for a frame longer than `max_len`, or longer than the length field
    /// can express. [`EncodeError::Unencodable`] for a negative length, and for a message that
    /// lacks required bytes of the header or contains a wrong length.
    // Without `always` this becomes a call of its own, which costs a fifth of the encoding.
    #[inline(always)]
    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        if self.plain
            && message.len() <= self.max_len - 4
            && let Ok(length) = u32::try_from(message.len())
        {
            output.put_u32(length);
            output.put(message);
            return Ok(());
        }
        self.encode_any(message, output)
    }

    fn encoded_len_hint(message: &Bytes) -> Option<usize> {
        Some(message.len() + 8)
    }

    #[inline]
    fn encoding_key(&self) -> Option<u64> {
        if self.plain {
            return Some(self.max_len as u64);
        }
        let Shape { adjustment, offset, strip } = self.shape();
        let small = [offset.into(), self.width.into(), strip.into(), self.little_endian.into()];
        let settings = small.into_iter().chain([adjustment as u64]);
        Some(settings.fold(self.max_len as u64, combine))
    }
}

/// A builder for a [`LengthField`] with any header. [`build`](LengthFieldBuilder::build) rejects
/// contradictory settings.
///
/// Build the codec once and clone it for every channel, so that a wrong setting is reported before
/// the server listens:
///
/// ```
/// use bytes::Bytes;
/// use netwheel::{Codec, codec::LengthField};
///
/// # fn main() -> netwheel::Result {
/// // A version byte, a two-byte length that counts the whole frame, a type byte, the payload.
/// let frames = LengthField::builder().offset(1).width(2).adjustment(-3).max_len(4096).build()?;
///
/// let mut input = Bytes::from_static(b"\x01\x00\x06\x07hi");
/// assert_eq!(frames.clone().decode(&mut input)?.unwrap(), &b"\x01\x00\x06\x07hi"[..]);
///
/// let refused = LengthField::builder().width(5).build().unwrap_err();
/// assert_eq!(refused.to_string(), "width is 5; it must be 1, 2, 3, 4 or 8 bytes");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct LengthFieldBuilder {
    frames: LengthField,
    width: usize,
    offset: usize,
    adjustment: i64,
    strip: Option<usize>,
}

impl LengthFieldBuilder {
    /// Sets the width of the length field: 1, 2, 3, 4 or 8 bytes. The default is 4.
    pub fn width(mut self, bytes: usize) -> Self {
        self.width = bytes;
        self
    }

    /// Sets the number of header bytes before the length field: at most `max_len` − `width`, and
    /// less than 4 GiB. The default is 0.
    pub fn offset(mut self, bytes: usize) -> Self {
        self.offset = bytes;
        self
    }

    /// Sets the number to add to the length to get the number of bytes behind the length field. The
    /// default is 0.
    ///
    /// The number is negative if the length also counts bytes of the header: −`width` if it counts
    /// only itself. It is positive if there are bytes behind the length field that the length does
    /// not count.
    pub fn adjustment(mut self, bytes: i64) -> Self {
        self.adjustment = bytes;
        self
    }

    /// Sets the number of bytes to strip from the front of each frame that is read, less than 4
    /// GiB. The default is the width of the length field if the frame begins with it, and otherwise
    /// 0.
    pub fn strip(mut self, bytes: usize) -> Self {
        self.strip = Some(bytes);
        self
    }

    /// Sets the length of the longest frame, like [`LengthField::max_len`]. It must leave room for
    /// the header.
    pub fn max_len(mut self, bytes: usize) -> Self {
        self.frames.max_len = bytes;
        self
    }

    /// Reads and writes the length with its least significant byte first.
    pub fn little_endian(mut self) -> Self {
        self.frames.little_endian = true;
        self
    }

    /// Reports a frame that is too long when all of it has arrived; see [`LengthField::fail_slow`].
    pub fn fail_slow(mut self) -> Self {
        self.frames.fail_slow = true;
        self
    }

    /// Builds the codec.
    ///
    /// # Errors
    /// [`Error::Setting`] if the width is another one, or a limit or offset leaves no room for the
    /// length field. Also if no frame could be read with the adjustment or strip.
    pub fn build(self) -> Result<LengthField> {
        let mut frames = self.frames;
        let max_len = frames.max_len;
        let (width, offset, adjustment) = (self.width, self.offset, self.adjustment);
        if !matches!(width, 1 | 2 | 3 | 4 | 8) {
            return Err(Error::setting("width", width, "1, 2, 3, 4 or 8 bytes"));
        }
        frames.width = width as u8;
        let Some(room) = max_len.checked_sub(width) else {
            return Err(Error::setting("max_len", max_len, "at least the header's length"));
        };
        let Some(room) = room.checked_sub(offset) else {
            return Err(Error::setting("offset", offset, "at most max_len - width"));
        };
        let offset =
            u32::try_from(offset).map_err(|_| Error::setting("offset", offset, "less than 4 GiB"))?;
        let mut shape = Shape { adjustment, offset, strip: 0 };
        let longest = frames.longest(shape).filter(|_| i128::from(adjustment) <= room as i128);
        let Some(longest) = longest else {
            return Err(Error::setting(
                "adjustment",
                adjustment,
                "one that leaves a length between the header's and max_len",
            ));
        };
        let strip = self.strip.unwrap_or(if offset == 0 { width } else { 0 });
        if strip as u64 > longest {
            return Err(Error::setting("strip", strip, "at most the longest possible frame"));
        }
        shape.strip = u32::try_from(strip).map_err(|_| Error::setting("strip", strip, "less than 4 GiB"))?;
        frames.set_shape(shape);
        Ok(frames.prepared())
    }
}
