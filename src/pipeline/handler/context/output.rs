//! Writing, flushing and closing.

use super::Context;
use crate::{
    channel::{CloseCause, Confirmation},
    error::Result,
    pipeline::handler::Handler,
    sync::Completion,
};

impl<H: Handler> Context<'_, H> {
    /// Writes a message.
    ///
    /// The message is encoded before this method returns. It is sent together with everything else
    /// that is written in this turn of the loop.
    ///
    /// ```
    /// # use netwheel::{codec::Line, prelude::*, testing::EmbeddedChannel};
    /// # struct Session;
    /// # impl Handler for Session {
    /// #   type Read = bytes::Bytes; type Write = bytes::Bytes;
    /// fn read(&mut self, ctx: &mut Context<'_, Self>, _: bytes::Bytes) -> Result {
    ///     ctx.write(ctx.id().to_string().into())
    /// }
    /// # }
    /// # let mut channel = EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(Session));
    /// # channel.write_inbound(b"who am I?\n")?;
    /// # assert!(channel.read_outbound().ends_with(b"\n"));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`Closed`](crate::Error::Closed) if the channel is closing.
    /// - [`Full`](crate::Error::Full) if more than `max_outbound` bytes would be pending. A write
    ///   is not refused for its size while the channel is [writable](Context::is_writable). With
    ///   another [`overflow`](crate::channel::ChannelOptions::overflow) policy messages are dropped
    ///   instead.
    /// - The error of a stage or of the codec.
    ///
    /// No part of a refused message is sent.
    #[inline]
    pub fn write(&mut self, message: H::Write) -> Result {
        if self.state.drops_messages() {
            return self.write_or_drop(message);
        }
        match self.links.push(self.state, self.services, message) {
            Ok(()) => {
                self.state.count_written(self.services);
                Ok(())
            }
            Err(error) => self.state.write_failed(self.services, error),
        }
    }

    /// Writes a message of a channel whose overflow policy drops messages. Not inlined, so that a
    /// handler of another channel does not pay for the boundaries of messages.
    #[inline(never)]
    fn write_or_drop(&mut self, message: H::Write) -> Result {
        self.state.before_write();
        match self.links.push(self.state, self.services, message) {
            Ok(()) => {
                self.state.after_write(self.services);
                Ok(())
            }
            Err(error) => self.state.write_failed(self.services, error),
        }
    }

    /// Writes a message, and returns a completion that resolves when the kernel has accepted the
    /// last byte.
    ///
    /// Completions complete in the order of the writes, on the channel's loop. A message that is
    /// encoded to no bytes completes in its turn. A completed write has not necessarily reached the
    /// peer. If the channel closes first, the completion fails with the error that closed the
    /// channel, or with [`Closed`](crate::Error::Closed) if there was none. A callback of the
    /// completion runs during the flush. What it requests through a handle of the channel runs
    /// later.
    ///
    /// # Errors
    /// [`Full`](crate::Error::Full) if the channel has 65,536 writes whose completions are pending.
    /// Otherwise the errors of [`write`](Context::write).
    pub fn write_tracked(&mut self, message: H::Write) -> Result<Completion> {
        self.state.outbound.may_confirm()?;
        self.write(message)?;
        let (confirmation, completion) = Confirmation::new(self.state.id().event_loop);
        self.state.note_unanswered();
        self.state.confirm(confirmation);
        Ok(completion)
    }

    /// Writes a message in the place of a waiting one with the same key (conflation), or behind all
    /// others if none waits.
    ///
    /// For state of which only the newest value counts: prices, positions, presence. A peer that
    /// reads slowly gets fewer values, and each is the newest one at that time. `key` names the
    /// value; keys belong to the channel, and all its writers share them.
    ///
    /// Without a backlog this is [`write`](Context::write). A channel has a backlog while the
    /// socket does not accept its pending bytes, or while 16 KiB are pending. The message then
    /// waits until a newer one with its key replaces it, or until it is sent. A replacement is sent
    /// in the turn of the replaced message, so it may precede messages that were written before it.
    /// The backlog holds one message per key, plus the messages that were pending when it began,
    /// and other messages.
    ///
    /// Some messages stay, and the newer one waits behind them:
    ///
    /// - messages of which the socket has accepted a part
    /// - messages that a filter has encoded, such as the records of TLS: at most 64 KiB
    /// - messages of codecs and stages without an
    ///   [`encoding_key`](crate::pipeline::Codec::encoding_key), because the peer may need them to
    ///   decode the next ones. An example is a WebSocket that compresses with context takeover.
    ///
    /// Replaced messages are counted (`messages_conflated`). They are part of `messages_written`.
    ///
    /// ```
    /// # use netwheel::{channel::ChannelOptions, codec::Line, prelude::*, testing::EmbeddedChannel};
    /// # use bytes::Bytes;
    /// # fn main() -> Result {
    /// let pipeline = Pipeline::codec(Line::new()).on_read(|ctx, price: Bytes| {
    ///     const PRICE: u64 = 1;
    ///     ctx.write_latest(PRICE, price)
    /// });
    /// let mut channel = EmbeddedChannel::new(pipeline);
    /// channel.set_outbound_room(Some(0)); // the peer does not read
    /// for price in [10, 11, 12, 13] {
    ///     channel.write_inbound(format!("{price}\n").as_bytes())?;
    /// }
    /// channel.set_outbound_room(None); // it reads again
    /// assert_eq!(channel.read_outbound(), "10\n13\n");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`write`](Context::write). The waiting message is then unchanged. A message
    /// fits if it is not longer than the waiting message.
    pub fn write_latest(&mut self, key: u64, message: H::Write) -> Result {
        self.state.before_write();
        match self.links.push_latest(self.state, self.services, key, message) {
            Ok(()) => {
                self.state.after_write_latest(self.services, key);
                Ok(())
            }
            Err(error) => self.state.write_failed(self.services, error),
        }
    }

    /// Like [`write_latest`](Context::write_latest), but returns a completion as
    /// [`write_tracked`](Context::write_tracked) does. It fails with
    /// [`Conflated`](crate::Error::Conflated) if a newer message replaces this one.
    ///
    /// The completion of a replacement takes the turn of the replaced message.
    ///
    /// # Errors
    /// The errors of [`write_tracked`](Context::write_tracked).
    pub fn write_tracked_latest(&mut self, key: u64, message: H::Write) -> Result<Completion> {
        self.state.outbound.may_confirm()?;
        self.write_latest(key, message)?;
        let (confirmation, completion) = Confirmation::new(self.state.id().event_loop);
        self.state.note_unanswered();
        self.state.confirm_latest(key, confirmation);
        Ok(completion)
    }

    /// Sends the written messages as soon as this callback returns.
    ///
    /// Without a flush they are sent when the bytes of the current read have been delivered, or at
    /// the end of the turn outside of [`read`](Handler::read).
    ///
    /// [`writability_changed`](Handler::writability_changed) is called during a flush. A flush that
    /// it requests is part of that one. Bytes beyond its share
    /// ([`writes_per_turn`](crate::channel::ChannelOptions::writes_per_turn)) are sent at the end
    /// of the turn, or in the next one.
    pub fn flush(&mut self) {
        self.state.request_flush();
    }

    /// Shuts down the write half after the outbound buffer has been flushed.
    ///
    /// The peer sees the end of the stream behind the messages that were written before. Writes
    /// fail with [`Closed`](crate::Error::Closed) from now on. Reading continues, and the channel
    /// closes when the peer ends its stream too.
    pub fn shutdown_write(&mut self) {
        self.state.request_end_of_output();
    }

    /// Closes the channel after the outbound buffer has been flushed, at most `close_timeout`
    /// later.
    ///
    /// No message is read after this, and further input is discarded. `inactive` is called at the
    /// end of the turn in which everything is sent, never from within this call. The socket then
    /// [lingers](crate::group::EventLoopGroupBuilder::max_lingering) until the peer has read
    /// everything.
    pub fn close(&mut self) {
        self.state.request_close(CloseCause::Clean);
    }

    /// Writes a last message and closes the channel as [`close`](Context::close) does.
    ///
    /// The message is accepted even if the outbound buffer is full. Use it to send the reason to a
    /// peer that does not keep up. The peer receives it if it takes the pending bytes within the
    /// `close_timeout`.
    ///
    /// # Errors
    /// [`Closed`](crate::Error::Closed) if the channel is closing already, or the error of a stage
    /// or of the codec. The channel closes in any case.
    pub fn close_with(&mut self, message: H::Write) -> Result {
        self.state.outbound.lift_limit();
        let written = self.write(message);
        self.close();
        written
    }

    /// Closes the channel without sending the pending bytes.
    pub fn close_now(&mut self) {
        self.state.request_close_now(CloseCause::Cut);
    }

    /// Closes the channel at once with a reset, so that the peer sees an error instead of the end
    /// of the stream. A relay does this when its other connection has failed.
    ///
    /// Drops the unsent bytes, also those in the kernel's send buffer. Unix sockets do not support
    /// resets; there this is [`close_now`](Context::close_now).
    pub fn reset(&mut self) {
        self.state.request_reset(CloseCause::Reset);
    }
}
