//! Parses complete heads and trailers with httparse, and checks what it lets pass.

use crate::http::{
    HttpError, Request, Response, StatusCode, Version,
    message::{Headers, Span},
    syntax::{is_host, is_target, trim},
};
use bytes::Bytes;
use httparse::{Error as Cause, Header, ParserConfig, Status};
use std::mem::MaybeUninit;

/// The largest value of [`HttpSettings::headers`](crate::http::HttpSettings::headers).
const MAX_HEADERS: usize = 256;

/// Parses the head of a request. Its lines end in CRLF.
pub(in crate::http) fn parse_request(head: &Bytes) -> Result<Request, HttpError> {
    let mut storage = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut []);
    let config = ParserConfig::default();
    let result = config.parse_request_with_uninit_headers(&mut parsed, head, &mut storage);
    if !matches!(result, Ok(Status::Complete(_))) {
        return Err(cause(result.err(), head));
    }
    let (Some(method), Some(target), Some(version)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(HttpError::StartLine("incomplete"));
    };
    // The offset of the target also rejects spaces that were skipped.
    if !is_target(target.as_bytes()) || offset(head, target.as_bytes()) != method.len() + 1 {
        return Err(HttpError::StartLine("the target"));
    }
    if !has_valid_form(method, target) {
        return Err(HttpError::StartLine("the form of the target"));
    }
    let method_len = u16::try_from(method.len()).map_err(|_| HttpError::LineTooLong)?;
    let line = head.slice(..method.len() + 1 + target.len());
    let version = version_of(version)?;
    let headers = fields(head, parsed.headers)?;
    check_host(version, &headers)?;
    Ok(Request::parsed(line, method_len, version, headers))
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

/// Checks that a request of HTTP/1.1 has one `Host`, and that its value is a host
/// (RFC 9112, section 3.2).
fn check_host(version: Version, headers: &Headers) -> Result<(), HttpError> {
    let mut hosts = headers.all("host");
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_host(host) => Ok(()),
        (None, None) if version == Version::Http10 => Ok(()),
        (None, _) => Err(HttpError::Header("Host is missing")),
        (Some(_), None) => Err(HttpError::Header("Host is invalid")),
        (Some(_), Some(_)) => Err(HttpError::Header("several Host headers")),
    }
}

/// Parses the head of a response. Its lines end in CRLF.
pub(in crate::http) fn parse_response(head: &Bytes) -> Result<Response, HttpError> {
    let mut storage = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut []);
    let config = ParserConfig::default();
    let result = config.parse_response_with_uninit_headers(&mut parsed, head, &mut storage);
    if !matches!(result, Ok(Status::Complete(_))) {
        return Err(cause(result.err(), head));
    }
    let (Some(version), Some(code)) = (parsed.version, parsed.code) else {
        return Err(HttpError::StartLine("incomplete"));
    };
    let status = StatusCode::new(code).ok_or(HttpError::StartLine("the status code"))?;
    let headers = fields(head, parsed.headers)?;
    Ok(Response::parsed(status, version_of(version)?, headers))
}

/// Parses trailers with their empty line (RFC 9112, section 7.1.2).
pub(in crate::http) fn parse_trailers(lines: &Bytes) -> Result<Headers, HttpError> {
    let mut storage = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let Ok(Status::Complete((_, parsed))) = httparse::parse_headers(lines, &mut storage) else {
        return Err(HttpError::Trailer("a line"));
    };
    let trailers = fields(lines, parsed).map_err(|_| HttpError::Trailer("a line"))?;
    // Fields that describe the message, or choose who gets it, are too late here. A program that
    // merges trailers into the headers would be deceived by them.
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
    if FORBIDDEN.iter().any(|name| trailers.contains(name)) {
        return Err(HttpError::Trailer("a header that is not allowed as a trailer"));
    }
    Ok(trailers)
}

fn version_of(minor: u8) -> Result<Version, HttpError> {
    match minor {
        0 => Ok(Version::Http10),
        1 => Ok(Version::Http11),
        _ => Err(HttpError::Version),
    }
}

/// Returns the fields that httparse has found in `head`.
fn fields(head: &Bytes, parsed: &[Header<'_>]) -> Result<Headers, HttpError> {
    let mut invalid = None;
    let spans = parsed.iter().map(|field| {
        let value = trim(field.value);
        if value.contains(&0x7F) {
            invalid = Some(HttpError::Header("a control character"));
        }
        // The limit of a head is below 64 KiB.
        Span {
            name: offset(head, field.name.as_bytes()) as u32,
            name_len: field.name.len() as u16,
            value_len: value.len() as u16,
            value: if value.is_empty() { 0 } else { offset(head, value) as u32 },
        }
    });
    let headers = Headers::parsed(head.clone(), spans);
    invalid.map_or(Ok(headers), Err)
}

/// Returns the position of `part` in `head`, of which it is a part.
fn offset(head: &[u8], part: &[u8]) -> usize {
    part.as_ptr() as usize - head.as_ptr() as usize
}

/// Translates an error of httparse. Without one, the empty line was found too early.
#[cold]
fn cause(error: Option<Cause>, head: &[u8]) -> HttpError {
    match error {
        Some(Cause::Version) if has_other_version(head) => HttpError::Version,
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

/// Returns whether the first line ends in a well-formed version of HTTP, which is not supported.
fn has_other_version(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let Some(start) = line.len().checked_sub(9) else { return false };
    match &line[start..] {
        [b' ', b'H', b'T', b'T', b'P', b'/', major, b'.', minor] => {
            let is_supported = *major == b'1' && matches!(minor, b'0' | b'1');
            major.is_ascii_digit() && minor.is_ascii_digit() && !is_supported
        }
        _ => false,
    }
}
