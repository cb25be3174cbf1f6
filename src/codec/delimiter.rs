//! Messages that end in a delimiter.
//!
//! Invariant: the peer decodes each encoded message as one message. `delimiter_set` finds
//! delimiters, and `terminated` decodes.

use super::{
    delimiter_set::{DelimiterSet, MAX_DELIMITER_LEN},
    terminated::{Match, Terminated, Terminator},
};
use crate::{
    buffer::OutboundBuffer,
    error::{EncodeError, Result},
    pipeline::{Codec, combine},
};
use bytes::Bytes;

/// A codec for messages that end in a delimiter, or in one of several delimiters.
///
/// | configuration | bytes in | messages | `encode("hi")` gives |
/// |---|---|---|---|
/// | `Delimiter::byte(0)` | `one␀␀two` | `one`, an empty message; `two` waits | `hi␀` |
/// | `Delimiter::new(["--"])` | `one--two-` | `one`; `two-` waits | `hi--` |
/// | `Delimiter::new([";", "\n"])` | `one;two␊` | `one`, `two` | `hi;` |
/// | `.keep_delimiter()` | `one;two␊` | `one;`, `two␊` | `hi;` |
/// | `.max_len(2)` | `one;hi;` | [`PeerError::TooLong`], `hi` | `hi;` |
///
/// A message ends at the delimiter that is complete first. If several delimiters end at the same
/// byte, the longest of them counts: with `["\n", "\r\n"]` a CR before LF belongs to the delimiter.
/// For lines, [`Line`](super::Line) does the same faster.
///
/// When the peer ends its stream, a message without a delimiter is dropped, because it may be
/// incomplete.
///
/// # Messages that are too long
///
/// A message longer than [`max_len`](Delimiter::max_len) is reported as one [`PeerError::TooLong`]:
/// when its delimiter has come, or when the peer has ended its stream. With
/// [`fail_fast`](Delimiter::fail_fast) it is reported as soon as it is known to be too long. Its
/// bytes are dropped as they come. The next message is decoded as usual if the handler leaves the
/// channel open.
///
/// # Thread and memory
///
/// Runs on the channel's loop. The channel keeps the bytes of an unfinished message: at most
/// `max_len` plus the length of the longest delimiter. A message shares the memory of the read
/// buffer. Each byte is searched once, in time that does not depend on the number of messages.
///
/// ```
/// use bytes::Bytes;
/// use netwheel::{Codec, buffer::OutboundBuffer, codec::Delimiter};
///
/// # fn main() -> netwheel::Result {
/// let mut records = Delimiter::new(["||"])?.max_len(8 * 1024);
///
/// let mut input = Bytes::from_static(b"a|b||c|");
/// assert_eq!(records.decode(&mut input)?.unwrap(), "a|b");
/// assert!(records.decode(&mut input)?.is_none());
/// assert_eq!(input, "c|");
///
/// let mut output = OutboundBuffer::new();
/// records.encode(Bytes::from_static(b"d"), &mut output)?;
/// assert_eq!(output.to_bytes(), "d||");
/// # Ok(())
/// # }
/// ```
///
/// [`PeerError::TooLong`]: crate::error::PeerError::TooLong
#[derive(Debug, Clone)]
#[doc(alias = "DelimiterBasedFrameDecoder")]
#[doc(alias = "AnyDelimiterCodec")]
pub struct Delimiter(Terminated<DelimiterSet>);

impl Delimiter {
    /// Returns a codec for messages that end in one byte, for example 0.
    pub fn byte(byte: u8) -> Self {
        Self::with(DelimiterSet::byte(byte))
    }

    /// Returns a codec for messages that end in one of `delimiters`. The first one is used for
    /// writing.
    ///
    /// # Errors
    /// [`Error::Setting`] unless there are 1 to 16 delimiters of 1 to 256 bytes each. Also for a
    /// delimiter that contains another one before its end, because it would never be found.
    ///
    /// [`Error::Setting`]: crate::Error::Setting
    ///
    /// ```
    /// use netwheel::codec::Delimiter;
    ///
    /// let refused = Delimiter::new(["a", "ab"]).unwrap_err();
    /// assert_eq!(
    ///     refused.to_string(),
    ///     "delimiter is ab; it must be a delimiter that does not contain another one before its end"
    /// );
    /// ```
    pub fn new<D: AsRef<[u8]>>(delimiters: impl IntoIterator<Item = D>) -> Result<Self> {
        let delimiters = delimiters.into_iter().map(|one| Bytes::copy_from_slice(one.as_ref()));
        Ok(Self::with(DelimiterSet::new(delimiters.collect())?))
    }

    fn with(delimiters: DelimiterSet) -> Self {
        Delimiter(Terminated::new(delimiters))
    }

    /// Sets the length of the longest message in bytes, without its delimiter, for reading and
    /// writing. The default is 65 536.
    pub fn max_len(mut self, bytes: usize) -> Self {
        self.0.max_len = bytes;
        self
    }

    /// Leaves the delimiter at the end of each message.
    ///
    /// A message to write may then contain its delimiter at its end. Otherwise the first delimiter
    /// is appended.
    pub fn keep_delimiter(mut self) -> Self {
        self.0.keep = true;
        self
    }

    /// Reports a message that is too long as soon as this is known, instead of at its end.
    ///
    /// The rest of the message is dropped without a further error. Choose this if the channel is
    /// closed because of such a message.
    pub fn fail_fast(mut self) -> Self {
        self.0.fail_fast = true;
        self
    }

    /// The first delimiter in `message` and the written delimiter after it.
    fn first_in_encoded(&self, message: &[u8]) -> Option<Match> {
        let delimiters = &self.0.terminator;
        if let Some(found) = delimiters.find(message, 0) {
            return Some(found);
        }
        // The message contains no delimiter. A match may still begin in its last bytes.
        let (tail, written) = (message.len().min(delimiters.incomplete(message)), delimiters.written());
        let before = message.len() - tail;
        let mut seam = [0; 2 * MAX_DELIMITER_LEN];
        let seam = &mut seam[..tail + written.len()];
        seam[..tail].copy_from_slice(&message[before..]);
        seam[tail..].copy_from_slice(written);
        let found = delimiters.find(seam, tail)?;
        Some(Match { start: before + found.start, end: before + found.end })
    }
}

impl Codec for Delimiter {
    type Read = Bytes;
    type Write = Bytes;

    #[inline]
    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        self.0.decode(input)
    }

    /// Decodes the remaining messages when the peer has ended its stream. A message without a
    /// delimiter is dropped.
    ///
    /// # Errors
    /// The errors of `decode`, and an error for an unfinished message that is too long and was not
    /// reported yet.
    fn decode_last(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        self.0.decode_last(input)
    }

    /// Appends one message and the first delimiter.
    ///
    /// # Errors
    /// - [`EncodeError::TooLong`] if the message is longer than [`max_len`](Delimiter::max_len).
    /// - [`EncodeError::Unencodable`] if the message contains a delimiter, or makes one together
    ///   with the appended delimiter, because the peer would read another message.
    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        let written = self.0.terminator.written();
        let Some(found) = self.first_in_encoded(&message) else {
            return Err(EncodeError::Unencodable("a message without an end".into()).into());
        };
        let appended = Match { start: message.len(), end: message.len() + written.len() };
        let brings_its_own = self.0.keep && found.end == message.len();
        if !brings_its_own && found != appended {
            let why = "a message cannot contain a delimiter, or make one with the delimiter behind it";
            return Err(EncodeError::Unencodable(why.into()).into());
        }
        if found.start > self.0.max_len {
            let (length, limit) = (found.start as u64, self.0.max_len as u64);
            return Err(EncodeError::TooLong { what: "message", length, limit }.into());
        }
        output.put(message);
        if !brings_its_own {
            output.put_slice(written);
        }
        Ok(())
    }

    fn encoding_key(&self) -> Option<u64> {
        let settings = combine(self.0.max_len as u64, u64::from(self.0.keep));
        Some(combine(settings, self.0.terminator.key()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_is_searched_twice_and_a_message_resets_what_is_known() {
        let stream = Bytes::from_static(b"trickles||in||to");
        let mut codec = Delimiter::new(["||"]).unwrap().max_len(8);
        for have in 1..10 {
            assert!(codec.decode(&mut stream.slice(..have)).unwrap().is_none());
            assert_eq!(codec.0.scanned, have);
        }
        let mut input = stream;
        for message in ["trickles", "in"] {
            assert_eq!(codec.decode(&mut input).unwrap().unwrap(), message);
            assert_eq!(codec.0.scanned, 0);
        }
        assert!(codec.decode(&mut input).unwrap().is_none());
        assert_eq!(codec.0.scanned, 2);
        let mut overlong = Bytes::from_static(b"too long a message|");
        assert!(codec.decode(&mut overlong).unwrap().is_none());
        assert_eq!((&overlong[..], codec.0.scanned), (&b"|"[..], 1));
    }
}
