//! `StaleResponse`: an answer that comes too late.

use super::{RequestId, Response};
use crate::error::Error;
use std::fmt;

/// The error of writing a [`Response::for_request`] whose request no longer waits for a response.
///
/// The request has another response, for example because a timeout was first. Nothing was written,
/// and the connection is not affected. A server handles this error itself if a task or a handle
/// returns it, so a task that is too late may simply use `?`.
///
/// ```
/// use netwheel::{http::{HttpServer, Part, Response, StaleResponse}, prelude::*};
/// use netwheel::testing::EmbeddedChannel;
/// use std::time::Duration;
///
/// let pipeline = HttpServer::new().pipeline().on_read(|ctx, part| {
///     let Part::Head(request) = part else { return Ok(()) };
///     let id = request.id().expect("a server has read it");
///     ctx.write(Response::ok("in time").for_request(id).into())?;
///     let error = ctx.write(Response::ok("late").for_request(id).into()).unwrap_err();
///     let stale = StaleResponse::of(&error).expect("the request has its response");
///     assert_eq!(stale.request(), id);
///     Ok(())
/// });
/// let mut channel = EmbeddedChannel::new(pipeline);
/// channel.write_inbound(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n")?;
/// assert!(channel.read_outbound().ends_with(b"in time"));
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Debug)]
pub struct StaleResponse {
    request: RequestId,
    response: Response,
}

impl StaleResponse {
    #[cold]
    pub(super) fn new(request: RequestId, response: Response) -> Self {
        StaleResponse { request, response }
    }

    /// Returns the `StaleResponse` that `error` is, if it is one.
    pub fn of(error: &Error) -> Option<&StaleResponse> {
        match error {
            Error::Other(cause) => cause.downcast_ref(),
            _ => None,
        }
    }

    /// Returns the request that was to be answered.
    pub fn request(&self) -> RequestId {
        self.request
    }

    /// Returns the response that was not written.
    pub fn response(&self) -> &Response {
        &self.response
    }
}

impl fmt::Display for StaleResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "request {} no longer waits for a response; {} was dropped",
            self.request,
            self.response.status()
        )
    }
}

impl std::error::Error for StaleResponse {}
