//! The inbound side of a link.

use crate::{
    Result,
    channel::{ChannelState, DecodePass},
    sync::Random,
};
use bytes::Bytes;

/// Inward: the next message, if the bytes at hand make one.
pub trait Pull: 'static {
    /// The message.
    type Item: 'static;

    /// Takes one message: a queued message of a link, or the next message in `input`. There is one
    /// or the other, unless it is the `LAST` pass: the peer has ended its stream.
    fn pull<const LAST: bool>(
        &mut self,
        state: &mut ChannelState,
        input: &mut Bytes,
        pass: &mut DecodePass,
    ) -> Result<Option<Self::Item>>;

    /// Returns whether a link has queued messages.
    fn has_more(&self) -> bool;

    /// Tells the stages of something, in the order in which messages come in: all of them, also if
    /// one fails. The first error is returned.
    fn tell_stages(&mut self, state: &mut ChannelState, random: &Random, event: StageEvent) -> Result;

    /// What stands for the settings that the encoding depends on; none if it depends on the
    /// channel.
    fn shared_encoding(&self) -> Option<u64>;
}

/// What stages are told beside messages.
#[derive(Debug, Clone, Copy)]
pub enum StageEvent {
    /// The channel is connected.
    Active,
    /// A time has come for which one of them asked.
    Timer,
}
