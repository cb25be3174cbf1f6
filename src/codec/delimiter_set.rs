//! The delimiters of a codec, and the search for the first of them.
//!
//! Always holds: the match with the smallest end wins, and among equal ends the longest match. The
//! last byte of the match decides, so the result does not depend on how the stream was split.
//! Clones share one allocation.

use super::terminated::{Match, Terminator};
use crate::{
    error::{Error, Result},
    pipeline::combine,
};
use bytes::Bytes;
use memchr::{memchr, memchr2, memchr3};
use std::sync::Arc;

/// The largest number of delimiters.
const MAX_DELIMITERS: usize = 16;

/// The length of the longest delimiter that is allowed, in bytes.
pub(super) const MAX_DELIMITER_LEN: usize = 256;

#[derive(Debug, Clone)]
pub(super) struct DelimiterSet(Arc<Set>);

#[derive(Debug)]
struct Set {
    delimiters: Box<[Bytes]>,
    ends: Ends,
    longest: usize,
    key: u64,
}

/// The last bytes of all delimiters. The search looks only for these.
#[derive(Debug)]
enum Ends {
    One(u8),
    Two([u8; 2]),
    Three([u8; 3]),
    Many(Box<[bool; 256]>),
}

impl DelimiterSet {
    /// Returns the set of a single byte, which is always valid.
    pub(super) fn byte(byte: u8) -> Self {
        Self::prepare(Box::new([Bytes::copy_from_slice(&[byte])]))
    }

    /// # Errors
    /// [`Error::Setting`] for delimiters that are too many, too long, empty, or never found.
    pub(super) fn new(delimiters: Box<[Bytes]>) -> Result<Self> {
        if !(1..=MAX_DELIMITERS).contains(&delimiters.len()) {
            return Err(Error::setting("number of delimiters", delimiters.len(), "1 to 16"));
        }
        for delimiter in &delimiters {
            if !(1..=MAX_DELIMITER_LEN).contains(&delimiter.len()) {
                return Err(Error::setting("length of a delimiter", delimiter.len(), "1 to 256 bytes"));
            }
        }
        let set = Self::prepare(delimiters);
        for delimiter in &set.0.delimiters {
            if set.find(delimiter, 0).is_none_or(|found| found.end < delimiter.len()) {
                let allowed = "a delimiter that does not contain another one before its end";
                return Err(Error::setting("delimiter", delimiter.escape_ascii(), allowed));
            }
        }
        Ok(set)
    }

    fn prepare(delimiters: Box<[Bytes]>) -> Self {
        let mut is_end = Box::new([false; 256]);
        for last in delimiters.iter().filter_map(|delimiter| delimiter.last()) {
            is_end[usize::from(*last)] = true;
        }
        let bytes: Vec<u8> = (0..=u8::MAX).filter(|byte| is_end[usize::from(*byte)]).collect();
        let ends = match bytes[..] {
            [one] => Ends::One(one),
            [one, two] => Ends::Two([one, two]),
            [one, two, three] => Ends::Three([one, two, three]),
            _ => Ends::Many(is_end),
        };
        let longest = delimiters.iter().map(Bytes::len).max().unwrap_or(0);
        let lengths = delimiters.iter().map(|delimiter| delimiter.len() as u64);
        let contents = delimiters.iter().flatten().map(|byte| u64::from(*byte));
        let key = lengths.chain(contents).fold(delimiters.len() as u64, combine);
        DelimiterSet(Arc::new(Set { delimiters, ends, longest, key }))
    }

    /// Finds the longest delimiter at the end of the first `end` bytes of `input`.
    #[inline]
    fn ending_at(&self, input: &[u8], end: usize) -> Option<Match> {
        let input = &input[..end];
        let matching = self.0.delimiters.iter().filter(|delimiter| input.ends_with(delimiter));
        matching.map(Bytes::len).max().map(|len| Match { start: end - len, end })
    }

    /// Returns the first delimiter of the list, which is used for writing.
    pub(super) fn written(&self) -> &Bytes {
        &self.0.delimiters[0]
    }

    /// Returns a hash of the delimiters.
    pub(super) fn key(&self) -> u64 {
        self.0.key
    }
}

impl Terminator for DelimiterSet {
    const MESSAGE: &'static str = "message";

    #[inline]
    fn find(&self, input: &[u8], from: usize) -> Option<Match> {
        let mut from = from;
        loop {
            let at = from + self.0.ends.find(input.get(from..)?)?;
            if let Some(found) = self.ending_at(input, at + 1) {
                return Some(found);
            }
            from = at + 1;
        }
    }

    fn incomplete(&self, _: &[u8]) -> usize {
        self.0.longest - 1
    }

    /// An incomplete delimiter is a part of the message.
    fn cut_off_len(&self, input: &[u8]) -> usize {
        input.len()
    }
}

impl Ends {
    #[inline]
    fn find(&self, input: &[u8]) -> Option<usize> {
        match self {
            Ends::One(one) => memchr(*one, input),
            Ends::Two([one, two]) => memchr2(*one, *two, input),
            Ends::Three([one, two, three]) => memchr3(*one, *two, *three, input),
            Ends::Many(is_end) => input.iter().position(|byte| is_end[usize::from(*byte)]),
        }
    }
}
