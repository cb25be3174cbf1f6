//! `Scanner`: finds the end of a message.
//!
//! Invariants: each token is read once. The exceptions are the header of an incomplete string and
//! the start of an incomplete line, whose bytes are not searched again. Nested aggregates are
//! counted on an explicit stack with at most one entry per level. The last element of an aggregate
//! replaces its entry. Announced lengths and counts do not allocate memory.

use super::{
    error::RespError,
    limits::RespLimits,
    reader,
    role::Role,
    token::{Fault, Place, Rest, Step, Token},
};
use crate::error::PeerError;
use bytes::{Buf, Bytes};
use memchr::{memchr, memchr2};

/// The state of one message.
#[derive(Debug, Clone)]
pub(super) struct Scanner {
    /// The end of the tokens that were read.
    at: usize,
    /// The number of bytes of an incomplete line, at `at`, that were searched for its end.
    searched: usize,
    /// The length of the input with which the next token may be complete.
    need: usize,
    /// The innermost aggregate that is incomplete.
    level: Level,
    /// The incomplete aggregates around it that need more elements.
    outer: Vec<Level>,
    /// Elements announced by all headers of the message.
    elements: u64,
    /// Whether the message is dropped, because a part of it is too long.
    dropping: bool,
    /// What is left of the part that is too long.
    rest: Option<Rest>,
}

/// An aggregate. The outermost level is the message itself, as the only element.
#[derive(Debug, Clone, Copy)]
struct Level {
    /// The number of its elements that are incomplete.
    left: u64,
    depth: usize,
}

/// How the input of a message ends.
#[derive(Debug)]
pub(super) enum Scanned {
    /// The message is complete, with this length in bytes.
    Whole(usize),
    /// The message is incomplete.
    Incomplete,
    /// A message that was dropped has ended.
    Dropped,
    /// A part of the message is too long. The message is dropped from now on.
    TooLong(PeerError),
    /// The stream cannot be decoded any further.
    Broken(RespError),
}

impl Scanned {
    /// Returns whether the scanner is needed for more input.
    pub(super) fn continues(&self) -> bool {
        matches!(self, Scanned::Incomplete | Scanned::TooLong(_))
    }
}

impl Scanner {
    pub(super) fn new() -> Self {
        Scanner {
            at: 0,
            searched: 0,
            need: 0,
            level: Level { left: 1, depth: 0 },
            outer: Vec::new(),
            elements: 0,
            dropping: false,
            rest: None,
        }
    }

    /// Reads tokens until the message ends. Consumes input only while the message is dropped, and
    /// at a fault: the bytes up to and including the byte that proves it.
    #[inline]
    pub(super) fn scan(&mut self, input: &mut Bytes, role: Role, limits: &RespLimits) -> Scanned {
        loop {
            if self.rest.is_some() {
                match self.skip(input) {
                    Some(Ok(())) => {}
                    None => return Scanned::Incomplete,
                    Some(Err(error)) => return Scanned::Broken(error),
                }
                if self.close() {
                    return Scanned::Dropped;
                }
            }
            if input.len() < self.need {
                return Scanned::Incomplete;
            }
            let place = Place::new(role, self.level.depth);
            match reader::read(input, self.at, place, &mut self.searched, limits) {
                Ok(Step::Whole(token, end)) => {
                    (self.at, self.searched) = (end, 0);
                    let whole = match token {
                        Token::Open(aggregate, count) => match self.open(aggregate.values(count), limits) {
                            Ok(whole) => whole,
                            Err(error) => return self.refuse(input, error),
                        },
                        _ => self.close(),
                    };
                    if whole && self.dropping {
                        input.advance(self.at);
                        return Scanned::Dropped;
                    }
                    if whole {
                        return Scanned::Whole(self.at);
                    }
                }
                Ok(Step::Incomplete { need }) => {
                    self.need = need;
                    if self.dropping {
                        self.consume(input, self.at);
                    }
                    return Scanned::Incomplete;
                }
                Err(Fault::Broken { error, end }) => {
                    input.advance(end);
                    return Scanned::Broken(error);
                }
                Err(Fault::TooLong { what, length, limit, rest, end }) => {
                    self.consume(input, end);
                    self.searched = 0;
                    self.rest = Some(rest);
                    if !self.dropping {
                        self.dropping = true;
                        return Scanned::TooLong(PeerError::TooLong { what, length, limit });
                    }
                }
            }
        }
    }

    /// Drops bytes from the front of the message, up to the next token.
    fn consume(&mut self, input: &mut Bytes, bytes: usize) {
        input.advance(bytes);
        self.need = self.need.saturating_sub(bytes);
        self.at = 0;
    }

    /// Enters an aggregate with this number of values. Returns whether the message is complete.
    #[inline]
    fn open(&mut self, values: u64, limits: &RespLimits) -> Result<bool, RespError> {
        let depth = self.level.depth + 1;
        if depth > limits.max_depth {
            return Err(RespError::TooDeep { limit: limits.max_depth });
        }
        self.elements = self.elements.saturating_add(values);
        if values == 0 {
            return Ok(self.close());
        }
        self.level.left -= 1;
        if self.level.left > 0 {
            self.outer.push(self.level);
        }
        self.level = Level { left: values, depth };
        if self.elements > limits.max_elements as u64 && !self.dropping {
            return Err(RespError::TooManyElements { elements: self.elements, limit: limits.max_elements });
        }
        Ok(false)
    }

    /// Counts one value that is complete. Returns whether the message is.
    #[inline]
    fn close(&mut self) -> bool {
        self.level.left -= 1;
        if self.level.left > 0 {
            return false;
        }
        match self.outer.pop() {
            Some(level) => self.level = level,
            None => return true,
        }
        false
    }

    #[cold]
    fn refuse(&mut self, input: &mut Bytes, error: RespError) -> Scanned {
        self.consume(input, self.at);
        if !error.is_recoverable() {
            return Scanned::Broken(error);
        }
        self.dropping = true;
        Scanned::TooLong(PeerError::protocol(super::PROTOCOL, error))
    }

    /// Drops the available bytes of an overlong part. Returns `None` until the part has ended.
    #[cold]
    fn skip(&mut self, input: &mut Bytes) -> Option<Result<(), RespError>> {
        match self.rest? {
            Rest::Bytes(left) => {
                let here = left.min(input.len() as u64);
                // At most `input.len()`, so it fits.
                input.advance(here as usize);
                self.rest = Some(Rest::Bytes(left - here));
                if left > here {
                    return None;
                }
                self.end_rest(input, RespError::MissingTerminator)
            }
            Rest::Line => {
                let end = memchr2(b'\r', b'\n', input).unwrap_or(input.len());
                input.advance(end);
                self.end_rest(input, RespError::InvalidLine)
            }
            Rest::Inline => {
                let Some(lf) = memchr(b'\n', input) else {
                    input.clear();
                    return None;
                };
                input.advance(lf + 1);
                self.rest = None;
                Some(Ok(()))
            }
        }
    }

    /// Consumes CRLF. Returns `None` if it has not arrived yet.
    fn end_rest(&mut self, input: &mut Bytes, otherwise: RespError) -> Option<Result<(), RespError>> {
        let bytes = input.get(..2)?;
        if bytes == b"\r\n" {
            input.advance(2);
            self.rest = None;
            return Some(Ok(()));
        }
        input.advance(if bytes[0] == b'\r' { 2 } else { 1 });
        Some(Err(otherwise))
    }
}
