//! Ready-made codecs: bytes on one side, messages on the other.
//!
//! | codec | a message is | bytes on the wire |
//! |---|---|---|
//! | [`Delimiter`] | the bytes before a delimiter | the message, then its delimiter; one or several delimiters |
//! | [`FixedLength`] | a frame | a fixed number of bytes |
//! | [`LengthField`] | a frame | its length, then the frame; offset, width, adjustment, byte order to choose |
//! | [`Line`] | a line | the line, then LF or CRLF |
//! | [`RawBytes`] | the bytes of one read | the bytes |
//! | [`Resp`] | a [`RespValue`] | the protocol of Redis, RESP2 and RESP3, of a server or a client |
//! | [`Varint`] | a frame | its length as a protobuf varint, then the frame |
//!
//! Invariants, for any input: no codec here panics. The messages and errors of a framing codec
//! depend only on the bytes, not on how the network splits them. The exception is the length that a
//! fail-fast [`Line`] or [`Delimiter`] reports. A message that is too long is one error: its bytes
//! are dropped as they arrive, and the next message is decoded. The same limit applies to encoding.
//! A violation of RESP that hides where the next message begins is one error, and [`Resp`] drops
//! all further input.
//!
//! [`encode`](crate::pipeline::Codec::encode) takes messages of the form that
//! [`decode`](crate::pipeline::Codec::decode) returns, so a handler can send back a message that it
//! has read. [`LengthField`] lists the headers for which a message must contain more. The client
//! side of [`Resp`] writes only requests.
//!
//! A codec serves one channel and runs on that channel's loop. All codecs here are `Clone`: build
//! one, and clone it in the pipeline factory. The channel owns the bytes of incomplete messages and
//! the bytes that wait to be sent. Messages are cut from the read buffer without a copy and share
//! its memory. A handler that keeps small messages for a long time should copy them
//! ([`Bytes::copy_from_slice`](bytes::Bytes::copy_from_slice)).

mod delimiter;
mod delimiter_set;
mod fixed_length;
mod header_shape;
mod length_field;
mod line;
mod raw;
mod resp;
mod terminated;
mod varint;

pub use delimiter::Delimiter;
pub use fixed_length::FixedLength;
pub use length_field::{LengthField, LengthFieldBuilder};
pub use line::Line;
pub use raw::RawBytes;
pub use resp::{Resp, RespError, RespLimits, RespValue};
pub use varint::Varint;
