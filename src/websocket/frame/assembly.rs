//! A message that arrives in several fragments or reads.
//!
//! Invariants: the memory is at most twice the bytes that have arrived, whatever length the peer
//! announces. Each byte is copied a bounded number of times. Text is checked as it arrives, unless
//! it is compressed.

use super::{
    header::{Header, Kind, Opcode},
    mask::{MaskKey, rotate, unmask_into},
    utf8_validator::Utf8Validator,
};
use crate::websocket::{
    compression::Compression,
    error::WebSocketError,
    message::{Message, Utf8Bytes},
};
use bytes::{Buf, Bytes};

/// A message of which a part has arrived.
#[derive(Debug)]
pub(super) struct Assembly {
    data: Vec<u8>,
    text: bool,
    compressed: bool,
    utf8: Utf8Validator,
    /// The number of fragments that have begun.
    pub(super) fragments: u32,
    /// The number of bytes of the current fragment that have not arrived.
    left: u64,
    /// The key for the next byte of the current fragment.
    key: Option<MaskKey>,
    /// Whether the current fragment is the last one.
    fin: bool,
}

impl Assembly {
    /// Creates a message without fragments.
    pub(super) fn new(kind: Kind) -> Self {
        Assembly {
            data: Vec::new(),
            text: kind.opcode == Opcode::Text,
            compressed: kind.compressed,
            utf8: Utf8Validator::default(),
            fragments: 0,
            left: 0,
            key: None,
            fin: false,
        }
    }

    /// Returns whether the message is compressed.
    pub(super) fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// Returns the number of bytes that have arrived.
    pub(super) fn len(&self) -> usize {
        self.data.len()
    }

    #[cfg(test)]
    pub(in crate::websocket) fn capacity(&self) -> usize {
        self.data.capacity()
    }

    /// Begins the next fragment.
    pub(super) fn begin(&mut self, kind: Kind, header: Header) {
        self.fragments += 1;
        self.left = header.len;
        self.key = header.key;
        self.fin = kind.fin;
    }

    /// Returns whether bytes of the current fragment are missing.
    pub(super) fn is_within_frame(&self) -> bool {
        self.left > 0
    }

    /// Returns whether all bytes of the message have arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.left == 0 && self.fin
    }

    /// Takes the bytes of the current fragment from `input`.
    pub(super) fn take(&mut self, input: &mut Bytes) -> Result<(), WebSocketError> {
        let part = usize::try_from(self.left).unwrap_or(usize::MAX).min(input.len());
        let at = self.data.len();
        self.make_room(part);
        match self.key {
            Some(key) => {
                unmask_into(&mut self.data, &input[..part], key);
                self.key = Some(rotate(key, part));
            }
            None => self.data.extend_from_slice(&input[..part]),
        }
        input.advance(part);
        self.left -= part as u64;
        if self.text && !self.compressed {
            self.utf8.push(&self.data[at..])?;
        }
        Ok(())
    }

    /// Makes room for `part` bytes, and for as many of the current fragment as have arrived.
    fn make_room(&mut self, part: usize) {
        let len = self.data.len();
        if self.data.capacity() - len >= part {
            return;
        }
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let more = left.min(len + part);
        if self.fin || more >= len {
            self.data.reserve_exact(more);
        } else {
            // Grows geometrically, because the next fragment needs room as well.
            self.data.reserve(more);
        }
    }

    /// Returns the message, with at most `limit` bytes.
    pub(super) fn finish(
        self,
        compression: &mut Compression,
        limit: usize,
    ) -> Result<Message, WebSocketError> {
        if self.compressed {
            return into_message(compression.inflate(&self.data, limit)?, self.text);
        }
        if self.text {
            self.utf8.finish()?;
        }
        into_message(self.data.into(), self.text)
    }
}

/// Returns a message with this payload.
#[inline]
pub(super) fn into_message(payload: Bytes, text: bool) -> Result<Message, WebSocketError> {
    if !text {
        return Ok(Message::Binary(payload));
    }
    match Utf8Bytes::try_from(payload) {
        Ok(text) => Ok(Message::Text(text)),
        Err(_) => Err(WebSocketError::InvalidUtf8),
    }
}
