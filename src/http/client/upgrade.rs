//! The request and the response with which a connection changes to another protocol.
//!
//! For protocols that begin with a request of HTTP/1.1 before the channel has a pipeline. The bytes
//! behind the response belong to the other protocol and are left alone.
//!
//! Invariants: one request, one final response. The head is bounded by the limits of
//! [`HttpSettings`], and the kept part of the body by `max_body`.

use super::{
    codec::{ClientCodec, put_lines},
    outstanding::{Outstanding, OutstandingRequest},
};
use crate::{
    error::{PeerError, Result},
    http::{
        FullMessage, Headers, Part, Request, Response, StatusCode, head::RequestKind, settings::HttpSettings,
    },
    pipeline::Codec,
};
use bytes::{Bytes, BytesMut};
use std::{rc::Rc, sync::Arc};

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
pub(crate) struct UpgradeReader {
    codec: ClientCodec,
    max_body: usize,
    /// The refusal, while its body arrives.
    refusal: Option<Box<FullMessage<Response>>>,
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
        let outstanding = Rc::new(Outstanding::default());
        outstanding.push(OutstandingRequest { kind: RequestKind::Other, upgrades: true });
        // The reader stops at `max_body`, so a longer body is not an error.
        let settings = HttpSettings::new().max_body(u64::MAX);
        let codec = ClientCodec::new(Arc::new(settings), None, outstanding);
        UpgradeReader { codec, max_body, refusal: None }
    }

    /// Reads from `input`, which begins with the bytes that were not consumed before. Returns how
    /// many bytes are consumed. Not called after another result than [`Upgrade::Pending`].
    ///
    /// # Errors
    /// [`Error::Peer`](crate::Error::Peer) if the response is malformed.
    pub(crate) fn read(&mut self, input: &[u8]) -> Result<(usize, Upgrade)> {
        let mut rest = Bytes::copy_from_slice(input);
        let upgrade = self.next(&mut rest)?;
        Ok((input.len() - rest.len(), upgrade))
    }

    fn next(&mut self, input: &mut Bytes) -> Result<Upgrade> {
        while let Some(part) = self.codec.decode(input)? {
            match (part, &mut self.refusal) {
                (Part::Head(head), _) if head.status() == StatusCode::SWITCHING_PROTOCOLS => {
                    return Ok(Upgrade::Switched(head));
                }
                (Part::Head(head), _) if head.status().is_informational() => {}
                (Part::Head(head), refusal) => {
                    let (body, trailers) = (Bytes::new(), Headers::new());
                    *refusal = Some(Box::new(FullMessage { head, body, trailers }));
                }
                (Part::Body(data), Some(refusal)) => {
                    let fitting = data.len().min(self.max_body - refusal.body.len());
                    let mut kept = BytesMut::from(&refusal.body[..]);
                    kept.extend_from_slice(&data[..fitting]);
                    refusal.body = kept.freeze();
                    if refusal.body.len() == self.max_body {
                        return self.end();
                    }
                }
                (Part::End(trailers), Some(refusal)) => {
                    refusal.trailers = trailers;
                    return self.end();
                }
                (Part::Body(_) | Part::End(_), None) => {}
            }
        }
        Ok(Upgrade::Pending)
    }

    /// Handles the end of the stream. Returns the refusal, also if its body is incomplete.
    ///
    /// # Errors
    /// [`PeerError::Truncated`] if the stream ends before the response has a head.
    pub(crate) fn end(&mut self) -> Result<Upgrade> {
        let refusal = self.refusal.take().ok_or(PeerError::Truncated)?;
        Ok(Upgrade::Refused(refusal))
    }
}
