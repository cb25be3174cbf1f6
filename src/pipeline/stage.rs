//! The stage trait: messages on both sides.

use super::chain::Push;
use crate::{Result, channel::ChannelState};

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
    type In: 'static;
    /// What it hands on towards the handler.
    type Out: 'static;
    /// What the side of the handler writes.
    type WriteIn: 'static;
    /// What it writes towards the socket.
    type WriteOut: 'static;

    /// One message on its way in; `None` if it is swallowed, or answered through `ctx`.
    ///
    /// # Errors
    /// Goes to the handler's [`error`](crate::Handler::error); the messages behind it are still read unless
    /// that closes the channel.
    fn read(
        &mut self,
        ctx: &mut StageContext<'_, Self::WriteOut>,
        message: Self::In,
    ) -> Result<Option<Self::Out>>;

    /// One message on its way out; write what becomes of it to `ctx`.
    ///
    /// # Errors
    /// Returned to whoever wrote the message.
    fn write(&mut self, ctx: &mut StageContext<'_, Self::WriteOut>, message: Self::WriteIn) -> Result;
}

/// What a [`Stage`] may do: write towards the socket.
pub struct StageContext<'a, M> {
    pub(super) before: &'a mut dyn Push<M>,
    pub(super) state: &'a mut ChannelState,
}

impl<M> StageContext<'_, M> {
    /// Writes one message towards the socket, through the links before this stage.
    ///
    /// # Errors
    /// As [`Scope::write`](crate::Scope::write).
    pub fn write(&mut self, message: M) -> Result {
        self.before.push(self.state, message)
    }

    /// Closes the channel after what was written is sent.
    pub fn close(&mut self) {
        self.state.request_close();
    }
}
