//! The codec trait: bytes on one side, messages on the other.

use crate::{Result, buffer::Outbound};
use bytes::Bytes;

/// Turns bytes into messages and messages into bytes; the first link of every [`Pipeline`](crate::Pipeline).
///
/// One instance serves one channel and runs on that channel's loop.
///
/// `decode` is called again and again with all bytes that are not yet decoded, until it answers `None` or the
/// channel stops reading; what it leaves in `input` is kept and comes back in front of the next bytes, or goes to the
/// pipeline that [replaces](crate::Scope::replace_pipeline) this one.
///
/// ```
/// use bytes::{Buf, Bytes};
/// use netwheel::{Result, buffer::Outbound, pipeline::Codec};
///
/// /// Two bytes in, one message out.
/// struct Pairs;
///
/// impl Codec for Pairs {
///     type In = Bytes;
///     type Out = [u8; 2];
///
///     fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
///         Ok((input.len() >= 2).then(|| input.split_to(2)))
///     }
///
///     fn encode(&mut self, message: [u8; 2], output: &mut Outbound) -> Result {
///         output.put_slice(&message);
///         Ok(())
///     }
/// }
/// ```
pub trait Codec: 'static {
    /// What it decodes.
    type In: 'static;
    /// What it encodes.
    type Out: 'static;

    /// Takes one message off the front of `input`; `None` if the bytes at hand do not make one.
    ///
    /// A message must take at least one byte. Bytes cut from `input` share its memory, up to 64 KiB: a handler that keeps a
    /// small frame for long does well to copy it ([`Bytes::copy_from_slice`]). A loop gives up to 64 of its buffers away
    /// like that, and copies small reads from then on.
    ///
    /// # Errors
    /// What the peer did wrong. The error goes to the handler's [`error`](crate::Handler::error); if that
    /// leaves the channel open, decoding goes on with what is left of `input`. An error that takes no byte and
    /// changes nothing would come again for ever, so the channel is closed on the second one.
    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Self::In>>;

    /// Takes what is left when the peer has ended its stream; called until it answers `None`.
    ///
    /// # Errors
    /// As for [`decode`](Codec::decode). The default decodes once more and drops the rest.
    fn decode_last(&mut self, input: &mut Bytes) -> Result<Option<Self::In>> {
        if input.is_empty() { Ok(None) } else { self.decode(input) }
    }

    /// Appends one message to `output`.
    ///
    /// # Errors
    /// Why the message cannot be encoded; it is returned to the writer, and whatever was appended is taken back.
    fn encode(&mut self, message: Self::Out, output: &mut Outbound) -> Result;

    /// Estimates how many bytes [`encode`](Codec::encode) will make of `message`, without encoding it.
    ///
    /// Called on the thread that writes through a [`Channel`](crate::Channel) handle, so that a message counts against the
    /// water marks while it waits in the loop's queue. A few bytes more or less do no harm; a message that turns out longer
    /// makes its channel hold more than its marks say, by the difference. `None`, the default: the size is not known, and
    /// the message counts as much as the channel's longest recent one.
    fn encoded_len_hint(message: &Self::Out) -> Option<usize>
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
    fn shared_encoding(&self) -> Option<u64> {
        None
    }
}
