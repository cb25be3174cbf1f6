//! Lines that end in LF or CRLF.
//!
//! Always holds: no byte is searched for a newline twice, however slowly a line trickles in; `scanned` is the
//! number of bytes at the front of the input that are known to hold none, and is 0 whenever a line was taken
//! or discarding began. A line that is too long is consumed as it comes; only its length and whether its last
//! byte was CR are remembered, because the LF of a CRLF may come with the next read.

use crate::{
    EncodeError, Error, PeerError, Result,
    buffer::OutboundBuffer,
    pipeline::{Codec, combine},
};
use bytes::{Buf, Bytes};
use memchr::memchr;

/// The longest line unless [`Line::max_len`] says otherwise: what one read brings at most, and no less than
/// line protocols use (SMTP 1000 bytes, HTTP heads 8 KiB, Redis inline commands 64 KiB).
const DEFAULT_MAX_LEN: usize = 64 * 1024;

/// One line is one message; a line ends in LF or CRLF.
///
/// | configuration | bytes in | messages | `encode("hi")` gives |
/// |---|---|---|---|
/// | `Line::new()` | `one␍␊two␊␊thr` | `one`, `two`, an empty one; `thr` waits | `hi␊` |
/// | `.crlf()` | `one␍␊two␊␊thr` | the same: both are always read | `hi␍␊` |
/// | `.keep_terminator()` | `one␍␊two␊␊thr` | `one␍␊`, `two␊`, `␊`; `thr` waits | `hi␊` |
/// | `.max_len(2)` | `one␊hi␊` | [`PeerError::TooLong`], `hi` | `hi␊` |
///
/// Only one CR, right before LF, belongs to the terminator; any other CR belongs to the line. What a line
/// holds is not looked at: it need not be UTF-8. When the peer ends its stream, a line without an end is
/// dropped, as it may be only the beginning of one.
///
/// # Lines that are too long
///
/// A line longer than [`max_len`](Line::max_len) is one [`PeerError::TooLong`]: when its end has come, or the
/// peer has ended its stream (then `length` is that of the whole line); with [`fail_fast`](Line::fail_fast)
/// as soon as it is known to be too long (then `length` is what has come so far). Its bytes are dropped as
/// they come, and the line after it is read as ever, if the handler leaves the channel open.
///
/// # Thread and memory
///
/// Runs on the channel's loop. The bytes of an unfinished line are kept by the channel, at most `max_len` and
/// a CR. A message shares the memory of the read buffer.
///
/// ```
/// use bytes::Bytes;
/// use netwheel::{buffer::OutboundBuffer, codec::Line, pipeline::Codec};
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
pub struct Line {
    max_len: usize,
    keep_terminator: bool,
    crlf: bool,
    fail_fast: bool,
    /// Bytes at the front of the input that hold no newline.
    scanned: usize,
    discarding: Option<Overlong>,
}

/// What is remembered of a line that is too long and has not ended.
#[derive(Debug, Clone, Copy)]
struct Overlong {
    /// Bytes dropped so far.
    dropped: u64,
    /// Whether the last of them was CR, and so may belong to the terminator.
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

    /// Bytes of the line, without a CR that may turn out to be its end.
    fn len(&self) -> u64 {
        self.dropped - u64::from(self.cr)
    }
}

impl Line {
    /// Lines of at most 64 KiB, read without their terminator, written with LF.
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

    /// The longest line in bytes, without its terminator, read or written; 65 536 by default.
    ///
    /// An unfinished line of this length is what one peer can make its channel keep.
    pub fn max_len(mut self, bytes: usize) -> Self {
        self.max_len = bytes;
        self
    }

    /// Leaves the terminator at the end of each message.
    ///
    /// A message to write may then bring its own; one that does not end in LF is given one.
    pub fn keep_terminator(mut self) -> Self {
        self.keep_terminator = true;
        self
    }

    /// Ends the lines that are written with CRLF instead of LF.
    pub fn crlf(mut self) -> Self {
        self.crlf = true;
        self
    }

    /// Reports a line that is too long as soon as that is known, not when its end has come.
    ///
    /// The rest of the line is dropped silently. Take it where the answer to such a line is to close.
    pub fn fail_fast(mut self) -> Self {
        self.fail_fast = true;
        self
    }

    /// Cuts off the line whose LF stands at `lf`.
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

    /// No newline is in `input`: waits for more, unless what is there is too long already.
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

    /// Drops what belongs to a line that is too long; afterwards either it has ended or `input` is empty.
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

    /// Takes what is left when the peer has ended its stream: a line without an end is dropped.
    ///
    /// # Errors
    /// As for `decode`; and once for a line that is too long, has not ended, and was not reported yet.
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
    /// [`EncodeError::TooLong`] beyond [`max_len`](Line::max_len). [`EncodeError::Unencodable`] for a message
    /// that holds a newline, because the peer would read two lines, or that ends in CR where LF follows,
    /// because the peer would take it for the terminator.
    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        let newline = memchr(b'\n', &message);
        let brings_its_own = self.keep_terminator && newline.is_some_and(|at| at + 1 == message.len());
        let len = if brings_its_own {
            let line = &message[..message.len() - 1];
            line.len() - usize::from(line.ends_with(b"\r"))
        } else if newline.is_some() {
            return Err(EncodeError::Unencodable("a line cannot hold a newline".into()).into());
        } else if !self.crlf && message.ends_with(b"\r") {
            return Err(
                EncodeError::Unencodable("a line that ends in LF cannot hold CR before it".into()).into()
            );
        } else {
            message.len()
        };
        if len > self.max_len {
            let (length, limit) = (len as u64, self.max_len as u64);
            return Err(EncodeError::TooLong { what: "line", length, limit }.into());
        }
        output.put(message);
        match (brings_its_own, self.crlf) {
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
    fn no_byte_is_searched_twice_and_a_line_resets_what_is_known() {
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
