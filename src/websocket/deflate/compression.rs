//! The compression of one connection.

use super::{Negotiated, engines};
use crate::{
    pipeline::combine,
    websocket::{WebSocketError, frame::short_or_own},
};
use bytes::Bytes;
use flate2::{Compress, Decompress};
use std::fmt;

/// The compression of one connection.
#[derive(Debug)]
pub(in crate::websocket) struct Compression(Option<Box<On>>);

#[derive(Debug)]
struct On {
    negotiated: Negotiated,
    contexts: Contexts,
}

/// The contexts of a connection whose messages refer to earlier ones.
#[derive(Default)]
struct Contexts {
    compressor: Option<Compress>,
    decompressor: Option<Decompress>,
}

impl fmt::Debug for Contexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contexts").finish_non_exhaustive()
    }
}

impl Compression {
    /// No compression.
    pub(in crate::websocket) const OFF: Compression = Compression(None);

    pub(in crate::websocket) fn new(negotiated: Negotiated) -> Self {
        Compression(Some(Box::new(On { negotiated, contexts: Contexts::default() })))
    }

    /// Returns whether the extension was negotiated.
    #[inline]
    pub(in crate::websocket) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    #[cfg(test)]
    pub(in crate::websocket) fn has_contexts(&self) -> bool {
        let contexts = self.0.as_ref().map(|on| &on.contexts);
        contexts.is_some_and(|own| own.compressor.is_some() || own.decompressor.is_some())
    }

    /// Returns the content of a compressed message, with at most `limit` bytes.
    pub(in crate::websocket) fn inflate(
        &mut self,
        data: &[u8],
        limit: usize,
    ) -> Result<Bytes, WebSocketError> {
        let Some(on) = &mut self.0 else { return Err(WebSocketError::ReservedBits) };
        let own = on
            .negotiated
            .receive_takeover
            .then(|| on.contexts.decompressor.get_or_insert_with(engines::decompressor));
        engines::decompress(own, data, limit, short_or_own)
    }

    /// Compresses a message and passes it to `then`. Returns `false` if it is not to be compressed.
    pub(in crate::websocket) fn deflate(&mut self, payload: &[u8], then: impl FnOnce(&[u8])) -> bool {
        let Some(on) = &mut self.0 else { return false };
        let Negotiated { window_bits, level, threshold, send_takeover, .. } = on.negotiated;
        if payload.len() < threshold || window_bits < 9 {
            return false;
        }
        if send_takeover {
            let new = || engines::compressor(level, window_bits);
            let own = on.contexts.compressor.get_or_insert_with(new);
            // Sent in any case: later messages refer to it.
            engines::compress(Some(own), (level, window_bits), payload, then);
            return true;
        }
        engines::compress(None, (level, window_bits), payload, |compressed| {
            let is_shorter = compressed.len() < payload.len();
            if is_shorter {
                then(compressed);
            }
            is_shorter
        })
    }

    /// Returns a key for the settings that a compressed message depends on, or `None` if it depends
    /// on earlier messages.
    pub(in crate::websocket) fn encoding_key(&self) -> Option<u64> {
        let Some(on) = &self.0 else { return Some(0) };
        let Negotiated { window_bits, level, threshold, send_takeover, .. } = on.negotiated;
        (!send_takeover).then(|| combine(threshold as u64, u64::from(window_bits) << 8 | u64::from(level)))
    }
}
