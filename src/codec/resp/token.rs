//! `Token`: a value without its elements, read from the front of the input.
//!
//! Invariants: a fault is found at the first byte that proves it, however the bytes are split. A
//! token that is incomplete says how many bytes it needs, so that no header is read at every byte
//! of a string.

use super::{error::RespError, limits::RespLimits, role::Role};
use memchr::{memchr, memchr2};
use std::ops::Range;

/// The longest line of an integer, a length or a constant. An `i64` has at most 20 characters.
const MAX_NUMBER_LEN: usize = 32;

/// A value without its elements. Ranges are positions in the input.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Simple(Range<usize>),
    Error(Range<usize>),
    Integer(i64),
    Bulk(Range<usize>),
    NullBulk,
    NullArray,
    Null,
    Boolean(bool),
    Double(f64),
    BigNumber(Range<usize>),
    BulkError(Range<usize>),
    Verbatim([u8; 3], Range<usize>),
    /// The line of an inline command.
    Inline(Range<usize>),
    /// The header of an aggregate, and its count.
    Open(Aggregate, u64),
}

/// A type that has elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aggregate {
    Array,
    Set,
    Push,
    Map,
    Attribute,
}

impl Aggregate {
    /// Returns the number of values behind a header with `count`, which is at most `i64::MAX`.
    pub(super) fn values(self, count: u64) -> u64 {
        match self {
            Aggregate::Array | Aggregate::Set | Aggregate::Push => count,
            Aggregate::Map => 2 * count,
            // The last one is the value that has the attributes.
            Aggregate::Attribute => 2 * count + 1,
        }
    }
}

/// Where in a message a token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A request of a client: an array, or a line of text.
    Request { inline: bool },
    /// An element of a request: a bulk string.
    Argument,
    /// A reply or a push message.
    Reply,
    /// An element of a reply.
    Element,
}

impl Place {
    pub(super) fn new(role: Role, depth: usize) -> Self {
        match (role, depth) {
            (Role::Server { inline }, 0) => Place::Request { inline },
            (Role::Server { .. }, _) => Place::Argument,
            (Role::Client, 0) => Place::Reply,
            (Role::Client, _) => Place::Element,
        }
    }
}

/// The result of an attempt to read a token.
#[derive(Debug)]
pub(super) enum Step {
    /// The token, and the position of its end.
    Whole(Token, usize),
    /// The token is incomplete while the input has fewer than so many bytes.
    Incomplete { need: usize },
}

/// Why a token cannot be read. `end` is the position behind the byte that proves it.
#[derive(Debug)]
pub(super) enum Fault {
    Broken {
        error: RespError,
        end: usize,
    },
    /// The token is too long, and its rest can be skipped.
    TooLong {
        what: &'static str,
        length: u64,
        limit: usize,
        rest: Rest,
        end: usize,
    },
}

/// What follows in a token that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// So many bytes, and CRLF.
    Bytes(u64),
    /// Bytes up to CRLF.
    Line,
    /// Bytes up to LF.
    Inline,
}

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
        b',' => reader.line("double", |line, _| double(line).map(Token::Double)),
        b'(' => reader.line("big number", |line, range| digits(line).then_some(Token::BigNumber(range))),
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
    // With one byte more than the longest line and CRLF, an LF must have come.
    let window = &input[at..input.len().min(at + limits.max_line_len + 2)];
    let from = window.len().min(*searched);
    let found = memchr(b'\n', &window[from..]);
    #[cfg(test)]
    work::add(found.map_or(window.len() - from, |lf| lf + 1));
    let Some(lf) = found else {
        *searched = window.len();
        let excess = window.len() > limits.max_line_len + 1
            || window.len() > limits.max_line_len && !window.ends_with(b"\r");
        if excess {
            let end = at + limits.max_line_len + 1;
            let length = limits.max_line_len as u64 + 1;
            let (what, limit) = ("inline command", limits.max_line_len);
            return Err(Fault::TooLong { what, length, limit, rest: Rest::Inline, end });
        }
        return Ok(Step::Incomplete { need: input.len() + 1 });
    };
    let lf = at + from + lf;
    let end = if input[at..lf].ends_with(b"\r") { lf - 1 } else { lf };
    if end - at > limits.max_line_len {
        let (what, limit, length) = ("inline command", limits.max_line_len, limits.max_line_len as u64 + 1);
        return Err(Fault::TooLong { what, length, limit, rest: Rest::Inline, end: at + limit + 1 });
    }
    Ok(Step::Whole(Token::Inline(at..end), lf + 1))
}

/// Reads the rest of a token. `at` is the position behind its type.
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

    /// Reads a line of at most `line_len` bytes.
    fn long_line(&mut self) -> Result<Option<Line>> {
        let limit = self.limits.max_line_len;
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
        match self.long_line()? {
            Some(line) => Ok(Step::Whole(token(line.content), line.end)),
            None => self.incomplete(),
        }
    }

    fn line(
        &mut self,
        what: &'static str,
        parse: impl FnOnce(&[u8], Range<usize>) -> Option<Token>,
    ) -> Result<Step> {
        let Some(line) = self.long_line()? else { return self.incomplete() };
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

/// Reads a valid length of up to 8 digits, and the position behind its line. These are nearly all
/// lengths, and searching for CR takes longer than parsing them.
#[inline]
fn short_length(input: &[u8], at: usize) -> Option<(u64, usize)> {
    let text = input.get(at..)?;
    let mut length = 0;
    for (digits, byte) in text.iter().take(9).enumerate() {
        if byte.is_ascii_digit() {
            length = length * 10 + u64::from(byte - b'0');
            continue;
        }
        let shortest = digits == 1 || digits > 1 && text[0] != b'0';
        let ends = text[digits..].starts_with(b"\r\n");
        return (shortest && ends).then_some((length, at + digits + 2));
    }
    None
}

/// Parses a length: decimal digits without superfluous zeros, at most `i64::MAX`.
#[inline]
fn length(text: &[u8]) -> Option<u64> {
    let (&first, _) = text.split_first()?;
    if first == b'0' && text.len() > 1 {
        return None;
    }
    // 19 digits fit into 64 bits.
    if text.len() > 19 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let length = text.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
    (length <= i64::MAX as u64).then_some(length)
}

/// Parses a decimal number with an optional sign.
fn integer(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Returns whether a big number has the right form.
pub(super) fn digits(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

fn double(text: &[u8]) -> Option<f64> {
    // Rust accepts more words for these.
    match text {
        b"inf" | b"+inf" => return Some(f64::INFINITY),
        b"-inf" => return Some(f64::NEG_INFINITY),
        b"nan" => return Some(f64::NAN),
        _ => {}
    }
    let numeric = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    if !text.iter().all(numeric) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
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
