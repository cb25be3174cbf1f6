//! Reads tokens from the front of the input.
//!
//! Invariants: the position of a fault depends only on the bytes, not on their split. An incomplete
//! token returns the length of input that it needs, so the header of a string is not read again for
//! each of its bytes.

use super::{
    error::RespError,
    limits::RespLimits,
    number::{MAX_DOUBLE_LEN, double, integer, is_big_number, length, short_length},
    token::{Aggregate, Fault, Place, Rest, Step, Token},
};
use memchr::{memchr, memchr2};
use std::ops::Range;

/// The longest line of an integer, a length or a constant. An `i64` has at most 20 characters.
const MAX_NUMBER_LEN: usize = 32;

type Result<T> = std::result::Result<T, Fault>;

/// Reads the token at `at`. `searched` is the number of bytes of its line that an earlier attempt
/// has searched for an end.
#[inline]
pub(super) fn read(
    input: &[u8],
    at: usize,
    place: Place,
    searched: &mut usize,
    limits: &RespLimits,
) -> Result<Step> {
    #[cfg(test)]
    work::add(1);
    let Some(&first) = input.get(at) else { return Ok(Step::Incomplete { need: at + 1 }) };
    match (place, first) {
        (Place::Request { .. }, b'*') | (Place::Argument, b'$') | (Place::Reply | Place::Element, _) => {}
        (Place::Request { inline: true }, _) => return inline(input, at, searched, limits),
        (Place::Request { .. } | Place::Argument, _) => {
            return Err(Fault::Broken { error: RespError::NotARequest(first), end: at + 1 });
        }
    }
    let mut reader = Reader { input, at: at + 1, searched, limits };
    match first {
        // Only a string of a reply may be absent.
        b'$' => reader.bulk(place != Place::Argument, Token::Bulk),
        b'*' => reader.aggregate(Aggregate::Array),
        b'+' => reader.text(Token::Simple),
        b'-' => reader.text(Token::Error),
        b':' => reader.constant("integer", |line| integer(line).map(Token::Integer)),
        b'_' => reader.constant("null", |line| line.is_empty().then_some(Token::Null)),
        b'#' => reader.constant("boolean", |line| match line {
            b"t" => Some(Token::Boolean(true)),
            b"f" => Some(Token::Boolean(false)),
            _ => None,
        }),
        b',' => {
            let limit = limits.max_line_len.max(MAX_DOUBLE_LEN);
            reader.line("double", limit, |line, _| double(line).map(Token::Double))
        }
        b'(' => reader.line("big number", limits.max_line_len, |line, range| {
            is_big_number(line).then_some(Token::BigNumber(range))
        }),
        b'!' => reader.bulk(false, Token::BulkError),
        b'=' => reader.verbatim(),
        b'~' => reader.aggregate(Aggregate::Set),
        b'%' => reader.aggregate(Aggregate::Map),
        b'|' => reader.aggregate(Aggregate::Attribute),
        b'>' if place == Place::Reply => reader.aggregate(Aggregate::Push),
        b'>' => Err(Fault::Broken { error: RespError::NestedPush, end: at + 1 }),
        b';' | b'.' => Err(Fault::Broken { error: RespError::Streamed, end: at + 1 }),
        _ => Err(Fault::Broken { error: RespError::UnknownType(first), end: at + 1 }),
    }
}

/// Reads the line of an inline command.
fn inline(input: &[u8], at: usize, searched: &mut usize, limits: &RespLimits) -> Result<Step> {
    let limit = limits.max_line_len;
    // The longest line ends in CRLF.
    let window = &input[at..input.len().min(at + limit + 2)];
    let from = window.len().min(*searched);
    let found = memchr(b'\n', &window[from..]);
    #[cfg(test)]
    work::add(found.map_or(window.len() - from, |lf| lf + 1));
    let line = &window[..found.map_or(window.len(), |lf| from + lf)];
    // A CR at the end belongs to the terminator, unless it is followed by another byte than LF.
    let content = if line.len() < limit + 2 { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
    if content.len() > limit {
        let (what, length, end) = ("inline command", limit as u64 + 1, at + limit + 1);
        return Err(Fault::TooLong { what, length, limit, rest: Rest::Inline, end });
    }
    if found.is_none() {
        *searched = window.len();
        return Ok(Step::Incomplete { need: input.len() + 1 });
    }
    Ok(Step::Whole(Token::Inline(at..at + content.len()), at + line.len() + 1))
}

/// A reader for the bytes of a token behind its type.
struct Reader<'a> {
    input: &'a [u8],
    at: usize,
    searched: &'a mut usize,
    limits: &'a RespLimits,
}

/// A line without its CRLF, and the position behind that.
struct Line {
    content: Range<usize>,
    end: usize,
}

impl Reader<'_> {
    /// Finds the end of the line. Returns `None` if it is incomplete, and a fault if it has more
    /// than `limit` bytes.
    #[inline]
    fn find_line(&mut self, limit: usize, too_long: impl FnOnce(usize) -> Fault) -> Result<Option<Line>> {
        let window = &self.input[self.at..self.input.len().min(self.at + limit + 1)];
        let from = window.len().min(*self.searched);
        let found = memchr2(b'\r', b'\n', &window[from..]);
        #[cfg(test)]
        work::add(found.map_or(window.len() - from, |found| found + 1));
        let Some(found) = found else {
            *self.searched = window.len();
            if window.len() > limit {
                return Err(too_long(self.at + window.len()));
            }
            return Ok(None);
        };
        *self.searched = from + found;
        let cr = self.at + *self.searched;
        let invalid = |end| Err(Fault::Broken { error: RespError::InvalidLine, end });
        if self.input[cr] == b'\n' {
            return invalid(cr + 1);
        }
        match self.input.get(cr + 1) {
            Some(b'\n') => Ok(Some(Line { content: self.at..cr, end: cr + 2 })),
            Some(_) => invalid(cr + 2),
            None => Ok(None),
        }
    }

    fn incomplete(&self) -> Result<Step> {
        Ok(Step::Incomplete { need: self.input.len() + 1 })
    }

    /// Reads a line of at most `limit` bytes.
    fn long_line(&mut self, limit: usize) -> Result<Option<Line>> {
        self.find_line(limit, |end| {
            let length = limit as u64 + 1;
            Fault::TooLong { what: "line", length, limit, rest: Rest::Line, end }
        })
    }

    /// Reads a short line, which is not searched further than a number can be long.
    #[inline]
    fn short_line(&mut self, error: RespError) -> Result<Option<Line>> {
        self.find_line(MAX_NUMBER_LEN, |end| Fault::Broken { error, end })
    }

    fn text(&mut self, token: fn(Range<usize>) -> Token) -> Result<Step> {
        match self.long_line(self.limits.max_line_len)? {
            Some(line) => Ok(Step::Whole(token(line.content), line.end)),
            None => self.incomplete(),
        }
    }

    fn line(
        &mut self,
        what: &'static str,
        limit: usize,
        parse: impl FnOnce(&[u8], Range<usize>) -> Option<Token>,
    ) -> Result<Step> {
        let Some(line) = self.long_line(limit)? else { return self.incomplete() };
        match parse(&self.input[line.content.clone()], line.content) {
            Some(token) => Ok(Step::Whole(token, line.end)),
            None => Err(Fault::Broken { error: RespError::InvalidValue(what), end: line.end }),
        }
    }

    fn constant(&mut self, what: &'static str, parse: impl FnOnce(&[u8]) -> Option<Token>) -> Result<Step> {
        let error = RespError::InvalidValue(what);
        let Some(line) = self.short_line(error)? else { return self.incomplete() };
        match parse(&self.input[line.content]) {
            Some(token) => Ok(Step::Whole(token, line.end)),
            None => Err(Fault::Broken { error, end: line.end }),
        }
    }

    /// Reads a length, and the position behind its line. The length is `None` for -1.
    #[inline]
    fn length(&mut self) -> Result<Option<(Option<u64>, usize)>> {
        if let Some((length, end)) = short_length(self.input, self.at) {
            return Ok(Some((Some(length), end)));
        }
        self.any_length()
    }

    /// Reads a length that is incomplete, long, -1 or invalid.
    #[inline(never)]
    fn any_length(&mut self) -> Result<Option<(Option<u64>, usize)>> {
        let Some(line) = self.short_line(RespError::InvalidLength)? else { return Ok(None) };
        let error = match &self.input[line.content] {
            b"-1" => return Ok(Some((None, line.end))),
            b"?" => RespError::Streamed,
            text => match length(text) {
                Some(length) => return Ok(Some((Some(length), line.end))),
                None => RespError::InvalidLength,
            },
        };
        Err(Fault::Broken { error, end: line.end })
    }

    #[inline]
    fn aggregate(&mut self, aggregate: Aggregate) -> Result<Step> {
        let Some((count, end)) = self.length()? else { return self.incomplete() };
        match count {
            Some(count) => Ok(Step::Whole(Token::Open(aggregate, count), end)),
            None if aggregate == Aggregate::Array => Ok(Step::Whole(Token::NullArray, end)),
            None => Err(Fault::Broken { error: RespError::InvalidLength, end }),
        }
    }

    #[inline]
    fn bulk(&mut self, may_be_null: bool, token: fn(Range<usize>) -> Token) -> Result<Step> {
        let Some((length, start)) = self.length()? else { return self.incomplete() };
        let Some(length) = length else {
            return if may_be_null {
                Ok(Step::Whole(Token::NullBulk, start))
            } else {
                Err(Fault::Broken { error: RespError::InvalidLength, end: start })
            };
        };
        let limit = self.limits.max_bulk_len;
        if length > limit as u64 {
            let (what, rest) = ("bulk string", Rest::Bytes(length));
            return Err(Fault::TooLong { what, length, limit, rest, end: start });
        }
        // At most 512 MiB, so neither the conversion nor the sum overflows.
        let end = start + length as usize;
        match self.input.get(end..end + 2) {
            Some(b"\r\n") => Ok(Step::Whole(token(start..end), end + 2)),
            Some(bytes) => {
                let end = end + if bytes[0] == b'\r' { 2 } else { 1 };
                Err(Fault::Broken { error: RespError::MissingTerminator, end })
            }
            None => Ok(Step::Incomplete { need: end + 2 }),
        }
    }

    fn verbatim(&mut self) -> Result<Step> {
        let step = self.bulk(false, Token::Bulk)?;
        let Step::Whole(Token::Bulk(content), end) = step else { return Ok(step) };
        match self.input[content.clone()] {
            [a, b, c, b':', ..] => {
                Ok(Step::Whole(Token::Verbatim([a, b, c], content.start + 4..content.end), end))
            }
            _ => Err(Fault::Broken { error: RespError::InvalidValue("verbatim string"), end }),
        }
    }
}

/// Counts tokens and the bytes of lines that are searched, on this thread.
#[cfg(test)]
pub(super) mod work {
    use std::cell::Cell;

    thread_local! {
        static WORK: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn add(work: usize) {
        WORK.set(WORK.get() + work);
    }

    pub(in super::super) fn take() -> usize {
        WORK.take()
    }
}
