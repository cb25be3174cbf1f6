//! The stage trait: messages on both sides.

mod context;
mod tasks;

pub use context::StageContext;
pub(in crate::pipeline) use tasks::{PeriodicStageTask, StageTask};

use crate::error::{Error, Result};

/// Transforms messages between the codec and the handler, and may answer them itself.
///
/// A stage has a side towards the socket and a side towards the handler. The side towards the
/// socket faces the codec or the previous stage:
///
/// ```text
///   socket ◄─► codec ── ReadIn ──►  stage ── ReadOut ─► handler
///              codec ◄─ WriteOut ── stage ◄─ WriteIn ── handler
/// ```
///
/// One instance serves one channel. It is created, called and dropped on the channel's loop, so it
/// needs neither `Send` nor locks, and no callback may block.
///
/// # Events
/// Events pass through the stages in the order from the socket and reach the handler last. A stage
/// receives [`active`](Stage::active) first and [`inactive`](Stage::inactive) last. In between it
/// receives messages, [`read_complete`](Stage::read_complete),
/// [`writability_changed`](Stage::writability_changed), [`read_closed`](Stage::read_closed),
/// [`error`](Stage::error), [`timer`](Stage::timer) and [`shutdown`](Stage::shutdown) in any order.
/// If a callback fails, the event still reaches the links behind the stage. The first error then
/// goes to [`error`](Stage::error) of all stages, and to the handler.
///
/// Stages do not receive the handler's [`idle`](crate::Handler::idle).
///
/// # Authentication as a stage
/// This stage passes no message on until the peer has logged in. A worker thread checks the
/// password. Reading is paused in the meantime, so requests behind the login stay undecoded.
///
/// ```
/// use bytes::Bytes;
/// use netwheel::{Stage, StageContext, codec::Line, prelude::*};
/// use netwheel::testing::EmbeddedChannel;
///
/// #[derive(Default)]
/// struct Login {
///     user: Option<String>,
/// }
///
/// /// Looks up the user of a password in a database, which may block.
/// fn user_of(password: &[u8]) -> Option<String> {
///     (password == b"secret").then(|| "ann".into())
/// }
///
/// impl Stage for Login {
///     type ReadIn = Bytes;
///     type ReadOut = Bytes;
///     type WriteIn = Bytes;
///     type WriteOut = Bytes;
///
///     fn read(&mut self, ctx: &mut StageContext<'_, Self>, line: Bytes) -> Result<Option<Bytes>> {
///         if self.user.is_some() {
///             return Ok(Some(line));
///         }
///         ctx.pause_reading();
///         ctx.offload(
///             move || user_of(&line),
///             |me, ctx, user| {
///                 me.user = user?;
///                 if me.user.is_none() {
///                     ctx.write("wrong password".into())?;
///                     ctx.close();
///                     return Ok(());
///                 }
///                 ctx.resume_reading();
///                 ctx.write("welcome".into())
///             },
///         )?;
///         Ok(None)
///     }
///
///     fn write(&mut self, ctx: &mut StageContext<'_, Self>, line: Bytes) -> Result {
///         ctx.write(line)
///     }
/// }
///
/// # struct Echo;
/// # impl Handler for Echo {
/// #     type Read = Bytes;
/// #     type Write = Bytes;
/// #     fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result { ctx.write(line) }
/// # }
/// let pipeline = Pipeline::codec(Line::new()).stage(Login::default()).handler(Echo);
/// let mut channel = EmbeddedChannel::new(pipeline);
/// channel.write_inbound(b"secret\nhello\n")?;
/// assert!(channel.read_outbound().is_empty());
/// channel.run_pending();
/// assert_eq!(channel.read_outbound(), &b"welcome\nhello\n"[..]);
/// # Ok::<(), netwheel::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a stage",
    label = "not a stage",
    note = "implement `netwheel::Stage` for it"
)]
#[doc(alias = "ChannelDuplexHandler")]
#[doc(alias = "MessageToMessageCodec")]
#[allow(unused_variables, reason = "default methods ignore their arguments")]
pub trait Stage: Sized + 'static {
    /// The messages that the stage reads: those of the previous stage or the codec.
    type ReadIn: 'static;
    /// The messages that the stage passes on to the next stage or the handler.
    type ReadOut: 'static;
    /// The messages that the next stage or the handler writes to this stage.
    type WriteIn: 'static;
    /// The messages that the stage writes to the previous stage or the codec.
    type WriteOut: 'static;

    /// Handles an inbound message. Returns the message for the next stage or the handler, or `None`
    /// to pass nothing on.
    ///
    /// The stage may answer through `ctx`. To make several messages from one, return the first
    /// message here and the others from [`read_more`](Stage::read_more).
    ///
    /// # Errors
    /// An error goes to [`error`](Stage::error). Later messages are still read, unless that closes
    /// the channel.
    fn read(
        &mut self,
        ctx: &mut StageContext<'_, Self>,
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
    /// Messages queued in [`write`](Stage::write) are delivered with the next input. Messages
    /// queued in other callbacks and in tasks are delivered as soon as the channel may read.
    /// Messages queued after the end of the peer's stream are not delivered. Interruptions, limits
    /// and another pipeline work as for [`Codec::decode_more`](super::Codec::decode_more).
    ///
    /// ```
    /// use bytes::Bytes;
    /// use netwheel::{
    ///     Stage,
    ///     StageContext,
    ///     codec::LengthField,
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
    ///     fn read(&mut self, ctx: &mut StageContext<'_, Self>, frame: Bytes) -> Result<Option<Bytes>> {
    ///         self.0 = frame;
    ///         self.read_more(ctx)
    ///     }
    ///
    ///     fn has_more(&self) -> bool {
    ///         !self.0.is_empty()
    ///     }
    ///
    ///     fn read_more(&mut self, _: &mut StageContext<'_, Self>) -> Result<Option<Bytes>> {
    ///         let end = self.0.iter().position(|byte| *byte == b' ').unwrap_or(self.0.len());
    ///         let word = self.0.split_to(end);
    ///         self.0 = self.0.slice(self.0.len().min(1)..);
    ///         Ok(Some(word))
    ///     }
    ///
    ///     fn write(&mut self, ctx: &mut StageContext<'_, Self>, word: Bytes) -> Result {
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
    /// An error is handled like an error from [`read`](Stage::read). If 1,024 queued messages fail
    /// one after the other, while no byte is read and no message delivered, the channel closes.
    fn read_more(&mut self, ctx: &mut StageContext<'_, Self>) -> Result<Option<Self::ReadOut>> {
        Ok(None)
    }

    /// Handles an outbound message. Writes any number of messages to `ctx` for it: none, one or
    /// several.
    ///
    /// # Errors
    /// An error is returned to the writer of the message. Messages that were written to `ctx` for
    /// it are then taken back, but the state of the stage is not. So change the state after the
    /// last step that can fail, or restore it on an error. The stages towards the socket are not
    /// notified either: they count a message that was taken back as sent. A stage that writes
    /// several messages should therefore validate all of them before it writes the first one.
    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Self::WriteIn) -> Result;

    /// Estimates how many bytes will be sent for `message`, as
    /// [`Codec::encoded_len_hint`](super::Codec::encoded_len_hint) does. `next` estimates a message
    /// that this stage writes, so a stage that passes messages on unchanged returns
    /// `next(message)`. The default is `None`: unknown.
    fn encoded_len_hint(
        message: &Self::WriteIn,
        next: impl Fn(&Self::WriteOut) -> Option<usize>,
    ) -> Option<usize> {
        None
    }

    /// Returns a key for the settings that [`write`](Stage::write) depends on, as
    /// [`Codec::encoding_key`](super::Codec::encoding_key) does. The default is `None`: each
    /// channel encodes for itself.
    ///
    /// Return `None` if `write` does anything besides writing messages, for example if it keeps
    /// part of the message, closes the channel or sets a timer. A broadcast calls `write` for only
    /// one of many channels. If this concerns some messages only, `write` calls
    /// [`encode_alone`](StageContext::encode_alone) for those.
    fn encoding_key(&self) -> Option<u64> {
        None
    }

    /// Called when the channel is connected, before the handler's
    /// [`active`](crate::Handler::active). Does nothing by default.
    ///
    /// # Errors
    /// An error goes to [`error`](Stage::error).
    fn active(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        Ok(())
    }

    /// Called after the available input has been decoded, also if it contained no whole message.
    /// Does nothing by default.
    ///
    /// # Errors
    /// An error goes to [`error`](Stage::error).
    fn read_complete(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        Ok(())
    }

    /// Called when the channel has stopped being writable (`false`) or is writable again (`true`),
    /// before [`Handler::writability_changed`](crate::Handler::writability_changed), which
    /// describes when. Does nothing by default.
    ///
    /// # Errors
    /// An error goes to [`error`](Stage::error).
    fn writability_changed(&mut self, ctx: &mut StageContext<'_, Self>, writable: bool) -> Result {
        Ok(())
    }

    /// Called when the peer has ended its stream and everything before the end has been read. Does
    /// nothing by default.
    ///
    /// Called once, and only if the channel's
    /// [`half_close`](crate::channel::ChannelOptions::half_close) is on. Otherwise the channel
    /// closes at this point.
    ///
    /// # Errors
    /// An error goes to [`error`](Stage::error).
    fn read_closed(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        Ok(())
    }

    /// Called when a timer set with [`wake_after`](StageContext::wake_after) expires. Does nothing
    /// by default.
    ///
    /// All stages of a channel share one timer, so check the time and re-arm it.
    ///
    /// # Errors
    /// An error goes to [`error`](Stage::error).
    fn timer(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        Ok(())
    }

    /// Called when the event loop shuts down or the connection has reached its maximum age, before
    /// the handler's [`shutdown`](crate::Handler::shutdown). Does nothing by default.
    ///
    /// A stage whose protocol announces the end of a connection writes that here. Messages that the
    /// handler writes in its own `shutdown` follow.
    ///
    /// # Errors
    /// An error goes to [`error`](Stage::error).
    fn shutdown(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        Ok(())
    }

    /// Called when an error closes the channel, after the handler's
    /// [`error`](crate::Handler::error) and not if that has panicked. Does nothing by default.
    ///
    /// A stage whose protocol owes the peer an answer writes it here, if the handler has not. Not
    /// called if the connection is broken, after a time limit or an error of a filter, or if the
    /// channel closes without sending the rest.
    ///
    /// # Errors
    /// An error is ignored: the channel closes already.
    fn failed(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        Ok(())
    }

    /// Returns whether a message to the peer has begun whose rest is not written yet. The default
    /// is `false`.
    ///
    /// Called when the channel ends for another [cause](crate::channel::CloseCause) than `Clean`,
    /// and when it closes behind a peer that has ended its stream. It may be called repeatedly, and
    /// must not have effects. If it returns `true`, the connection is reset behind the bytes that
    /// are sent, and the filters send no end marks (TLS: `close_notify`). So a peer for which the
    /// end of the stream is the end of the message can tell that the rest is missing.
    fn has_unfinished_output(&self) -> bool {
        false
    }

    /// Called with each error of the channel, before the handler's
    /// [`error`](crate::Handler::error). Passes the error on by default.
    ///
    /// The error may come from the connection, from the codec, from any stage, or from the handler.
    /// It visits all stages in the order from the socket, wherever it comes from.
    ///
    /// Return `Ok` if the stage has handled the error: it then reaches neither the next stages nor
    /// the handler, and the channel stays open, unless the connection is broken or a callback
    /// panicked. Return an `Err` to pass on the same error or another one.
    ///
    /// ```
    /// # use netwheel::{Stage, StageContext, error::PeerError, prelude::*};
    /// # use bytes::Bytes;
    /// # struct Lenient;
    /// # impl Stage for Lenient {
    /// #     type ReadIn = Bytes;
    /// #     type ReadOut = Bytes;
    /// #     type WriteIn = Bytes;
    /// #     type WriteOut = Bytes;
    /// #     fn read(&mut self, _: &mut StageContext<'_, Self>, m: Bytes) -> Result<Option<Bytes>> {
    /// #         Ok(Some(m))
    /// #     }
    /// #     fn write(&mut self, ctx: &mut StageContext<'_, Self>, m: Bytes) -> Result { ctx.write(m) }
    /// /// Answers malformed messages, and passes all other errors on.
    /// fn error(&mut self, ctx: &mut StageContext<'_, Self>, error: Error) -> Result {
    ///     match error {
    ///         Error::Peer(PeerError::Malformed(_)) => ctx.write("bad request".into()),
    ///         error => Err(error),
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error goes to the next stage or the handler.
    fn error(&mut self, ctx: &mut StageContext<'_, Self>, error: Error) -> Result {
        Err(error)
    }

    /// Called when the channel is closed, before the handler's
    /// [`inactive`](crate::Handler::inactive). Does nothing by default.
    ///
    /// Writes fail from now on, and tasks are not run. Not called if the pipeline was
    /// [replaced](crate::Context::replace_pipeline): the stage is dropped instead.
    ///
    /// # Errors
    /// An error is logged.
    fn inactive(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        Ok(())
    }
}
