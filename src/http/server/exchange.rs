//! The state of one exchange: a request and its response.

use super::framed_response::{Connection, FramedResponse, ResponseFraming};
use crate::{
    Result,
    http::{Body, Part, Request, Response, StatusCode, Version, encode::unencodable, head::RequestKind},
};
use bytes::Bytes;

/// A request and its response. One exists at a time on a connection.
///
/// Pure: decides on how each part of the response is framed, and knows when both sides are
/// complete. The stage performs the effects.
#[derive(Debug)]
pub(super) struct Exchange {
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
    pub(super) discards_rest: bool,
}

/// How much of the request has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// The body is arriving.
    Body,
    /// The request is complete.
    Complete,
}

/// How much of the response was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// There is no request.
    Idle,
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
    /// The state between two requests.
    pub(super) const IDLE: Exchange = Exchange {
        input: Input::Complete,
        output: Output::Idle,
        kind: RequestKind::Other,
        version: Version::Http11,
        keep_alive: true,
        expects_continue: false,
        wants_upgrade: false,
        is_event_stream: false,
        discards_rest: true,
    };

    pub(super) fn begin(request: &Request) -> Self {
        let streams = request.announced_body().is_streamed();
        Exchange {
            input: if streams { Input::Body } else { Input::Complete },
            output: Output::Awaited,
            kind: RequestKind::of(request.method()),
            version: request.version(),
            keep_alive: request.is_keep_alive(),
            expects_continue: request.expects_continue(),
            wants_upgrade: request.upgrades(),
            is_event_stream: false,
            discards_rest: true,
        }
    }

    /// Returns whether the response has begun and is not complete.
    pub(super) fn is_responding(&self) -> bool {
        matches!(self.output, Output::Sized(_) | Output::Chunked | Output::UntilClose | Output::Suppressed)
    }

    /// Returns whether the handler no longer needs the request.
    pub(super) fn has_response(&self) -> bool {
        matches!(self.output, Output::Complete | Output::Upgraded)
    }

    /// Frames a part of the response. Changes nothing: [`apply`](Exchange::apply) does, once the
    /// part was accepted.
    ///
    /// # Errors
    /// The part does not fit the parts before it, or the request.
    pub(super) fn frame(
        &self,
        part: Part<Response>,
        date: impl FnOnce() -> [u8; 29],
    ) -> Result<(Option<FramedResponse>, Change)> {
        match part {
            Part::Head(response) => self.frame_head(response, date),
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
                Ok((framed, Change::to(Output::Complete, Then::Finish)))
            }
        }
    }

    fn frame_body(&self, bytes: Bytes) -> Result<(Option<FramedResponse>, Change)> {
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
        Ok((framed, Change::to(output, Then::Continue)))
    }

    fn frame_head(
        &self,
        mut response: Response,
        date: impl FnOnce() -> [u8; 29],
    ) -> Result<(Option<FramedResponse>, Change)> {
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
        keep_alive &= self.input == Input::Complete || self.discards_rest;
        let is_event_stream = response.is_event_stream();
        let body = response.take_body();
        let (framing, now, output) = if becomes_tunnel {
            (ResponseFraming::None, Bytes::new(), Output::Upgraded)
        } else if !self.kind.allows_body(status) {
            let may_have_length = status != StatusCode::NO_CONTENT;
            let framing = match body.length().filter(|_| may_have_length && body != Body::Empty) {
                Some(length) => ResponseFraming::Length(length),
                None => ResponseFraming::None,
            };
            (framing, Bytes::new(), if body.is_streamed() { Output::Suppressed } else { Output::Complete })
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
        let date = (!facts.has_date).then(date);
        let then = match output {
            Output::Complete => Then::Finish,
            Output::Upgraded => Then::Upgrade,
            _ => Then::Continue,
        };
        let change = Change { output, keep_alive: Some(keep_alive), is_event_stream, then };
        Ok((Some(FramedResponse::Head { response, framing, connection, date, body: now }), change))
    }

    /// Frames a response that another one follows, or a change of protocols.
    fn frame_interim(&self, mut response: Response) -> Result<(Option<FramedResponse>, Change)> {
        let status = response.status();
        if response.take_body() != Body::Empty {
            return Err(unencodable(format!("a response {status} with a body")));
        }
        let is_switch = status == StatusCode::SWITCHING_PROTOCOLS;
        if is_switch && !self.wants_upgrade {
            return Err(unencodable("a response 101 to a request without Upgrade"));
        }
        let change = if is_switch {
            Change::to(Output::Upgraded, Then::Upgrade)
        } else {
            Change::to(Output::Awaited, Then::Continue)
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
    pub(super) fn apply(&mut self, change: &Change) {
        self.output = change.output;
        if let Some(keep_alive) = change.keep_alive {
            self.keep_alive = keep_alive;
            self.is_event_stream = change.is_event_stream;
        }
    }
}

/// The change of an [`Exchange`] when a part of the response has been accepted.
#[derive(Debug)]
pub(super) struct Change {
    output: Output,
    /// Set by a head.
    keep_alive: Option<bool>,
    is_event_stream: bool,
    pub(super) then: Then,
}

impl Change {
    fn to(output: Output, then: Then) -> Self {
        Change { output, keep_alive: None, is_event_stream: false, then }
    }
}

/// What the headers of a response say of the connection.
#[derive(Debug, Default)]
struct Facts {
    has_date: bool,
    has_connection: bool,
    closes: bool,
}

impl Facts {
    /// # Errors
    /// A header contradicts the body.
    fn of(response: &Response) -> Result<Facts> {
        let mut facts = Facts::default();
        for (name, value) in response.headers().fields() {
            match name.len() {
                4 if name.eq_ignore_ascii_case(b"date") => facts.has_date = true,
                10 if name.eq_ignore_ascii_case(b"connection") => {
                    facts.has_connection = true;
                    facts.closes |=
                        crate::http::syntax::list(value).any(|token| token.eq_ignore_ascii_case(b"close"));
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
