//! The head of a request.

use super::{body::Body, headers::Headers, request_id::RequestId, version::Version};
use crate::http::syntax::{is_target, is_token};
use bytes::{BufMut, Bytes, BytesMut};
use std::fmt;

/// The head of a request: method, target, version and headers.
///
/// A server reads it, a client builds and writes it. A head that was read shares the memory of the
/// read buffer.
///
/// ```
/// use netwheel::http::Request;
///
/// let request = Request::new("GET", "/rooms?first=10").header("Host", "example.org");
/// assert_eq!(request.path(), "/rooms");
/// assert_eq!(request.query(), Some("first=10"));
/// ```
#[derive(Clone)]
pub struct Request {
    /// Method and target, with one space between them.
    line: Bytes,
    method_len: u16,
    version: Version,
    headers: Headers,
    body: Body,
    /// Whether the client accepts further requests on the connection.
    keep_alive: bool,
    /// Whether the client asks for another protocol, and waits for `100 Continue`.
    upgrades: bool,
    expects_continue: bool,
    /// Set by a server.
    id: Option<RequestId>,
}

/// What the headers of a request say of the connection.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct Wishes {
    pub(in crate::http) keep_alive: bool,
    pub(in crate::http) upgrades: bool,
    pub(in crate::http) expects_continue: bool,
}

impl Request {
    /// Returns a request of HTTP/1.1 without headers and body.
    ///
    /// An invalid method or target makes writing the request fail with
    /// [`EncodeError`](crate::error::EncodeError). A target has no fragment (`#`).
    pub fn new(method: &str, target: &str) -> Self {
        let mut line = BytesMut::with_capacity(method.len() + 1 + target.len());
        line.put_slice(method.as_bytes());
        line.put_u8(b' ');
        line.put_slice(target.as_bytes());
        Request {
            line: line.freeze(),
            method_len: u16::try_from(method.len()).unwrap_or(0),
            version: Version::Http11,
            headers: Headers::new(),
            body: Body::Empty,
            keep_alive: true,
            upgrades: false,
            expects_continue: false,
            id: None,
        }
    }

    /// Returns a request for a resource.
    pub fn get(target: &str) -> Self {
        Request::new("GET", target)
    }

    /// Returns a request with a body.
    pub fn post(target: &str, body: impl Into<Body>) -> Self {
        Request::new("POST", target).body(body)
    }

    pub(in crate::http) fn parsed(line: Bytes, method_len: u16, version: Version, headers: Headers) -> Self {
        Request {
            line,
            method_len,
            version,
            headers,
            body: Body::Empty,
            keep_alive: false,
            upgrades: false,
            expects_continue: false,
            id: None,
        }
    }

    /// Sets the framing of the body and the connection's persistence from the headers.
    pub(in crate::http) fn announce(&mut self, body: Body, wishes: Wishes) {
        let is_current = self.version == Version::Http11;
        self.keep_alive = wishes.keep_alive;
        self.upgrades = wishes.upgrades && is_current && !body.is_streamed();
        self.expects_continue = wishes.expects_continue && is_current && body.is_streamed();
        self.body = body;
    }

    /// Sets the identity of a request that a server has read.
    pub(in crate::http) fn identify(&mut self, id: RequestId) {
        self.id = Some(id);
    }

    /// Returns whether the client asks for any other protocol.
    pub(in crate::http) fn upgrades(&self) -> bool {
        self.upgrades
    }

    /// Adds a header. `Content-Length` and `Transfer-Encoding` are added by the body.
    pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<[u8]>) -> Self {
        self.headers.add(name, value);
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets that no request follows on the connection.
    pub fn close(mut self) -> Self {
        self.keep_alive = false;
        self
    }

    /// Returns the method, in which case matters.
    pub fn method(&self) -> &str {
        self.text(0, usize::from(self.method_len))
    }

    /// Returns the method without a check that it is text.
    #[inline]
    pub(in crate::http) fn method_bytes(&self) -> &[u8] {
        &self.line[..usize::from(self.method_len)]
    }

    /// Returns the target as the client has sent it: `/path?query`, `http://host/path`,
    /// `host:port` for CONNECT, or `*`. Percent-encoding is not decoded.
    pub fn target(&self) -> &str {
        self.text(usize::from(self.method_len) + 1, self.line.len())
    }

    /// Returns the target without a copy.
    #[cfg(feature = "http-types")]
    pub(super) fn target_bytes(&self) -> Bytes {
        self.line.slice(usize::from(self.method_len) + 1..)
    }

    fn text(&self, from: usize, to: usize) -> &str {
        self.line.get(from..to).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }

    /// Returns the path of the target, without the query and without the authority.
    pub fn path(&self) -> &str {
        let target = self.target();
        let path = match target.strip_prefix('/') {
            Some(_) => target,
            None => match target.split_once("://") {
                Some((_, rest)) => match rest.find(['/', '?', '#']) {
                    Some(start) if rest[start..].starts_with('/') => &rest[start..],
                    _ => "/",
                },
                None => target,
            },
        };
        let end = path.bytes().position(|byte| matches!(byte, b'?' | b'#'));
        &path[..end.unwrap_or(path.len())]
    }

    /// Returns the query of the target, without its question mark.
    pub fn query(&self) -> Option<&str> {
        let without_fragment = self.target().split('#').next()?;
        without_fragment.split_once('?').map(|(_, query)| query)
    }

    /// Returns the authority that the request is for: a host, and a port if the client has named
    /// one. It is that of an absolute target or of CONNECT, otherwise the value of `Host`.
    ///
    /// An absolute target takes precedence over a `Host` that says something else, as in RFC 9112,
    /// section 3.2.2. A server refuses requests of HTTP/1.1 without `Host`, and those with an
    /// invalid one or with several. `None` without an authority.
    ///
    /// ```
    /// use netwheel::http::Request;
    ///
    /// let request = Request::get("http://example.org:81/a").header("Host", "ignored");
    /// assert_eq!(request.authority(), Some("example.org:81"));
    /// let request = Request::get("/a").header("Host", "[::1]:8080");
    /// assert_eq!((request.host(), request.port()), (Some("[::1]"), Some(8080)));
    /// ```
    pub fn authority(&self) -> Option<&str> {
        self.target_authority().or_else(|| self.headers.text("host")).filter(|text| !text.is_empty())
    }

    /// Returns the host of the [`authority`](Request::authority), without the port. An IPv6 address
    /// has its brackets. Case does not matter in names.
    pub fn host(&self) -> Option<&str> {
        self.authority().map(|authority| split_port(authority).0).filter(|host| !host.is_empty())
    }

    /// Returns the port of the [`authority`](Request::authority). `None` stands for the default
    /// port of the scheme.
    pub fn port(&self) -> Option<u16> {
        split_port(self.authority()?).1.parse().ok()
    }

    /// Returns the authority that the target has, as in `http://example.org/` and CONNECT.
    pub(in crate::http) fn target_authority(&self) -> Option<&str> {
        let target = self.target();
        if self.method() == "CONNECT" {
            return Some(target);
        }
        let (_, rest) = target.split_once("://").filter(|_| !target.starts_with('/'))?;
        rest.split(['/', '?', '#']).next()
    }

    /// Returns the identity of the request, which a late answer carries: see
    /// [`Response::for_request`](crate::http::Response::for_request). `None` for a request that was
    /// built.
    pub fn id(&self) -> Option<RequestId> {
        self.id
    }

    /// Returns the version.
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

    /// Returns the body that the head announces.
    pub fn announced_body(&self) -> &Body {
        &self.body
    }

    /// Returns whether the client accepts further requests on the connection.
    pub fn is_keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Returns whether the client asks for another protocol on this connection, such as
    /// `websocket`. Always `false` for HTTP/1.0 and for requests with a body, for which the header
    /// must be ignored.
    pub fn is_upgrade(&self, protocol: &str) -> bool {
        self.version == Version::Http11
            && !self.body.is_streamed()
            && self.headers.has_token("connection", "upgrade")
            && self.headers.has_token("upgrade", protocol)
    }

    /// Returns whether the client waits for a `100 Continue` before it sends the body.
    pub fn expects_continue(&self) -> bool {
        self.expects_continue
    }

    /// Returns whether the headers of a request that was built ask for another protocol.
    pub(in crate::http) fn asks_for_upgrade(&self) -> bool {
        self.headers.contains("upgrade") && self.headers.has_token("connection", "upgrade")
    }

    /// Returns the reason why the request is invalid, or `None` if it is valid.
    pub(in crate::http) fn invalid(&self) -> Option<String> {
        let (method, target) = (self.method(), self.target());
        if !is_token(method.as_bytes()) {
            Some(format!("the method {:?}", shortened(method)))
        } else if !is_target(target.as_bytes()) {
            Some(format!("the target {:?}", shortened(target)))
        } else {
            self.headers.invalid().map(|name| format!("the header {name:?}"))
        }
    }

    /// Replaces the line, whose method is the same.
    pub(super) fn set_line(&mut self, line: Bytes) {
        self.line = line;
    }

    /// Splits the head into its line and what encoding needs.
    pub(in crate::http) fn line(&self) -> &[u8] {
        &self.line
    }

    /// Takes the body, and leaves none.
    pub(in crate::http) fn take_body(&mut self) -> Body {
        std::mem::take(&mut self.body)
    }
}

/// Splits an authority into the host and the digits of the port.
fn split_port(authority: &str) -> (&str, &str) {
    match authority.rsplit_once(':') {
        // The last colon of an address without a port is within its brackets.
        Some((host, port)) if !port.contains(']') => (host, port),
        _ => (authority, ""),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

impl PartialEq for Request {
    /// Compares the contents of the requests, not which of them a server has read.
    fn eq(&self, other: &Self) -> bool {
        let Request {
            line,
            method_len,
            version,
            headers,
            body,
            keep_alive,
            upgrades,
            expects_continue,
            id: _,
        } = self;
        *line == other.line
            && *method_len == other.method_len
            && *version == other.version
            && *headers == other.headers
            && *body == other.body
            && *keep_alive == other.keep_alive
            && *upgrades == other.upgrades
            && *expects_continue == other.expects_continue
    }
}

impl Eq for Request {}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method())
            .field("target", &self.target())
            .field("version", &self.version)
            .field("headers", &self.headers)
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}
