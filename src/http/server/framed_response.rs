//! Encoding of responses whose framing is decided.

use super::date::date_line;
use crate::{
    buffer::OutboundBuffer,
    error::Result,
    http::{
        Headers, Response, StatusCode,
        encode::{put_chunk, put_last_chunk, put_length, put_number, unencodable},
    },
};
use bytes::Bytes;
use std::{mem, time::SystemTime};

/// A part of a response for the codec.
pub(super) enum FramedResponse {
    Head {
        response: Response,
        framing: ResponseFraming,
        connection: Connection,
        /// The time of the header `Date`, if it is added.
        date: Option<SystemTime>,
        /// Bytes of the body to send with the head.
        body: Bytes,
    },
    /// `100 Continue`, which the server sends by itself.
    Continue,
    /// Bytes of a body that is not chunked.
    Data(Bytes),
    Chunk(Bytes),
    LastChunk(Headers),
}

/// The header that announces the end of the body to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseFraming {
    Length(u64),
    Chunked,
    /// No header: no body, or one that lasts until the connection closes.
    None,
}

/// The `Connection` header to add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Connection {
    /// The default of the version.
    Default,
    Close,
    /// For HTTP/1.0.
    KeepAlive,
}

impl FramedResponse {
    pub(super) fn encode(mut self, output: &mut OutboundBuffer) -> Result {
        // Matched in place: a response is not moved again.
        match &mut self {
            FramedResponse::Head { response, framing, connection, date, body } => {
                if let Some(name) = response.headers().invalid() {
                    return Err(unencodable(format!("the header {name:?} is invalid")));
                }
                status_line(response.status(), output);
                output.put_slice(response.headers().lines());
                match *framing {
                    ResponseFraming::Length(length) => put_length(length, output),
                    ResponseFraming::Chunked => output.put_slice(b"Transfer-Encoding: chunked\r\n"),
                    ResponseFraming::None => {}
                }
                match *connection {
                    Connection::Default => {}
                    Connection::Close => output.put_slice(b"Connection: close\r\n"),
                    Connection::KeepAlive => output.put_slice(b"Connection: keep-alive\r\n"),
                }
                if let Some(date) = date {
                    output.put_slice(&date_line(*date));
                }
                output.put_slice(b"\r\n");
                if !body.is_empty() {
                    output.put(mem::take(body));
                }
            }
            FramedResponse::Continue => output.put_slice(b"HTTP/1.1 100 Continue\r\n\r\n"),
            FramedResponse::Data(bytes) => output.put(mem::take(bytes)),
            FramedResponse::Chunk(bytes) => put_chunk(mem::take(bytes), output),
            FramedResponse::LastChunk(trailers) => return put_last_chunk(trailers, output),
        }
        Ok(())
    }

    pub(super) fn len_hint(&self) -> Option<usize> {
        match self {
            FramedResponse::Head { response, body, .. } => {
                Some(response.headers().lines().len() + body.len() + 128)
            }
            FramedResponse::Data(bytes) | FramedResponse::Chunk(bytes) => Some(bytes.len() + 12),
            FramedResponse::Continue | FramedResponse::LastChunk(_) => Some(32),
        }
    }
}

fn status_line(status: StatusCode, output: &mut OutboundBuffer) {
    if status == StatusCode::OK {
        output.put_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    output.put_slice(b"HTTP/1.1 ");
    put_number(u64::from(status.as_u16()), output);
    output.put_slice(b" ");
    output.put_slice(status.reason().as_bytes());
    output.put_slice(b"\r\n");
}
