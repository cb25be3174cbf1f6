//! The codec of a client: responses in, requests out.
//!
//! Invariants: as those of the server's codec. A response belongs to the oldest outstanding
//! request, which says whether it has a body. Bytes behind the last outstanding response are never
//! taken for the answer to a later request.

use super::outstanding::{Outstanding, OutstandingRequest};
use crate::{
    buffer::OutboundBuffer,
    error::{PeerError, Result},
    http::{
        Body, Headers, Part, Request, Response, StatusCode, Version,
        body::{BodyDecoder, BodyPart},
        encode::{put_chunk, put_last_chunk, put_length, unencodable},
        error::HttpError,
        head::{
            Framing, HeadFacts, HeadLimits, HeadScanner, RequestKind, Scan, announced_framing,
            parse_response, response_framing,
        },
        settings::HttpSettings,
        syntax::is_host,
    },
    pipeline::Codec,
};
use bytes::Bytes;
use std::{rc::Rc, sync::Arc};

pub(super) struct ClientCodec {
    settings: Arc<HttpSettings>,
    host: Option<Arc<str>>,
    outstanding: Rc<Outstanding>,
    state: State,
    /// Whether bytes follow in the input that was decoded last.
    has_rest: bool,
    /// The length of the input that was decoded.
    decoded: u64,
}

enum State {
    Head(HeadScanner),
    Body(BodyDecoder),
    /// The end of a response without a body is due.
    End,
    Failed,
}

/// A part of a request whose framing is decided.
pub(super) enum FramedRequest {
    Head { request: Request, framing: RequestFraming, body: Bytes },
    Data(Bytes),
    Chunk(Bytes),
    LastChunk(Headers),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestFraming {
    None,
    Length(u64),
    Chunked,
}

impl ClientCodec {
    pub(super) fn new(
        settings: Arc<HttpSettings>,
        host: Option<Arc<str>>,
        outstanding: Rc<Outstanding>,
    ) -> Self {
        let state = State::Head(HeadScanner::NEW);
        ClientCodec { settings, host, outstanding, state, has_rest: false, decoded: 0 }
    }

    fn next(&mut self, input: &mut Bytes) -> Result<Option<Part<Response>>, HttpError> {
        match &mut self.state {
            State::Failed => {
                input.clear();
                Ok(None)
            }
            State::End => Ok(Some(self.end(Headers::new(), input))),
            State::Body(body) => Ok(match body.decode(input, &self.settings)? {
                None => None,
                Some(BodyPart::Data(bytes)) => Some(Part::Body(bytes)),
                Some(BodyPart::End(trailers)) => Some(self.end(trailers, input)),
            }),
            State::Head(scanner) => {
                let request =
                    self.outstanding.front_from(self.decoded).filter(|_| !self.outstanding.is_spoiled());
                let request = request.ok_or(HttpError::UnexpectedResponse)?;
                let limits = HeadLimits::of(&self.settings);
                let Scan::Complete(len) = scanner.scan(input, &limits)? else { return Ok(None) };
                *scanner = HeadScanner::NEW;
                let (mut response, facts) = parse_response(&input.split_to(len))?;
                self.begin(&mut response, &facts, request)?;
                Ok(Some(Part::Head(response)))
            }
        }
    }

    /// Determines the decoding after the head.
    fn begin(
        &mut self,
        response: &mut Response,
        facts: &HeadFacts,
        request: OutstandingRequest,
    ) -> Result<(), HttpError> {
        let (status, version) = (response.status(), response.version());
        if status == StatusCode::SWITCHING_PROTOCOLS && !(request.upgrades && version == Version::Http11) {
            return Err(HttpError::UnexpectedUpgrade);
        }
        let framing = response_framing(version, status, facts, request.kind)?;
        let keep_alive = framing != Framing::UntilClose && facts.is_keep_alive(version);
        let announced = announced_framing(version, status, facts, request.kind, framing)?;
        let body = match announced {
            Framing::None => Body::Empty,
            Framing::Length(length) => Body::Sized(length),
            Framing::Chunked | Framing::UntilClose => Body::Streamed,
        };
        response.announce(body, !keep_alive, framing != announced);
        let is_switch = status == StatusCode::SWITCHING_PROTOCOLS;
        if is_switch || request.kind == RequestKind::Connect && status.is_success() {
            response.hand_over();
        } else if status.is_informational() {
            // The final response follows.
            return Ok(());
        }
        self.state = BodyDecoder::new(framing, &self.settings)?.map_or(State::End, State::Body);
        Ok(())
    }

    /// Ends the response, whose last byte precedes `rest`.
    fn end(&mut self, trailers: Headers, rest: &Bytes) -> Part<Response> {
        self.outstanding.pop();
        if self.outstanding.len() == 0 && (self.has_rest || !rest.is_empty()) {
            self.outstanding.spoil();
        }
        self.state = State::Head(HeadScanner::NEW);
        Part::End(trailers)
    }

    fn put_head(&self, request: &Request, framing: RequestFraming, output: &mut OutboundBuffer) -> Result {
        put_lines(request, self.host.as_deref(), |bytes| output.put_slice(bytes))?;
        match framing {
            RequestFraming::None => {}
            RequestFraming::Length(length) => put_length(length, output),
            RequestFraming::Chunked => output.put_slice(b"Transfer-Encoding: chunked\r\n"),
        }
        if !request.is_keep_alive() {
            output.put_slice(b"Connection: close\r\n");
        }
        output.put_slice(b"\r\n");
        Ok(())
    }

    /// Returns the error for the end of the stream, if a response is incomplete.
    fn truncated(&mut self) -> Result<Option<Part<Response>>> {
        self.state = State::Failed;
        Err(PeerError::Truncated.into())
    }
}

/// Passes the request line and the header lines to `put`.
///
/// A request without `Host` gets the authority of its target, or else `host`.
///
/// # Errors
/// [`Error::Encode`](crate::Error::Encode) if the request cannot be encoded.
pub(super) fn put_lines(request: &Request, host: Option<&str>, mut put: impl FnMut(&[u8])) -> Result {
    if let Some(what) = request.invalid() {
        return Err(unencodable(format!("{what} is invalid")));
    }
    let has_host = request.headers().contains("host");
    // RFC 9112, section 3.2: the authority of the target URI.
    let host = request.target_authority().or(host).filter(|host| is_host(host.as_bytes()));
    if !has_host && host.is_none() {
        return Err(unencodable("a request without a valid Host; see `HttpClient::host`"));
    }
    put(request.line());
    put(b" HTTP/1.1\r\n");
    if let Some(host) = host.filter(|_| !has_host) {
        put(b"Host: ");
        put(host.as_bytes());
        put(b"\r\n");
    }
    put(request.headers().lines());
    Ok(())
}

impl Codec for ClientCodec {
    type Read = Part<Response>;
    type Write = FramedRequest;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Part<Response>>> {
        self.has_rest = false;
        let arrived = self.decoded + input.len() as u64;
        self.outstanding.set_arrived(arrived);
        match self.next(input) {
            Ok(part) => {
                self.decoded = arrived - input.len() as u64;
                self.has_rest = !input.is_empty();
                Ok(part)
            }
            Err(error) => {
                self.state = State::Failed;
                input.clear();
                Err(error.in_response())
            }
        }
    }

    #[inline]
    fn has_more(&self) -> bool {
        match &self.state {
            State::End => true,
            State::Body(body) => body.is_at_end(),
            _ => false,
        }
    }

    fn decode_more(&mut self) -> Result<Option<Part<Response>>> {
        // Keeps `has_rest`: nothing is taken from the input.
        self.next(&mut Bytes::new()).map_err(HttpError::in_response)
    }

    fn decode_last(&mut self, input: &mut Bytes) -> Result<Option<Part<Response>>> {
        if !input.is_empty() || self.has_more() {
            let part = self.decode(input)?;
            if part.is_some() || matches!(self.state, State::Failed) {
                return Ok(part);
            }
        }
        match &self.state {
            State::Body(body) if body.ends_with_stream() => Ok(Some(self.end(Headers::new(), input))),
            State::Body(_) => self.truncated(),
            State::Head(_) if !input.is_empty() => {
                input.clear();
                self.truncated()
            }
            _ => {
                self.outstanding.end();
                Ok(None)
            }
        }
    }

    fn encode(&mut self, request: FramedRequest, output: &mut OutboundBuffer) -> Result {
        match request {
            FramedRequest::Head { request, framing, body } => {
                self.put_head(&request, framing, output)?;
                if !body.is_empty() {
                    output.put(body);
                }
            }
            FramedRequest::Data(bytes) => output.put(bytes),
            FramedRequest::Chunk(bytes) => put_chunk(bytes, output),
            FramedRequest::LastChunk(trailers) => return put_last_chunk(&trailers, output),
        }
        Ok(())
    }
}
