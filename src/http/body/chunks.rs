//! The lines between chunks (RFC 9112, section 7.1).
//!
//! Invariants: a line is a size of 1 to 16 hexadecimal digits, extensions, and CRLF. Nothing else
//! is accepted, also no spaces around extensions, because recipients that accept more disagree on
//! where a chunk ends. Each byte is looked at once.

use crate::http::{error::HttpError, syntax::is_token_byte};
use memchr::memchr;

/// The line that begins a chunk.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ChunkLine {
    /// The length of the chunk; 0 for the last one.
    pub(super) size: u64,
    /// The length of the line with its CRLF.
    pub(super) len: usize,
    /// The length of its extensions.
    pub(super) extensions: usize,
}

/// Parses the line at the front of `input`, or returns `None` if it has not arrived completely.
/// `scanned` is the number of bytes that earlier calls have looked at.
pub(super) fn chunk_line(
    input: &[u8],
    scanned: &mut usize,
    limit: usize,
) -> Result<Option<ChunkLine>, HttpError> {
    let window = &input[..input.len().min(limit + 1)];
    let Some(lf) = memchr(b'\n', &window[*scanned..]).map(|at| *scanned + at) else {
        *scanned = window.len();
        // The LF of a line of `limit` bytes is within the window.
        return if input.len() > limit { Err(HttpError::Chunk("a line is too long")) } else { Ok(None) };
    };
    *scanned = 0;
    let line = input[..lf].strip_suffix(b"\r").ok_or(HttpError::Chunk("a line ends in LF without CR"))?;
    let digits = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    let size = size(&line[..digits])?;
    let extensions = &line[digits..];
    if !extensions.is_empty() && extensions[0] != b';' {
        return Err(HttpError::Chunk("the size"));
    }
    if !are_extensions(extensions) {
        return Err(HttpError::Chunk("an extension"));
    }
    Ok(Some(ChunkLine { size, len: lf + 1, extensions: extensions.len() }))
}

/// Returns whether each of the extensions is `;name`, `;name=token` or `;name="text"`.
fn are_extensions(mut input: &[u8]) -> bool {
    while let Some(rest) = input.strip_prefix(b";") {
        let Some(rest) = strip_token(rest) else { return false };
        input = match rest.strip_prefix(b"=") {
            None => rest,
            Some(value) => match strip_token(value).or_else(|| strip_quoted(value)) {
                Some(rest) => rest,
                None => return false,
            },
        };
    }
    input.is_empty()
}

/// Strips the token at the front of `input`.
fn strip_token(input: &[u8]) -> Option<&[u8]> {
    let len = input.iter().position(|byte| !is_token_byte(*byte)).unwrap_or(input.len());
    (len > 0).then(|| &input[len..])
}

/// Strips the quoted string at the front of `input` (RFC 9110, section 5.6.4).
fn strip_quoted(input: &[u8]) -> Option<&[u8]> {
    let mut rest = input.strip_prefix(b"\"")?;
    loop {
        rest = match rest {
            [b'"', rest @ ..] => return Some(rest),
            [b'\\', quoted, rest @ ..] if is_text(*quoted) => rest,
            [byte, rest @ ..] if is_text(*byte) && *byte != b'\\' => rest,
            _ => return None,
        };
    }
}

fn is_text(byte: u8) -> bool {
    byte == b'\t' || !byte.is_ascii_control()
}

fn size(digits: &[u8]) -> Result<u64, HttpError> {
    if digits.is_empty() || digits.len() > 16 {
        return Err(HttpError::Chunk("the size"));
    }
    let text = std::str::from_utf8(digits).map_err(|_| HttpError::Chunk("the size"))?;
    let size = u64::from_str_radix(text, 16).map_err(|_| HttpError::Chunk("the size"))?;
    if size > i64::MAX as u64 { Err(HttpError::BodyTooLong) } else { Ok(size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(input: &[u8]) -> Result<Option<ChunkLine>, HttpError> {
        chunk_line(input, &mut 0, 32)
    }

    #[test]
    fn sizes_and_extensions_are_parsed() {
        let is = |size, len, extensions| Ok(Some(ChunkLine { size, len, extensions }));
        assert_eq!(line(b"5\r\nhello"), is(5, 3, 0));
        assert_eq!(line(b"0\r\n"), is(0, 3, 0));
        assert_eq!(line(b"fF;a=b;c=\"d e\"\r\n"), is(255, 16, 12));
        assert_eq!(line(b"5;a=\"\\\"\t;\\\\\";b\r\n"), is(5, 16, 13));
        assert_eq!(line(b"0000000000000005\r\n"), is(5, 18, 0));
        assert_eq!(line(b"5"), Ok(None));
        assert_eq!(line(b"5\r"), Ok(None));
    }

    #[test]
    fn anything_else_is_an_error() {
        let inputs: [&[u8]; 25] = [
            b"\r\n",
            b"\n",
            b"5\n",
            b" 5\r\n",
            b"5 \r\n",
            b"+5\r\n",
            b"-5\r\n",
            b"0x5\r\n",
            b"g\r\n",
            b"00000000000000005\r\n",
            b"5;a\nGET / HTTP/1.1\r\n",
            b"5;a\rb\r\n",
            b"5;a\0\r\n",
            b"5;\x7F\r\n",
            b"5 ;a\r\n",
            b"ffffffffffffffff\r\n",
            b"5;\r\n",
            b"5;a;\r\n",
            b"5; a\r\n",
            b"5;a =b\r\n",
            b"5;a=\r\n",
            b"5;a/b\r\n",
            b"5;a=\"b\r\n",
            b"5;a=\"b\\\"\r\n",
            b"5;a=\"b\"c\r\n",
        ];
        for input in inputs {
            assert!(line(input).is_err(), "{}", input.escape_ascii());
        }
    }

    #[test]
    fn the_longest_line_is_exact() {
        let longest = |len: usize| [&b"5;"[..], &vec![b'a'; len - 4], b"\r\n"].concat();
        assert!(line(&longest(33)).unwrap().is_some(), "32 bytes and the LF");
        assert!(line(&longest(34)).is_err());
        assert_eq!(line(&longest(34)[..32]), Ok(None));
        assert!(line(&longest(34)[..33]).is_err());
    }
}
