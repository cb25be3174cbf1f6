//! The request and the response with which a connection changes to another protocol.
//!
//! For protocols that begin with a request of HTTP/1.1 before the channel has a pipeline. The bytes
//! behind the response belong to the other protocol and are left alone.
//!
//! Invariants: one request, one final response. The head is bounded by the limits of
//! [`HttpSettings`], and the kept part of the body by `max_body`.

use super::codec::put_lines;
use crate::{
    error::{PeerError, Result},
    http::{
        FullMessage, Headers, Request, Response, StatusCode,
        body::{BodyDecoder, BodyPart},
        error::HttpError,
        head::{HeadLimits, HeadScanner, RequestKind, Scan, parse_response, response_framing},
        settings::HttpSettings,
    },
};
use bytes::{Bytes, BytesMut};

/// Appends the head of a request without a body to `output`.
///
/// # Errors
/// [`Error::Encode`](crate::Error::Encode) if the request cannot be encoded.
pub(crate) fn put_upgrade(request: &Request, host: &str, output: &mut Vec<u8>) -> Result {
    put_lines(request, Some(host), |bytes| output.extend_from_slice(bytes))?;
    output.extend_from_slice(b"\r\n");
    Ok(())
}

/// Reads the response to a request for another protocol.
#[derive(Debug)]
pub(crate) struct UpgradeReader {
    settings: HttpSettings,
    max_body: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    Head(HeadScanner),
    Body(BodyDecoder, Box<FullMessage<Response>>),
    Read,
}

/// What the input contained.
#[derive(Debug)]
pub(crate) enum Upgrade {
    /// The response is not complete.
    Pending,
    /// 101. The bytes behind it belong to the other protocol.
    Switched(Response),
    /// Another final response, with the beginning of its body.
    Refused(Box<FullMessage<Response>>),
}

impl UpgradeReader {
    /// Returns a reader that keeps at most `max_body` bytes of the body of a refusal.
    pub(crate) fn new(max_body: usize) -> Self {
        let state = State::Head(HeadScanner::NEW);
        // The reader stops at `max_body`, so a longer body is not an error.
        UpgradeReader { settings: HttpSettings::new().max_body(u64::MAX), max_body, state }
    }

    /// Reads from `input`, which begins with the bytes that were not consumed before. Returns how
    /// many bytes are consumed.
    ///
    /// # Errors
    /// [`Error::Peer`](crate::Error::Peer) if the response is malformed.
    pub(crate) fn read(&mut self, input: &[u8]) -> Result<(usize, Upgrade)> {
        self.next(input).map_err(HttpError::in_response)
    }

    fn next(&mut self, input: &[u8]) -> Result<(usize, Upgrade), HttpError> {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            match &mut self.state {
                State::Head(scanner) => {
                    let limits = HeadLimits::of(&self.settings);
                    let Scan::Complete(len) = scanner.scan(rest, &limits)? else {
                        return Ok((consumed, Upgrade::Pending));
                    };
                    consumed += len;
                    if let Some(response) = self.begin(&Bytes::copy_from_slice(&rest[..len]))? {
                        return Ok((consumed, response));
                    }
                }
                State::Body(body, message) => {
                    let mut bytes = Bytes::copy_from_slice(rest);
                    let mut kept = BytesMut::from(&message.body[..]);
                    let is_complete = loop {
                        match body.decode(&mut bytes, &self.settings)? {
                            None => break false,
                            Some(BodyPart::End(trailers)) => {
                                message.trailers = trailers;
                                break true;
                            }
                            Some(BodyPart::Data(data)) => {
                                let fitting = data.len().min(self.max_body - kept.len());
                                kept.extend_from_slice(&data[..fitting]);
                                if kept.len() == self.max_body {
                                    break true;
                                }
                            }
                        }
                    };
                    message.body = kept.freeze();
                    consumed = input.len() - bytes.len();
                    let upgrade = if is_complete { self.end() } else { Upgrade::Pending };
                    return Ok((consumed, upgrade));
                }
                State::Read => return Ok((consumed, Upgrade::Pending)),
            }
        }
    }

    /// Handles a head. Returns `None` if more follows.
    fn begin(&mut self, head: &Bytes) -> Result<Option<Upgrade>, HttpError> {
        let (response, facts) = parse_response(head)?;
        let (status, version) = (response.status(), response.version());
        if status == StatusCode::SWITCHING_PROTOCOLS {
            self.state = State::Read;
            return Ok(Some(Upgrade::Switched(response)));
        }
        self.state = State::Head(HeadScanner::NEW);
        if status.is_informational() {
            return Ok(None);
        }
        let framing = response_framing(version, status, &facts, RequestKind::Other)?;
        let message = FullMessage { head: response, body: Bytes::new(), trailers: Headers::new() };
        match BodyDecoder::new(framing, &self.settings)? {
            Some(body) if self.max_body > 0 => {
                self.state = State::Body(body, Box::new(message));
                Ok(None)
            }
            _ => {
                self.state = State::Read;
                Ok(Some(Upgrade::Refused(Box::new(message))))
            }
        }
    }

    /// Handles the end of the stream. Returns the refusal, also if its body is incomplete.
    ///
    /// # Errors
    /// [`PeerError::Truncated`] if the stream ends before the response has a head.
    pub(crate) fn end_of_input(&mut self) -> Result<Upgrade> {
        match &self.state {
            State::Body(..) => Ok(self.end()),
            State::Head(_) => Err(PeerError::Truncated.into()),
            State::Read => Ok(Upgrade::Pending),
        }
    }

    fn end(&mut self) -> Upgrade {
        match std::mem::replace(&mut self.state, State::Read) {
            State::Body(_, message) => Upgrade::Refused(message),
            _ => Upgrade::Pending,
        }
    }
}
