//! What the headers say of the body's length (RFC 9112, section 6).

use crate::http::{
    HttpError, Request, Response, StatusCode, Version,
    message::Headers,
    syntax::{is_token, trim},
};

/// How the end of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum Framing {
    /// There is no body.
    None,
    /// The body has this length.
    Length(u64),
    /// The body is chunked.
    Chunked,
    /// The body of a response ends with the connection.
    UntilClose,
}

/// Returns the framing of a request's body.
///
/// # Errors
/// Anything that another recipient may understand differently.
pub(in crate::http) fn request_framing(request: &Request) -> Result<Framing, HttpError> {
    let headers = request.headers();
    let length = content_length(headers)?;
    let has_coding = headers.contains("transfer-encoding");
    if request.method() == "CONNECT" && (has_coding || length.is_some_and(|length| length > 0)) {
        // Others take these bytes for the tunnel's (RFC 9110, section 9.3.6).
        return Err(HttpError::Header("CONNECT with a body"));
    }
    if !has_coding {
        return Ok(match length {
            Some(0) | None => Framing::None,
            Some(length) => Framing::Length(length),
        });
    }
    if length.is_some() {
        return Err(HttpError::Header("Transfer-Encoding and Content-Length"));
    }
    if request.version() == Version::Http10 {
        return Err(HttpError::Header("Transfer-Encoding in HTTP/1.0"));
    }
    if is_chunked(headers)? { Ok(Framing::Chunked) } else { Err(HttpError::Coding) }
}

/// Returns the framing of the body of a response to a request of this kind.
///
/// # Errors
/// Anything that another recipient may understand differently.
pub(in crate::http) fn response_framing(
    response: &Response,
    kind: RequestKind,
) -> Result<Framing, HttpError> {
    let headers = response.headers();
    let length = content_length(headers)?;
    let has_coding = headers.contains("transfer-encoding");
    if has_coding && length.is_some() {
        return Err(HttpError::Header("Transfer-Encoding and Content-Length"));
    }
    if has_coding && response.version() == Version::Http10 {
        return Err(HttpError::Header("Transfer-Encoding in HTTP/1.0"));
    }
    if !kind.allows_body(response.status()) {
        return Ok(Framing::None);
    }
    if has_coding {
        return if is_chunked(headers)? { Ok(Framing::Chunked) } else { Err(HttpError::Coding) };
    }
    Ok(match length {
        Some(0) => Framing::None,
        Some(length) => Framing::Length(length),
        None => Framing::UntilClose,
    })
}

/// What the method of a request says of the body of its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum RequestKind {
    Head,
    Connect,
    Other,
}

impl RequestKind {
    pub(in crate::http) fn of(method: &str) -> Self {
        match method {
            "HEAD" => RequestKind::Head,
            "CONNECT" => RequestKind::Connect,
            _ => RequestKind::Other,
        }
    }

    /// Returns whether a response with this status has a body (RFC 9112, section 6.3).
    pub(in crate::http) fn allows_body(self, status: StatusCode) -> bool {
        status.allows_body()
            && match self {
                RequestKind::Head => false,
                RequestKind::Connect => !status.is_success(),
                RequestKind::Other => true,
            }
    }
}

/// Returns the value of `Content-Length`: one header of digits only.
fn content_length(headers: &Headers) -> Result<Option<u64>, HttpError> {
    let mut lengths = headers.all("content-length");
    let Some(digits) = lengths.next() else { return Ok(None) };
    if lengths.next().is_some() {
        return Err(HttpError::Header("several Content-Length headers"));
    }
    const INVALID: HttpError = HttpError::Header("Content-Length is not a number");
    if digits.is_empty() || digits.len() > 19 {
        return Err(INVALID);
    }
    let mut length = 0u64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return Err(INVALID);
        }
        // 19 digits fit.
        length = length * 10 + u64::from(digit - b'0');
    }
    if length > i64::MAX as u64 { Err(INVALID) } else { Ok(Some(length)) }
}

/// Returns whether the body is chunked and nothing else.
///
/// # Errors
/// If `chunked` is not the last coding, or is applied twice, or a name is not a token, or missing
/// beside a comma: then the end of the body is unknown, or recipients disagree on it.
fn is_chunked(headers: &Headers) -> Result<bool, HttpError> {
    const INVALID: HttpError = HttpError::Header("Transfer-Encoding");
    let mut last_is_chunked = false;
    let mut count = 0;
    for value in headers.all("transfer-encoding") {
        for coding in value.split(|byte| *byte == b',').map(trim) {
            if last_is_chunked || !is_token(coding) {
                return Err(INVALID);
            }
            last_is_chunked = coding.eq_ignore_ascii_case(b"chunked");
            count += 1;
        }
    }
    if last_is_chunked { Ok(count == 1) } else { Err(INVALID) }
}
