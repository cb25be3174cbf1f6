//! The codec: frames on one side, messages on the other.
//!
//! Invariants: the payload of a data frame is taken from the input as it arrives, so each byte is
//! examined once. The first invalid byte of a text is an error immediately. A control frame waits
//! in the input until it is complete. Nothing is decoded behind a Close frame or an error.

use super::{
    assembly::{Assembly, into_message},
    header::{Header, Kind, MAX_CONTROL, Opcode, put_header},
    mask::{put_masked, random_key, unmask},
};
use crate::{
    buffer::OutboundBuffer,
    error::{EncodeError, Result},
    pipeline::Codec,
    websocket::{
        compression::Compression,
        error::WebSocketError,
        message::{CloseCode, CloseFrame, Message, Utf8Bytes},
        role::Role,
        settings::WebSocketSettings,
    },
};
use bytes::{Buf, Bytes};
use std::sync::Arc;

/// A codec for the frames of a WebSocket connection (RFC 6455) after its handshake.
///
/// Decodes whole messages and control frames. The pipeline of an
/// [`Accepted`](crate::websocket::Accepted) connection adds the
/// [`WebSocketStage`](crate::websocket::WebSocketStage), which answers control frames.
///
/// # Errors
/// [`WebSocketError`] inside a [`PeerError::Protocol`](crate::error::PeerError::Protocol) if
/// decoding fails. The codec then drops all further input, and likewise after a Close frame.
///
/// # Thread and memory
/// Runs on the channel's loop. An idle connection owns no buffer. A message that arrives in parts
/// takes memory for the bytes that have arrived, up to
/// [`max_message`](WebSocketSettings::max_message). The payload of an unmasked frame shares
/// the memory of the read buffer. A short masked payload is copied to a chunk that the messages of
/// a thread share. A handler that keeps short messages for a long time should copy them.
#[derive(Debug)]
pub struct WebSocketCodec {
    settings: Arc<WebSocketSettings>,
    assembly: Option<Box<Assembly>>,
    compression: Compression,
    role: Role,
    /// Whether a Close frame or an error has ended the input.
    over: bool,
}

impl WebSocketCodec {
    pub(in crate::websocket) fn new(
        settings: Arc<WebSocketSettings>,
        role: Role,
        compression: Compression,
    ) -> Self {
        WebSocketCodec { settings, assembly: None, compression, role, over: false }
    }

    #[cfg(all(test, feature = "deflate"))]
    pub(in crate::websocket) fn compression(&self) -> &Compression {
        &self.compression
    }

    /// Returns the memory of a message of which a part has arrived.
    #[cfg(test)]
    pub(in crate::websocket) fn assembled_capacity(&self) -> Option<usize> {
        self.assembly.as_ref().map(|assembly| assembly.capacity())
    }

    /// Decodes the next message. Takes nothing of a header or control frame that is incomplete.
    fn next(&mut self, input: &mut Bytes) -> Result<Option<Message>, WebSocketError> {
        loop {
            if let Some(assembly) = &mut self.assembly
                && assembly.is_within_frame()
            {
                assembly.take(input)?;
                if assembly.is_within_frame() {
                    return Ok(None);
                }
                if assembly.is_complete() {
                    return self.finish();
                }
            }
            let Some(&first) = input.first() else { return Ok(None) };
            let kind = Kind::decode(first, self.compression.is_on())?;
            let assembled = self.check_order(kind)?;
            let limit = self.settings.max_message;
            let header = Header::decode(input, kind, self.role == Role::Server, |len| {
                let is_over = |limit: usize| len > limit.saturating_sub(assembled) as u64;
                if !kind.opcode.is_control() && is_over(limit) && is_over(self.wire_limit(kind)) {
                    return Err(WebSocketError::MessageTooLong { limit });
                }
                Ok(())
            })?;
            let Some(header) = header else { return Ok(None) };
            if kind.opcode.is_control() {
                return self.control(kind, header, input);
            }
            let is_here = (input.len() - header.size) as u64 >= header.len;
            if is_here && kind.fin && self.assembly.is_none() {
                let mut payload = take_payload(input, header);
                if kind.compressed {
                    payload = self.compression.inflate(&payload, limit)?;
                }
                return into_message(payload, kind.opcode == Opcode::Text).map(Some);
            }
            let assembly = self.assembly.get_or_insert_with(|| Box::new(Assembly::new(kind)));
            input.advance(header.size);
            assembly.begin(kind, header);
            if !assembly.is_within_frame() && assembly.is_complete() {
                return self.finish();
            }
        }
    }

    /// Checks that a frame of this kind may follow the previous one. Returns the number of bytes of
    /// its message that have arrived.
    #[inline]
    fn check_order(&self, kind: Kind) -> Result<usize, WebSocketError> {
        match (kind.opcode, &self.assembly) {
            (Opcode::Continuation, None) => Err(WebSocketError::UnexpectedContinuation),
            (Opcode::Text | Opcode::Binary, Some(_)) => Err(WebSocketError::UnfinishedMessage),
            (Opcode::Continuation, Some(assembly)) => {
                let limit = self.settings.max_fragments;
                if assembly.fragments >= limit {
                    return Err(WebSocketError::TooManyFragments { limit });
                }
                Ok(assembly.len())
            }
            // A control frame does not count towards the message around it.
            _ => Ok(0),
        }
    }

    /// Returns the limit for the payload of the current message as it is sent, at least
    /// `max_message`.
    #[cold]
    fn wire_limit(&self, kind: Kind) -> usize {
        let limit = self.settings.max_message;
        let compressed = self.assembly.as_ref().map_or(kind.compressed, |assembly| assembly.is_compressed());
        // Incompressible data becomes longer, by less than this with any compressor.
        if compressed { limit.saturating_add(limit / 8).saturating_add(256) } else { limit }
    }

    fn finish(&mut self) -> Result<Option<Message>, WebSocketError> {
        let limit = self.settings.max_message;
        self.assembly.take().map(|assembly| assembly.finish(&mut self.compression, limit)).transpose()
    }

    /// Decodes a control frame, whose header is at the front of `input`.
    fn control(
        &mut self,
        kind: Kind,
        header: Header,
        input: &mut Bytes,
    ) -> Result<Option<Message>, WebSocketError> {
        if ((input.len() - header.size) as u64) < header.len {
            return Ok(None);
        }
        let payload = take_payload(input, header);
        Ok(Some(match kind.opcode {
            Opcode::Ping => Message::Ping(payload),
            Opcode::Pong => Message::Pong(payload),
            _ => {
                let message = Message::Close(close_frame(payload)?);
                self.over = true;
                message
            }
        }))
    }
}

/// Takes a frame whose payload has arrived.
#[inline]
fn take_payload(input: &mut Bytes, header: Header) -> Bytes {
    input.advance(header.size);
    let len = header.len as usize;
    match header.key {
        Some(key) => {
            let payload = unmask(&input[..len], key);
            input.advance(len);
            payload
        }
        None => input.split_to(len),
    }
}

/// Appends a frame of a client.
fn put_masked_frame(output: &mut OutboundBuffer, opcode: Opcode, compressed: bool, payload: &[u8]) {
    let key = random_key();
    put_header(output, opcode, compressed, payload.len(), Some(key));
    put_masked(output, payload, key);
}

/// Decodes the payload of a Close frame.
fn close_frame(mut payload: Bytes) -> Result<Option<CloseFrame>, WebSocketError> {
    if payload.is_empty() {
        return Ok(None);
    }
    if payload.len() == 1 {
        return Err(WebSocketError::InvalidClosePayload);
    }
    let code = CloseCode::new(payload.get_u16());
    if !code.is_sendable() {
        return Err(WebSocketError::InvalidCloseCode(code));
    }
    let reason = Utf8Bytes::try_from(payload).map_err(|_| WebSocketError::InvalidUtf8)?;
    Ok(Some(CloseFrame { code, reason }))
}

/// Encodes the payload of a Close frame.
fn close_payload(frame: &CloseFrame) -> Result<Bytes> {
    if !frame.code.is_sendable() {
        let why = format!("close code {} must not be sent", frame.code);
        return Err(EncodeError::Unencodable(why.into()).into());
    }
    Ok([&frame.code.get().to_be_bytes()[..], frame.reason.as_bytes()].concat().into())
}

impl Codec for WebSocketCodec {
    type Read = Message;
    type Write = Message;

    #[inline]
    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Message>> {
        if self.over {
            input.clear();
            return Ok(None);
        }
        self.next(input).map_err(|error| {
            self.over = true;
            self.assembly = None;
            input.clear();
            error.by_peer(self.role)
        })
    }

    /// Appends one frame.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`] for a control frame with more than 125 bytes, and
    /// [`EncodeError::Unencodable`] for a close code that must not be sent.
    fn encode(&mut self, message: Message, output: &mut OutboundBuffer) -> Result {
        let (opcode, payload) = match message {
            Message::Text(text) => (Opcode::Text, text.into_bytes()),
            Message::Binary(bytes) => (Opcode::Binary, bytes),
            Message::Ping(bytes) => (Opcode::Ping, bytes),
            Message::Pong(bytes) => (Opcode::Pong, bytes),
            Message::Close(None) => (Opcode::Close, Bytes::new()),
            Message::Close(Some(frame)) => (Opcode::Close, close_payload(&frame)?),
        };
        if opcode.is_control() && payload.len() > MAX_CONTROL {
            let (length, limit) = (payload.len() as u64, MAX_CONTROL as u64);
            return Err(EncodeError::TooLong { what: "control frame", length, limit }.into());
        }
        let role = self.role;
        if !opcode.is_control()
            && self.compression.deflate(&payload, |compressed| match role {
                Role::Server => {
                    put_header(output, opcode, true, compressed.len(), None);
                    output.put_slice(compressed);
                }
                Role::Client => put_masked_frame(output, opcode, true, compressed),
            })
        {
            return Ok(());
        }
        match role {
            Role::Server => {
                put_header(output, opcode, false, payload.len(), None);
                output.put(payload);
            }
            Role::Client => put_masked_frame(output, opcode, false, &payload),
        }
        Ok(())
    }

    fn encoded_len_hint(message: &Message) -> Option<usize> {
        let payload = match message {
            Message::Text(text) => text.len(),
            Message::Binary(bytes) | Message::Ping(bytes) | Message::Pong(bytes) => bytes.len(),
            Message::Close(frame) => frame.as_ref().map_or(0, |frame| 2 + frame.reason.len()),
        };
        Some(payload + 14)
    }

    fn encoding_key(&self) -> Option<u64> {
        match self.role {
            Role::Server => self.compression.encoding_key(),
            // Each frame has another mask.
            Role::Client => None,
        }
    }

    fn forget_encoded(&mut self) {
        self.compression.forget_deflated();
    }
}
