//! The stage trait: messages on both sides.

use crate::{
    Attributes, Result,
    channel::{ChannelState, Push},
    clock::nanos,
    sync::Random,
};
use std::time::Duration;

/// Turns messages into other messages on their way in and out, and may answer by itself.
///
/// It stands between the codec (or another stage) and the handler. Inbound it gets `In` and hands on `Out`;
/// outbound it gets `WriteIn` and writes `WriteOut` towards the socket:
///
/// ```text
///   socket ─► codec ── In ─►  stage ── Out ─────► handler
///   socket ◄─ codec ◄ WriteOut stage ◄─ WriteIn ── handler
/// ```
///
/// One instance serves one channel and runs on that channel's loop.
pub trait Stage: 'static {
    /// What it reads.
    type ReadIn: 'static;
    /// What it hands on towards the handler.
    type ReadOut: 'static;
    /// What the side of the handler writes.
    type WriteIn: 'static;
    /// What it writes towards the socket.
    type WriteOut: 'static;

    /// One message on its way in; `None` if it is swallowed, or answered through `ctx`.
    ///
    /// To make several messages from one, return the first message here and the others from
    /// [`read_more`](Stage::read_more).
    ///
    /// # Errors
    /// Goes to the handler's [`error`](crate::Handler::error); the messages behind it are still read unless
    /// that closes the channel.
    fn read(
        &mut self,
        ctx: &mut StageContext<'_, Self::WriteOut>,
        message: Self::ReadIn,
    ) -> Result<Option<Self::ReadOut>>;

    /// Returns whether [`read_more`](Stage::read_more) has a message to return. The default is
    /// `false`.
    ///
    /// Called before each message, so it should only look at a field. With the default
    /// implementation the compiler removes the call.
    fn has_more(&self) -> bool {
        false
    }

    /// Returns the next message that this stage has queued: another part of a message that
    /// [`read`](Stage::read) has split, or a collected message. Called while
    /// [`has_more`](Stage::has_more) returns `true`, before `read` gets the next message.
    ///
    /// Messages queued in `read`, [`active`](Stage::active) or [`timer`](Stage::timer) are delivered
    /// as soon as the channel may read. Messages queued in [`write`](Stage::write) are delivered
    /// with the next input. Messages queued after the end of the peer's stream are not delivered.
    /// Interruptions, limits and another pipeline work as for
    /// [`Codec::decode_more`](super::Codec::decode_more).
    ///
    /// ```
    /// use bytes::Bytes;
    /// use netwheel::{
    ///     codec::LengthField,
    ///     pipeline::{Stage, StageContext},
    ///     prelude::*,
    ///     testing::EmbeddedChannel,
    /// };
    ///
    /// /// Splits frames into words.
    /// #[derive(Default)]
    /// struct Words(Bytes);
    ///
    /// impl Stage for Words {
    ///     type ReadIn = Bytes;
    ///     type ReadOut = Bytes;
    ///     type WriteIn = Bytes;
    ///     type WriteOut = Bytes;
    ///
    ///     fn read(&mut self, ctx: &mut StageContext<'_, Bytes>, frame: Bytes) -> Result<Option<Bytes>> {
    ///         self.0 = frame;
    ///         self.read_more(ctx)
    ///     }
    ///
    ///     fn has_more(&self) -> bool {
    ///         !self.0.is_empty()
    ///     }
    ///
    ///     fn read_more(&mut self, _: &mut StageContext<'_, Bytes>) -> Result<Option<Bytes>> {
    ///         let end = self.0.iter().position(|byte| *byte == b' ').unwrap_or(self.0.len());
    ///         let word = self.0.split_to(end);
    ///         self.0 = self.0.slice(self.0.len().min(1)..);
    ///         Ok(Some(word))
    ///     }
    ///
    ///     fn write(&mut self, ctx: &mut StageContext<'_, Bytes>, word: Bytes) -> Result {
    ///         ctx.write(word)
    ///     }
    /// }
    ///
    /// # struct Echo;
    /// # impl Handler for Echo {
    /// #     type Read = Bytes;
    /// #     type Write = Bytes;
    /// #     fn read(&mut self, ctx: &mut Context<'_, Self>, word: Bytes) -> Result { ctx.write(word) }
    /// # }
    /// let pipeline = Pipeline::codec(LengthField::u8()).stage(Words::default()).handler(Echo);
    /// let mut channel = EmbeddedChannel::new(pipeline);
    /// channel.write_inbound(b"\x07to be 1")?;
    /// assert_eq!(channel.read_outbound(), &b"\x02to\x02be\x011"[..]);
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    ///
    /// # Errors
    /// Handled like an error from [`read`](Stage::read).
    fn read_more(&mut self, ctx: &mut StageContext<'_, Self::WriteOut>) -> Result<Option<Self::ReadOut>> {
        let _ = ctx;
        Ok(None)
    }

    /// One message on its way out; write what becomes of it to `ctx`.
    ///
    /// # Errors
    /// Returned to whoever wrote the message.
    fn write(&mut self, ctx: &mut StageContext<'_, Self::WriteOut>, message: Self::WriteIn) -> Result;

    /// Estimates how many bytes will be sent for `message`, as
    /// [`Codec::encoded_len_hint`](super::Codec::encoded_len_hint) does; `next` estimates a message that this stage writes.
    /// A stage that hands messages on unchanged answers `next(message)`. `None` by default: not known.
    fn encoded_len_hint(
        message: &Self::WriteIn,
        next: impl Fn(&Self::WriteOut) -> Option<usize>,
    ) -> Option<usize>
    where
        Self: Sized,
    {
        let _ = (message, next);
        None
    }

    /// Whether what `write` makes of a message is the same on other channels, and on which: as
    /// [`Codec::encoding_key`](super::Codec::encoding_key). Not if it closes the channel, asks for a timer, or keeps
    /// anything of the message, since it is called for one of many channels only. `None` by default.
    fn encoding_key(&self) -> Option<u64> {
        None
    }

    /// The channel is connected; called before the handler's [`active`](crate::Handler::active). Does nothing by default.
    ///
    /// # Errors
    /// Goes to the handler's `error`.
    fn active(&mut self, ctx: &mut StageContext<'_, Self::WriteOut>) -> Result {
        let _ = ctx;
        Ok(())
    }

    /// The time has come for which this stage asked ([`wake_after`](StageContext::wake_after)), or another stage of the
    /// channel: so look at the time, and ask again. Does nothing by default.
    ///
    /// # Errors
    /// Goes to the handler's `error`.
    fn timer(&mut self, ctx: &mut StageContext<'_, Self::WriteOut>) -> Result {
        let _ = ctx;
        Ok(())
    }
}

/// What a [`Stage`] may do: write towards the socket.
pub struct StageContext<'a, M> {
    pub(in crate::pipeline) before: &'a mut dyn Push<M>,
    pub(in crate::pipeline) state: &'a mut ChannelState,
    /// The random numbers of the loop, in [`Stage::active`] and [`Stage::timer`].
    pub(in crate::pipeline) random: Option<&'a Random>,
}

impl<M> StageContext<'_, M> {
    /// Writes one message towards the socket, through the links before this stage.
    ///
    /// # Errors
    /// As [`Context::write`](crate::Context::write).
    pub fn write(&mut self, message: M) -> Result {
        self.before.push(self.state, message)
    }

    /// Closes the channel after what was written is sent.
    pub fn close(&mut self) {
        self.state.request_close();
    }

    /// Closes the channel without sending what still waits.
    pub fn close_now(&mut self) {
        self.state.request_close_now();
    }

    /// Whether the channel takes writes.
    pub fn is_open(&self) -> bool {
        self.state.status.is_open()
    }

    /// Bytes that are encoded and not yet taken by the kernel.
    pub fn pending_bytes(&self) -> usize {
        self.state.pending_bytes()
    }

    /// The time of this turn, by the loop's clock, since the loop's start.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.state.now())
    }

    /// When bytes last came from the peer, as [`now`](StageContext::now) counts: when the channel was connected, if none did.
    pub fn last_read(&self) -> Duration {
        Duration::from_nanos(self.state.traffic.read)
    }

    /// When the kernel last took bytes of ours, as [`now`](StageContext::now) counts: when the channel was connected, if
    /// it took none.
    pub fn last_written(&self) -> Duration {
        Duration::from_nanos(self.state.traffic.written)
    }

    /// Values that are kept with the channel: what this stage has found out and others want to know.
    pub fn attributes(&self) -> &Attributes {
        self.state.extras.attributes()
    }

    /// As [`attributes`](StageContext::attributes), to keep some and change them.
    pub fn attributes_mut(&mut self) -> &mut Attributes {
        self.state.extras.attributes_mut()
    }

    /// Returns a random number of nanoseconds below `window`, to spread timers. It is drawn from the
    /// loop's generator, in [`active`](Stage::active) and [`timer`](Stage::timer) only: elsewhere it is
    /// zero.
    pub(crate) fn jitter(&self, window: u64) -> u64 {
        self.random.map_or(0, |random| random.below(window))
    }

    /// Has [`timer`](Stage::timer) called in `delay`, or before that if another stage of the channel asks for less. Never
    /// early for the stage that asks first; late by at most one tick of the loop's wheel plus the loop's lag. The channel
    /// keeps one time for all its stages, and forgets it when they are called.
    pub fn wake_after(&mut self, delay: Duration) {
        let now = self.state.now();
        self.state.wake_stages(now.saturating_add(nanos(delay)), now);
    }
}
