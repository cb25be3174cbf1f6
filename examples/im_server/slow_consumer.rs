//! What becomes of a client that does not read as fast as the others talk.
//!
//! Always holds: nobody else waits for it, and it is not left to guess: it is closed with a reason, or learns how many lines
//! it has missed. Settings only; the channel of each client does the work.

use clap::ValueEnum;
use netwheel::{ChannelOptions, Overflow, Result, buffer::WaterMark};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SlowConsumer {
    /// It misses the oldest messages that wait for it, and is told how many.
    Drop,
    /// It is told why, and closed.
    Close,
}

impl SlowConsumer {
    /// Of channels in which so many bytes may wait.
    ///
    /// # Errors
    /// If that is too little to have water marks below it.
    pub(crate) fn channel_options(self, max_outbound: usize) -> Result<ChannelOptions> {
        let overflow = match self {
            SlowConsumer::Drop => Overflow::DropOldest,
            // The session is told that there is no room, and says goodbye.
            SlowConsumer::Close => Overflow::Refuse,
        };
        let usual = WaterMark::default();
        // Who misses something has to pass the high mark first, and is told when it comes down to the low one.
        let mark = WaterMark::new(usual.low().min(max_outbound / 4), usual.high().min(max_outbound / 2))?;
        Ok(ChannelOptions::new().max_outbound(max_outbound).overflow(overflow).water_mark(mark))
    }
}
