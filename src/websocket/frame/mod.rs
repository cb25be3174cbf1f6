//! Frames: their headers, masks and payloads, and the codec.

mod assembly;
mod codec;
mod header;
mod mask;
mod utf8_validator;

pub use codec::WebSocketCodec;
pub(super) use mask::random;
#[cfg(feature = "deflate")]
pub(super) use mask::short_or_own;
