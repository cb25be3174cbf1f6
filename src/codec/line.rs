//! Lines that end in LF or CRLF.
//!
//! Invariants: no byte is searched for a newline twice, however slowly a line arrives. `scanned` is
//! the number of bytes at the front of the input that contain no newline, and is 0 after each line
//! and when discarding begins. A line that is too long is consumed as it arrives. The codec
//! remembers only its length and whether its last byte was CR, because the LF may arrive with the
//! next read.

use crate::{
    Error, Result,
    buffer::OutboundBuffer,
    error::{EncodeError, PeerError},
    pipeline::{Codec, combine},
};
use bytes::{Buf, Bytes};
use memchr::memchr;

/// The default of [`Line::max_len`]: the size of one read, and enough for common line protocols
/// (SMTP 1000 bytes, HTTP heads 8 KiB, Redis inline commands 64 KiB).
const DEFAULT_MAX_LEN: usize = 64 * 1024;

/// A codec for lines that end in LF or CRLF.
///
/// | configuration | bytes in | messages | `encode("hi")` gives |
/// |---|---|---|---|
/// | `Line::new()` | `one␍␊two␊␊thr` | `one`, `two`, an empty message; `thr` waits | `hi␊` |
/// | `.crlf()` | `one␍␊two␊␊thr` | the same: both are always read | `hi␍␊` |
/// | `.keep_terminator()` | `one␍␊two␊␊thr` | `one␍␊`, `two␊`, `␊`; `thr` waits | `hi␊` |
/// | `.max_len(2)` | `one␊hi␊` | [`PeerError::TooLong`], `hi` | `hi␊` |
///
/// One CR immediately before LF belongs to the terminator; any other CR belongs to the line. A line
/// need not be UTF-8. When the peer ends its stream, a line without a terminator is dropped,
/// because it may be incomplete.
///
/// # Lines that are too long
///
/// A line longer than [`max_len`](Line::max_len) is reported as one [`PeerError::TooLong`]: at its
/// end, or when the peer has ended its stream. `length` is then the length of the whole line. With
/// [`fail_fast`](Line::fail_fast) it is reported as soon as it is known to be too long, and
/// `length` is the number of bytes so far. Its bytes are dropped as they arrive. The next line is
/// decoded as usual if the handler leaves the channel open.
///
/// # Thread and memory
///
/// Runs on the channel's loop. The channel keeps the bytes of an unfinished line: at most `max_len`
/// plus a CR. A message shares the memory of the read buffer.
///
/// ```
/// use bytes::Bytes;
/// use netwheel::{Codec, buffer::OutboundBuffer, codec::Line};
///
/// # fn main() -> netwheel::Result {
/// let mut lines = Line::new().max_len(8 * 1024).crlf();
///
/// let mut input = Bytes::from_static(b"HELO there\r\nQUI");
/// assert_eq!(lines.decode(&mut input)?.unwrap(), "HELO there");
/// assert!(lines.decode(&mut input)?.is_none());
/// assert_eq!(input, "QUI");
///
/// let mut output = OutboundBuffer::new();
/// lines.encode(Bytes::from_static(b"250 hello"), &mut output)?;
/// assert_eq!(output.to_bytes(), "250 hello\r\n");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[doc(alias = "LineBasedFrameDecoder")]
#[doc(alias = "LinesCodec")]
pub struct Line {
    max_len: usize,
    keep_terminator: bool,
    crlf: bool,
    fail_fast: bool,
    /// The number of bytes at the front of the input that contain no newline.
    scanned: usize,
    discarding: Option<Overlong>,
}

/// The state of a line that is too long and has not ended.
#[derive(Debug, Clone, Copy)]
struct Overlong {
    /// The number of bytes that were dropped.
    dropped: u64,
    /// Whether the last dropped byte was CR, which may belong to the terminator.
    cr: bool,
}

impl Overlong {
    fn drop_all(&mut self, input: &mut Bytes) {
        if let Some(&last) = input.last() {
            self.dropped += input.len() as u64;
            self.cr = last == b'\r';
            input.clear();
        }
    }

    /// Returns the length of the line, without a CR that may belong to the terminator.
    fn len(&self) -> u64 {
        self.dropped - u64::from(self.cr)
    }
}

impl Line {
    /// Returns a codec for lines of at most 64 KiB. Messages have no terminator, and lines are
    /// written with LF.
    pub fn new() -> Self {
        Line {
            max_len: DEFAULT_MAX_LEN,
            keep_terminator: false,
            crlf: false,
            fail_fast: false,
            scanned: 0,
            discarding: None,
        }
    }

    /// Sets the length of the longest line in bytes, without its terminator, for reading and
    /// writing. The default is 65 536.
    ///
    /// This bounds the memory that a peer can occupy with an unfinished line.
    pub fn max_len(mut self, bytes: usize) -> Self {
        self.max_len = bytes;
        self
    }

    /// Leaves the terminator at the end of each message.
    ///
    /// A message to write may then contain its terminator. If it does not end in LF, a terminator
    /// is appended.
    pub fn keep_terminator(mut self) -> Self {
        self.keep_terminator = true;
        self
    }

    /// Writes CRLF at the end of lines, instead of LF.
    pub fn crlf(mut self) -> Self {
        self.crlf = true;
        self
    }

    /// Reports a line that is too long as soon as this is known, instead of at its end.
    ///
    /// The rest of the line is dropped without a further error. Choose this if the channel is
    /// closed because of such a line.
    pub fn fail_fast(mut self) -> Self {
        self.fail_fast = true;
        self
    }

    /// Takes the line whose LF is at `lf`.
    #[inline]
    fn take(&self, input: &mut Bytes, lf: usize) -> Result<Option<Bytes>> {
        let len = lf - usize::from(input[..lf].ends_with(b"\r"));
        if len > self.max_len {
            input.advance(lf + 1);
            return Err(self.too_long(len as u64));
        }
        if self.keep_terminator {
            return Ok(Some(input.split_to(lf + 1)));
        }
        let line = input.split_to(len);
        input.advance(lf + 1 - len);
        Ok(Some(line))
    }

    /// Handles an `input` without a newline: waits for more, unless the line is too long already.
    fn wait(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        let len = input.len() - usize::from(input.ends_with(b"\r"));
        if len <= self.max_len {
            self.scanned = input.len();
            return Ok(None);
        }
        let mut overlong = Overlong { dropped: 0, cr: false };
        overlong.drop_all(input);
        self.scanned = 0;
        self.discarding = Some(overlong);
        if self.fail_fast { Err(self.too_long(len as u64)) } else { Ok(None) }
    }

    /// Drops bytes of a line that is too long. Afterwards the line has ended, or `input` is empty.
    fn discard(&mut self, mut overlong: Overlong, input: &mut Bytes) -> Result {
        let Some(lf) = memchr(b'\n', input) else {
            overlong.drop_all(input);
            self.discarding = Some(overlong);
            return Ok(());
        };
        overlong.drop_all(&mut input.split_to(lf));
        input.advance(1);
        self.discarding = None;
        if self.fail_fast { Ok(()) } else { Err(self.too_long(overlong.len())) }
    }

    #[cold]
    fn too_long(&self, length: u64) -> Error {
        PeerError::TooLong { what: "line", length, limit: self.max_len }.into()
    }
}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

impl Codec for Line {
    type Read = Bytes;
    type Write = Bytes;

    #[inline]
    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        if let Some(overlong) = self.discarding {
            self.discard(overlong, input)?;
        }
        let scanned = self.scanned.min(input.len());
        match memchr(b'\n', &input[scanned..]) {
            Some(at) => {
                self.scanned = 0;
                self.take(input, scanned + at)
            }
            None => self.wait(input),
        }
    }

    /// Decodes the remaining bytes at the end of the stream. A line without a terminator is
    /// dropped.
    ///
    /// # Errors
    /// The errors of `decode`. Also reports an unfinished line that is too long and was not
    /// reported yet.
    fn decode_last(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        if let Some(line) = self.decode(input)? {
            return Ok(Some(line));
        }
        match self.discarding.take() {
            Some(overlong) if !self.fail_fast => Err(self.too_long(overlong.len())),
            _ => Ok(None),
        }
    }

    /// Appends one line and its terminator.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`] beyond [`max_len`](Line::max_len). [`EncodeError::Unencodable`] for
    /// a message that contains a newline, because the peer would read two lines. Also for a message
    /// that ends in CR before LF, because the CR would become part of the terminator.
    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        let newline = memchr(b'\n', &message);
        let has_terminator = self.keep_terminator && newline.is_some_and(|at| at + 1 == message.len());
        let len = if has_terminator {
            let line = &message[..message.len() - 1];
            line.len() - usize::from(line.ends_with(b"\r"))
        } else if newline.is_some() {
            return Err(EncodeError::Unencodable("a line cannot contain a newline".into()).into());
        } else if !self.crlf && message.ends_with(b"\r") {
            return Err(EncodeError::Unencodable(
                "a line that ends in LF cannot contain CR before it".into(),
            )
            .into());
        } else {
            message.len()
        };
        if len > self.max_len {
            let (length, limit) = (len as u64, self.max_len as u64);
            return Err(EncodeError::TooLong { what: "line", length, limit }.into());
        }
        output.put(message);
        match (has_terminator, self.crlf) {
            (true, _) => {}
            (false, true) => output.put_slice(b"\r\n"),
            (false, false) => output.put_u8(b'\n'),
        }
        Ok(())
    }

    fn encoded_len_hint(message: &Bytes) -> Option<usize> {
        Some(message.len() + 2)
    }

    fn encoding_key(&self) -> Option<u64> {
        let ends = u64::from(self.keep_terminator) | u64::from(self.crlf) << 1;
        Some(combine(self.max_len as u64, ends))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_is_searched_twice_and_a_line_resets_the_search() {
        let stream = Bytes::from_static(b"trickles\r\nin\nto");
        let mut codec = Line::new().max_len(8);
        for have in 1..10 {
            assert!(codec.decode(&mut stream.slice(..have)).unwrap().is_none());
            assert_eq!(codec.scanned, have);
        }
        let mut input = stream;
        for line in ["trickles", "in"] {
            assert_eq!(codec.decode(&mut input).unwrap().unwrap(), line);
            assert_eq!(codec.scanned, 0);
        }
        assert!(codec.decode(&mut input).unwrap().is_none());
        assert_eq!(codec.scanned, 2);
        assert!(codec.decode(&mut Bytes::from_static(b"too long a line")).unwrap().is_none());
        assert_eq!(codec.scanned, 0);
    }
}
