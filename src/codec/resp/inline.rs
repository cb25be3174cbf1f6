//! The arguments of an inline command: a line of text, as a person types it.

use super::{error::RespError, limits::RespLimits, refused::Refused, value::RespValue};
use crate::error::PeerError;
use bytes::{Bytes, BytesMut};

/// The commands at which Redis closes a connection, because a browser sends them.
const OF_BROWSERS: [&[u8]; 2] = [b"post", b"host:"];

/// Splits a line into its arguments by the rules of Redis.
///
/// # Errors
/// [`RespError`] if a quote is not closed, if there are too many arguments, or if the line belongs
/// to an HTTP request. A browser that a web page has made to send one would execute the commands in
/// its body. [`PeerError::TooLong`] if an argument exceeds the limit of a bulk string.
pub(super) fn arguments(line: &Bytes, limits: &RespLimits) -> Result<Vec<RespValue>, Refused> {
    let arguments = split(line)?;
    if arguments.len() > limits.max_elements {
        let (elements, limit) = (arguments.len() as u64, limits.max_elements);
        return Err(RespError::TooManyElements { elements, limit }.into());
    }
    let longest = arguments.iter().filter_map(RespValue::as_bytes).map(Bytes::len).max().unwrap_or(0);
    if longest > limits.max_bulk_len {
        let (length, limit) = (longest as u64, limits.max_bulk_len);
        return Err(Refused::TooLong(PeerError::TooLong { what: "bulk string", length, limit }));
    }
    let command = arguments.first().and_then(RespValue::as_bytes);
    match command.filter(|command| OF_BROWSERS.iter().any(|name| command.eq_ignore_ascii_case(name))) {
        Some(_) => Err(RespError::HttpRequest.into()),
        None => Ok(arguments),
    }
}

/// White space separates arguments. Between double quotes `\n`, `\r`, `\t`, `\b`, `\a` and `\xFF`
/// stand for other bytes, and any other character after a backslash for itself. Between single
/// quotes only `\'` is special. A closing quote ends its argument.
fn split(line: &Bytes) -> Result<Vec<RespValue>, RespError> {
    let mut arguments = Vec::new();
    let mut at = 0;
    loop {
        at += line[at..].iter().take_while(|byte| is_space(byte)).count();
        if at == line.len() {
            return Ok(arguments);
        }
        let plain = line[at..].iter().take_while(|byte| !is_space(byte) && !is_quote(byte)).count();
        let ends = line.get(at + plain).is_none_or(is_space);
        let (argument, end) =
            if ends { (line.slice(at..at + plain), at + plain) } else { unquoted(line, at)? };
        arguments.push(RespValue::Bulk(argument));
        at = end;
    }
}

/// White space and NUL, at which Redis ends an argument.
fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0B | 0x0C | 0)
}

fn is_quote(byte: &u8) -> bool {
    matches!(byte, b'"' | b'\'')
}

/// Returns the argument at `at`, which contains a quote, and its end.
fn unquoted(line: &[u8], mut at: usize) -> Result<(Bytes, usize), RespError> {
    let mut argument = BytesMut::new();
    let mut quote = None;
    loop {
        let Some(byte) = line.get(at) else {
            let complete = quote.is_none();
            return if complete { Ok((argument.freeze(), at)) } else { Err(RespError::UnbalancedQuotes) };
        };
        match (quote, *byte) {
            (None, byte) if is_space(&byte) => return Ok((argument.freeze(), at)),
            (None, byte) if is_quote(&byte) => quote = Some(byte),
            (Some(open), byte) if byte == open => {
                return match line.get(at + 1) {
                    Some(next) if !is_space(next) => Err(RespError::UnbalancedQuotes),
                    _ => Ok((argument.freeze(), at + 1)),
                };
            }
            (Some(b'"'), b'\\') if at + 1 < line.len() => {
                let (byte, length) = escaped(&line[at + 1..]);
                argument.extend([byte]);
                at += length;
            }
            (Some(b'\''), b'\\') if line.get(at + 1) == Some(&b'\'') => {
                argument.extend(b"'");
                at += 1;
            }
            (_, byte) => argument.extend([byte]),
        }
        at += 1;
    }
}

/// Returns the byte that an escape stands for, and the length of the escape behind the backslash.
fn escaped(rest: &[u8]) -> (u8, usize) {
    let hex = |digit: &u8| char::from(*digit).to_digit(16).map(|digit| digit as u8);
    match rest {
        [b'x', high, low, ..] if hex(high).is_some() && hex(low).is_some() => {
            (hex(high).unwrap_or(0) << 4 | hex(low).unwrap_or(0), 3)
        }
        [b'n', ..] => (b'\n', 1),
        [b'r', ..] => (b'\r', 1),
        [b't', ..] => (b'\t', 1),
        [b'b', ..] => (0x08, 1),
        [b'a', ..] => (0x07, 1),
        [byte, ..] => (*byte, 1),
        [] => (b'\\', 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &[u8]) -> Result<Vec<Bytes>, RespError> {
        let arguments = match super::arguments(&Bytes::copy_from_slice(line), &RespLimits::new()) {
            Ok(arguments) => arguments,
            Err(Refused::Invalid(error)) => return Err(error),
            Err(Refused::TooLong(error)) => panic!("{error}"),
        };
        Ok(arguments.iter().map(|argument| argument.as_bytes().unwrap().clone()).collect())
    }

    #[test]
    fn white_space_separates_arguments() {
        assert_eq!(texts(b"").unwrap(), [""; 0]);
        assert_eq!(texts(b" \t ").unwrap(), [""; 0]);
        assert_eq!(texts(b"  SET key\tvalue ").unwrap(), ["SET", "key", "value"]);
    }

    #[test]
    fn quotes_are_removed_and_escapes_replaced() {
        assert_eq!(texts(br#"a "b c" 'd e' "" ''"#).unwrap(), ["a", "b c", "d e", "", ""]);
        assert_eq!(texts(br#""\x41\n\r\t\b\a\"\\\q\xZZ""#).unwrap(), ["A\n\r\t\x08\x07\"\\qxZZ"]);
        assert_eq!(texts(br#"'it\'s \n'"#).unwrap(), [r"it's \n"]);
        assert_eq!(texts(br#"key"with space""#).unwrap(), ["keywith space"]);
        assert_eq!(texts(br"back\slash").unwrap(), [r"back\slash"]);
    }

    #[test]
    fn unbalanced_quotes_are_refused() {
        for line in [&br#"""#[..], b"'", br#"a "b"#, br#""a"b"#, b"'a'b", br#""a\""#, br#""\"#, br"'\'"] {
            assert_eq!(texts(line), Err(RespError::UnbalancedQuotes), "{line:?}");
        }
    }

    #[test]
    fn the_lines_of_an_http_request_are_refused_as_redis_does() {
        for line in
            [&b"POST / HTTP/1.1"[..], b"post", b" Host: localhost", b"HOST:", b"host: x", b"\"POST\" /"]
        {
            assert_eq!(texts(line), Err(RespError::HttpRequest), "{line:?}");
        }
        for line in [&b"GET / HTTP/1.1"[..], b"set post host:", b"posts", b"host"] {
            assert!(texts(line).is_ok(), "{line:?}");
        }
    }

    #[test]
    fn plain_arguments_share_the_memory_of_the_line() {
        let line = Bytes::copy_from_slice(b"GET key");
        let arguments = arguments(&line, &RespLimits::new()).unwrap();
        let start = |bytes: &Bytes| bytes.as_ptr() as usize;
        assert_eq!(start(arguments[1].as_bytes().unwrap()) - start(&line), 4);
    }
}
