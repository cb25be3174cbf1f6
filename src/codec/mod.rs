//! Ready-made codecs: bytes on one side, messages on the other.
//!
//! | codec | a message is | bytes on the wire |
//! |---|---|---|
//! | [`Delimiter`] | the bytes before a delimiter | the message, then its delimiter; one or several delimiters |
//! | [`FixedLength`] | a frame | a fixed number of bytes |
//! | [`LengthField`] | a frame | its length, then the frame; offset, width, adjustment, byte order to choose |
//! | [`Line`] | a line | the line, then LF or CRLF |
//! | [`RawBytes`] | whatever a read brought | the same |
//!
//! Always holds, whatever the peer sends and however the network cuts it: no codec here panics; the messages
//! and errors of a framing codec depend on the bytes alone, not on how they were split (but for the length that
//! a fail-fast [`Line`] or [`Delimiter`] reports); a message that is too long is one error, its bytes are
//! dropped as they come instead of being collected, and the message after it decodes. The same limit
//! holds for what is encoded.
//!
//! What [`encode`](crate::pipeline::Codec::encode) takes looks like what
//! [`decode`](crate::pipeline::Codec::decode) gives, so a handler may send what it has read; [`LengthField`]
//! says for which headers it has to add to it.
//!
//! A codec serves one channel and runs on that channel's loop. All here are `Clone`: build one, and let the
//! pipeline factory clone it for every channel. They own neither the bytes that wait for the rest of a
//! message nor the bytes that wait to be sent: the channel does. Messages are cut from the read buffer
//! without a copy and share its memory; a handler that keeps a small one for long does well to copy it
//! ([`Bytes::copy_from_slice`](bytes::Bytes::copy_from_slice)).

mod delimiter;
mod delimiter_set;
mod fixed_length;
mod header_shape;
mod length_field;
mod line;
mod raw;

pub use delimiter::Delimiter;
pub use fixed_length::FixedLength;
pub use length_field::{LengthField, LengthFieldBuilder};
pub use line::Line;
pub use raw::RawBytes;
