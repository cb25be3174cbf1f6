//! The codec trait: bytes on one side, messages on the other.

use crate::{buffer::OutboundBuffer, error::Result};
use bytes::Bytes;

/// Turns bytes into messages and messages into bytes; the first link of every
/// [`Pipeline`](crate::Pipeline).
///
/// One instance serves one channel and runs on that channel's loop.
///
/// `decode` is called with all undecoded bytes until it returns `None`, has taken all of them, or
/// the channel stops reading. The bytes that it leaves in `input` are kept in front of the next
/// bytes, or go to the pipeline that [replaces](crate::Context::replace_pipeline) this one. It is
/// never called with an empty `input`; only [`decode_last`](Codec::decode_last) is.
///
/// A codec has no access to its channel. A protocol that must stop decoding for a while adds a
/// stage that calls [`pause_reading`](super::StageContext::pause_reading): for example an HTTP/1.1
/// stage that passes one request on, and resumes when its response has been written. While reading
/// is paused, `decode` is not called, and undecoded bytes stay in the channel.
///
/// To make several messages from the same bytes, return the first message from `decode` and the
/// others from [`decode_more`](Codec::decode_more).
///
/// ```
/// use bytes::{Buf, Bytes};
/// use netwheel::{Result, Codec, buffer::OutboundBuffer};
///
/// /// Messages of two bytes.
/// struct Pairs;
///
/// impl Codec for Pairs {
///     type Read = Bytes;
///     type Write = [u8; 2];
///
///     fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
///         Ok((input.len() >= 2).then(|| input.split_to(2)))
///     }
///
///     fn encode(&mut self, message: [u8; 2], output: &mut OutboundBuffer) -> Result {
///         output.put_slice(&message);
///         Ok(())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a codec",
    label = "not a codec",
    note = "implement `netwheel::Codec` for it, or use a codec of `netwheel::codec`"
)]
#[doc(alias = "ByteToMessageDecoder")]
#[doc(alias = "ByteToMessageCodec")]
#[doc(alias = "Decoder")]
#[doc(alias = "Encoder")]
#[doc(alias = "Framed")]
pub trait Codec: 'static {
    /// The messages that the codec decodes.
    type Read: 'static;
    /// The messages that the codec encodes.
    type Write: 'static;

    /// Decodes one message from the front of `input`, and removes its bytes. Returns `None` if
    /// `input` contains no whole message.
    ///
    /// `input` is never empty. A message must consume at least one byte.
    ///
    /// Bytes cut from `input` share its memory, up to 64 KiB. A handler that keeps small frames for
    /// a long time should copy them ([`Bytes::copy_from_slice`]). A loop lends up to 64 of its
    /// buffers to such frames, and copies small reads from then on.
    ///
    /// # Errors
    /// [`PeerError`](crate::error::PeerError), for example, if the input is invalid. It goes to the
    /// handler's [`error`](crate::Handler::error). If the channel stays open, decoding continues
    /// with the remaining `input`. If decoding fails twice in a row without consuming a byte, the
    /// channel is closed.
    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Self::Read>>;

    /// Returns whether [`decode_more`](Codec::decode_more) has a message to return. The default is
    /// `false`.
    ///
    /// Called before each message, so it should only look at a field. With the default
    /// implementation the compiler removes the call.
    fn has_more(&self) -> bool {
        false
    }

    /// Returns the next message that was made from bytes already taken. Called while
    /// [`has_more`](Codec::has_more) returns `true`, before any further input is decoded.
    ///
    /// Delivery can stop between any two messages, for example because the handler turns auto-read
    /// off. Delivery resumes here when the channel reads again, even if no undecoded byte is left.
    /// Each read delivers at most 1024 of these messages; the rest are delivered in the next turn.
    /// Undelivered messages are dropped with the codec when the channel closes or another pipeline
    /// [takes over](crate::Context::replace_pipeline).
    ///
    /// The codec must bound the memory of its queue, because the peer chooses the input. Make each
    /// message on demand, or limit the number of messages per input.
    ///
    /// ```
    /// use bytes::{Buf, Bytes};
    /// use netwheel::{Result, Codec, buffer::OutboundBuffer};
    ///
    /// /// Decodes a count and a byte into that number of bytes.
    /// #[derive(Default)]
    /// struct Runs {
    ///     left: u8,
    ///     byte: u8,
    /// }
    ///
    /// impl Codec for Runs {
    ///     type Read = u8;
    ///     type Write = u8;
    ///
    ///     fn decode(&mut self, input: &mut Bytes) -> Result<Option<u8>> {
    ///         if input.len() < 2 {
    ///             return Ok(None);
    ///         }
    ///         (self.left, self.byte) = (input.get_u8(), input.get_u8());
    ///         self.decode_more()
    ///     }
    ///
    ///     fn has_more(&self) -> bool {
    ///         self.left > 0
    ///     }
    ///
    ///     fn decode_more(&mut self) -> Result<Option<u8>> {
    ///         let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
    ///         self.left = left;
    ///         Ok(Some(self.byte))
    ///     }
    ///
    ///     fn encode(&mut self, byte: u8, output: &mut OutboundBuffer) -> Result {
    ///         output.put_slice(&[1, byte]);
    ///         Ok(())
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// An error is handled like an error from [`decode`](Codec::decode).
    fn decode_more(&mut self) -> Result<Option<Self::Read>> {
        Ok(None)
    }

    /// Decodes the remaining bytes when the peer has ended its stream. Called until it returns
    /// `None`, with an empty `input` as well.
    ///
    /// Messages from this method may take no byte, so that a codec can flush its internal state.
    /// More than 1024 such messages are an error, and the channel closes.
    ///
    /// # Errors
    /// The errors of [`decode`](Codec::decode). The default decodes once more and drops the rest.
    fn decode_last(&mut self, input: &mut Bytes) -> Result<Option<Self::Read>> {
        if input.is_empty() { Ok(None) } else { self.decode(input) }
    }

    /// Appends one message to `output`.
    ///
    /// # Errors
    /// An error is returned to the writer of the message. Bytes that were appended for it are
    /// removed.
    fn encode(&mut self, message: Self::Write, output: &mut OutboundBuffer) -> Result;

    /// Estimates the encoded size of `message` in bytes, without encoding it.
    ///
    /// Called on the thread that writes through a [`Channel`](crate::Channel) handle, so that a
    /// message counts towards the water marks while it waits in the loop's queue. Small errors are
    /// harmless. If a message is longer than its estimate, the channel may exceed its high water
    /// mark by the difference. The default is `None`: the size is unknown, and the message counts
    /// as much as the channel's longest recent message.
    fn encoded_len_hint(message: &Self::Write) -> Option<usize>
    where
        Self: Sized,
    {
        let _ = message;
        None
    }

    /// Returns a key for the settings that the encoding depends on, or `None` if it depends on the
    /// channel.
    ///
    /// Codecs of one type with equal keys must encode a message to the same bytes, regardless of
    /// the messages encoded or decoded before. A [`ChannelGroup`](crate::ChannelGroup) then encodes
    /// each broadcast once for all of these channels; the other codecs are not called. A codec
    /// without settings returns `Some(0)`. The default is `None`.
    fn encoding_key(&self) -> Option<u64> {
        None
    }

    /// Makes later messages independent of those encoded before. The default does nothing.
    ///
    /// A codec whose messages refer to earlier ones, for example by compression, implements this:
    /// the next message begins a new context. Called when encoded bytes are not sent, because the
    /// channel's buffer is full or because a stage fails. Also called before each message of a
    /// channel with [`Overflow::DropOldest`](crate::channel::Overflow::DropOldest), because the
    /// channel may drop any waiting message later.
    fn forget_encoded(&mut self) {}
}
