//! Messages, their texts and close codes.

mod close_code;
#[expect(clippy::module_inception, reason = "each file is named after its main type")]
mod message;
mod utf8_bytes;

pub use close_code::CloseCode;
pub use message::{CloseFrame, Message};
pub use utf8_bytes::Utf8Bytes;
