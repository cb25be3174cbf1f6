//! Parses complete heads and trailers with httparse, and applies checks that httparse lacks.

use super::{facts::HeadFacts, scanner::HeadLimits};
use crate::http::{
    Headers, Request, Response, StatusCode, Version,
    error::HttpError,
    syntax::{is_host, is_target, trim},
};
use bytes::{Buf, Bytes};
use httparse::{Error as Cause, Header, ParserConfig, Status};
use std::mem::MaybeUninit;

/// The largest value of [`HttpSettings::max_headers`](crate::http::HttpSettings::max_headers).
const MAX_HEADERS: usize = 256;

/// The length of ` HTTP/1.1` and CRLF.
const BEHIND_TARGET: usize = 11;

/// The head of a request that was checked.
#[derive(Clone, Copy)]
pub(in crate::http) struct RequestHead {
    len: usize,
    method_len: u16,
    /// The length of method and target.
    line_len: usize,
    version: Version,
    /// The number of lines, without the empty line.
    lines: usize,
    /// Whether all lines end in CRLF. httparse also accepts LF alone, but no CR elsewhere.
    has_line_ends: bool,
    pub(in crate::http) facts: HeadFacts,
}

impl RequestHead {
    /// Returns the head at the start of `input` if all of it has arrived, is valid, and is within
    /// `limits`. Otherwise the caller looks for its end or for the error.
    ///
    /// The usual head arrives whole, so its bytes are looked at once.
    pub(in crate::http) fn arrived(input: &[u8], limits: &HeadLimits) -> Option<Self> {
        let head = check_request(&input[..input.len().min(limits.length)]).ok()?;
        let first_line = head.line_len + BEHIND_TARGET - 2;
        let is_within = first_line <= limits.first_line && head.lines <= limits.lines;
        (is_within && head.has_line_ends).then_some(head)
    }

    /// Takes the request from the input at whose start the head was found.
    pub(in crate::http) fn take(&self, input: &mut Bytes) -> Request {
        let line = input.split_to(self.line_len);
        input.advance(BEHIND_TARGET);
        let headers = input.split_to(self.len - self.line_len - BEHIND_TARGET - 2);
        input.advance(2);
        Request::parsed(line, self.method_len, self.version, Headers::parsed(headers))
    }
}

/// Parses the head of a request at the start of `input`.
///
/// # Errors
/// [`HttpError`] if it is invalid or incomplete.
pub(in crate::http) fn check_request(input: &[u8]) -> Result<RequestHead, HttpError> {
    let mut storage = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut []);
    let config = ParserConfig::default();
    let len = match config.parse_request_with_uninit_headers(&mut parsed, input, &mut storage) {
        Ok(Status::Complete(len)) => len,
        other => return Err(cause(other.err(), first_line(input).rsplit(|byte| *byte == b' ').next())),
    };
    let (Some(method), Some(target), Some(version)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(HttpError::StartLine("incomplete"));
    };
    // The line must have no other bytes than these: httparse skips some spaces.
    let line_len = method.len() + 1 + target.len();
    if !is_target(target.as_bytes()) || !input[line_len..].starts_with(b" HTTP/1.") {
        return Err(HttpError::StartLine("the target"));
    }
    if !has_valid_form(method, target) {
        return Err(HttpError::StartLine("the form of the target"));
    }
    let method_len = u16::try_from(method.len()).map_err(|_| HttpError::LineTooLong)?;
    let version = version_of(version)?;
    let facts = facts(parsed.headers, HeadFacts::note_in_request)?;
    facts.check_host(version)?;
    let follows_crlf = |field: &Header<'_>| {
        let start = field.name.as_ptr().addr() - input.as_ptr().addr();
        input[..start].ends_with(b"\r\n")
    };
    let has_line_ends = input[..len].ends_with(b"\r\n\r\n") && parsed.headers.iter().all(follows_crlf);
    let lines = parsed.headers.len() + 1;
    Ok(RequestHead { len, method_len, line_len, version, lines, has_line_ends, facts })
}

/// Returns whether the target has one of the four forms of RFC 9112, section 3.2. User information
/// is not accepted (RFC 9110, section 4.2.4).
fn has_valid_form(method: &str, target: &str) -> bool {
    match target.as_bytes() {
        [b'/', ..] => method != "CONNECT",
        b"*" => method == "OPTIONS",
        _ if method == "CONNECT" => target.contains(':') && is_host(target.as_bytes()),
        _ => target.split_once("://").is_some_and(|(scheme, rest)| {
            let authority = rest.split(['/', '?']).next().unwrap_or_default();
            let is_scheme = !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphabetic());
            is_scheme && !authority.is_empty() && is_host(authority.as_bytes())
        }),
    }
}

/// Parses the head of a response. Its lines end in CRLF.
pub(in crate::http) fn parse_response(head: &Bytes) -> Result<(Response, HeadFacts), HttpError> {
    let mut storage = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut []);
    let config = ParserConfig::default();
    let result = config.parse_response_with_uninit_headers(&mut parsed, head, &mut storage);
    if !matches!(result, Ok(Status::Complete(_))) {
        return Err(cause(result.err(), first_line(head).split(|byte| *byte == b' ').next()));
    }
    let (Some(version), Some(code)) = (parsed.version, parsed.code) else {
        return Err(HttpError::StartLine("incomplete"));
    };
    let status = StatusCode::new(code).ok_or(HttpError::StartLine("the status code"))?;
    let facts = facts(parsed.headers, HeadFacts::note)?;
    let line_len = head.windows(2).position(|bytes| bytes == b"\r\n").unwrap_or(0);
    let headers = Headers::parsed(head.slice(line_len + 2..head.len() - 2));
    Ok((Response::parsed(status, version_of(version)?, headers), facts))
}

/// Parses trailers with their empty line (RFC 9112, section 7.1.2).
pub(in crate::http) fn parse_trailers(lines: &Bytes) -> Result<Headers, HttpError> {
    const MALFORMED: HttpError = HttpError::Trailer("a line");
    let mut storage = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let Ok(Status::Complete(_)) = httparse::parse_headers(lines, &mut storage) else {
        return Err(MALFORMED);
    };
    let trailers = Headers::parsed(lines.slice(..lines.len() - 2));
    if forbidden_trailer(&trailers).is_some() {
        return Err(HttpError::Trailer("a header that is not allowed as a trailer"));
    }
    Ok(trailers)
}

/// Returns the name of a field that is not allowed as a trailer, if there is one.
///
/// Fields that describe the message, or choose its recipient, are too late behind the body. A
/// program that merges trailers into the headers would be deceived by them.
pub(crate) fn forbidden_trailer(trailers: &Headers) -> Option<&'static str> {
    const FORBIDDEN: [&str; 8] = [
        "content-length",
        "transfer-encoding",
        "host",
        "connection",
        "trailer",
        "upgrade",
        "content-encoding",
        "authorization",
    ];
    FORBIDDEN.into_iter().find(|name| trailers.contains(name))
}

fn version_of(minor: u8) -> Result<Version, HttpError> {
    match minor {
        0 => Ok(Version::Http10),
        1 => Ok(Version::Http11),
        _ => Err(HttpError::Version),
    }
}

/// Looks at all fields. httparse has refused control characters.
#[inline(always)]
fn facts(
    fields: &[Header<'_>],
    note: impl Fn(&mut HeadFacts, &[u8], &[u8]) -> Result<(), HttpError>,
) -> Result<HeadFacts, HttpError> {
    let mut facts = HeadFacts::default();
    for field in fields {
        note(&mut facts, field.name.as_bytes(), trim(field.value))?;
    }
    Ok(facts)
}

/// Translates an error of httparse. Without one, the empty line was found too early. `version` is
/// the word of the first line that should be the version.
#[cold]
fn cause(error: Option<Cause>, version: Option<&[u8]>) -> HttpError {
    match error {
        Some(Cause::Version) if version.is_some_and(is_other_version) => HttpError::Version,
        Some(Cause::Version) => HttpError::StartLine("the version"),
        Some(Cause::Token) => HttpError::StartLine("the method or target"),
        Some(Cause::Status) => HttpError::StartLine("the status code"),
        Some(Cause::HeaderName) => HttpError::Header("a name"),
        Some(Cause::HeaderValue) => HttpError::Header("a value"),
        Some(Cause::NewLine) => HttpError::Header("a line ending"),
        Some(Cause::TooManyHeaders) => HttpError::HeadTooLong,
        None => HttpError::StartLine("an empty line"),
    }
}

fn first_line(head: &[u8]) -> &[u8] {
    head.split(|byte| *byte == b'\r').next().unwrap_or_default()
}

/// Returns whether `word` is a well-formed version of HTTP that is not supported.
fn is_other_version(word: &[u8]) -> bool {
    match word {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] => {
            let is_supported = *major == b'1' && matches!(minor, b'0' | b'1');
            major.is_ascii_digit() && minor.is_ascii_digit() && !is_supported
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::scanner::{HeadScanner, Scan};
    use super::*;
    use proptest::prelude::*;

    const LIMITS: HeadLimits = HeadLimits { first_line: 16, length: 60, lines: 4 };

    /// Looks for the end of a head, then at the head.
    fn searched(input: &[u8]) -> Option<usize> {
        let Ok(Scan::Complete(len)) = HeadScanner::default().scan(input, &LIMITS) else { return None };
        check_request(&input[..len]).ok().map(|head| head.len)
    }

    fn arrived(input: &[u8]) -> Option<usize> {
        RequestHead::arrived(input, &LIMITS).map(|head| head.len)
    }

    #[test]
    fn limits_of_a_head_that_arrives_whole_are_exact() {
        let head = |target: &str, headers: &str| format!("GET {target} HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
        let long = |len: usize| head("/", &format!("A: {}\r\n", "b".repeat(len - 32)));
        let accepted = [head("/", ""), head("/bc", ""), long(60), head("/", "A: b\r\nC: d\r\n")];
        for head in accepted {
            assert_eq!(arrived(head.as_bytes()), Some(head.len()), "{head:?}");
        }
        for head in [head("/bcd", ""), long(61), head("/", "A: b\r\nC: d\r\nE: f\r\n")] {
            assert_eq!(arrived(head.as_bytes()), None, "{head:?}");
        }
    }

    proptest! {
        #[test]
        fn a_head_that_arrives_whole_is_accepted_like_one_in_parts(
            lines in prop::collection::vec((
                prop::sample::select(vec!["GET / HTTP/1.1", "Host: a", "A: b", "B:", " c", "D : e", ""]),
                prop_oneof![8 => Just("\r\n"), 1 => Just("\n"), 1 => Just("\r")],
            ), 0..5),
            is_usual in any::<bool>(),
        ) {
            let mut input = String::from(if is_usual { "GET / HTTP/1.1\r\nHost: a\r\n" } else { "" });
            lines.iter().for_each(|(line, end)| input.extend([*line, *end]));
            for rest in ["", "\r\n", "\n", "\r\n\r\n"] {
                let input = format!("{input}{rest}");
                prop_assert_eq!(arrived(input.as_bytes()), searched(input.as_bytes()), "{:?}", input);
            }
        }
    }
}
