//! Heads and trailers between this crate and the crate `http`.

use crate::http::{Headers, Response, forbidden_trailer};
use http_types::{HeaderMap, header::CONTENT_LENGTH, response::Parts};

/// Returns the length that the headers declare.
pub(super) fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

/// Returns the head without a body. The headers that describe the body are left out, because the
/// server adds them.
pub(super) fn response_head(parts: &Parts) -> Response {
    Response::new(parts.status.into()).with_headers(Headers::from(&parts.headers))
}

/// Returns the trailers without fields that must not be trailers.
pub(super) fn trailers_of(map: &HeaderMap) -> Headers {
    let mut trailers = Headers::from(map);
    while let Some(name) = forbidden_trailer(&trailers) {
        trailers.remove(name);
    }
    trailers
}
