//! Lines that end in LF or CRLF.
//!
//! Invariant: CR before LF belongs to the terminator. If input ends in CR, the LF may arrive with
//! the next read. `terminated` decodes.

use super::terminated::{Match, Terminated, Terminator};
use crate::{
    buffer::OutboundBuffer,
    error::{EncodeError, Result},
    pipeline::{Codec, combine},
};
use bytes::Bytes;
use memchr::memchr;

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
///
/// [`PeerError::TooLong`]: crate::error::PeerError::TooLong
#[derive(Debug, Clone)]
#[doc(alias = "LineBasedFrameDecoder")]
#[doc(alias = "LinesCodec")]
pub struct Line {
    lines: Terminated<Newline>,
    crlf: bool,
}

/// LF, with the CR before it.
#[derive(Debug, Clone)]
struct Newline;

impl Terminator for Newline {
    const MESSAGE: &'static str = "line";

    #[inline]
    fn find(&self, input: &[u8], from: usize) -> Option<Match> {
        let lf = from + memchr(b'\n', &input[from..])?;
        Some(Match { start: lf - usize::from(input[..lf].ends_with(b"\r")), end: lf + 1 })
    }

    #[inline]
    fn incomplete(&self, input: &[u8]) -> usize {
        usize::from(input.ends_with(b"\r"))
    }

    /// A CR at the end may belong to the terminator.
    fn cut_off_len(&self, input: &[u8]) -> usize {
        input.len() - self.incomplete(input)
    }
}

impl Line {
    /// Returns a codec for lines of at most 64 KiB. Messages have no terminator, and lines are
    /// written with LF.
    pub fn new() -> Self {
        Line { lines: Terminated::new(Newline), crlf: false }
    }

    /// Sets the length of the longest line in bytes, without its terminator, for reading and
    /// writing. The default is 65 536.
    ///
    /// This bounds the memory that a peer can occupy with an unfinished line.
    pub fn max_len(mut self, bytes: usize) -> Self {
        self.lines.max_len = bytes;
        self
    }

    /// Leaves the terminator at the end of each message.
    ///
    /// A message to write may then contain its terminator. If it does not end in LF, a terminator
    /// is appended.
    pub fn keep_terminator(mut self) -> Self {
        self.lines.keep = true;
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
        self.lines.fail_fast = true;
        self
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
        self.lines.decode(input)
    }

    /// Decodes the remaining bytes at the end of the stream. A line without a terminator is
    /// dropped.
    ///
    /// # Errors
    /// The errors of `decode`, and an error for an unfinished line that is too long and was not
    /// reported yet.
    fn decode_last(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        self.lines.decode_last(input)
    }

    /// Appends one line and its terminator.
    ///
    /// # Errors
    /// - [`EncodeError::TooLong`] if the line is longer than [`max_len`](Line::max_len).
    /// - [`EncodeError::Unencodable`] if the message contains a newline, because the peer would
    ///   read two lines. Also if it ends in CR before LF, because the CR would become part of the
    ///   terminator.
    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        let newline = memchr(b'\n', &message);
        let has_terminator = self.lines.keep && newline.is_some_and(|at| at + 1 == message.len());
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
        if len > self.lines.max_len {
            let (length, limit) = (len as u64, self.lines.max_len as u64);
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
        let ends = u64::from(self.lines.keep) | u64::from(self.crlf) << 1;
        Some(combine(self.lines.max_len as u64, ends))
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
            assert_eq!(codec.lines.scanned, have);
        }
        let mut input = stream;
        for line in ["trickles", "in"] {
            assert_eq!(codec.decode(&mut input).unwrap().unwrap(), line);
            assert_eq!(codec.lines.scanned, 0);
        }
        assert!(codec.decode(&mut input).unwrap().is_none());
        assert_eq!(codec.lines.scanned, 2);
        assert!(codec.decode(&mut Bytes::from_static(b"too long a line")).unwrap().is_none());
        assert_eq!(codec.lines.scanned, 0);
    }
}
