//! A message for many channels, and its encodings, which equivalent channels share.
//!
//! Invariant: channels share an encoding only if their links have the same types and allow it
//! ([`Codec::encoding_key`](crate::pipeline::Codec::encoding_key)). Used on the loops of
//! those channels.

use crate::error::Error;
use bytes::Bytes;
use std::any::{Any, TypeId};

/// Identifies equivalent links: their type, and a key for their settings.
pub(crate) type Encoder = (TypeId, u64);

/// A message for many channels that write the same type.
pub(crate) trait SharedMessage {
    /// Stores a clone in `place`, which is an `Option` of the message's type.
    fn clone_into(&self, place: &mut dyn Any);

    /// Returns the encoding of the message by `encoder`. Calls `encode` for the first request.
    fn encoded(&self, encoder: Encoder, encode: &mut dyn FnMut() -> Encoding) -> Encoding;
}

/// The encoding of a message by equivalent links.
#[derive(Debug, Clone)]
pub(crate) enum Encoding {
    Shared(Bytes),
    /// Like `Shared`, and replaces a waiting message with this key.
    Latest(u64, Bytes),
    /// A stage has to see the message for each channel.
    Alone,
    Failed(Error),
}

/// The encoding that the previous channel has used. The next one usually needs the same.
#[derive(Default)]
pub(crate) struct EncodingMemo {
    pub(crate) last: Option<(Encoder, Encoding)>,
    /// The number of encodings.
    pub(crate) encodings: u64,
    /// The key with which the message replaces one that waits.
    pub(crate) latest: Option<u64>,
}
