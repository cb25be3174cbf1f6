//! `RequestFacts`: the properties of a request that shape its response.

use crate::{
    error::{Error, Result},
    http::StatusCode,
};
use http_types::{Method, Request, header::TE};

/// The facts about a request on which its response depends.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestFacts {
    pub(super) is_head: bool,
    is_connect: bool,
    /// Whether the client has announced that it reads trailers (RFC 9110, section 6.5.1).
    pub(super) accepts_trailers: bool,
}

impl RequestFacts {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let names_trailers = |value: &[u8]| {
            value.split(|byte| *byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(b"trailers"))
        };
        RequestFacts {
            is_head: request.method() == Method::HEAD,
            is_connect: request.method() == Method::CONNECT,
            accepts_trailers: request.headers().get_all(TE).iter().any(|te| names_trailers(te.as_bytes())),
        }
    }

    /// Returns whether the body of a response with this status is dropped.
    pub(super) fn suppresses_body(self, status: StatusCode) -> bool {
        self.is_head || !status.allows_body() || status == StatusCode::RESET_CONTENT
    }

    /// # Errors
    /// [`Error::Other`] if another response would follow this one, or the connection would become a
    /// tunnel.
    pub(super) fn check(self, status: StatusCode) -> Result {
        if status.is_informational() || self.is_connect && status.is_success() {
            let cause = format!("a service cannot answer {status}: the connection is not its own");
            return Err(Error::other(cause));
        }
        Ok(())
    }
}
