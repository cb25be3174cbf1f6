//! The decoder of messages that end in a terminator, shared by `Line` and `Delimiter`.
//!
//! Invariants: no byte is searched twice, however slowly a message arrives. `scanned` is the number
//! of bytes at the front of the input that contain no terminator, and is 0 after each message. A
//! message that is too long is dropped as it arrives, except for its last bytes, which may begin a
//! terminator.

use crate::error::{Error, PeerError, Result};
use bytes::{Buf, Bytes};

/// The longest message by default: the size of one read, and enough for common line protocols (SMTP
/// 1000 bytes, HTTP heads 8 KiB, Redis inline commands 64 KiB).
const DEFAULT_MAX_LEN: usize = 64 * 1024;

/// Where a terminator was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The end of messages.
pub(super) trait Terminator {
    /// The name of a message in errors.
    const MESSAGE: &'static str;

    /// Returns the first terminator whose last byte is at `from` or later.
    fn find(&self, input: &[u8], from: usize) -> Option<Match>;

    /// Returns the number of bytes at the end of `input` that may belong to an incomplete
    /// terminator, at most.
    fn incomplete(&self, input: &[u8]) -> usize;

    /// Returns the length of the message in `input`, which the end of the stream has cut off.
    fn cut_off_len(&self, input: &[u8]) -> usize;
}

/// The decoder, with the settings that both codecs have.
#[derive(Debug, Clone)]
pub(super) struct Terminated<T> {
    pub(super) terminator: T,
    pub(super) max_len: usize,
    /// Whether messages contain their terminator.
    pub(super) keep: bool,
    pub(super) fail_fast: bool,
    /// The number of bytes at the front of the input that contain no terminator.
    pub(super) scanned: usize,
    /// The number of dropped bytes of a message that is too long.
    dropped: Option<u64>,
}

impl<T: Terminator> Terminated<T> {
    pub(super) fn new(terminator: T) -> Self {
        Terminated {
            terminator,
            max_len: DEFAULT_MAX_LEN,
            keep: false,
            fail_fast: false,
            scanned: 0,
            dropped: None,
        }
    }

    #[inline]
    pub(super) fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        loop {
            let from = self.scanned.min(input.len());
            let Some(found) = self.terminator.find(input, from) else { return self.wait(input) };
            self.scanned = 0;
            if self.dropped.is_some() || found.start > self.max_len {
                match self.end_too_long(input, found) {
                    Some(error) => return Err(error),
                    None => continue,
                }
            }
            if self.keep {
                return Ok(Some(input.split_to(found.end)));
            }
            let message = input.split_to(found.start);
            input.advance(found.end - found.start);
            return Ok(Some(message));
        }
    }

    /// Decodes the remaining messages at the end of the stream. One without a terminator is
    /// dropped.
    ///
    /// # Errors
    /// The errors of `decode`, and an error for an unfinished message that is too long and was not
    /// reported yet.
    pub(super) fn decode_last(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        if let Some(message) = self.decode(input)? {
            return Ok(Some(message));
        }
        let dropped = self.dropped.take();
        let length = dropped.unwrap_or(0) + self.terminator.cut_off_len(input) as u64;
        if length <= self.max_len as u64 {
            return Ok(None);
        }
        input.clear();
        self.scanned = 0;
        let is_reported = dropped.is_some() && self.fail_fast;
        if is_reported { Ok(None) } else { Err(self.too_long(length)) }
    }

    /// Drops a message that is too long, whose terminator was found. Returns its error, unless that
    /// was reported before.
    #[cold]
    fn end_too_long(&mut self, input: &mut Bytes, found: Match) -> Option<Error> {
        *input = input.slice(found.end..);
        let dropped = self.dropped.take();
        let is_reported = dropped.is_some() && self.fail_fast;
        (!is_reported).then(|| self.too_long(dropped.unwrap_or(0) + found.start as u64))
    }

    /// Waits for more input, and drops the bytes of a message that is too long.
    fn wait(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        let certain = input.len().saturating_sub(self.terminator.incomplete(input));
        if self.dropped.is_none() && certain <= self.max_len {
            self.scanned = input.len();
            return Ok(None);
        }
        *input = input.slice(certain..);
        self.scanned = input.len();
        let first = self.dropped.is_none();
        *self.dropped.get_or_insert(0) += certain as u64;
        if first && self.fail_fast { Err(self.too_long(certain as u64)) } else { Ok(None) }
    }

    #[cold]
    fn too_long(&self, length: u64) -> Error {
        PeerError::TooLong { what: T::MESSAGE, length, limit: self.max_len }.into()
    }
}
