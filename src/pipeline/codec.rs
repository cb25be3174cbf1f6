//! The codec trait: bytes on one side, messages on the other.

use crate::{Result, buffer::OutboundBuffer};
use bytes::Bytes;

/// Turns bytes into messages and messages into bytes; the first link of every [`Pipeline`](crate::Pipeline).
///
/// One instance serves one channel and runs on that channel's loop.
///
/// `decode` is called with all undecoded bytes until it returns `None`, has taken all of them, or
/// the channel stops reading. The bytes that it leaves in `input` are kept in front of the next
/// bytes, or go to the pipeline that [replaces](crate::Context::replace_pipeline) this one. It is never
/// called with an empty `input`; only [`decode_last`](Codec::decode_last) is.
///
/// To make several messages from the same bytes, return the first message from `decode` and the
/// others from [`decode_more`](Codec::decode_more).
///
/// ```
/// use bytes::{Buf, Bytes};
/// use netwheel::{Result, buffer::OutboundBuffer, pipeline::Codec};
///
/// /// Two bytes in, one message out.
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
    note = "implement `netwheel::pipeline::Codec` for it, or use a codec of `netwheel::codec`"
)]
pub trait Codec: 'static {
    /// What it decodes.
    type Read: 'static;
    /// What it encodes.
    type Write: 'static;

    /// Takes one message off the front of `input`; `None` if the bytes at hand do not make one.
    ///
    /// `input` is never empty. A message must take at least one byte.
    ///
    /// Bytes cut from `input` share its memory, up to 64 KiB: a handler that keeps a
    /// small frame for long does well to copy it ([`Bytes::copy_from_slice`]). A loop gives up to 64 of its buffers away
    /// like that, and copies small reads from then on.
    ///
    /// # Errors
    /// What the peer did wrong. The error goes to the handler's [`error`](crate::Handler::error); if that
    /// leaves the channel open, decoding goes on with what is left of `input`. An error that takes no byte and
    /// changes nothing would come again for ever, so the channel is closed on the second one.
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
    /// use netwheel::{Result, buffer::OutboundBuffer, pipeline::Codec};
    ///
    /// /// A count and a byte: the byte as often as the count says.
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
    /// Handled like an error from [`decode`](Codec::decode).
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
    /// As for [`decode`](Codec::decode). The default decodes once more and drops the rest.
    fn decode_last(&mut self, input: &mut Bytes) -> Result<Option<Self::Read>> {
        if input.is_empty() { Ok(None) } else { self.decode(input) }
    }

    /// Appends one message to `output`.
    ///
    /// # Errors
    /// Why the message cannot be encoded; it is returned to the writer, and whatever was appended is taken back.
    fn encode(&mut self, message: Self::Write, output: &mut OutboundBuffer) -> Result;

    /// Estimates how many bytes [`encode`](Codec::encode) will make of `message`, without encoding it.
    ///
    /// Called on the thread that writes through a [`Channel`](crate::Channel) handle, so that a message counts against the
    /// water marks while it waits in the loop's queue. A few bytes more or less do no harm; a message that turns out longer
    /// makes its channel hold more than its marks say, by the difference. `None`, the default: the size is not known, and
    /// the message counts as much as the channel's longest recent one.
    fn encoded_len_hint(message: &Self::Write) -> Option<usize>
    where
        Self: Sized,
    {
        let _ = message;
        None
    }

    /// Whether what `encode` makes of a message is the same on other channels, and on which.
    ///
    /// `None`, the default: it depends on the channel. `Some(key)`: any two codecs of this type whose keys are equal encode a
    /// message to the same bytes, whatever was encoded or decoded before. Then a [`ChannelGroup`](crate::ChannelGroup) has one
    /// of them encode a message for all, and the others never hear of it. The key stands for the settings that the
    /// encoding depends on; a codec without settings answers `Some(0)`.
    fn encoding_key(&self) -> Option<u64> {
        None
    }
}
