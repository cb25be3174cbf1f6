//! The body of a message: chunked, of a known length, or until the end of the stream.

mod chunks;
mod decoder;

pub(super) use decoder::{BodyDecoder, BodyPart};
