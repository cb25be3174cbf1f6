//! Messages that a proxy passes on.

use super::{
    Body, Request, Response, StatusCode,
    syntax::{is_host, is_token, list},
};
use crate::{
    channel::Peer,
    error::{Error, Result},
    http::Headers,
};
use std::{net::IpAddr, sync::Arc};

/// Makes messages that a proxy has received into messages that it can send on (RFC 9110,
/// section 7.6).
///
/// - The fields of one connection are removed: `Connection`, the fields that it names,
///   `Keep-Alive`, `Proxy-Connection`, `Proxy-Authenticate`, `Proxy-Authorization`, `TE`,
///   `Transfer-Encoding` and `Upgrade`.
/// - The body keeps its framing. `Content-Length` becomes a [`Body::Sized`], so the parts of the
///   body and the end are written as they were read.
/// - The end of one connection does not end the other one.
/// - `Via` is added.
/// - A request gets an origin-form target, the `Host` of its [`authority`](Request::authority), and
///   the client's address in the headers of [`ForwardedHeaders`]. Such headers from the client are
///   removed first, because any client can send them.
/// - `Expect` is removed from a request: the server sends `100 Continue` when the proxy reads the
///   body.
/// - `Max-Forwards` of OPTIONS and TRACE is decremented. [`may_forward`](Forwarding::may_forward)
///   tells which of these requests the proxy answers itself.
///
/// `examples/http_proxy.rs` is a reverse proxy with streamed bodies.
///
/// ```
/// use netwheel::{http::{Forwarding, Request}, Peer};
///
/// let forwarding = Forwarding::new("edge")?;
/// let received = Request::get("http://example.org/a").header("Connection", "close, X-Secret")
///     .header("X-Secret", "1").header("Accept", "*/*");
/// let sent = forwarding.request(received, &Peer::default());
/// assert_eq!(sent.target(), "/a");
/// let names: Vec<_> = sent.headers().iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["Accept", "Host", "X-Forwarded-Proto", "X-Forwarded-Host", "Via"]);
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Forwarding {
    via: Arc<str>,
    headers: ForwardedHeaders,
    trusts_client: bool,
}

/// The headers with which a proxy passes on a client's address, its scheme and the host that it has
/// asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ForwardedHeaders {
    /// None.
    None,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host` (the default).
    #[default]
    XForwarded,
}

/// Fields of one connection (RFC 9110, section 7.6.1), and those for the next proxy only.
const OF_CONNECTION: [&[u8]; 8] = [
    b"connection",
    b"keep-alive",
    b"proxy-connection",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"te",
    b"transfer-encoding",
    b"upgrade",
];

const OF_CLIENT: [&str; 5] =
    ["forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-port"];

impl Forwarding {
    /// Returns the defaults, with the name of this proxy in `Via`: a host, or a pseudonym.
    ///
    /// # Errors
    /// [`SettingError`](crate::error::SettingError) if the name is neither.
    pub fn new(via: &str) -> Result<Self> {
        if !is_token(via.as_bytes()) && (via.is_empty() || !is_host(via.as_bytes())) {
            return Err(Error::setting("via", format!("{via:?}"), "a host or a token"));
        }
        Ok(Forwarding { via: via.into(), headers: ForwardedHeaders::default(), trusts_client: false })
    }

    /// Sets the headers with which requests pass on the client.
    pub fn headers(mut self, headers: ForwardedHeaders) -> Self {
        self.headers = headers;
        self
    }

    /// Sets whether headers of [`ForwardedHeaders`] in a request are kept, and extended. Set it
    /// only if all clients are proxies of yours. The default is `false`.
    pub fn trust_client(mut self, yes: bool) -> Self {
        self.trusts_client = yes;
        self
    }

    /// Returns `false` for a request that the proxy must answer itself: OPTIONS or TRACE with a
    /// `Max-Forwards` of 0 (RFC 9110, section 7.6.2).
    ///
    /// ```
    /// # use netwheel::http::{Forwarding, Request};
    /// let forwarding = Forwarding::new("edge")?;
    /// let request = |hops| Request::new("OPTIONS", "/").header("Max-Forwards", hops);
    /// assert!(forwarding.may_forward(&request("1")) && !forwarding.may_forward(&request("0")));
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    pub fn may_forward(&self, request: &Request) -> bool {
        max_forwards(request) != Some(0)
    }

    /// Returns the request to send to the backend. `peer` is that of the client, from
    /// [`Context::peer`](crate::Context::peer).
    ///
    /// If the body is in parts, they are written as they are read. For a whole message, set the
    /// body again: `forwarding.request(message.head, &peer).body(message.body)`.
    pub fn request(&self, request: Request, peer: &Peer) -> Request {
        let mut headers = end_to_end(request.headers());
        headers
            .retain(|name, _| !["host", "content-length", "expect"].contains(&&*name.to_ascii_lowercase()));
        if !self.trusts_client {
            headers.retain(|name, _| !OF_CLIENT.contains(&&*name.to_ascii_lowercase()));
        }
        if let Some(hops) = max_forwards(&request) {
            headers.set("Max-Forwards", hops.saturating_sub(1).to_string());
        }
        let target = request.absolute_target().map(|target| target.origin_form.into_owned());
        let target = target.unwrap_or_else(|| request.target().to_owned());
        let authority = request.authority().unwrap_or_default();
        headers.add("Host", authority);
        self.add_client(&mut headers, peer, authority);
        self.add_via(&mut headers, request.version());
        let mut sent = Request::new(request.method(), &target).body(request.announced_body().clone());
        *sent.headers_mut() = headers;
        sent
    }

    /// Like [`request`](Forwarding::request), for a request that asks for another protocol
    /// ([`Request::is_upgrade`]), which the backend may switch to. No other protocol that the
    /// client names is passed on: behind a switch to HTTP/2, the proxy would see no further
    /// request.
    ///
    /// Check that the backend has switched to this protocol before you pass on its bytes.
    pub fn upgrade(&self, request: Request, protocol: &str, peer: &Peer) -> Request {
        let mut sent = self.request(request, peer);
        sent.headers_mut().remove("http2-settings");
        sent.headers_mut().add("Connection", "Upgrade");
        sent.headers_mut().add("Upgrade", protocol);
        sent
    }

    /// Returns the response to send to the client.
    ///
    /// The parts of the body and the end are written as they are read, also if the body is empty.
    /// For a whole message, set the body again:
    /// `forwarding.response(message.head).body(message.body)`. A response of 101 keeps its
    /// `Upgrade`.
    pub fn response(&self, response: Response) -> Response {
        let status = response.status();
        let mut headers = end_to_end(response.headers());
        let has_length = headers.remove("content-length");
        if status == StatusCode::SWITCHING_PROTOCOLS {
            headers.add("Connection", "Upgrade");
            for protocol in response.headers().all("upgrade") {
                headers.add("Upgrade", protocol);
            }
        }
        self.add_via(&mut headers, response.version());
        let body = match response.announced_body() {
            _ if status.is_informational() => Body::Empty,
            // An end follows each response that was read. Without a length, the response has no
            // body by its status or method, so none is written.
            Body::Empty if has_length => Body::Sized(0),
            Body::Empty => Body::Streamed,
            body => body.clone(),
        };
        let mut sent = Response::new(status).with_headers(headers);
        sent.announce(body, false, response.is_head_only());
        sent
    }

    fn add_via(&self, headers: &mut Headers, version: super::Version) {
        let version = if version == super::Version::Http10 { "1.0" } else { "1.1" };
        headers.add("Via", format!("{version} {}", self.via));
    }

    /// Adds the client's address, its scheme and the host that it has asked for.
    fn add_client(&self, headers: &mut Headers, peer: &Peer, host: &str) {
        let address = peer.address().map(|address| address.ip());
        let scheme = if is_encrypted(peer) { "https" } else { "http" };
        match self.headers {
            ForwardedHeaders::None => {}
            ForwardedHeaders::XForwarded => {
                if let Some(address) = address {
                    headers.add("X-Forwarded-For", address.to_string());
                }
                // The first proxy knows the client.
                for (name, value) in [("X-Forwarded-Proto", scheme), ("X-Forwarded-Host", host)] {
                    if !value.is_empty() && !headers.contains(name) {
                        headers.add(name, value);
                    }
                }
            }
            ForwardedHeaders::Forwarded => {
                let node = match address {
                    Some(IpAddr::V4(ip)) => ip.to_string(),
                    Some(IpAddr::V6(ip)) => format!("\"[{ip}]\""),
                    None => "unknown".to_owned(),
                };
                let host = if host.is_empty() { String::new() } else { format!(";host=\"{host}\"") };
                headers.add("Forwarded", format!("for={node};proto={scheme}{host}"));
            }
        }
    }
}

/// Returns how often the request may still be forwarded, if it says so and its method has this
/// limit. A larger number than the largest is that one, and the least of several applies.
fn max_forwards(request: &Request) -> Option<u64> {
    if !matches!(request.method(), "OPTIONS" | "TRACE") {
        return None;
    }
    let values = request.headers().all("max-forwards").filter_map(|value| str::from_utf8(value).ok());
    let numbers = values.filter(|value| !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()));
    numbers.map(|digits| digits.parse().unwrap_or(u64::MAX)).min()
}

#[cfg(feature = "tls")]
fn is_encrypted(peer: &Peer) -> bool {
    peer.tls().is_some()
}

#[cfg(not(feature = "tls"))]
fn is_encrypted(_: &Peer) -> bool {
    false
}

/// Returns the fields that are not for one connection.
fn end_to_end(headers: &Headers) -> Headers {
    let mut named: Vec<Vec<u8>> =
        headers.all("connection").flat_map(list).map(<[u8]>::to_ascii_lowercase).collect();
    // A peer may name thousands.
    named.sort_unstable();
    let mut kept = headers.clone();
    kept.retain(|name, _| {
        let name = name.as_bytes().to_ascii_lowercase();
        !OF_CONNECTION.contains(&&*name) && named.binary_search(&name).is_err()
    });
    kept
}
