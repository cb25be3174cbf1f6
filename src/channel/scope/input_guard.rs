//! Input bytes that the program is still processing, and the pauses of reading that follow.
//!
//! The program controls reading with `set_auto_read` and `read`. Beside that setting there are two
//! flags that pause a channel which reads by itself. `ReadDemand::INPUT_HELD` is set while too much
//! of its input is being processed. `ReadDemand::OUTPUT_FULL` is set while it is not writable, with
//! `read_while_writable`. Both take effect between two messages.
//!
//! Invariants: above the high mark the channel pauses its reading, and below the low mark it
//! resumes. A guard that ends a pause has mail sent to the loop (`sync::HeldInput`). The program's
//! own setting is left alone. [`InputGuard`] may be dropped on any thread; pauses happen on the
//! loop.

use super::Scope;
use crate::channel::{
    handle::{ChannelShared, Mail},
    state::ReadDemand,
};
use std::{fmt, sync::Arc};

/// So many bytes of a channel's input that the program still works on; given back when this is dropped, on any thread.
///
/// From [`Scope::hold_input`]. Send it along with the work: to a queue, a database, another channel.
#[must_use = "what is dropped is not held"]
pub struct InputGuard {
    bytes: usize,
    shared: Arc<ChannelShared>,
}

impl<M> Scope<'_, M> {
    /// Says that the program will go on working on so many bytes of what this channel brought, until what is returned is
    /// dropped.
    ///
    /// Together with what is held already, if they are more than the high mark of
    /// [`ChannelOptions::inbound_mark`](crate::ChannelOptions::inbound_mark), the channel reads no more: not even the next message of
    /// this very read. It goes on by itself once less than the low mark is held. So a handler that gives its messages to
    /// slower threads takes no more from a peer than these can bear. A [`read`](Scope::read) that the program asks for is made all
    /// the same.
    ///
    /// ```
    /// # use netwheel::prelude::*;
    /// # use bytes::Bytes;
    /// # struct Store(std::sync::mpsc::Sender<(Bytes, netwheel::InputGuard)>);
    /// # impl Handler for Store {
    /// #   type Read = Bytes;
    /// #   type Write = Bytes;
    /// fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
    ///     let held = ctx.hold_input(message.len());
    ///     self.0.send((message, held)).map_err(Error::other) // the thread there drops both when it is done
    /// }
    /// # }
    /// ```
    pub fn hold_input(&mut self, bytes: usize) -> InputGuard {
        let shared = self.state.share(self.services, self.links.size_hint());
        if shared.holding.add(bytes, self.state.config.inbound_mark) {
            self.state.status.set(ReadDemand::INPUT_HELD);
            self.services.tally.reads_held += 1;
        }
        InputGuard { bytes, shared }
    }

    /// Pauses reading until what is returned is dropped, on any thread: not even the next message of this very read is
    /// delivered. What the program itself says about reading ([`set_auto_read`](Scope::set_auto_read)) is left alone.
    ///
    /// This is a [`hold_input`](Scope::hold_input) of one byte more than the high mark of
    /// [`ChannelOptions::inbound_mark`](crate::ChannelOptions::inbound_mark).
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
        self.hold_input(self.state.config.inbound_mark.high().saturating_add(1))
    }

    /// Bytes of this channel's input that the program still [holds](Scope::hold_input).
    pub fn held_bytes(&self) -> usize {
        self.state.shared.as_ref().map_or(0, |shared| shared.holding.bytes())
    }
}

impl InputGuard {
    /// How many bytes it stands for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for InputGuard {
    fn drop(&mut self) {
        let shared = &self.shared;
        if shared.holding.give_back(self.bytes, shared.inbound_mark) {
            // If the loop has ended, so has the channel.
            let _ = shared.outlet.deliver(shared.id.key, Mail::Released);
        }
    }
}

impl fmt::Debug for InputGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputGuard").field("channel", &self.shared.id).field("bytes", &self.bytes).finish()
    }
}
