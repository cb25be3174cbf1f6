//! Cuts the body of a message from the input.

use super::chunks::chunk_line;
use crate::http::{
    Headers,
    error::HttpError,
    head::{Framing, HeadLimits, HeadScanner, Scan, parse_trailers},
    settings::HttpSettings,
};
use bytes::{Buf, Bytes};

/// Decodes the body of one message.
///
/// Invariants: the bytes, the trailers and the first error depend only on the input, not on how it
/// is split; only the cuts between parts do. A part has at least one byte. Memory does not grow,
/// because parts share the read buffer's.
#[derive(Debug)]
pub(in crate::http) struct BodyDecoder {
    state: State,
    /// Bytes of the body that may still come.
    budget: u64,
    /// Bytes of chunk extensions so far.
    extensions: usize,
}

#[derive(Debug)]
enum State {
    /// This many bytes are left.
    Length(u64),
    ChunkLine {
        scanned: usize,
    },
    /// This many bytes of the chunk are left.
    Chunk(u64),
    /// CRLF follows the chunk.
    ChunkEnd,
    Trailers(HeadScanner),
    UntilClose,
}

/// A part of a body.
#[derive(Debug)]
pub(in crate::http) enum BodyPart {
    Data(Bytes),
    End(Headers),
}

impl BodyDecoder {
    /// Returns a decoder, or `None` if there is no body.
    ///
    /// # Errors
    /// [`HttpError::BodyTooLong`] if the declared length is beyond the limit.
    pub(in crate::http) fn new(framing: Framing, settings: &HttpSettings) -> Result<Option<Self>, HttpError> {
        let state = match framing {
            Framing::None => return Ok(None),
            Framing::Length(length) if length > settings.max_body => return Err(HttpError::BodyTooLong),
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::ChunkLine { scanned: 0 },
            Framing::UntilClose => State::UntilClose,
        };
        Ok(Some(BodyDecoder { state, budget: settings.max_body, extensions: 0 }))
    }

    /// Returns whether the end is known without further input.
    pub(in crate::http) fn is_at_end(&self) -> bool {
        matches!(self.state, State::Length(0))
    }

    /// Returns whether the body lasts until the peer ends its stream.
    pub(in crate::http) fn ends_with_stream(&self) -> bool {
        matches!(self.state, State::UntilClose)
    }

    /// Takes the next part from `input`, or returns `None` if more input is needed.
    pub(in crate::http) fn decode(
        &mut self,
        input: &mut Bytes,
        settings: &HttpSettings,
    ) -> Result<Option<BodyPart>, HttpError> {
        loop {
            match &mut self.state {
                State::Length(0) => return Ok(Some(BodyPart::End(Headers::new()))),
                State::Length(left) => return Ok(take(input, left).map(BodyPart::Data)),
                State::UntilClose => {
                    if input.is_empty() {
                        return Ok(None);
                    }
                    self.budget =
                        self.budget.checked_sub(input.len() as u64).ok_or(HttpError::BodyTooLong)?;
                    return Ok(Some(BodyPart::Data(input.split_to(input.len()))));
                }
                State::ChunkLine { scanned } => {
                    let Some(line) = chunk_line(input, scanned, settings.max_chunk_line)? else {
                        return Ok(None);
                    };
                    input.advance(line.len);
                    self.extensions += line.extensions;
                    if self.extensions > settings.max_chunk_extensions {
                        return Err(HttpError::Chunk("too many extensions"));
                    }
                    self.budget = self.budget.checked_sub(line.size).ok_or(HttpError::BodyTooLong)?;
                    self.state = match line.size {
                        0 => State::Trailers(HeadScanner::default()),
                        size => State::Chunk(size),
                    };
                }
                State::Chunk(0) => self.state = State::ChunkEnd,
                State::Chunk(left) => return Ok(take(input, left).map(BodyPart::Data)),
                State::ChunkEnd => {
                    if !b"\r\n".starts_with(&input[..input.len().min(2)]) {
                        return Err(HttpError::Chunk("no CRLF behind the data"));
                    }
                    if input.len() < 2 {
                        return Ok(None);
                    }
                    input.advance(2);
                    self.state = State::ChunkLine { scanned: 0 };
                }
                State::Trailers(scanner) => {
                    let limits = HeadLimits {
                        first_line: usize::MAX,
                        length: settings.max_trailers,
                        lines: settings.max_headers,
                    };
                    return match scanner.scan(input, &limits)? {
                        Scan::Incomplete => Ok(None),
                        Scan::Complete(2) => {
                            input.advance(2);
                            Ok(Some(BodyPart::End(Headers::new())))
                        }
                        Scan::Complete(len) => Ok(Some(BodyPart::End(parse_trailers(&input.split_to(len))?))),
                    };
                }
            }
        }
    }
}

/// Takes up to `left` bytes, and subtracts them. Returns `None` if `input` is empty.
fn take(input: &mut Bytes, left: &mut u64) -> Option<Bytes> {
    let len = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
    *left -= len as u64;
    (len > 0).then(|| input.split_to(len))
}
