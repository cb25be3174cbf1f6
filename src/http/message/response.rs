//! The head of a response.

use super::{body::Body, headers::Headers, request_id::RequestId, status_code::StatusCode, version::Version};
use bytes::Bytes;

/// The head of a response: status, headers, and a body or the announcement of one.
///
/// A server builds and writes it, a client reads it.
///
/// `Date`, `Content-Length`, `Transfer-Encoding` and `Connection` are added by the server.
///
/// ```
/// use netwheel::http::{Response, StatusCode};
///
/// let hello = Response::ok("hello\n").header("Content-Type", "text/plain");
/// let missing = Response::new(StatusCode::NOT_FOUND);
/// # assert_eq!((hello.status(), missing.status()), (StatusCode::OK, StatusCode::NOT_FOUND));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    status: StatusCode,
    version: Version,
    close: bool,
    is_event_stream: bool,
    /// Whether the body that the headers announce does not follow.
    is_head_only: bool,
    /// Whether the connection carries another protocol behind the head that was read.
    hands_over: bool,
    /// The request that this answers; `None` for the current one.
    request: Option<RequestId>,
    headers: Headers,
    body: Body,
}

impl Response {
    /// Returns a response without headers and body.
    pub fn new(status: StatusCode) -> Self {
        Response {
            status,
            version: Version::Http11,
            close: false,
            is_event_stream: false,
            is_head_only: false,
            hands_over: false,
            request: None,
            headers: Headers::new(),
            body: Body::Empty,
        }
    }

    /// Returns a response `200 OK` with a body.
    pub fn ok(body: impl Into<Body>) -> Self {
        Response::new(StatusCode::OK).body(body)
    }

    /// Returns a stream of server-sent events. Each [`Part::Body`](crate::http::Part::Body) is one
    /// event or several, from [`ServerSentEvent`](crate::http::ServerSentEvent).
    ///
    /// The response must not be cached or buffered, which its headers say. The server sends a
    /// comment if there was no event for a while
    /// ([`HttpSettings::event_comment_interval`](crate::http::HttpSettings::event_comment_interval)).
    pub fn event_stream() -> Self {
        let mut response = Response::ok(Body::Streamed)
            .header("Content-Type", "text/event-stream")
            .header("Cache-Control", "no-store")
            .header("X-Accel-Buffering", "no");
        response.is_event_stream = true;
        response
    }

    pub(in crate::http) fn parsed(status: StatusCode, version: Version, headers: Headers) -> Self {
        Response { version, headers, ..Response::new(status) }
    }

    /// Sets the framing of the body and the connection's persistence from the headers.
    pub(in crate::http) fn announce(&mut self, body: Body, close: bool, is_head_only: bool) {
        self.body = body;
        self.close = close;
        self.is_head_only = is_head_only;
    }

    /// Returns whether the body that the headers announce does not follow, as for HEAD and with
    /// 304.
    pub(in crate::http) fn is_head_only(&self) -> bool {
        self.is_head_only
    }

    /// Records that the bytes behind the head belong to another protocol.
    pub(in crate::http) fn hand_over(&mut self) {
        self.hands_over = true;
    }

    /// Returns whether the bytes behind the head belong to another protocol: after 101, and after
    /// 2xx to CONNECT. No [`Part::End`](crate::http::Part::End) is delivered.
    pub(in crate::http) fn hands_over(&self) -> bool {
        self.hands_over
    }

    /// Adds a header.
    pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<[u8]>) -> Self {
        self.headers.add(name, value);
        self
    }

    /// Sets all headers. Cheaper than adding them one by one if the fields are always the same:
    /// store them once, and clone them for each response.
    pub fn with_headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    /// Closes the connection after this response.
    pub fn close(mut self) -> Self {
        self.close = true;
        self
    }

    /// Makes this the response to one request only, instead of to the request that is current when
    /// it is written. Use it for each response that is not written during
    /// [`read`](crate::Handler::read): by a scheduled task, after
    /// [`offload`](crate::Context::offload), or from another thread.
    ///
    /// Writing fails with a [`StaleResponse`](crate::http::StaleResponse) if the request already has
    /// a response.
    ///
    /// ```
    /// use netwheel::{http::{HttpServer, Part, Request, Response}, prelude::*};
    /// use netwheel::testing::EmbeddedChannel;
    /// use std::time::Duration;
    ///
    /// struct Reports;
    ///
    /// impl Handler for Reports {
    ///     type Read = Part<Request>;
    ///     type Write = Part<Response>;
    ///
    ///     fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
    ///         let Part::Head(request) = part else { return Ok(()) };
    ///         let Some(id) = request.id() else { return Ok(()) };
    ///         ctx.schedule(Duration::from_secs(1), move |_, ctx| {
    ///             ctx.write(Response::ok("the report").for_request(id).into())
    ///         });
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let mut channel = EmbeddedChannel::new(HttpServer::new().pipeline().handler(Reports));
    /// channel.write_inbound(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n")?;
    /// channel.advance(Duration::from_secs(1));
    /// assert!(channel.read_outbound().ends_with(b"the report"));
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    pub fn for_request(mut self, id: RequestId) -> Self {
        self.request = Some(id);
        self
    }

    /// Replaces the status code.
    pub(in crate::http) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Returns the request that this answers, if it is not the current one.
    pub(in crate::http) fn request(&self) -> Option<RequestId> {
        self.request
    }

    /// Returns the status code.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the version that the server has sent. HTTP/1.1 for a response that was built.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the headers.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Returns the headers, to change them.
    pub fn headers_mut(&mut self) -> &mut Headers {
        &mut self.headers
    }

    /// Returns the body that the head has or announces.
    ///
    /// A response to HEAD, or with 304, that was read announces the body that it would have for
    /// GET. Only the [`Part::End`](crate::http::Part::End) follows.
    pub fn announced_body(&self) -> &Body {
        &self.body
    }

    /// Returns whether the connection closes after this response.
    pub fn closes(&self) -> bool {
        self.close
    }

    pub(in crate::http) fn is_event_stream(&self) -> bool {
        self.is_event_stream
    }

    /// Takes the body, and leaves none.
    pub(in crate::http) fn take_body(&mut self) -> Body {
        std::mem::take(&mut self.body)
    }
}

impl From<StatusCode> for Response {
    /// Returns a response with the status as its text.
    fn from(status: StatusCode) -> Self {
        let text = format!("{status} {}\n", status.reason());
        let response = Response::new(status);
        if status.allows_body() {
            response.header("Content-Type", "text/plain; charset=utf-8").body(Bytes::from(text))
        } else {
            response
        }
    }
}
