//! Policies for a client that reads more slowly than messages arrive.
//!
//! Invariant: other clients never wait for it, and data loss is never silent. The client is either
//! closed with a reason, or is notified of the number of dropped lines. This file contains only
//! settings; the channel of each client applies them.

use clap::ValueEnum;
use netwheel::{
    Result,
    buffer::WaterMark,
    channel::{ChannelOptions, Overflow},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SlowConsumer {
    /// Drop the oldest queued messages, and report their number to the client.
    Drop,
    /// Send the reason, and close the connection.
    Close,
}

impl SlowConsumer {
    /// Returns the options of a channel that queues at most `max_outbound` bytes.
    ///
    /// # Errors
    /// Fails if `max_outbound` is too small for water marks below it.
    pub(crate) fn channel_options(self, max_outbound: usize) -> Result<ChannelOptions> {
        let overflow = match self {
            SlowConsumer::Drop => Overflow::DropOldest,
            // The session's `error` callback receives the failed write and sends the reason.
            SlowConsumer::Close => Overflow::Refuse,
        };
        let usual = WaterMark::default();
        // A client that misses messages has crossed the high mark first. It is notified when the
        // queue has drained to the low mark.
        let mark = WaterMark::new(usual.low().min(max_outbound / 4), usual.high().min(max_outbound / 2))?;
        Ok(ChannelOptions::new().max_outbound(max_outbound).overflow(overflow).water_mark(mark))
    }
}
