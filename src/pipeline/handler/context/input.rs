//! Reading and its pauses.

use super::Context;
use crate::{
    channel::{IdleEvent, IdleState, InputGuard},
    pipeline::handler::Handler,
};

impl<H: Handler> Context<'_, H> {
    /// Returns whether bytes are read as they arrive.
    pub fn auto_read(&self) -> bool {
        self.state.status.auto_read()
    }

    /// Sets whether bytes are read as they arrive, or only when [`read`](Context::read) requests
    /// it.
    ///
    /// `false` takes effect before the next message, also within one read. Bytes that are not
    /// decoded yet are kept.
    pub fn set_auto_read(&mut self, on: bool) {
        self.state.let_read(self.services.now, |status| status.set_auto_read(on));
    }

    /// Requests one read while auto-read is off.
    ///
    /// Delivers the messages of the next bytes, which may have arrived already. With
    /// [`one_message_per_read`](crate::channel::ChannelOptions::one_message_per_read) it delivers
    /// one message. The request stays pending until at least one message has been delivered. Within
    /// a callback it counts for the input behind that callback. Two requests before a delivery are
    /// one. The end of the stream is read like bytes, so it waits for a request too.
    pub fn read(&mut self) {
        self.state.let_read(self.services.now, |status| status.want_read());
    }

    /// Holds `bytes` of the channel's input until the returned guard is dropped.
    ///
    /// While more bytes are held than the high mark of
    /// [`ChannelOptions::inbound_mark`](crate::channel::ChannelOptions::inbound_mark), the channel
    /// does not read, not even the next message of the current read. It resumes when less than the
    /// low mark is held. So a handler that passes messages to slower threads takes no more from a
    /// peer than these threads can process. A [`read`](Context::read) that the program requests is
    /// not held up.
    ///
    /// ```
    /// # use netwheel::prelude::*;
    /// # use bytes::Bytes;
    /// # struct Store(std::sync::mpsc::Sender<(Bytes, netwheel::channel::InputGuard)>);
    /// # impl Handler for Store {
    /// #   type Read = Bytes;
    /// #   type Write = Bytes;
    /// fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
    ///     let held = ctx.hold_input(message.len());
    ///     self.0.send((message, held)).map_err(Error::other) // the receiver drops both when it is done
    /// }
    /// # }
    /// ```
    pub fn hold_input(&mut self, bytes: usize) -> InputGuard {
        self.state.hold_input(self.services, bytes, self.links.size_hint())
    }

    /// Pauses reading until the returned guard is dropped, on any thread.
    ///
    /// Not even the next message of the current read is delivered. The setting of
    /// [`set_auto_read`](Context::set_auto_read) stays as it is. This is a
    /// [`hold_input`](Context::hold_input) of one byte more than the high mark of
    /// [`ChannelOptions::inbound_mark`](crate::channel::ChannelOptions::inbound_mark).
    ///
    /// ```
    /// # use netwheel::prelude::*;
    /// # use bytes::Bytes;
    /// # struct Forward { target: Channel<Bytes> }
    /// # impl Handler for Forward {
    /// #   type Read = Bytes;
    /// #   type Write = Bytes;
    /// fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
    ///     self.target.write(message)?;
    ///     if !self.target.is_writable() {
    ///         let paused = ctx.pause_reading();
    ///         self.target.writable().on_complete(move |_| drop(paused));
    ///     }
    ///     Ok(())
    /// }
    /// # }
    /// ```
    pub fn pause_reading(&mut self) -> InputGuard {
        self.hold_input(self.state.pausing_bytes())
    }

    /// Returns the number of input bytes that the program [holds](Context::hold_input).
    pub fn held_bytes(&self) -> usize {
        self.state.held_bytes()
    }

    /// Returns whether the channel reads and the peer may still send: reading is not paused, and
    /// the peer has not ended its stream.
    ///
    /// A peer that cannot send, or need not, is not idle. The default [`idle`](Handler::idle)
    /// method checks this before it closes the channel for reader idleness. A method of your own
    /// should too.
    pub fn expects_input(&self) -> bool {
        self.state.may_read() && !self.has_all_input()
    }

    /// Returns whether an idle event ends the channel, unless the handler decides otherwise. The
    /// peer must be able to send. Output alone, or a pause of reading, does not end a channel.
    pub(crate) fn ends_when_idle(&self, event: IdleEvent) -> bool {
        match event.state {
            IdleState::Reader => self.expects_input(),
            IdleState::All => self.expects_input() || self.has_all_input(),
            IdleState::Writer => false,
        }
    }

    /// Returns whether the peer has ended its stream.
    fn has_all_input(&self) -> bool {
        self.state.status.input_ended()
    }
}
