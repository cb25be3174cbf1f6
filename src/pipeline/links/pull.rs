//! The inbound side of a link.

use crate::{
    Result,
    channel::{ChannelState, DecodePass},
    sync::Random,
};
use bytes::Bytes;

/// The inbound side of a link: produces messages from the available input.
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

    /// Passes an event to all stages in inbound order, also if one fails. Returns the first error.
    fn tell_stages(&mut self, state: &mut ChannelState, random: &Random, event: StageEvent) -> Result;

    /// Returns a key for the settings that the encoding depends on, or `None` if it depends on the
    /// channel.
    fn encoding_key(&self) -> Option<u64>;
}

/// The events of stages.
#[derive(Debug, Clone, Copy)]
pub enum StageEvent {
    /// The channel is connected.
    Active,
    /// A timer of a stage has expired.
    Timer,
}
