//! The codec of a server: requests in, responses out.
//!
//! Invariants: after an error, all further input is dropped. A head is parsed once. What comes out
//! does not depend on how the input is split, except for the cuts between body parts. The stage
//! behind it ensures that no request is decoded before the previous exchange is complete, and says
//! how each response is framed.

use super::framed_response::FramedResponse;
use crate::{
    buffer::OutboundBuffer,
    error::Result,
    http::{
        Body, Part, Request,
        body::{BodyDecoder, BodyPart},
        error::HttpError,
        head::{Framing, HeadLimits, HeadScanner, RequestHead, Scan, check_request, request_framing},
        settings::HttpSettings,
    },
    pipeline::Codec,
};
use bytes::{Buf, Bytes};
use std::sync::Arc;

pub(super) struct ServerCodec {
    settings: Arc<HttpSettings>,
    state: State,
}

enum State {
    Head {
        scanner: HeadScanner,
        empty_line: bool,
    },
    Body(BodyDecoder),
    /// An error was returned.
    Failed,
}

const START: State = State::Head { scanner: HeadScanner::NEW, empty_line: false };

impl ServerCodec {
    pub(super) fn new(settings: Arc<HttpSettings>) -> Self {
        ServerCodec { settings, state: START }
    }

    fn next(&mut self, input: &mut Bytes) -> Result<Option<Part<Request>>, HttpError> {
        match &mut self.state {
            State::Failed => {
                input.clear();
                Ok(None)
            }
            State::Body(body) => {
                let part = body.decode(input, &self.settings)?;
                Ok(part.map(|part| self.part(part)))
            }
            State::Head { scanner, empty_line } => {
                // One empty line is ignored: some clients send it behind a body (RFC 9112,
                // section 2.2).
                if !*empty_line && input.starts_with(b"\r") {
                    if input.len() < 2 {
                        return Ok(None);
                    }
                    *empty_line = input.starts_with(b"\r\n");
                    if *empty_line {
                        input.advance(2);
                    }
                }
                let limits = HeadLimits::of(&self.settings);
                let arrived = scanner.is_new().then(|| RequestHead::arrived(input, &limits)).flatten();
                let head = match arrived {
                    Some(head) => head,
                    None => {
                        let Scan::Complete(len) = scanner.scan(input, &limits)? else { return Ok(None) };
                        check_request(&input[..len])?
                    }
                };
                let mut request = head.take(input);
                let facts = head.facts;
                let framing = request_framing(&request, &facts)?;
                let body = match framing {
                    Framing::None | Framing::UntilClose => Body::Empty,
                    Framing::Length(length) => Body::Sized(length),
                    Framing::Chunked => Body::Streamed,
                };
                self.state = BodyDecoder::new(framing, &self.settings)?.map_or(START, State::Body);
                request.announce(body, facts.wishes(request.version()));
                Ok(Some(Part::Head(request)))
            }
        }
    }

    fn part(&mut self, part: BodyPart) -> Part<Request> {
        match part {
            BodyPart::Data(bytes) => Part::Body(bytes),
            BodyPart::End(trailers) => {
                self.state = START;
                Part::End(trailers)
            }
        }
    }
}

impl Codec for ServerCodec {
    type Read = Part<Request>;
    type Write = FramedResponse;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Part<Request>>> {
        match self.next(input) {
            Ok(part) => Ok(part),
            Err(error) => {
                self.state = State::Failed;
                input.clear();
                Err(error.into())
            }
        }
    }

    #[inline]
    fn has_more(&self) -> bool {
        matches!(&self.state, State::Body(body) if body.is_at_end())
    }

    fn decode_more(&mut self) -> Result<Option<Part<Request>>> {
        self.decode(&mut Bytes::new())
    }

    /// Drops an incomplete request: a stream may end in the middle of one.
    fn decode_last(&mut self, input: &mut Bytes) -> Result<Option<Part<Request>>> {
        if input.is_empty() && !self.has_more() { Ok(None) } else { self.decode(input) }
    }

    #[inline]
    fn encode(&mut self, response: FramedResponse, output: &mut OutboundBuffer) -> Result {
        response.encode(output)
    }

    fn encoded_len_hint(response: &FramedResponse) -> Option<usize> {
        response.len_hint()
    }
}
