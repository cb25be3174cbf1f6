//! What the facts of a head say of the body's length (RFC 9112, section 6).

use super::facts::{Coding, HeadFacts};
use crate::http::{Request, StatusCode, Version, error::HttpError};

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
/// [`HttpError`] for a head that another recipient may understand differently.
pub(in crate::http) fn request_framing(request: &Request, facts: &HeadFacts) -> Result<Framing, HttpError> {
    match declared(request.version(), facts)? {
        Framing::Length(0) | Framing::UntilClose => Ok(Framing::None),
        // Others take these bytes for the tunnel's (RFC 9110, section 9.3.6).
        _ if request.method() == "CONNECT" => Err(HttpError::Header("CONNECT with a body")),
        framing => Ok(framing),
    }
}

/// Returns the framing of the body of a response to a request of this kind.
///
/// # Errors
/// [`HttpError`] for a head that another recipient may understand differently.
pub(in crate::http) fn response_framing(
    version: Version,
    status: StatusCode,
    facts: &HeadFacts,
    kind: RequestKind,
) -> Result<Framing, HttpError> {
    // The client must ignore what these responses declare (RFC 9110, section 9.3.6).
    if kind == RequestKind::Connect && status.is_success() {
        return Ok(Framing::None);
    }
    match declared(version, facts)? {
        _ if !kind.allows_body(status) => Ok(Framing::None),
        Framing::Length(0) => Ok(Framing::None),
        framing => Ok(framing),
    }
}

/// Returns the framing that the headers of a response announce: for HEAD and with 304 that of the
/// body which the response does not have, otherwise `actual`.
///
/// # Errors
/// The errors of [`response_framing`].
pub(in crate::http) fn announced_framing(
    version: Version,
    status: StatusCode,
    facts: &HeadFacts,
    kind: RequestKind,
    actual: Framing,
) -> Result<Framing, HttpError> {
    let describes_another =
        kind == RequestKind::Head && status.allows_body() || status == StatusCode::NOT_MODIFIED;
    if !describes_another {
        return Ok(actual);
    }
    match declared(version, facts)? {
        Framing::Length(0) | Framing::UntilClose => Ok(Framing::None),
        framing => Ok(framing),
    }
}

/// Returns the framing that the headers declare; `UntilClose` if they declare nothing.
fn declared(version: Version, facts: &HeadFacts) -> Result<Framing, HttpError> {
    match (facts.coding, facts.content_length) {
        (Coding::None, Some(length)) => Ok(Framing::Length(length)),
        (Coding::None, None) => Ok(Framing::UntilClose),
        (_, Some(_)) => Err(HttpError::Header("Transfer-Encoding and Content-Length")),
        _ if version == Version::Http10 => Err(HttpError::Header("Transfer-Encoding in HTTP/1.0")),
        (Coding::Chunked, None) => Ok(Framing::Chunked),
        (Coding::OthersAndChunked, None) => Err(HttpError::Coding),
        (Coding::Invalid, None) => Err(HttpError::Header("Transfer-Encoding")),
    }
}

/// What the method of a request says of the body of its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum RequestKind {
    Head,
    Connect,
    Other,
}

impl RequestKind {
    pub(in crate::http) fn of(method: &[u8]) -> Self {
        match method {
            b"HEAD" => RequestKind::Head,
            b"CONNECT" => RequestKind::Connect,
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
