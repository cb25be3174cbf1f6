//! The compression of one connection.

pub(in crate::websocket) use super::Negotiated;
use super::engines;
use crate::{
    pipeline::combine,
    websocket::{error::WebSocketError, frame::short_or_own},
};
use bytes::Bytes;
use flate2::{Compress, Decompress};
use std::fmt;

/// The compression of one connection.
#[derive(Debug)]
pub(in crate::websocket) struct Compression {
    negotiated: Option<Negotiated>,
    /// Made when first needed. Most connections share those of their thread.
    contexts: Option<Box<Contexts>>,
}

/// The contexts of a connection whose messages refer to earlier ones.
#[derive(Default)]
struct Contexts {
    compressor: Option<Compress>,
    decompressor: Option<Decompress>,
    /// Whether the next message is compressed for itself.
    is_alone: bool,
}

impl fmt::Debug for Contexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contexts").finish_non_exhaustive()
    }
}

impl From<Option<Negotiated>> for Compression {
    fn from(negotiated: Option<Negotiated>) -> Self {
        Compression { negotiated, contexts: None }
    }
}

impl Compression {
    /// No compression.
    pub(in crate::websocket) const OFF: Compression = Compression { negotiated: None, contexts: None };

    #[cfg(test)]
    pub(in crate::websocket) fn has_contexts(&self) -> bool {
        self.contexts.is_some()
    }

    /// Returns whether the extension was negotiated.
    #[inline]
    pub(in crate::websocket) fn is_on(&self) -> bool {
        self.negotiated.is_some()
    }

    /// Returns the content of a compressed message, with at most `limit` bytes.
    pub(in crate::websocket) fn inflate(
        &mut self,
        data: &[u8],
        limit: usize,
    ) -> Result<Bytes, WebSocketError> {
        let Some(negotiated) = self.negotiated else { return Err(WebSocketError::ReservedBits) };
        let own = negotiated.receive_takeover.then(|| {
            let contexts = self.contexts.get_or_insert_default();
            contexts.decompressor.get_or_insert_with(engines::decompressor)
        });
        engines::decompress(own, data, limit, short_or_own)
    }

    /// Compresses a message and passes it to `then`. Returns `false` if it is not to be compressed.
    pub(in crate::websocket) fn deflate(&mut self, payload: &[u8], then: impl FnOnce(&[u8])) -> bool {
        let Some(negotiated) = self.negotiated else { return false };
        let Negotiated { window_bits, level, threshold, send_takeover, .. } = negotiated;
        if payload.len() < threshold as usize || window_bits < 9 {
            return false;
        }
        if send_takeover {
            let contexts = self.contexts.get_or_insert_default();
            if !std::mem::take(&mut contexts.is_alone) {
                let new = || engines::compressor(level, window_bits);
                let own = contexts.compressor.get_or_insert_with(new);
                // Sent in any case: later messages refer to it.
                engines::compress(Some(own), (level, window_bits), payload, then);
                return true;
            }
        }
        engines::compress(None, (level, window_bits), payload, |compressed| {
            let is_shorter = compressed.len() < payload.len();
            if is_shorter {
                then(compressed);
            }
            is_shorter
        })
    }

    /// Makes later messages independent of those compressed before, because the peer may miss one
    /// of them.
    pub(in crate::websocket) fn forget_deflated(&mut self) {
        if self.negotiated.is_some_and(|negotiated| negotiated.send_takeover) {
            let contexts = self.contexts.get_or_insert_default();
            (contexts.compressor, contexts.is_alone) = (None, true);
        }
    }

    /// Returns a key for the settings that a compressed message depends on, or `None` if it depends
    /// on earlier messages.
    pub(in crate::websocket) fn encoding_key(&self) -> Option<u64> {
        let Some(negotiated) = self.negotiated else { return Some(0) };
        let Negotiated { window_bits, level, threshold, send_takeover, .. } = negotiated;
        (!send_takeover)
            .then(|| combine(u64::from(threshold), u64::from(window_bits) << 8 | u64::from(level)))
    }
}
