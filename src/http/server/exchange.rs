//! The state of one exchange: a request and its response.

use super::framed_response::{Connection, FramedResponse, ResponseFraming};
use crate::{
    error::Result,
    http::{
        Body, Headers, Part, Request, RequestId, Response, StatusCode, Version, encode::unencodable,
        head::RequestKind, syntax::list,
    },
};
use bytes::Bytes;
use std::time::SystemTime;

/// A request and its response. One exists at a time on a connection.
///
/// Created with the head of a request, and dropped when both sides are complete. Everything that
/// concerns one request is in here, so nothing of it can reach the next one.
///
/// Pure: decides on how each part of the response is framed, and knows when both sides are
/// complete. The stage performs the effects.
#[derive(Debug)]
pub(super) struct Exchange {
    /// `None` if the client's bytes are not a request, and only an error is answered.
    id: Option<RequestId>,
    pub(super) input: Input,
    pub(super) output: Output,
    kind: RequestKind,
    version: Version,
    /// Whether another request may follow.
    pub(super) keep_alive: bool,
    /// Whether the client waits for `100 Continue`.
    pub(super) expects_continue: bool,
    /// Whether the client has asked for another protocol.
    wants_upgrade: bool,
    pub(super) is_event_stream: bool,
    /// Whether the rest of the body would be discarded after an early response.
    discards_rest: bool,
    /// The start of the current period of a body, and the bytes that arrived in it.
    pub(super) since: u64,
    pub(super) arrived: u64,
    /// Bytes of the body that arrived after the response.
    pub(super) discarded: u64,
}

/// How much of the request was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// The body is arriving.
    Body,
    /// There is no body, and the handler has yet to receive the end.
    EndDue,
    /// The request is complete.
    Complete,
}

/// How much of the response was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// The handler has a request, and has not responded.
    Awaited,
    /// This number of bytes of the body is left.
    Sized(u64),
    Chunked,
    UntilClose,
    /// The body is not sent, because the response must not have one.
    Suppressed,
    Complete,
    /// The connection no longer carries HTTP.
    Upgraded,
}

/// What a part of a response leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Then {
    Continue,
    /// The response is complete.
    Finish,
    /// The connection carries another protocol from now on.
    Upgrade,
}

impl Exchange {
    /// Begins with the head of a request, at the time `now`. `discards` is the setting.
    pub(super) fn begin(id: RequestId, request: &Request, discards: u64, now: u64) -> Self {
        let body = request.announced_body();
        Exchange {
            id: Some(id),
            input: if body.is_streamed() { Input::Body } else { Input::EndDue },
            kind: RequestKind::of(request.method_bytes()),
            version: request.version(),
            keep_alive: request.is_keep_alive(),
            expects_continue: request.expects_continue(),
            wants_upgrade: request.upgrades(),
            // Decided before the handler responds, so that the response can say it.
            discards_rest: body.length().is_none_or(|length| length <= discards),
            since: now,
            ..Exchange::unreadable()
        }
    }

    /// Returns the exchange of bytes that are not a request. Its answer is framed for HTTP/1.1.
    pub(super) fn unreadable() -> Self {
        Exchange {
            id: None,
            input: Input::Complete,
            output: Output::Awaited,
            kind: RequestKind::Other,
            version: Version::Http11,
            keep_alive: false,
            expects_continue: false,
            wants_upgrade: false,
            is_event_stream: false,
            discards_rest: true,
            since: 0,
            arrived: 0,
            discarded: 0,
        }
    }

    /// Returns whether this exchange waits for a response to the request with this id.
    pub(super) fn awaits(&self, id: RequestId) -> bool {
        self.id == Some(id) && self.output == Output::Awaited
    }

    /// Returns whether the response has begun and is not complete.
    pub(super) fn is_responding(&self) -> bool {
        matches!(self.output, Output::Sized(_) | Output::Chunked | Output::UntilClose | Output::Suppressed)
    }

    /// Returns whether the client expects further bytes of the response that has begun.
    pub(super) fn lacks_output(&self) -> bool {
        match self.output {
            Output::Sized(left) => left > 0,
            Output::Chunked | Output::UntilClose => true,
            _ => false,
        }
    }

    /// Returns whether the client would take the body in progress for complete if the connection
    /// ended now. That does not matter for a stream of events, which ends at any event.
    pub(super) fn looks_complete_if_cut(&self) -> bool {
        self.output == Output::UntilClose && !self.is_event_stream
    }

    /// Returns whether the handler no longer needs the request.
    pub(super) fn has_response(&self) -> bool {
        matches!(self.output, Output::Complete | Output::Upgraded)
    }

    /// Frames a part of the response. Changes nothing: [`apply`](Exchange::apply) does, once the
    /// part was accepted.
    ///
    /// # Errors
    /// [`Error::Encode`](crate::Error::Encode) if the part does not fit the parts before it, or the
    /// request.
    pub(super) fn frame(
        &self,
        part: Part<Response>,
        now: impl FnOnce() -> SystemTime,
    ) -> Result<(Option<FramedResponse>, ExchangeChange)> {
        match part {
            Part::Head(response) => self.frame_head(response, now),
            Part::Body(bytes) => self.frame_body(bytes),
            Part::End(trailers) => {
                let framed = match self.output {
                    Output::Sized(0) | Output::UntilClose | Output::Suppressed => None,
                    Output::Sized(left) => {
                        return Err(unencodable(format!(
                            "the body is {left} bytes shorter than its Content-Length"
                        )));
                    }
                    Output::Chunked => Some(FramedResponse::LastChunk(trailers)),
                    _ => return Err(unencodable("the end of a response that has not begun")),
                };
                Ok((framed, ExchangeChange::to(Output::Complete, Then::Finish)))
            }
        }
    }

    fn frame_body(&self, bytes: Bytes) -> Result<(Option<FramedResponse>, ExchangeChange)> {
        let length = bytes.len() as u64;
        let (framed, output) = match self.output {
            Output::Sized(left) if length > left => {
                return Err(unencodable(format!("{length} bytes of a body of which {left} bytes are left")));
            }
            Output::Sized(left) => (Some(FramedResponse::Data(bytes)), Output::Sized(left - length)),
            Output::Chunked => (Some(FramedResponse::Chunk(bytes)), Output::Chunked),
            Output::UntilClose => (Some(FramedResponse::Data(bytes)), Output::UntilClose),
            Output::Suppressed => (None, Output::Suppressed),
            _ => return Err(unencodable("the body of a response that has not begun")),
        };
        Ok((framed, ExchangeChange::to(output, Then::Continue)))
    }

    fn frame_head(
        &self,
        mut response: Response,
        now: impl FnOnce() -> SystemTime,
    ) -> Result<(Option<FramedResponse>, ExchangeChange)> {
        if self.output != Output::Awaited {
            return Err(unencodable("a response without a request"));
        }
        let facts = Facts::of(&response)?;
        let status = response.status();
        if status.is_informational() {
            return self.frame_interim(response);
        }
        let becomes_tunnel = self.kind == RequestKind::Connect && status.is_success();
        let mut keep_alive = self.keep_alive && !response.closes() && !facts.closes;
        // A client that has not got its `100 Continue` may or may not send the body.
        keep_alive &= !self.expects_continue;
        keep_alive &= self.input != Input::Body || self.discards_rest;
        let events = response.is_event_stream();
        // The length of a body that a backend has announced and not sent is unknown here.
        let is_unknown = response.is_head_only();
        let body = response.take_body();
        // A part of a body with a length must neither be dropped nor added.
        let is_event_stream = events && body == Body::Streamed;
        // Events that are written later must not reach the body of another response.
        let drops_parts = is_event_stream && !self.kind.allows_body(status);
        keep_alive &= !drops_parts;
        let (framing, content, output) = if becomes_tunnel {
            (ResponseFraming::None, Bytes::new(), Output::Upgraded)
        } else if !self.kind.allows_body(status) {
            let may_have_length = status != StatusCode::NO_CONTENT;
            let is_unknown = is_unknown && matches!(&body, Body::Full(bytes) if bytes.is_empty());
            let is_given = may_have_length && body != Body::Empty && !is_unknown;
            let framing = match body.length().filter(|_| is_given) {
                Some(length) => ResponseFraming::Length(length),
                None => ResponseFraming::None,
            };
            // Events have no end, so the response is complete without one.
            let waits = body.is_streamed() && !is_event_stream;
            (framing, Bytes::new(), if waits { Output::Suppressed } else { Output::Complete })
        } else if status == StatusCode::RESET_CONTENT {
            // No content, and the client needs a length to know it (RFC 9110, section 15.3.6).
            let output = if body.is_streamed() { Output::Suppressed } else { Output::Complete };
            (ResponseFraming::Length(0), Bytes::new(), output)
        } else {
            match body {
                Body::Empty => (ResponseFraming::Length(0), Bytes::new(), Output::Complete),
                Body::Full(bytes) => (ResponseFraming::Length(bytes.len() as u64), bytes, Output::Complete),
                Body::Sized(length) => (ResponseFraming::Length(length), Bytes::new(), Output::Sized(length)),
                Body::Streamed if self.version == Version::Http10 => {
                    keep_alive = false;
                    (ResponseFraming::None, Bytes::new(), Output::UntilClose)
                }
                Body::Streamed => (ResponseFraming::Chunked, Bytes::new(), Output::Chunked),
            }
        };
        let connection = match (keep_alive, self.version) {
            _ if becomes_tunnel || facts.has_connection => Connection::Default,
            (false, _) => Connection::Close,
            (true, Version::Http10) => Connection::KeepAlive,
            (true, Version::Http11) => Connection::Default,
        };
        if !keep_alive && !becomes_tunnel && facts.has_connection && (facts.keeps_alive || !facts.closes) {
            announce_close(response.headers_mut());
        }
        let date = (!facts.has_date).then(now);
        let then = match output {
            Output::Complete => Then::Finish,
            Output::Upgraded => Then::Upgrade,
            _ => Then::Continue,
        };
        let change =
            ExchangeChange { output, keep_alive: Some(keep_alive), is_event_stream, drops_parts, then };
        Ok((Some(FramedResponse::Head { response, framing, connection, date, body: content }), change))
    }

    /// Frames a response that another one follows, or a change of protocols.
    fn frame_interim(&self, mut response: Response) -> Result<(Option<FramedResponse>, ExchangeChange)> {
        let status = response.status();
        if response.take_body() != Body::Empty {
            return Err(unencodable(format!("a response {status} with a body")));
        }
        let is_switch = status == StatusCode::SWITCHING_PROTOCOLS;
        if is_switch && !self.wants_upgrade {
            return Err(unencodable("a response 101 to a request without Upgrade"));
        }
        let change = if is_switch {
            ExchangeChange::to(Output::Upgraded, Then::Upgrade)
        } else {
            ExchangeChange::to(Output::Awaited, Then::Continue)
        };
        if self.version == Version::Http10 {
            // Its clients do not expect more than one response.
            return Ok((None, change));
        }
        let (framing, connection) = (ResponseFraming::None, Connection::Default);
        Ok((
            Some(FramedResponse::Head { response, framing, connection, date: None, body: Bytes::new() }),
            change,
        ))
    }

    /// Applies the change of a part that was written.
    pub(super) fn apply(&mut self, change: &ExchangeChange) {
        self.output = change.output;
        if let Some(keep_alive) = change.keep_alive {
            self.keep_alive = keep_alive;
            // The client has its response, so the status 100 may not follow.
            self.expects_continue = false;
            self.is_event_stream = change.is_event_stream;
        }
    }
}

/// The change of an [`Exchange`] when a part of the response has been accepted.
#[derive(Debug)]
pub(super) struct ExchangeChange {
    output: Output,
    /// Set by a head.
    keep_alive: Option<bool>,
    is_event_stream: bool,
    /// Set by a head whose body is streamed, but which completes the response. Parts of the body
    /// that the handler writes are dropped.
    pub(super) drops_parts: bool,
    pub(super) then: Then,
}

impl ExchangeChange {
    fn to(output: Output, then: Then) -> Self {
        ExchangeChange { output, keep_alive: None, is_event_stream: false, drops_parts: false, then }
    }
}

/// Makes the handler's `Connection` say that the connection closes, without contradicting it.
#[cold]
fn announce_close(headers: &mut Headers) {
    let mut elements = headers.without_token("connection", "keep-alive");
    if !headers.has_token("connection", "close") {
        elements.extend_from_slice(if elements.is_empty() { b"close" } else { b", close" });
    }
    headers.set("Connection", elements);
}

/// What the headers of a response say of the connection.
#[derive(Debug, Default)]
struct Facts {
    has_date: bool,
    has_connection: bool,
    closes: bool,
    keeps_alive: bool,
}

impl Facts {
    /// # Errors
    /// [`Error::Encode`](crate::Error::Encode) if a header contradicts the body.
    fn of(response: &Response) -> Result<Facts> {
        let mut facts = Facts::default();
        if !response.headers().may_frame() {
            return Ok(facts);
        }
        for (name, value) in response.headers().fields() {
            match name.len() {
                4 if name.eq_ignore_ascii_case(b"date") => facts.has_date = true,
                10 if name.eq_ignore_ascii_case(b"connection") => {
                    facts.has_connection = true;
                    facts.closes |= list(value).any(|token| token.eq_ignore_ascii_case(b"close"));
                    facts.keeps_alive |= list(value).any(|token| token.eq_ignore_ascii_case(b"keep-alive"));
                }
                14 if name.eq_ignore_ascii_case(b"content-length") => {
                    return Err(unencodable("Content-Length is added by the body: see `Body`"));
                }
                17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                    return Err(unencodable("Transfer-Encoding is added by the body: see `Body`"));
                }
                _ => {}
            }
        }
        Ok(facts)
    }
}
