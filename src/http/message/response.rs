//! The head of a response.

use super::{Body, Headers, StatusCode, Version};
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
            headers: Headers::new(),
            body: Body::Empty,
        }
    }

    /// Returns a response `200 OK` with a body.
    pub fn ok(body: impl Into<Body>) -> Self {
        Response::new(StatusCode::OK).body(body)
    }

    /// Returns a stream of server-sent events. Each [`Part::Body`](crate::http::Part::Body) is one
    /// event or several, from [`Event`](crate::http::Event).
    ///
    /// The response must not be cached or buffered, which its headers say. The server sends a
    /// comment if there was no event for a while
    /// ([`HttpSettings::event_comment`](crate::http::HttpSettings::event_comment)).
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

    /// Sets what the headers say of the body and of the connection.
    pub(in crate::http) fn announce(&mut self, body: Body, close: bool) {
        self.body = body;
        self.close = close;
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
