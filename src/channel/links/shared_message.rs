//! A message that many channels are to send, and its encodings that many channels can use.
//!
//! Always holds: an encoding is used for channels only whose links are of the same types and say so
//! ([`Codec::shared_encoding`](crate::pipeline::Codec::shared_encoding)). Used on the loops of those channels.

use crate::Result;
use bytes::Bytes;
use std::any::{Any, TypeId};

/// Which links an encoding is good for: their types, and what stands for their settings.
pub(crate) type Encoder = (TypeId, u64);

/// A message for many channels, of the type that they all write.
pub(crate) trait SharedMessage {
    /// Puts a clone into `place`, which is an `Option` of the message's type.
    fn clone_into(&self, place: &mut dyn Any);

    /// What such an encoder makes of the message: `encode` is called unless that is known.
    ///
    /// # Errors
    /// What `encode` has failed with, now or the first time.
    fn encoded(&self, encoder: Encoder, encode: &mut dyn FnMut() -> Result<Bytes>) -> Result<Bytes>;
}

/// What the channel before the present one has used; the next one usually needs the same.
#[derive(Default)]
pub(crate) struct EncodingMemo {
    pub(crate) last: Option<(Encoder, Result<Bytes>)>,
    /// How often links were called to encode.
    pub(crate) encodings: u64,
}

/// A result once more, for the next one who asks.
pub(crate) fn again(result: &Result<Bytes>) -> Result<Bytes> {
    match result {
        Ok(bytes) => Ok(bytes.clone()),
        Err(error) => Err(error.again()),
    }
}
